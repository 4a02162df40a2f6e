"""One candidate and one Lease: what is written, whom it respects and for how long, and what goes wrong."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support import virtual_time
from support.scripted_server import Script, SkippingClock, failure, says

from hpad.election import lease, members
from hpad.kube import errors
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.client import Client
from hpad.lab.cluster import Cluster
from hpad.settings.model import Election, election_problems

ELECTION = Election(enabled=True)
NOW = datetime(2026, 11, 20, 16, 23, 49, 440524, tzinfo=UTC)
GRACE = 0.02
Read = Callable[[str], Any]


def spec(holder: str = "other", seconds: int | None = 15, transitions: int = 3) -> dict[str, Any]:
    found = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": transitions}
    times = {"acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {**{name: value for name, value in found.items() if value is not None}, **times}


def object_of(body: dict[str, Any], version: str = "7") -> dict[str, Any]:
    metadata = {"name": "hpad", "namespace": "kube-system", "uid": "u", "resourceVersion": version}
    return {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "spec": body}


class ToldClock(SkippingClock):
    """The wall clock says what it is told."""

    wall = NOW

    def now(self) -> datetime:
        return self.wall


# --- What is written ---


async def test_writes_what_client_go_writes(script: Script, recorded: Read) -> None:
    """Field for field and at the same paths: the first Lease, and two renewals."""
    created = recorded("client_go/create_leases_201")
    renewed = [recorded(f"client_go/update_leases_200{suffix}") for suffix in ("", "_2")]
    for exchange in (created, *renewed):
        path = exchange["request"]["path"].partition("?")[0]
        script.on(exchange["request"]["method"], path, says(exchange["body"], exchange["status"]))
    identity = created["request"]["body"]["spec"]["holderIdentity"]
    told, clock = Election(name="kube-controller-manager"), ToldClock()
    async with Client(ClusterConfig(script.url), clock) as client:
        elector = lease.Elector(client, told, identity=identity)
        for exchange in (created, *renewed):
            text = exchange["request"]["body"]["spec"]["renewTime"]
            clock.wall = datetime.fromisoformat(text)
            assert await elector.attempt() is not None
    assert [json.loads(body) for body in script.bodies if body] == [
        exchange["request"]["body"] for exchange in (created, *renewed)
    ]
    assert all(query == {"timeout": "5s"} for _, _, query in script.asked)


async def test_respects_and_then_takes_over_a_lease_as_recorded(
    script: Script, client: Client, clock: SkippingClock, recorded: Read
) -> None:
    held = recorded("lease/lease_held")
    script.on("GET", held["request"]["path"], says(held["body"]))
    script.on("PUT", held["request"]["path"], says(failure(500, "InternalError", "not today"), 500))
    elector = lease.Elector(client, Election(name="kube-controller-manager"), identity="me")
    assert await elector.attempt() is None
    assert elector.holder == held["body"]["spec"]["holderIdentity"]
    clock.skipped += 10  # the clock goes on meanwhile, and the machine may be busy
    assert await elector.attempt() is None
    clock.skipped += 5.1
    with pytest.raises(errors.ApiError, match="not today"):
        await elector.attempt()


def test_a_claim_of_anothers_lease_counts_a_transition_and_keeps_what_it_does_not_know() -> None:
    claim = lease.claim_spec({**spec(), "strategy": "OldestEmulationVersion"}, "me", ELECTION, NOW)
    assert claim == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-20T16:23:49.440524Z",
        "renewTime": "2026-11-20T16:23:49.440524Z",
        "leaseTransitions": 4,
        "strategy": "OldestEmulationVersion",
    }


def test_a_renewal_keeps_when_and_how_often() -> None:
    claim = lease.claim_spec(spec("me"), "me", ELECTION, NOW)
    assert claim == {**spec("me"), "renewTime": "2026-11-20T16:23:49.440524Z"}


def test_a_whole_second_is_written_with_its_microseconds() -> None:
    assert lease.micro_time(NOW.replace(microsecond=0)) == "2026-11-20T16:23:49.000000Z"


def test_identities_differ() -> None:
    assert lease.identity() != lease.identity()
    assert lease.identity().count("_") >= 1


# --- Whom it respects ---


def test_another_is_respected_for_its_own_duration_since_it_was_last_seen_to_change() -> None:
    held = lease.observe(None, spec(seconds=30), 100.0)
    assert lease.observe(held, spec(seconds=30), 120.0) == held
    assert lease.held_by_other(held, "me", ELECTION, 129.9)
    assert not lease.held_by_other(held, "me", ELECTION, 130.0)
    renewed = lease.observe(held, {**spec(seconds=30), "renewTime": "1999-01-01T00:00:00.000000Z"}, 129.0)
    assert lease.held_by_other(renewed, "me", ELECTION, 158.9)


def test_a_lease_without_duration_is_respected_for_ours() -> None:
    held = lease.observe(None, spec(seconds=None), 0.0)
    assert lease.held_by_other(held, "me", ELECTION, 14.9)
    assert not lease.held_by_other(held, "me", ELECTION, 15.0)


def test_nobody_and_ourselves_are_not_respected() -> None:
    assert not lease.held_by_other(None, "me", ELECTION, 0.0)
    assert not lease.held_by_other(lease.observe(None, spec("me"), 0.0), "me", ELECTION, 0.0)
    given_up = lease.release_spec(spec(), NOW)
    assert not lease.held_by_other(lease.observe(None, given_up, 0.0), "me", ELECTION, 0.0)
    assert (given_up["holderIdentity"], given_up["leaseDurationSeconds"]) == ("", 1)
    assert given_up["leaseTransitions"] == 3


def test_a_lease_that_makes_no_sense_is_an_error() -> None:
    with pytest.raises(errors.ApiError, match="makes no sense"):
        lease.observe(None, {**spec(), "leaseDurationSeconds": "a while"}, 0.0)


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ((15, 10, 2), []),
        ((10, 10, 2), ["lease_duration: 10s is not more than the renew deadline of 10s"]),
        ((15, 10, 9), ["renew_deadline: 10s is not more than 1.2 times the retry period of 9s"]),
        ((1.5, 1, 0.5), ["lease_duration: 1.5s is not a whole number of seconds"]),
    ],
)
def test_figures_are_judged_as_by_client_go(figures: tuple[float, float, float], words: list[str]) -> None:
    names = ("lease_duration", "renew_deadline", "retry_period")
    told = Election(**{name: timedelta(seconds=value) for name, value in zip(names, figures, strict=True)})
    found = election_problems(told)
    assert len(found) == len(words)
    assert all(f"{field}: {text}".startswith(start) for (field, text), start in zip(found, words, strict=True))


# --- Against an API server ---


class Stage:
    """An embedded API server under virtual time, and candidates of one Lease."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.me = lease.Elector(client, ELECTION, identity="me")
        self.other = lease.Elector(client, ELECTION, identity="other")

    @property
    def held(self) -> dict[str, Any]:
        found = self.cluster.get("leases", "hpad", "kube-system")
        assert found is not None
        return found["spec"]

    def edit(self, **fields: Any) -> None:
        """Somebody else writes fields of the Lease."""
        found = self.cluster.get("leases", "hpad", "kube-system")
        assert found is not None
        self.cluster.apply({**found, "spec": {**found["spec"], **fields}})

    def label(self) -> None:
        head = {"name": "hpad", "namespace": "kube-system", "labels": {"seen": "yes"}}
        self.cluster.apply({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": head})


def staged(play: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        clock = virtual_time.VirtualClock()
        async with (
            Cluster(kubelet=False, controllers=False, clock=clock) as cluster,
            Client(ClusterConfig(cluster.url), clock) as client,
        ):
            await play(Stage(cluster, client))

    virtual_time.run(main(), io_grace=GRACE)


def test_a_renewal_is_one_request() -> None:
    async def play(stage: Stage) -> None:
        assert await stage.me.attempt()
        stage.cluster.log.clear()
        for _ in range(5):
            assert await stage.me.attempt()
        assert dict(stage.cluster.log.requests) == {("update", "leases", ""): 5}
        assert stage.held["leaseTransitions"] == 0
        assert stage.me.slow_renewals == 0

    staged(play)


def test_a_lease_changed_by_a_bystander_is_read_again_and_kept() -> None:
    async def play(stage: Stage) -> None:
        await stage.me.attempt()
        acquired = stage.held["acquireTime"]
        stage.label()
        assert await stage.me.attempt()
        assert stage.me.slow_renewals == 1
        assert (stage.held["holderIdentity"], stage.held["acquireTime"]) == ("me", acquired)
        found = stage.cluster.get("leases", "hpad", "kube-system")
        assert found is not None
        assert found["metadata"]["labels"] == {"seen": "yes"}

    staged(play)


def test_a_holder_that_was_replaced_learns_it() -> None:
    async def play(stage: Stage) -> None:
        await stage.me.attempt()
        stage.edit(holderIdentity="other")
        assert await stage.me.attempt() is None
        assert stage.me.holder == "other"

    staged(play)


def test_of_two_that_create_the_lease_at_once_the_slower_one_learns_who_won() -> None:
    async def play(stage: Stage) -> None:
        stage.cluster.faults.add(method="POST", delay=1)
        began = stage.client.clock.monotonic()
        first = asyncio.create_task(stage.me.attempt())
        await stage.client.clock.sleep(0.5)
        assert await stage.other.attempt()
        assert await first is None
        assert stage.me.holder == "other"
        assert stage.client.clock.monotonic() - began < 5

    staged(play)


def test_the_moment_of_a_claim_is_before_the_request_was_sent() -> None:
    async def play(stage: Stage) -> None:
        stage.cluster.faults.add(method="POST", delay=3)
        began = stage.client.clock.monotonic()
        moment = await stage.me.attempt()
        assert moment is not None
        assert moment.monotonic <= began + 0.5
        assert stage.client.clock.monotonic() >= began + 3

    staged(play)


def test_an_api_server_that_hangs_is_given_up_after_half_the_renew_deadline() -> None:
    async def play(stage: Stage) -> None:
        stage.cluster.faults.add(delay=600, times=None)
        began = stage.client.clock.monotonic()
        with pytest.raises(errors.ApiError):
            await stage.me.attempt()
        assert 5 <= stage.client.clock.monotonic() - began < 7

    staged(play)


def test_a_server_that_asks_for_patience_does_not_prolong_an_attempt() -> None:
    async def play(stage: Stage) -> None:
        stage.cluster.faults.add(status=429, retry_after=4, times=None)
        began = stage.client.clock.monotonic()
        with pytest.raises(errors.ApiError, match="not answered within 5 s"):
            await stage.me.attempt()
        assert stage.client.clock.monotonic() - began < 7

    staged(play)


@pytest.mark.parametrize("body", ["<html>", "[]", "{}", '{"metadata": {}, "spec": 3}', '{"metadata": {}, "spec": {}}'])
def test_an_answer_that_is_no_lease_is_no_lead(body: str) -> None:
    async def play(stage: Stage) -> None:
        stage.cluster.faults.add(method="POST", body=body)
        with pytest.raises(errors.ApiError) as caught:
            await stage.me.attempt()
        assert caught.value.reason == "BadAnswer"

    staged(play)


def test_a_lease_deleted_under_its_holder_is_still_respected_by_who_saw_it() -> None:
    async def play(stage: Stage) -> None:
        await stage.other.attempt()
        assert await stage.me.attempt() is None
        stage.cluster.delete("leases", "hpad", "kube-system")
        assert await stage.me.attempt() is None
        assert await stage.other.attempt()
        assert await stage.me.attempt() is None

    staged(play)


def test_a_released_lease_is_taken_at_once() -> None:
    async def play(stage: Stage) -> None:
        await stage.other.attempt()
        assert await stage.me.attempt() is None
        await stage.other.release()
        assert stage.held["holderIdentity"] == ""
        assert await stage.me.attempt()
        assert (stage.held["holderIdentity"], stage.held["leaseTransitions"]) == ("me", 1)

    staged(play)


def test_a_release_finds_the_lease_where_a_bystander_left_it() -> None:
    async def play(stage: Stage) -> None:
        await stage.me.attempt()
        stage.label()
        await stage.me.release()
        assert stage.held["holderIdentity"] == ""

    staged(play)


def test_nobody_releases_the_lease_of_another() -> None:
    async def play(stage: Stage) -> None:
        await stage.me.attempt()
        stage.edit(holderIdentity="other")
        await stage.me.release()
        assert stage.held["holderIdentity"] == "other"

    staged(play)


async def test_a_list_of_no_leases_may_be_null(script: Script, client: Client) -> None:
    """As Go writes a list that nobody has put anything into."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    script.on("GET", path, says({"kind": "LeaseList", "metadata": {"resourceVersion": "1"}, "items": None}))
    assert await members.Members(client, ELECTION, identity="a").look() == []
