"""The client's own limit: who goes first, and what becomes of the turns of those who give up."""

import asyncio

import structlog
from support import virtual_time

from hpad.kube import limiter


def limited(qps: float = 1.0, burst: int = 1) -> limiter.Limiter:
    return limiter.Limiter(virtual_time.VirtualClock(), qps, burst)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_who_gives_up_takes_nobodys_turn() -> None:
    """Twenty wait for one request a second and give up after half a second: that has cost one turn at most."""

    async def main() -> float:
        limit = limited()
        await limit.acquire()
        for _ in range(20):
            waiting = [asyncio.create_task(limit.acquire()) for _ in range(3)]
            await asyncio.sleep(0.25)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        began = now()
        await limit.acquire()
        return now() - began

    assert virtual_time.run(main()) <= 1.0


def test_a_turn_that_comes_in_the_moment_of_giving_up_is_somebody_elses() -> None:
    async def main() -> float:
        limit = limited()
        await limit.acquire()
        gives_up = asyncio.create_task(limit.acquire())
        for _ in range(3):  # until who gives turns waits as well
            await asyncio.sleep(0)
        await asyncio.sleep(1.0)  # over when the turn has been given, and not been taken yet
        gives_up.cancel()
        await asyncio.wait({gives_up})
        assert gives_up.cancelled()
        await limit.acquire()
        return now()

    assert virtual_time.run(main()) == 1.0


def test_nothing_is_kept_of_who_gave_up() -> None:
    async def main() -> int:
        limit = limited(1e-6)
        await limit.acquire()
        waiting = [asyncio.create_task(limit.acquire()) for _ in range(50)]
        await asyncio.sleep(1)
        assert len(limit) == 50
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return len(limit)

    assert virtual_time.run(main()) == 0


def test_what_was_begun_is_finished_before_others_begin() -> None:
    """Ten pieces of three requests each, two requests a second: a third of them is done after a third of the time."""

    async def piece(limit: limiter.Limiter, ends: list[float]) -> None:
        limiter.begin()
        for _ in range(3):
            await limit.acquire()
        ends.append(now())

    async def main() -> list[float]:
        limit, ends = limited(2.0), list[float]()
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(piece(limit, ends))
        return ends

    ends = virtual_time.run(main())
    assert [round(end, 3) for end in ends] == [1.0 + 1.5 * number for number in range(10)]


def test_a_request_of_its_own_waits_for_what_was_begun_before_it_and_for_nothing_else() -> None:
    async def begun(limit: limiter.Limiter, order: list[str], name: str) -> None:
        limiter.begin()
        for _ in range(2):
            await limit.acquire()
            order.append(name)

    async def alone(limit: limiter.Limiter, order: list[str]) -> None:
        await limit.acquire()
        order.append("alone")

    async def main() -> list[str]:
        limit, order = limited(), list[str]()
        await limit.acquire()
        async with asyncio.TaskGroup() as group:
            for work in (begun(limit, order, "first"), alone(limit, order), begun(limit, order, "last")):
                group.create_task(work)
                await asyncio.sleep(0)
        return order

    assert virtual_time.run(main()) == ["first", "first", "alone", "last", "last"]


def test_it_is_said_once_a_minute_that_requests_wait_before_they_have_waited() -> None:
    async def main() -> list[float]:
        limit, said = limited(0.01), list[float]()
        for _ in range(121):
            with structlog.testing.capture_logs() as logs:
                waiting = asyncio.create_task(limit.acquire())
                await asyncio.sleep(1)
            said += [now() for line in logs if "kube_api_qps" in line["event"]]
            waiting.cancel()
        return said

    assert virtual_time.run(main()) == [2.0, 62.0]


def test_a_limit_that_is_never_reached_costs_no_time() -> None:
    async def main() -> float:
        limit = limited(1e-9, 5)
        for _ in range(5):
            await limit.acquire()
        return now()

    assert virtual_time.run(main()) == 0.0
