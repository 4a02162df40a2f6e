"""Leader election at the embedded API server: the Lease, its events, faults of the server. Under virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from support import virtual_time
from support.virtual_time import now, until

from hpad.election import lease
from hpad.election.leader import Leader
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.client import Client
from hpad.kube.events import EventRecorder
from hpad.lab.cluster import Cluster
from hpad.settings.model import Election
from hpad.telemetry import Telemetry

GRACE = 0.02


@contextlib.asynccontextmanager
async def standing(cluster: Cluster, name: str, election: Election) -> AsyncIterator[Leader]:
    clock = cluster.clock
    async with Client(ClusterConfig(cluster.url), clock, user_agent=name) as client:
        events = EventRecorder(client, component=election.name)
        elector = lease.Elector(client, election, identity=name, recorder=events)
        leader = Leader(elector, election, Telemetry(), clock)
        writing, running = asyncio.create_task(events.run()), asyncio.create_task(leader.run())
        try:
            yield leader
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await events.flush(60)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


def on_a_cluster(check: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with Cluster(kubelet=False, controllers=False, clock=virtual_time.VirtualClock()) as cluster:
            await check(cluster)

    virtual_time.run(main(), io_grace=GRACE)


def test_one_leads_the_other_stands_by_and_events_report_it() -> None:
    async def check(cluster: Cluster) -> None:
        election = Election(enabled=True, name="kube-controller-manager")
        async with standing(cluster, "second", election) as second:
            await until(lambda: second.leading, 20, every=1)
            async with standing(cluster, "third", election) as third:
                await asyncio.sleep(30)
                assert second.leading
                assert not third.leading
        events = cluster.list("events")
        assert [event["message"] for event in events] == ["second became leader", "second stopped leading"]
        stored = cluster.get("leases", "kube-controller-manager", "kube-system")
        assert stored is not None
        assert stored["spec"]["holderIdentity"] == ""

    on_a_cluster(check)


def test_the_event_equals_the_one_of_client_go(recorded: Any) -> None:
    written = recorded("client_go/create_events_201_LeaderElection")["request"]["body"]
    identity = written["message"].split()[0]

    async def check(cluster: Cluster) -> None:
        election = Election(enabled=True, name="kube-controller-manager")
        async with standing(cluster, identity, election) as leader:
            await until(lambda: leader.leading, 20, every=1)
            await until(lambda: cluster.list("events"), 20, every=1)
        event = cluster.list("events")[0]
        varying = ("firstTimestamp", "lastTimestamp", "metadata", "involvedObject")
        assert {name: event[name] for name in written if name not in varying} == {
            name: value for name, value in written.items() if name not in varying
        }
        stored = cluster.get("leases", "kube-controller-manager", "kube-system")
        assert stored is not None
        about = event["involvedObject"]
        assert about["uid"] == stored["metadata"]["uid"]
        assert set(about) == set(written["involvedObject"])
        assert (about["kind"], about["apiVersion"]) == ("Lease", "coordination.k8s.io/v1")

    on_a_cluster(check)


@pytest.mark.parametrize("fault", [{"status": 500}, {"delay": 600.0}, {"reset": True}])
def test_without_the_api_server_leading_ends_in_time_and_resumes_when_it_is_back(fault: dict[str, Any]) -> None:
    async def check(cluster: Cluster) -> None:
        async with standing(cluster, "only", Election(enabled=True)) as leader:
            changes: list[tuple[float, bool]] = []
            leader.subscribe(lambda: changes.append((now(), leader.leading)))
            await asyncio.sleep(20)
            cluster.faults.add(path="leases", times=None, **fault)
            began = now()
            await asyncio.sleep(60)
            (_, led), (ended, still) = changes
            assert (led, still) == (True, False)
            assert ended - began <= 10.1
            cluster.faults.clear()
            await asyncio.sleep(20)
            assert leader.leading

    on_a_cluster(check)
