"""One candidate and one Lease: the requests, how long another holder is respected, and errors."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support import virtual_time
from support.scripted_server import Script, SkippingClock, failure, says

from hpad.election import lease
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


class SetClock(SkippingClock):
    """A test sets the wall clock."""

    wall = NOW

    def now(self) -> datetime:
        return self.wall


# --- Requests ---


async def test_the_lease_is_written_as_by_client_go(script: Script, recorded: Read) -> None:
    """The first Lease and two renewals have the same paths and the same fields."""
    created = recorded("client_go/create_leases_201")
    renewed = [recorded(f"client_go/update_leases_200{suffix}") for suffix in ("", "_2")]
    for exchange in (created, *renewed):
        path = exchange["request"]["path"].partition("?")[0]
        script.on(exchange["request"]["method"], path, says(exchange["body"], exchange["status"]))
    identity = created["request"]["body"]["spec"]["holderIdentity"]
    election, clock = Election(name="kube-controller-manager"), SetClock()
    async with Client(ClusterConfig(script.url), clock) as client:
        elector = lease.Elector(client, election, identity=identity)
        for exchange in (created, *renewed):
            text = exchange["request"]["body"]["spec"]["renewTime"]
            clock.wall = datetime.fromisoformat(text)
            assert await elector.attempt() is not None
    assert [json.loads(body) for body in script.bodies if body] == [
        exchange["request"]["body"] for exchange in (created, *renewed)
    ]
    assert all(query == {"timeout": "5s"} for _, _, query in script.asked)


async def test_a_recorded_lease_is_respected_and_taken_over_once_expired(
    script: Script, client: Client, clock: SkippingClock, recorded: Read
) -> None:
    stored = recorded("lease/lease_held")
    script.on("GET", stored["request"]["path"], says(stored["body"]))
    script.on("PUT", stored["request"]["path"], says(failure(500, "InternalError", "not today"), 500))
    elector = lease.Elector(client, Election(name="kube-controller-manager"), identity="me")
    assert await elector.attempt() is None
    assert elector.holder == stored["body"]["spec"]["holderIdentity"]
    clock.skipped += 10  # real time passes, too, and the machine may be busy
    assert await elector.attempt() is None
    clock.skipped += 5.1
    with pytest.raises(errors.ApiError, match="not today"):
        await elector.attempt()


def test_a_claim_of_anothers_lease_counts_a_transition_and_keeps_unknown_fields() -> None:
    new_spec = lease.acquire_or_renew_spec({**spec(), "strategy": "OldestEmulationVersion"}, "me", ELECTION, NOW)
    assert new_spec == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-20T16:23:49.440524Z",
        "renewTime": "2026-11-20T16:23:49.440524Z",
        "leaseTransitions": 4,
        "strategy": "OldestEmulationVersion",
    }


def test_a_renewal_keeps_acquire_time_and_transitions() -> None:
    new_spec = lease.acquire_or_renew_spec(spec("me"), "me", ELECTION, NOW)
    assert new_spec == {**spec("me"), "renewTime": "2026-11-20T16:23:49.440524Z"}


def test_a_whole_second_is_written_with_its_microseconds() -> None:
    assert lease.micro_time(NOW.replace(microsecond=0)) == "2026-11-20T16:23:49.000000Z"


def test_identities_differ() -> None:
    assert lease.identity() != lease.identity()
    assert lease.identity().count("_") >= 1


# --- Other holders ---


def test_a_lease_is_respected_for_its_own_duration_after_its_last_observed_change() -> None:
    stored = lease.observe(None, spec(seconds=30), 100.0)
    assert lease.observe(stored, spec(seconds=30), 120.0) == stored
    assert lease.held_by_other(stored, "me", ELECTION, 129.9)
    assert not lease.held_by_other(stored, "me", ELECTION, 130.0)
    renewed = lease.observe(stored, {**spec(seconds=30), "renewTime": "1999-01-01T00:00:00.000000Z"}, 129.0)
    assert lease.held_by_other(renewed, "me", ELECTION, 158.9)


def test_a_lease_without_duration_is_respected_for_the_configured_one() -> None:
    stored = lease.observe(None, spec(seconds=None), 0.0)
    assert lease.held_by_other(stored, "me", ELECTION, 14.9)
    assert not lease.held_by_other(stored, "me", ELECTION, 15.0)


def test_an_absent_an_own_and_a_released_lease_are_free() -> None:
    assert not lease.held_by_other(None, "me", ELECTION, 0.0)
    assert not lease.held_by_other(lease.observe(None, spec("me"), 0.0), "me", ELECTION, 0.0)
    released = lease.release_spec(spec(), NOW)
    assert not lease.held_by_other(lease.observe(None, released, 0.0), "me", ELECTION, 0.0)
    assert (released["holderIdentity"], released["leaseDurationSeconds"]) == ("", 1)
    assert released["leaseTransitions"] == 3


def test_a_lease_with_a_field_of_another_type_is_an_error() -> None:
    with pytest.raises(errors.ApiError, match="the Lease is malformed"):
        lease.observe(None, {**spec(), "leaseDurationSeconds": "a while"}, 0.0)


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ((15, 10, 2), []),
        ((10, 10, 2), ["lease_duration: 10s is not more than the renew deadline of 10s"]),
        ((15, 10, 9), ["renew_deadline: 10s is not more than 1.2 times the retry period of 9s"]),
        ((1.5, 1, 0.5), ["lease_duration: 1.5s is not a whole number of seconds"]),
    ],
)
def test_durations_are_validated_as_by_client_go(durations: tuple[float, float, float], expected: list[str]) -> None:
    names = ("lease_duration", "renew_deadline", "retry_period")
    election = Election(**{name: timedelta(seconds=value) for name, value in zip(names, durations, strict=True)})
    found = [f"{problem.path}: {problem.text}" for problem in election_problems(election)]
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


# --- Against an API server ---


class Stage:
    """An embedded API server under virtual time, and candidates of one Lease."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.me = lease.Elector(client, ELECTION, identity="me")
        self.other = lease.Elector(client, ELECTION, identity="other")

    @property
    def stored(self) -> dict[str, Any]:
        found = self.cluster.get("leases", "hpad", "kube-system")
        assert found is not None
        return found["spec"]

    def edit(self, **fields: Any) -> None:
        """Writes fields of the Lease as another client."""
        found = self.cluster.get("leases", "hpad", "kube-system")
        assert found is not None
        self.cluster.apply({**found, "spec": {**found["spec"], **fields}})

    def label(self) -> None:
        head = {"name": "hpad", "namespace": "kube-system", "labels": {"seen": "yes"}}
        self.cluster.apply({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": head})


def staged(check: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        clock = virtual_time.VirtualClock()
        async with (
            Cluster(kubelet=False, controllers=False, clock=clock) as cluster,
            Client(ClusterConfig(cluster.url), clock) as client,
        ):
            await check(Stage(cluster, client))

    virtual_time.run(main(), io_grace=GRACE)


def test_a_renewal_is_one_request() -> None:
    async def check(stage: Stage) -> None:
        assert await stage.me.attempt()
        stage.cluster.log.clear()
        for _ in range(5):
            assert await stage.me.attempt()
        assert dict(stage.cluster.log.requests) == {("update", "leases", ""): 5}
        assert stage.stored["leaseTransitions"] == 0
        assert stage.me.slow_renewals == 0

    staged(check)


def test_a_lease_changed_by_another_client_is_read_again_and_kept() -> None:
    async def check(stage: Stage) -> None:
        await stage.me.attempt()
        acquired = stage.stored["acquireTime"]
        stage.label()
        assert await stage.me.attempt()
        assert stage.me.slow_renewals == 1
        assert (stage.stored["holderIdentity"], stage.stored["acquireTime"]) == ("me", acquired)
        found = stage.cluster.get("leases", "hpad", "kube-system")
        assert found is not None
        assert found["metadata"]["labels"] == {"seen": "yes"}

    staged(check)


def test_a_replaced_holder_finds_the_new_one() -> None:
    async def check(stage: Stage) -> None:
        await stage.me.attempt()
        stage.edit(holderIdentity="other")
        assert await stage.me.attempt() is None
        assert stage.me.holder == "other"

    staged(check)


def test_of_two_that_create_the_lease_at_once_the_slower_one_finds_the_other() -> None:
    async def check(stage: Stage) -> None:
        stage.cluster.faults.add(method="POST", delay=1)
        began = stage.client.clock.monotonic()
        first = asyncio.create_task(stage.me.attempt())
        await stage.client.clock.sleep(0.5)
        assert await stage.other.attempt()
        assert await first is None
        assert stage.me.holder == "other"
        assert stage.client.clock.monotonic() - began < 5

    staged(check)


def test_the_moment_of_a_claim_is_before_the_request_was_sent() -> None:
    async def check(stage: Stage) -> None:
        stage.cluster.faults.add(method="POST", delay=3)
        began = stage.client.clock.monotonic()
        moment = await stage.me.attempt()
        assert moment is not None
        assert moment.monotonic <= began + 0.5
        assert stage.client.clock.monotonic() >= began + 3

    staged(check)


def test_an_attempt_on_a_hanging_api_server_ends_after_half_the_renew_deadline() -> None:
    async def check(stage: Stage) -> None:
        stage.cluster.faults.add(delay=600, times=None)
        began = stage.client.clock.monotonic()
        with pytest.raises(errors.ApiError):
            await stage.me.attempt()
        assert 5 <= stage.client.clock.monotonic() - began < 7

    staged(check)


def test_retry_after_does_not_prolong_an_attempt() -> None:
    async def check(stage: Stage) -> None:
        stage.cluster.faults.add(status=429, retry_after=4, times=None)
        began = stage.client.clock.monotonic()
        with pytest.raises(errors.ApiError, match="not answered within 5 s"):
            await stage.me.attempt()
        assert stage.client.clock.monotonic() - began < 7

    staged(check)


@pytest.mark.parametrize("body", ["<html>", "[]", "{}", '{"metadata": {}, "spec": 3}', '{"metadata": {}, "spec": {}}'])
def test_an_answer_that_is_no_lease_is_an_error(body: str) -> None:
    async def check(stage: Stage) -> None:
        stage.cluster.faults.add(method="POST", body=body)
        with pytest.raises(errors.ApiError) as caught:
            await stage.me.attempt()
        assert caught.value.reason == "BadAnswer"

    staged(check)


def test_a_deleted_lease_is_still_respected_by_a_candidate_that_read_it() -> None:
    async def check(stage: Stage) -> None:
        await stage.other.attempt()
        assert await stage.me.attempt() is None
        stage.cluster.delete("leases", "hpad", "kube-system")
        assert await stage.me.attempt() is None
        assert await stage.other.attempt()
        assert await stage.me.attempt() is None

    staged(check)


def test_a_released_lease_is_taken_at_once() -> None:
    async def check(stage: Stage) -> None:
        await stage.other.attempt()
        assert await stage.me.attempt() is None
        await stage.other.release()
        assert stage.stored["holderIdentity"] == ""
        assert await stage.me.attempt()
        assert (stage.stored["holderIdentity"], stage.stored["leaseTransitions"]) == ("me", 1)

    staged(check)


def test_a_lease_changed_by_another_client_is_released() -> None:
    async def check(stage: Stage) -> None:
        await stage.me.attempt()
        stage.label()
        await stage.me.release()
        assert stage.stored["holderIdentity"] == ""

    staged(check)


def test_the_lease_of_another_is_not_released() -> None:
    async def check(stage: Stage) -> None:
        await stage.me.attempt()
        stage.edit(holderIdentity="other")
        await stage.me.release()
        assert stage.stored["holderIdentity"] == "other"

    staged(check)
