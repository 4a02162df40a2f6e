"""One source: batches, limits, isolation, in virtual time."""

import asyncio
import gc
import importlib.util
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
import structlog
from support import virtual_time

from hpad import testing
from hpad.adapter import EXTERNAL, AdapterError, Answer, Asker, ExternalSample, Query
from hpad.daemon import process
from hpad.sources.limits import Limits
from hpad.sources.source import Source

A, B, C = (testing.external(name) for name in "abc")


class Scripted:
    """Answers each query with the number of the call; `behave` may do anything before that."""

    serves = frozenset({EXTERNAL})
    Settings = msgspec.Struct

    def __init__(self, behave: Callable[[Sequence[Query]], Awaitable[object]] | None = None) -> None:
        self.batches: list[str] = []
        self.closed = False
        self._behave = behave

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        self.batches.append("".join(query.name for query in queries))
        call = len(self.batches)
        if self._behave is not None:
            await self._behave(queries)
        return [ExternalSample((call,), virtual_time.START) for _ in queries]

    async def aclose(self) -> None:
        self.closed = True


def opened(
    adapter: Scripted, observed: list | None = None, clock: virtual_time.VirtualClock | None = None, **limits: Any
) -> Source:
    return Source(
        "mine", adapter, clock=clock or virtual_time.VirtualClock(), log=structlog.get_logger(),
        observer=lambda *call: observed.append(call) if observed is not None else None,
        limits=Limits(**{"budget": 100.0, "fresh": 0.0, "retries": 0, **limits}),
    )  # fmt: skip


def sleep(seconds: float) -> Callable[[Sequence[Query]], Awaitable[object]]:
    return lambda _: asyncio.sleep(seconds)


def value(answer: Answer) -> int:
    assert isinstance(answer, ExternalSample), answer
    return answer.values[0]


async def fail(answer: Awaitable[Answer]) -> AdapterError:
    error = await answer
    assert isinstance(error, AdapterError)
    return error


def test_an_error_that_is_kept_keeps_nothing_of_what_the_adapter_held():
    """Neither the one that was raised nor the one under it, and not only until the next garbage collection."""

    class Body(bytearray):
        """An answer, as long as it may be."""

    bodies: list[weakref.ref[Body]] = []

    async def refuse(queries: Sequence[Query]) -> None:
        body = Body(1_000_000)
        bodies.append(weakref.ref(body))
        try:
            body[:1].decode("ascii").index("x")
        except ValueError:
            raise AdapterError("no sense in it") from None

    async def main() -> AdapterError:
        source = opened(Scripted(refuse))
        return await fail(source.ask(A))

    gc.disable()
    try:
        error = virtual_time.run(main())
        [body] = bodies
        assert body() is None
    finally:
        gc.enable()
    assert error.message == "no sense in it"


def test_queries_of_one_turn_are_one_call_and_equal_ones_are_asked_once():
    async def main() -> list[str]:
        adapter = Scripted()
        source = opened(adapter)
        same = testing.external("a")
        answers = await asyncio.gather(*(source.ask(query) for query in (A, B, same, C, B)))
        assert [value(answer) for answer in answers] == [1] * 5
        return adapter.batches

    assert virtual_time.run(main()) == ["abc"]


def test_while_all_calls_are_running_queries_wait_for_the_next():
    async def main() -> list[str]:
        adapter = Scripted(sleep(5))
        source = opened(adapter, concurrency=1)
        first = source.ask(A)
        await asyncio.sleep(1)
        second = source.ask(B)
        await asyncio.sleep(1)
        third = source.ask(C)
        assert [value(answer) for answer in await asyncio.gather(first, second, third)] == [1, 2, 2]
        assert asyncio.get_running_loop().time() == 10
        return adapter.batches

    assert virtual_time.run(main()) == ["a", "bc"]


def test_no_more_calls_at_once_than_the_limit():
    at_work: set[object] = set()
    most: list[int] = []

    async def behave(queries: Sequence[Query]) -> None:
        at_work.add(queries)
        most.append(len(at_work))
        await asyncio.sleep(3)
        at_work.discard(queries)

    async def main() -> None:
        source = opened(Scripted(behave), concurrency=2)
        asked = []
        for number in range(9):
            asked.append(source.ask(testing.external(f"m{number}")))
            await asyncio.sleep(0.5)
        await asyncio.gather(*asked)

    virtual_time.run(main())
    assert max(most) == 2


class HandClock(virtual_time.VirtualClock):
    """Its time passes only when a test sets it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not there")
def test_a_source_that_has_to_wait_for_less_than_a_timer_can_measure_is_asked_all_the_same():
    """uvloop's timers count milliseconds: what is due in less is no timer to it, and has no time."""

    async def main() -> list[str]:
        clock, adapter = HandClock(), Scripted()
        source = opened(adapter, clock=clock, rate=1.0)
        assert value(await source.ask(A)) == 1
        clock.seconds = 0.9999
        second = source.ask(B)
        for _ in range(5):
            await asyncio.sleep(0)
        clock.seconds = 1.0
        async with asyncio.timeout(10):
            assert value(await second) == 2
        return adapter.batches

    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        assert runner.run(main()) == ["a", "b"]


def test_a_hang_ends_at_the_timeout_and_frees_its_place():
    async def main() -> None:
        hang = asyncio.Event()
        adapter = Scripted(lambda queries: hang.wait() if A in queries else asyncio.sleep(0))
        source = opened(adapter, concurrency=1)
        hanging = source.ask(A)
        await asyncio.sleep(1)
        late = source.ask(B)
        error = await fail(hanging)
        assert (error.message, error.blame) == ('source "mine" did not answer within 10s', "source")
        assert value(await late) == 2
        assert asyncio.get_running_loop().time() == 10

    virtual_time.run(main())


def test_an_adapter_that_ignores_its_cancellation_delays_no_other_call():
    async def stubborn(queries: Sequence[Query]) -> None:
        while A in queries and asyncio.get_running_loop().time() < 100:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                await asyncio.sleep(90)

    async def main() -> None:
        source = opened(Scripted(stubborn), concurrency=1)
        assert (await fail(source.ask(A))).message == 'source "mine" did not answer within 10s'
        assert value(await source.ask(B)) == 2
        assert asyncio.get_running_loop().time() == 10
        await source.aclose()
        assert asyncio.get_running_loop().time() <= 12

    virtual_time.run(main())


def test_a_waiting_hpa_may_be_cancelled_and_the_others_get_their_answer():
    async def main() -> None:
        source = opened(Scripted(sleep(5)))

        async def wait() -> Answer:
            future = source.ask(A)
            await asyncio.wait({future})
            return future.result()

        impatient, patient = asyncio.create_task(wait()), asyncio.create_task(wait())
        await asyncio.sleep(1)
        impatient.cancel()
        assert value(await patient) == 1
        assert impatient.cancelled()

    virtual_time.run(main())


RAISED = 'source "mine" cannot answer "{}": its adapter raised an exception, a bug of the adapter; the log says where'


@pytest.mark.parametrize(
    ("raised", "message", "blame"),
    [
        (AdapterError("the broker is down", "source"), "the broker is down", "source"),
        (ZeroDivisionError("secret"), RAISED, "bug"),
        (SystemExit(1), RAISED, "bug"),
        (TimeoutError(), RAISED, "bug"),
        (
            AdapterError(ConnectionError("refused")),
            'source "mine" gave an error without a text, a bug of its adapter',
            "bug",
        ),
        (
            AdapterError("no such queue", "user"),
            'source "mine" gave an error that does not say whose fault it is: no such queue',
            "bug",
        ),
        (asyncio.CancelledError(), 'source "mine" cancelled its own call, a bug of its adapter', "bug"),
    ],
)
def test_an_exception_of_an_adapter_answers_the_whole_batch(raised, message, blame):
    async def behave(queries: Sequence[Query]) -> None:
        raise raised

    async def main() -> None:
        observed: list[tuple[str, float, AdapterError | None]] = []
        source = opened(Scripted(behave), observed)
        errors = await asyncio.gather(source.ask(A), source.ask(B))
        assert errors == [AdapterError(message.format(name), blame) for name in "ab"]
        assert observed == [("mine", 0.0, AdapterError(message.format("a"), blame))]

    virtual_time.run(main())


def test_the_observer_hears_of_every_call_and_of_no_spec_error():
    async def main() -> None:
        observed: list[tuple[str, float, AdapterError | None]] = []

        async def behave(queries: Sequence[Query]) -> None:
            await asyncio.sleep(2)
            if B in queries:
                raise AdapterError("no such queue", "spec")

        source = opened(Scripted(behave), observed)
        await source.ask(A)
        await source.ask(B)
        assert observed == [("mine", 2.0, None), ("mine", 2.0, None)]

    virtual_time.run(main())


def test_closing_answers_waiting_queries_and_closes_the_adapter():
    async def main() -> None:
        adapter = Scripted(sleep(5))
        source = opened(adapter, concurrency=1)
        running = source.ask(A)
        await asyncio.sleep(1)
        waiting = source.ask(B)
        await source.aclose()
        for future in (running, waiting, source.ask(C)):
            assert (await fail(future)).message == 'source "mine" is shutting down'
        assert adapter.closed
        assert asyncio.get_running_loop().time() == 1

    virtual_time.run(main())


def personal(answer: Callable[[Query], object]) -> Scripted:
    """An adapter with a method `personal`."""
    adapter = Scripted()
    adapter.personal = answer
    return adapter


@pytest.mark.parametrize(
    ("adapter", "calls"),
    [
        (Scripted(), ["a", "b"]),
        (personal(lambda query: False), ["a", "b"]),
        (personal(lambda query: query.name == "a"), ["aa", "b"]),
        (personal(lambda query: 1 / 0), ["aa", "bb"]),
    ],
)
def test_equal_queries_of_different_hpas_are_separate_only_if_the_adapter_says_so(adapter: Scripted, calls: list[str]):
    web, api = (Asker(name=name, target_kind="Deployment", target_name=name) for name in ("web", "api"))

    async def main() -> None:
        source = opened(adapter, fresh=5.0)
        for query in (A, B):
            await asyncio.gather(source.ask(query, web), source.ask(query, api))
            await asyncio.gather(source.ask(query, api), source.ask(query, web))

    virtual_time.run(main())
    assert adapter.batches == calls
