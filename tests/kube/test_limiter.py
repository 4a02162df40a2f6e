"""The limit of requests: its rate, its order, and requests that are cancelled while they wait."""

import asyncio

import structlog
from support import virtual_time

from hpad.kube.client import Limiter


def limited(qps: float = 1.0, burst: int = 1) -> Limiter:
    return Limiter(virtual_time.VirtualClock(), qps, burst)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_cancelled_requests_use_no_token() -> None:
    """Three requests wait a quarter of a second each, twenty times, at one request a second."""

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


def test_a_token_that_is_free_when_its_request_is_cancelled_serves_the_next() -> None:
    async def main() -> float:
        limit = limited()
        await limit.acquire()
        cancelled = asyncio.create_task(limit.acquire())
        await asyncio.sleep(1.0)
        cancelled.cancel()
        await asyncio.wait({cancelled})
        await limit.acquire()
        return now()

    assert virtual_time.run(main()) == 1.0


def test_cancelled_requests_do_not_count_as_waiting() -> None:
    async def main() -> int:
        limit = limited(1e-6)
        await limit.acquire()
        waiting = [asyncio.create_task(limit.acquire()) for _ in range(50)]
        await asyncio.sleep(1)
        assert limit.waiting == 50
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return limit.waiting

    assert virtual_time.run(main()) == 0


def test_requests_are_served_in_the_order_of_arrival() -> None:
    async def main() -> list[tuple[int, float]]:
        limit, served = limited(2.0), list[tuple[int, float]]()

        async def request(number: int) -> None:
            await limit.acquire()
            served.append((number, now()))

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(request(number))
        return served

    assert virtual_time.run(main()) == [(0, 0.0), (1, 0.5), (2, 1.0), (3, 1.5)]


def test_a_long_wait_is_logged_when_it_begins_and_once_a_minute() -> None:
    async def main() -> list[float]:
        limit, logged = limited(0.01), list[float]()
        for _ in range(121):
            with structlog.testing.capture_logs() as logs:
                waiting = asyncio.create_task(limit.acquire())
                await asyncio.sleep(1)
            logged += [now() for line in logs if "kube_api_qps" in line["event"]]
            waiting.cancel()
        return logged

    assert virtual_time.run(main()) == [2.0, 62.0]


def test_a_limit_that_is_never_reached_costs_no_time() -> None:
    async def main() -> float:
        limit = limited(1e-9, 5)
        for _ in range(5):
            await limit.acquire()
        return now()

    assert virtual_time.run(main()) == 0.0
