"""At most one candidate leads at any time, and soon one does. Under virtual time."""

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import structlog
from support import environment, virtual_time
from support.client_go_elector import Original
from support.lease_candidates import Candidate, Server, odd
from support.virtual_time import in_virtual_time, now, until

from hpad.election import lease
from hpad.election.leader import KnownReplica
from hpad.kube import errors

# --- One candidate, two candidates ---


@in_virtual_time
async def test_the_first_candidate_leads_and_exports_it() -> None:
    candidate = Candidate("a", Server())
    assert await candidate.series() == ['leader_election_master_status{name="hpad"} 0.0']
    candidate.start()
    await until(lambda: candidate.leads, 1)
    assert await candidate.series() == ['leader_election_master_status{name="hpad"} 1.0']
    await asyncio.sleep(300)
    assert candidate.leads
    assert candidate.turns == [(0.0, True)]
    await candidate.stop()
    assert await candidate.series() == ['leader_election_master_status{name="hpad"} 0.0']


@in_virtual_time
async def test_a_leader_renews_every_retry_period() -> None:
    server = Server()
    candidate = Candidate("a", server).start()
    await asyncio.sleep(100.5)
    writes = server.writes
    await candidate.stop()
    assert writes == 51


@in_virtual_time
async def test_a_second_candidate_stands_by() -> None:
    server = Server()
    first, second = Candidate("a", server).start(), Candidate("b", server).start()
    await asyncio.sleep(300)
    assert first.leads != second.leads
    assert len(first.turns) + len(second.turns) == 1
    await first.stop()
    await second.stop()


@in_virtual_time
async def test_a_leader_knows_itself_and_a_standby_the_leader() -> None:
    server = Server()
    first = Candidate("a", server).start()
    assert first.leader.replicas() == (KnownReplica("a", "standby"),)
    await until(lambda: first.leads)
    second = Candidate("b", server).start()
    await asyncio.sleep(10)
    assert first.leader.replicas() == (KnownReplica("a", "leader"),)
    assert second.leader.replicas() == (KnownReplica("b", "standby"), KnownReplica("a", "leader"))
    first.network.cut = True  # its Lease expires, and the second one leads
    await until(lambda: second.leads)
    assert first.leader.replicas()[0] == KnownReplica("a", "standby")
    assert second.leader.replicas() == (KnownReplica("b", "leader"),)
    await second.stop()
    await first.stop()


@in_virtual_time
async def test_a_crashed_leader_is_replaced_after_the_lease_duration_and_not_before() -> None:
    server = Server()
    first = Candidate("a", server).start()
    await until(lambda: first.leads)
    second = Candidate("b", server).start()
    await asyncio.sleep(100)
    first.network.cut = True
    died = now()
    taken = await until(lambda: second.leads)
    assert not first.leads
    await second.stop()
    await first.stop()
    assert 15 - 4.4 <= taken - died <= 15 + 4.4 + 0.1


@in_virtual_time
async def test_after_an_orderly_end_another_takes_over_at_its_next_attempt() -> None:
    server = Server()
    first = Candidate("a", server).start()
    await until(lambda: first.leads)
    second = Candidate("b", server).start()
    await asyncio.sleep(31)
    await first.stop()
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == ""
    ended = now()
    taken = await until(lambda: second.leads)
    await second.stop()
    assert taken - ended <= 4.4


@pytest.mark.parametrize(("cut", "level"), [(False, "info"), (True, "warning")])
def test_an_unintended_end_of_leading_is_logged_as_a_warning(cut: bool, level: str) -> None:
    async def main() -> None:
        candidate = Candidate("a", Server()).start()
        await until(lambda: candidate.leads)
        candidate.network.cut = cut
        await asyncio.sleep(20)
        assert candidate.leads != cut
        await candidate.stop()

    with structlog.testing.capture_logs() as logs:
        virtual_time.run(main())
    assert [line["log_level"] for line in logs if line["event"] == "stopped leading"] == [level]


@in_virtual_time
async def test_a_client_go_elector_hours_away_is_respected_while_it_renews() -> None:
    """The times that it writes do not matter, nor how often it renews, as long as it does within its lease duration."""
    server = Server()
    candidate = Candidate("a", server)
    spec = {"holderIdentity": "node_1", "leaseDurationSeconds": 15, "leaseTransitions": 0}
    for count in range(30):
        renewed = lease.micro_time(virtual_time.START - timedelta(hours=7) + timedelta(seconds=10 * count))
        times = {"acquireTime": lease.micro_time(virtual_time.START - timedelta(hours=7)), "renewTime": renewed}
        server.commit({"metadata": {"name": "hpad"}, "spec": {**spec, **times}})
        if not count:
            candidate.start()
        await asyncio.sleep(10)
        assert not candidate.leads
    last = now() - 10
    taken = await until(lambda: candidate.leads)
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] == 1
    await candidate.stop()
    assert 15 <= taken - last <= 15 + 2 * 4.4


# --- Loss of the Lease ---


@pytest.mark.parametrize("cut", [True, False])
@in_virtual_time
async def test_work_ends_within_the_renew_deadline_when_the_server_hangs_or_refuses(cut: bool) -> None:
    server = Server()
    candidate = Candidate("a", server).start()
    await until(lambda: candidate.leads)
    await asyncio.sleep(61)
    last = 60.0
    candidate.network.cut = cut
    if not cut:
        refusal = errors.ApiError(503, "ServiceUnavailable", "down")
        server.answer = lambda *request: (_ for _ in ()).throw(refusal)  # type: ignore[method-assign]  # fails
    lost = await until(lambda: len(candidate.turns) == 2)
    assert not candidate.leads
    candidate.network.cut = False
    await candidate.stop()
    assert lost - last == pytest.approx(10, abs=0.1)


@in_virtual_time
async def test_a_former_leader_is_a_candidate_again() -> None:
    server = Server()
    candidate = Candidate("a", server).start()
    await until(lambda: candidate.leads)
    candidate.network.cut = True
    await until(lambda: not candidate.leads)
    await asyncio.sleep(100)
    candidate.network.cut = False
    await until(lambda: candidate.leads)
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] == 0
    await candidate.stop()
    assert [leads for _, leads in candidate.turns] == [True, False, True, False]


def test_each_problem_with_the_lease_is_logged_and_ends_with_the_next_renewal() -> None:
    class FaultyServer(Server):
        down = False

        def answer(self, *request: Any) -> bytes:
            if self.down:
                raise errors.ApiError(503, "ServiceUnavailable", "down")
            return super().answer(*request)

    async def main() -> list[str | None]:
        server = FaultyServer()
        candidate, found = Candidate("a", server).start(), []
        await until(lambda: candidate.leads)
        for server.down in (True, False, True, False):
            await asyncio.sleep(5)  # less than the renew deadline
            found.append(candidate.leader.trouble)
        assert len(candidate.turns) == 1
        await candidate.stop()
        return found

    with structlog.testing.capture_logs() as logs:
        found = virtual_time.run(main())
    assert found == ["the Lease kube-system/hpad cannot be acquired or renewed: down", None] * 2
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "the Lease cannot be acquired or renewed: down"
    ] * 2


@in_virtual_time
async def test_a_wall_clock_step_only_stops_writes_until_the_next_renewal() -> None:
    """The monotonic clock of a machine stands still while it is suspended; only the wall clock shows the gap."""
    candidate = Candidate("a", Server()).start()
    await until(lambda: candidate.leads)
    await asyncio.sleep(10.5)
    candidate.clock.skew += timedelta(hours=1)
    assert not candidate.leads
    await asyncio.sleep(2)
    assert candidate.leads
    candidate.clock.skew -= timedelta(hours=5)
    await asyncio.sleep(60)
    assert candidate.leads
    assert len(candidate.turns) == 1
    await candidate.stop()


@in_virtual_time
async def test_a_renewal_counts_from_before_it_was_sent() -> None:
    """A renewal that was answered after the renew deadline grants nothing."""
    server = Server()
    candidate = Candidate("a", server)
    carry_out, loop = server.answer, asyncio.get_running_loop()

    def stalled(method: str, *rest: Any) -> bytes:
        answer = carry_out(method, *rest)
        if method != "GET" and server.writes == 1:
            loop.jump(11)  # type: ignore[attr-defined]  # a VirtualLoop
        return answer

    server.answer = stalled  # type: ignore[method-assign]  # a stalled process
    candidate.start()
    await until(lambda: server.writes == 1)
    assert candidate.turns == []
    await until(lambda: candidate.leads)
    await candidate.stop()


# --- At most one leader, over thousands of ticks ---


def trouble(dice: random.Random, server: Server, candidates: Sequence[Candidate | Original]) -> None:
    """Cuts and mends networks (the leader's more often), ends and starts candidates, and writes the Lease as another
    client. Does nothing most of the time.
    """
    for candidate in candidates:
        if dice.random() < (0.01 if candidate.network.cut else 0.02 if candidate.leads else 0.002):
            candidate.network.cut = not candidate.network.cut
        if dice.random() < (0.005 if candidate.running else 0.05):
            candidate.end() if candidate.running else candidate.start()
    if dice.random() < 0.01 and server.lease is not None:
        server.commit({**server.lease})


@pytest.mark.parametrize(
    "kinds", [(Candidate, Candidate, Candidate), (Candidate, Original, Original)], ids=["ours", "mixed"]
)
@pytest.mark.parametrize("seed", range(5 * environment.EFFORT))
@in_virtual_time
async def test_there_are_never_two_leaders_and_soon_one_again(
    seed: int, kinds: tuple[type[Candidate] | type[Original], ...]
) -> None:
    """Requests are slow, fail, hang, or arrive late; networks are cut; clocks disagree."""
    dice = random.Random(seed)
    server, leaders, changes = Server(), set[str](), 0
    candidates: list[Candidate | Original] = []
    doubles: list[tuple[str, str, float]] = []

    def committed(before: str, after: str) -> None:
        """A former holder must have stopped leading when the server stores the Lease with another holder."""
        nonlocal changes
        if after not in ("", before):
            changes += 1
            doubles.extend(
                (candidate.name, after, now())
                for candidate in candidates
                if candidate.leads and candidate.name != after
            )

    server.committed = committed
    for name, kind in zip("abc", kinds, strict=True):
        rolls = random.Random(f"{seed}{name}")
        candidates.append(kind(name, server, clock=odd(dice), dice=rolls).start())
    for tick in range(5000):
        await asyncio.sleep(0.25)
        leading = [candidate.name for candidate in candidates if candidate.leads]
        assert len(leading) <= 1, f"at tick {tick}"
        leaders.update(leading)
        trouble(dice, server, candidates)
    for candidate in candidates:
        candidate.network.cut = False
        if not candidate.running:
            candidate.start()
    await until(lambda: any(candidate.leads for candidate in candidates), 90)
    for candidate in candidates:
        await candidate.stop()
    assert doubles == []
    assert leaders == set("abc")
    assert changes > 20
