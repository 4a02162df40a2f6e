"""Who leads: one at a time, whatever happens, and somebody soon. Under virtual time."""

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta

import pytest
import structlog
from support import virtual_time
from support.client_go_elector import Original
from support.lease_candidates import Candidate, OddClock, Server
from support.virtual_time import now, until

from hpad.election import lease
from hpad.kube import errors

# --- One candidate, two candidates ---


def test_the_first_one_leads_and_says_so() -> None:
    async def main() -> None:
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

    virtual_time.run(main())


def test_a_leader_renews_every_retry_period() -> None:
    async def main() -> int:
        server = Server()
        candidate = Candidate("a", server).start()
        await asyncio.sleep(100.5)
        writes = server.writes
        await candidate.stop()
        return writes

    assert virtual_time.run(main()) == 51


def test_a_second_one_stands_by() -> None:
    async def main() -> None:
        server = Server()
        first, second = Candidate("a", server).start(), Candidate("b", server).start()
        await asyncio.sleep(300)
        assert first.leads != second.leads
        assert len(first.turns) + len(second.turns) == 1
        await first.stop()
        await second.stop()

    virtual_time.run(main())


def test_a_dead_leader_is_followed_after_the_lease_duration_and_not_before() -> None:
    async def main() -> float:
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
        return taken - died

    assert 15 - 4.4 <= virtual_time.run(main()) <= 15 + 4.4 + 0.1


def test_an_orderly_end_lets_another_take_over_at_its_next_look() -> None:
    async def main() -> float:
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
        return taken - ended

    assert virtual_time.run(main()) <= 4.4


@pytest.mark.parametrize(("cut", "level"), [(False, "info"), (True, "warning")])
def test_the_end_of_a_lead_is_a_warning_where_nobody_wanted_it(cut: bool, level: str) -> None:
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


def test_a_client_go_elector_hours_away_is_respected_while_it_renews() -> None:
    """Its times are of no interest; nor is how often it renews, as long as that is within its lease duration."""

    async def main() -> float:
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
        return taken - last

    assert 15 <= virtual_time.run(main()) <= 15 + 2 * 4.4


# --- Losing it ---


@pytest.mark.parametrize("cut", [True, False])
def test_work_ends_within_the_renew_deadline_when_the_server_hangs_or_refuses(cut: bool) -> None:
    async def main() -> tuple[float, float]:
        server = Server()
        candidate = Candidate("a", server).start()
        await until(lambda: candidate.leads)
        await asyncio.sleep(61)
        last = 60.0
        candidate.network.cut = cut
        if not cut:
            refusal = errors.ApiError(503, "ServiceUnavailable", "down")
            server.answer = lambda method, body: (_ for _ in ()).throw(refusal)  # type: ignore[method-assign]  # fails
        lost = await until(lambda: len(candidate.turns) == 2)
        assert not candidate.leads
        candidate.network.cut = False
        await candidate.stop()
        return last, lost

    last, lost = virtual_time.run(main())
    assert lost - last == pytest.approx(10, abs=0.1)


def test_who_lost_it_is_a_candidate_again() -> None:
    async def main() -> list[bool]:
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
        return [leads for _, leads in candidate.turns]

    assert virtual_time.run(main()) == [True, False, True, False]


def test_trouble_with_the_lease_is_told_each_time_and_over_with_the_next_renewal() -> None:
    class Moody(Server):
        down = False

        def answer(self, method: str, body: bytes | None) -> bytes:
            if self.down:
                raise errors.ApiError(503, "ServiceUnavailable", "down")
            return super().answer(method, body)

    async def main() -> list[str | None]:
        server = Moody()
        candidate, found = Candidate("a", server).start(), []
        await until(lambda: candidate.leads)
        for server.down in (True, False, True, False):
            await asyncio.sleep(5)  # less than the renew deadline
            found.append(candidate.leader.status.trouble)
        assert len(candidate.turns) == 1
        await candidate.stop()
        return found

    with structlog.testing.capture_logs() as logs:
        found = virtual_time.run(main())
    assert found == ["cannot reach an agreement: down", None] * 2
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["cannot reach an agreement: down"] * 2


def test_a_jump_of_the_wall_clock_stops_writes_until_the_next_renewal_and_nothing_else() -> None:
    """A machine that was suspended looks like this: its monotonic clock stood still meanwhile."""

    async def main() -> None:
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

    virtual_time.run(main())


def test_a_slow_answer_is_worth_only_what_is_left_of_it() -> None:
    """A renewal counts from before it was sent: one that took longer than the renew deadline is worth nothing."""

    async def main() -> None:
        server = Server()
        candidate = Candidate("a", server)
        carry_out, loop = server.answer, asyncio.get_running_loop()

        def stalled(method: str, body: bytes | None) -> bytes:
            answer = carry_out(method, body)
            if body is not None and server.writes == 1:
                loop.jump(11)  # type: ignore[attr-defined]  # a loop of ours
            return answer

        server.answer = stalled  # type: ignore[method-assign]  # a stalled process
        candidate.start()
        await until(lambda: server.writes == 1)
        assert candidate.turns == []
        await until(lambda: candidate.leads)
        await candidate.stop()

    virtual_time.run(main())


# --- Never two, over thousands of ticks ---


def trouble(dice: random.Random, server: Server, candidates: Sequence[Candidate | Original]) -> None:
    """Cut networks (the leader's more often than others') and mend them, end candidates and start them again, let a
    bystander touch the Lease; or nothing, most of the time.
    """
    for candidate in candidates:
        if dice.random() < (0.01 if candidate.network.cut else 0.02 if candidate.leads else 0.002):
            candidate.network.cut = not candidate.network.cut
        if dice.random() < (0.005 if candidate.running else 0.05):
            candidate.end() if candidate.running else candidate.start()
    if dice.random() < 0.01 and server.lease is not None:
        server.commit({**server.lease})


def odd(dice: random.Random) -> OddClock:
    """A clock that runs up to 10 % fast or slow, and is hours off."""
    return OddClock(dice.uniform(0.9, 1.1), dice.uniform(0, 1e6), timedelta(hours=dice.uniform(-9, 9)))


@pytest.mark.parametrize(
    "kinds", [(Candidate, Candidate, Candidate), (Candidate, Original, Original)], ids=["ours", "mixed"]
)
@pytest.mark.parametrize("seed", range(20))
def test_never_two_leaders_and_soon_one_again(seed: int, kinds: tuple[type[Candidate] | type[Original], ...]) -> None:
    """Requests take their time, fail, hang, or arrive late; networks are cut; clocks do not agree."""
    dice = random.Random(seed)
    server, leaders, changes = Server(), set[str](), 0
    candidates: list[Candidate | Original] = []
    doubles: list[tuple[str, str, float]] = []

    def committed(before: str, after: str) -> None:
        """The moment that counts: whoever held the Lease must have stopped when the server gives it away."""
        nonlocal changes
        if after not in ("", before):
            changes += 1
            doubles.extend(
                (candidate.name, after, now())
                for candidate in candidates
                if candidate.leads and candidate.name != after
            )

    async def main() -> None:
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

    server.committed = committed
    virtual_time.run(main())
    assert doubles == []
    assert leaders == set("abc")
    assert changes > 20
