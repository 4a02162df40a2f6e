"""Metrics that hang, and those that are asked along with them; in virtual time."""

import asyncio
from collections.abc import Sequence

import pytest
from support import virtual_time
from support.scripted_source import A, B, C, Grouped, Scripted, now, opened

from hpad import testing
from hpad.adapter import Answer, ExternalSample, Query
from hpad.sources import call as call_module
from hpad.sources import isolation
from hpad.sources.source import Source

PERIOD = 15.0
PATIENCE = 9.0
LIMITS = {"budget": 8.1, "timeout": 8.1, "fresh": 5.0, "period": PERIOD, "rest": PERIOD}
LATE = call_module.Late("late", lasting=True)
SAMPLE = ExternalSample((1,), virtual_time.START)


def named(kind: str, number: int) -> list[Query]:
    return [testing.external(f"{kind}{index}") for index in range(number)]


async def hang_on_h(queries: Sequence[Query]) -> None:
    """Whoever is in a call with a metric h… waits for ever."""
    if any(query.name.startswith("h") for query in queries):
        await asyncio.Event().wait()


async def hpa(source: Source, query: Query, phase: float, periods: int) -> list[bool]:
    """Whether there was a sample, turn by turn."""
    await asyncio.sleep(phase)
    turns = []
    for _ in range(periods):
        due = now() + PERIOD
        future = source.ask(query)
        await asyncio.wait({future}, timeout=PATIENCE)
        turns.append(future.done() and isinstance(future.result(), ExternalSample))
        await asyncio.sleep(due - now())
    return turns


@pytest.mark.parametrize(("hanging", "concurrency"), [(1, 1), (6, 4), (20, 4)])
@pytest.mark.parametrize("together", [True, False])
def test_metrics_that_hang_do_not_keep_others_from_their_answers(hanging: int, concurrency: int, together: bool):
    """At the start, and after a change of settings, all ask at once; later each at its own moment."""

    async def main() -> tuple[list[list[bool]], list[list[bool]]]:
        source = opened(Scripted(hang_on_h), concurrency=concurrency, **LIMITS)
        queries = [*named("h", hanging), *named("w", 3)]
        spread = 0.0 if together else PERIOD / len(queries)
        turns = await asyncio.gather(*(hpa(source, query, n * spread, 24) for n, query in enumerate(queries)))
        await source.aclose()
        return turns[:hanging], turns[hanging:]

    hung, well = virtual_time.run(main())
    assert not any(map(any, hung))
    assert all(all(turns[16:]) for turns in well), well


def test_a_source_that_is_late_as_a_whole_is_asked_as_ever():
    """1,000 metrics in calls of which nothing comes, but for every fifth."""
    adapter = Scripted()
    metrics = named("m", 1000)
    rounds = isolation.TIMES * 3

    async def main() -> None:
        async def late(queries: Sequence[Query]) -> None:
            if len(adapter.batches) % isolation.TIMES:
                await asyncio.Event().wait()

        adapter._behave = late
        source = opened(adapter, **{**LIMITS, "fresh": 0.0, "failures": 100})
        for number in range(rounds):
            await asyncio.sleep(number * PERIOD - now())
            await asyncio.gather(*map(source.ask, metrics))

    virtual_time.run(main())
    assert [moment for moment, _ in adapter.batches] == [number * PERIOD for number in range(rounds)]


def test_many_laggards_go_in_a_few_calls():
    held = isolation.Laggards(alone)
    metrics = named("m", 800)
    learnt(held, metrics, LATE)
    calls = []
    while metrics:
        calls.append(held.next(metrics))
        metrics = [query for query in metrics if query not in calls[-1]]
    assert [len(call) for call in calls] == [100] * 8


def test_what_one_call_serves_goes_together_however_late_it_was():
    adapter = Grouped(hang_on_h)
    hung, well = ([testing.external(name) for name in names] for names in (("h1", "h2", "h3"), ("w1", "w2")))

    async def main() -> None:
        source = opened(adapter, **{**LIMITS, "fresh": 0.0, "failures": 100})
        for _ in range(isolation.TIMES + 2):
            await asyncio.gather(*(source.ask(query) for query in (*hung, *well)))
        await source.aclose()

    virtual_time.run(main())
    assert [names for _, names in adapter.batches] == ["h1h2h3w1w2"] * (isolation.TIMES + 2)


def test_who_was_never_late_is_asked_at_once_while_others_wait_for_their_turn():
    async def main() -> float:
        source = opened(Scripted(hang_on_h), concurrency=2, failures=100, **LIMITS)
        hung = named("h", 4)
        for _ in range(isolation.TIMES):
            await asyncio.gather(*map(source.ask, hung))
        for query in hung:
            source.ask(query)
        await asyncio.sleep(1)
        began = now()
        assert isinstance(await source.ask(A), ExternalSample)
        took = now() - began
        await source.aclose()
        return took

    assert virtual_time.run(main()) == 0.0


def alone(query: Query) -> None:
    return None


def learnt(held: isolation.Laggards, queries: Sequence[Query], given: Answer, times: int = isolation.TIMES) -> None:
    for _ in range(times):
        held.learn(queries, [given] * len(queries))


def test_who_was_late_alone_goes_last_and_whoever_answers_is_like_all_others():
    held = isolation.Laggards(alone)
    learnt(held, [A], LATE)
    learnt(held, [B, C], LATE)
    waiting = [A, B, C, D := testing.external("d")]
    assert (held.next(waiting), held.next(waiting[:3]), held.next([A])) == ([D], [B], [A])
    assert [held.suspected(query) for query in waiting] == [False, True, True, False]
    learnt(held, [B], SAMPLE)
    learnt(held, [B], LATE, isolation.TIMES - 1)
    assert held.next(waiting) == [B, D]
    learnt(held, [A], SAMPLE)
    learnt(held, [C], SAMPLE)
    assert len(held) == 0
    assert held.next(waiting) == waiting


def test_of_so_many_is_it_known_and_no_more():
    held = isolation.Laggards(alone)
    metrics = named("m", isolation.MOST + 10)
    learnt(held, metrics, LATE)
    assert len(held) == isolation.MOST
    assert metrics[0] not in held
    assert metrics[-1] in held


def test_of_what_nobody_asks_for_any_more_nothing_is_known():
    held = isolation.Laggards(alone, patience=100.0)
    gone, stay = named("g", 50), named("s", 2)
    learnt(held, [*gone, *stay], LATE)
    assert len(held) == len(gone) + len(stay)
    assert not held.suspected(stay[0]), "too many are"
    for moment in range(0, 400, 10):
        for query in stay:
            held.asked(query, float(moment))
    assert len(held) == len(stay)
    assert stay[0] in held
    assert held.suspected(stay[0])


def test_a_source_forgets_the_laggards_that_are_gone():
    async def main() -> tuple[int, int]:
        source = opened(Scripted(hang_on_h), failures=10_000, **LIMITS)
        hung, well = named("h", 12), named("w", 1)
        await asyncio.gather(*(hpa(source, query, 0.0, 40) for query in (*hung, *well)))
        known = len(source._laggards)
        await hpa(source, well[0], 0.0, 40)
        await source.aclose()
        return known, len(source._laggards)

    assert virtual_time.run(main()) == (12, 0)
