"""Two hpads on one cluster: one leads, the other stands by, and no rescale is done twice."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from e2e.conftest import AT_LAST

from hpad import settings
from hpad.api.metadata import Key
from hpad.daemon import app
from hpad.kube.client import Client
from hpad.kube.events import EventRecorder
from hpad.settings.model import Election

QUICK = Election(
    enabled=True,
    lease_duration=timedelta(seconds=240),
    renew_deadline=timedelta(seconds=160),
    retry_period=timedelta(seconds=0.2),
)
"""A Lease so long that a takeover after its expiry cannot be mistaken for a handoff, even on a slow machine."""
Recovered = Callable[[float, str], None]
FLAGS = (
    "--leader-elect",
    "--leader-elect-lease-duration=10s",
    "--leader-elect-renew-deadline=8s",
    "--leader-elect-retry-period=200ms",
)


def scaled(world: Any) -> int:
    """Returns the number of writes of scales."""
    return sum(write.subresource == "scale" and write.status == 200 for write in world.cluster.log.writes)


def holder(world: Any) -> str:
    found = world.cluster.get("leases", "hpad", "kube-system")
    return found["spec"]["holderIdentity"] if found is not None else ""


def now() -> float:
    return asyncio.get_running_loop().time()


def leads(daemon: app.App) -> bool:
    coordinator = daemon.components.coordinator
    return coordinator is not None and coordinator.owner.leading


async def test_one_replica_leads_and_the_other_is_ready_and_takes_over(world: Any, recovered: Recovered) -> None:
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    first = await world.hpad(election=QUICK)
    await world.until(lambda: leads(first))
    second = await world.hpad(election=QUICK, listen=("127.0.0.1", 0))
    await world.until(lambda: world.replicas("deployments", "web") == 10)
    await world.until(lambda: second.status() == "Standing by: another leads")  # it has looked at the Lease
    await world.periods(4)
    assert scaled(world) == 1
    assert not leads(second)
    assert second.status() == "Standing by: another leads"
    assert second.components.decisions.last(Key("default", "web")) is None
    async with aiohttp.ClientSession(trust_env=False) as session:
        async with session.get(f"{second.server.url}/readyz") as answer:
            assert answer.status == 200
        async with session.get(f"{second.server.url}/metrics") as answer:
            assert 'leader_election_master_status{name="hpad"} 0.0' in await answer.text()
    before = holder(world)
    await first.stop()
    assert holder(world) != before  # released; the other replica may already hold it
    started = now()
    world.workload("Deployment", "web", 15)
    await world.until(lambda: world.replicas("deployments", "web") == 10, QUICK.lease_duration.total_seconds() / 2)
    recovered(now() - started, "a leader that stopped in good order")
    assert leads(second)
    assert scaled(world) == 2
    await second.stop()
    messages = [event["message"].split()[1:] for event in world.cluster.list("events", "kube-system")]
    assert messages == [["became", "leader"], ["stopped", "leading"]] * 2


async def test_every_write_of_a_leader_asks_for_its_lease(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[Client, str, float | None]] = []
    request = Client.request

    async def noted(self: Client, method: str, path: str, **options: Any) -> bytes:
        if options.get("body") is not None:
            allowed = options.get("allowed")
            sent.append((self, path.split("/")[-1], allowed and allowed()))
        return await request(self, method, path, **options)

    monkeypatch.setattr(Client, "request", noted)
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    leader = await world.hpad(election=QUICK, store=settings.StoreSettings(kind="cluster"))
    await world.until(lambda: world.events("web") and world.cluster.list("configmaps", "kube-system"))
    await leader.stop()
    writes = [(name, left) for client, name, left in sent if client is leader.components.api]
    assert {"scale", "status", "events", "configmaps"} <= {name for name, _ in writes}
    assert [each for each in writes if not 0 < (each[1] or 0) <= QUICK.renew_deadline.total_seconds()] == []


async def test_the_last_event_is_written_before_the_lease_is_released(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = asyncio.Event()
    request, flush = Client.request, EventRecorder.flush

    async def held(self: Client, method: str, path: str, **options: Any) -> bytes:
        if path.endswith("default/events"):
            await stopping.wait()
        return await request(self, method, path, **options)

    async def flushed(self: EventRecorder, seconds: float) -> None:
        stopping.set()
        await flush(self, seconds)

    monkeypatch.setattr(Client, "request", held)
    monkeypatch.setattr(EventRecorder, "flush", flushed)
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    leader = await world.hpad(election=QUICK)
    await world.until(lambda: world.status("web").get("lastScaleTime"))
    assert world.events("web") == []
    await leader.stop()
    assert "SuccessfulRescale" in dict(world.events("web"))


async def readiness(daemon: Any) -> tuple[int, str]:
    path = f"{daemon.server.url}/readyz"
    async with aiohttp.ClientSession(trust_env=False) as session, session.get(path) as answer:
        return answer.status, await answer.text()


async def test_a_replica_that_cannot_access_the_lease_is_not_ready(world: Any) -> None:
    """Such a replica is not ready, so that a rollout stops; once it was ready, it stays ready."""
    election = msgspec.structs.replace(QUICK, namespace="absent")
    daemon = await world.hpad(election=election, listen=("127.0.0.1", 0))
    await world.until(daemon.problems)
    (trouble,) = daemon.problems()
    assert trouble == 'the Lease absent/hpad cannot be acquired or renewed: namespaces "absent" not found'
    assert daemon.status() == f"Standing by: no holder of the Lease absent/hpad is known; {trouble}"
    assert await readiness(daemon) == (503, f"{trouble}\n")
    world.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "absent"}})
    await world.until(lambda: leads(daemon))
    assert daemon.problems() == []
    assert await readiness(daemon) == (200, "ok\n")
    world.cluster.faults.add(path="leases", times=None, status=403)
    await world.until(daemon.problems)
    assert await readiness(daemon) == (200, "ok\n")
    world.cluster.faults.clear()
    await world.until(lambda: leads(daemon) and not daemon.problems())


async def test_a_dry_run_does_not_take_part_in_the_election(world: Any) -> None:
    daemon = await world.hpad(election=QUICK, dry_run=True)
    await world.periods(2)
    assert daemon.components.coordinator is None
    assert holder(world) == ""


@contextlib.asynccontextmanager
async def process(
    kubeconfig: Path, log: Path, config: Path | None = None, *, period: str = "4s"
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs hpad as a process, and stops it with SIGTERM.

    A pause of the machine for a whole `period` may end a turn after its write was sent, and the next turn writes again.
    """
    flags = [f"--kubeconfig={kubeconfig}", f"--sync-period={period}", "--listen=none", "--log-format=json", *FLAGS]
    flags += [] if config is None else [f"--config={config}"]
    with log.open("wb") as stderr:
        started = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hpad", "run", *flags), stderr=stderr, env={**os.environ}
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.send_signal(signal.SIGCONT)
            started.send_signal(signal.SIGTERM)
        async with asyncio.timeout(AT_LAST):
            await started.wait()


def logged(log: Path, text: str) -> int:
    """Returns the number of complete log lines whose event starts with a text."""
    *lines, _ = log.read_text(encoding="utf-8").split("\n")
    return sum(json.loads(line)["event"].startswith(text) for line in lines)


async def test_a_paused_and_resumed_leader_writes_nothing(world: Any, tmp_path: Path, recovered: Recovered) -> None:
    """SIGSTOP lasts longer than the lease duration; meanwhile the other replica takes over and scales."""
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    kubeconfig = await world.cluster.kubeconfig(tmp_path / "kubeconfig")
    logs = tmp_path / "first.log", tmp_path / "second.log"
    async with process(kubeconfig, logs[0]) as first:
        await world.until(lambda: world.replicas("deployments", "web") == 10)
        before = holder(world)
        async with process(kubeconfig, logs[1]):
            await world.until(lambda: logged(logs[1], "standing for election"))
            first.send_signal(signal.SIGSTOP)
            stopped = now()
            world.workload("Deployment", "web", 15)
            await world.until(lambda: world.replicas("deployments", "web") == 10)
            recovered(now() - stopped, "a leader that was stopped (SIGSTOP), with a lease of 10 s")
            after = holder(world)
            assert after not in ("", before)
            first.send_signal(signal.SIGCONT)
            resumed = now()
            await world.until(lambda: logged(logs[0], "stopped leading"))
            recovered(now() - resumed, "a resumed leader that stops leading")
            world.workload("Deployment", "web", 15)
            await world.until(lambda: world.replicas("deployments", "web") == 10)
            await asyncio.sleep(1.5)
            assert holder(world) == after
            assert scaled(world) == 3
    # On a busy machine a turn may be given up between the write and its line.
    assert (logged(logs[0], "scale web") in (0, 1), logged(logs[1], "scale web") in (1, 2)) == (True, True)


async def test_a_killed_leader_is_replaced(world: Any, tmp_path: Path, recovered: Recovered) -> None:
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    kubeconfig = await world.cluster.kubeconfig(tmp_path / "kubeconfig")
    async with process(kubeconfig, tmp_path / "first.log") as first:
        await world.until(lambda: world.replicas("deployments", "web") == 10)
        async with process(kubeconfig, tmp_path / "second.log"):
            await world.until(lambda: logged(tmp_path / "second.log", "standing for election"))
            first.kill()
            killed = now()
            await first.wait()
            world.workload("Deployment", "web", 15)
            await world.until(lambda: world.replicas("deployments", "web") == 10)
            recovered(now() - killed, "a leader that was killed, with a lease of 10 s")
            await asyncio.sleep(1.5)
            assert world.replicas("deployments", "web") == 10
            assert scaled(world) == 2
