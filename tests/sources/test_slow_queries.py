"""Metrics that hang do not delay the answers of others; in virtual time."""

import asyncio
from collections.abc import Sequence

import pytest
from support import virtual_time
from support.scripted_source import A, B, C, Grouped, Scripted, opened
from support.virtual_time import in_virtual_time, now

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, Query
from hpad.sources import limits
from hpad.sources.limits import SlowQueries
from hpad.sources.source import QueriedSource

PERIOD = 15.0
PATIENCE = 9.0
LIMITS = {"budget": 8.1, "timeout": 8.1, "fresh": 5.0, "period": PERIOD, "rest": PERIOD}


def named(kind: str, number: int) -> list[Query]:
    return [testing.external(f"{kind}{index}") for index in range(number)]


async def hang_on_h(queries: Sequence[Query]) -> None:
    """A call with a metric h… never returns."""
    if any(query.name.startswith("h") for query in queries):
        await asyncio.Event().wait()


async def hpa(source: QueriedSource, query: Query, phase: float, periods: int) -> list[bool]:
    """Returns for each turn whether it got a sample."""
    await asyncio.sleep(phase)
    turns = []
    for _ in range(periods):
        due = now() + PERIOD
        future = source.ask(query)
        await asyncio.wait({future}, timeout=PATIENCE)
        turns.append(future.done() and isinstance(future.result(), ExternalSample))
        await asyncio.sleep(due - now())
    return turns


def turns_of(hanging: int, well: int, concurrency: int, together: bool) -> tuple[list[list[bool]], list[list[bool]]]:
    """Runs 24 periods of metrics that hang and of metrics that do not; returns the turns of both.

    `together`: all queries come at once, as after a start and after a reload; else they are spread over the period.
    """

    async def main() -> tuple[list[list[bool]], list[list[bool]]]:
        source = opened(Scripted(hang_on_h), concurrency=concurrency, **LIMITS)
        queries = [*named("h", hanging), *named("w", well)]
        spread = 0.0 if together else PERIOD / len(queries)
        turns = await asyncio.gather(*(hpa(source, query, n * spread, 24) for n, query in enumerate(queries)))
        await source.aclose()
        return turns[:hanging], turns[hanging:]

    return virtual_time.run(main())


@pytest.mark.parametrize(("hanging", "well", "concurrency"), [(1, 3, 1), (6, 3, 4), (20, 3, 4), (1, 100, 4)])
@pytest.mark.parametrize("together", [True, False])
def test_metrics_that_hang_do_not_delay_the_answers_of_others(
    hanging: int, well: int, concurrency: int, together: bool
):
    hung, answered = turns_of(hanging, well, concurrency, together)
    assert not any(map(any, hung))
    assert all(all(turns[16:]) for turns in answered), answered


@pytest.mark.parametrize(("hanging", "concurrency", "together"), [(1, 1, True), (20, 4, False)])
def test_without_isolation_metrics_that_hang_delay_others(
    hanging: int, concurrency: int, together: bool, monkeypatch: pytest.MonkeyPatch
):
    """Timeouts, the limit of concurrency and the circuit breaker do not suffice."""
    monkeypatch.setattr(SlowQueries, "learn", lambda *_: None)
    _, answered = turns_of(hanging, 3, concurrency, together)
    assert not all(all(turns[16:]) for turns in answered)


@in_virtual_time
async def test_a_source_that_times_out_as_a_whole_gets_a_bounded_number_of_calls():
    """1,000 metrics; nothing returns for two minutes."""
    adapter = Scripted()
    metrics, recovery, rounds = named("m", 1000), 120.0, 12

    async def hang(queries: Sequence[Query]) -> None:
        if now() < recovery:
            await asyncio.Event().wait()

    adapter.behave = hang
    source = opened(adapter, **{**LIMITS, "fresh": 0.0, "failures": 100})
    answered = []
    for number in range(rounds):
        await asyncio.sleep(number * PERIOD - now())
        asked = [source.ask(query) for query in metrics]
        await asyncio.wait(asked, timeout=PATIENCE)
        answered.append(all(future.done() and isinstance(future.result(), ExternalSample) for future in asked))
    per_period = [sum(begin <= at < begin + PERIOD for at, _ in adapter.batches) for begin in range(0, 180, 15)]
    assert max(per_period[:8]) <= 2 * limits.CallLimits().concurrency
    assert max(per_period) <= 6 * limits.BATCHES  # batches shrink as queries return: 16 * (1 + ln(1000 / 16)) calls
    assert answered[-1]
    assert per_period[-1] == 1  # one batch again


def alone(query: Query) -> None:
    return None


def learn(slow: SlowQueries, queries: Sequence[Query], late: bool, at: float = 0.0) -> None:
    slow.learn(dict.fromkeys(queries, late), at)


def test_many_slow_queries_go_in_a_few_calls():
    slow = SlowQueries(alone, PERIOD)
    metrics = named("m", 800)
    learn(slow, metrics, late=True)
    sizes = []
    while metrics:
        batch = slow.next_batch(metrics)
        sizes.append(len(batch))
        metrics = [query for query in metrics if query not in batch]
    assert sizes == [50] * limits.BATCHES


@in_virtual_time
async def test_the_queries_of_a_group_share_a_call_even_when_it_is_slow():
    adapter = Grouped(hang_on_h)
    hung, well = ([testing.external(name) for name in names] for names in (("h1", "h2", "h3"), ("w1", "w2")))
    source = opened(adapter, **{**LIMITS, "fresh": 0.0, "failures": 100})
    for _ in range(7):
        await asyncio.gather(*(source.ask(query) for query in (*hung, *well)))
    await source.aclose()
    assert adapter.names == ["h1h2h3w1w2"] * 7


async def late_on_h(queries: Sequence[Query]) -> list[Answer]:
    """A metric h… is an error after three seconds, for which the others of the call wait."""
    late = any(query.name.startswith("h") for query in queries)
    await asyncio.sleep(3 if late else 0)
    error, sample = AdapterError("no answer to hunter22", late=True), ExternalSample((1,), virtual_time.START)
    return [error if query.name.startswith("h") else sample for query in queries]


@pytest.mark.parametrize("adapter", [Scripted, Grouped])
def test_late_queries_share_calls_with_each_other_until_they_answer(adapter: type[Scripted]):
    async def main() -> list[str]:
        made = adapter(late_on_h)
        source = opened(made, fresh=5.0, period=PERIOD, retries=3)
        queries = [testing.external(name) for name in ("h1", "h2", "w1", "w2")]
        for number in range(5):
            made.behave = late_on_h if number < 2 else None
            await asyncio.gather(*map(source.ask, queries))
            await asyncio.sleep((number + 1) * PERIOD - now())
        await source.aclose()
        return made.names

    assert virtual_time.run(main()) == ["h1h2w1w2", *["w1w2", "h1h2"] * 2, *["h1h2w1w2"] * 2]


@pytest.mark.parametrize("isolated", [True, False])
def test_late_queries_keep_others_of_their_group_waiting_once(isolated: bool, monkeypatch: pytest.MonkeyPatch):
    """A call for one HPA also has the queries of its group that are expected soon."""
    if not isolated:
        monkeypatch.setattr(SlowQueries, "learn_late", lambda *_: None)

    async def wait(source: QueriedSource, query: Query, phase: float) -> list[float]:
        await asyncio.sleep(phase)
        waits = []
        for _ in range(4):
            began = now()
            await source.ask(query)
            waits.append(now() - began)
            await asyncio.sleep(began + PERIOD - now())
        return waits

    async def main() -> list[list[float]]:
        source = opened(Grouped(late_on_h), fresh=5.0, period=PERIOD)
        queries = [*named("w", 5), *named("h", 3), *named("x", 5)]
        waits = await asyncio.gather(*(wait(source, query, float(n)) for n, query in enumerate(queries)))
        await source.aclose()
        return [each for query, each in zip(queries, waits, strict=True) if query.name[0] != "h"]

    waits = virtual_time.run(main())
    assert (max(max(each[1:]) for each in waits) == 0) == isolated


@in_virtual_time
async def test_a_query_that_is_not_slow_is_asked_at_once_while_slow_ones_wait_for_a_call():
    source = opened(Scripted(hang_on_h), concurrency=2, failures=100, **LIMITS)
    hung = named("h", 4)
    for _ in range(5):
        await asyncio.gather(*map(source.ask, hung))
    for query in hung:
        source.ask(query)
    await asyncio.sleep(1)
    began = now()
    assert isinstance(await source.ask(A), ExternalSample)
    took = now() - began
    await source.aclose()
    assert took == 0.0


def test_slow_queries_go_after_the_others_and_one_by_one_until_they_answer():
    slow = SlowQueries(alone, PERIOD)
    learn(slow, [A], late=True)
    learn(slow, [B, C], late=True)
    waiting = [A, B, C, D := testing.external("d")]
    assert slow.next_batch(waiting) == [D]
    assert len(slow.next_batch([A, B, C])) == 1
    assert [slow.must_be_tried_alone(query) for query in waiting] == [False, True, True, False]
    learn(slow, [B], late=False)
    assert slow.next_batch(waiting) == [B, D]
    learn(slow, [A, C], late=False)
    assert len(slow) == 0
    assert slow.next_batch(waiting) == waiting


def test_the_number_of_slow_queries_is_bounded():
    slow = SlowQueries(alone, PERIOD)
    metrics = named("m", limits.MOST_SLOW + 10)
    learn(slow, metrics[:10], late=True)
    learn(slow, metrics[10:], late=True)
    assert len(slow) == limits.MOST_SLOW
    assert metrics[0] not in slow
    assert metrics[-1] in slow


def test_the_number_of_late_queries_is_bounded():
    slow = SlowQueries(alone, PERIOD)
    metrics = named("m", limits.MOST_SLOW + 10)
    slow.learn_late(dict.fromkeys(metrics, True), 0.0)
    assert [metrics[0] in slow, metrics[-1] in slow] == [False, True]
    slow.learn_late({A: True}, 1200.0)
    assert [metrics[-1] in slow, A in slow] == [False, True]


def test_slow_queries_whose_hpas_are_gone_are_forgotten():
    """Otherwise they would count as slow for ever, and the batches of the others would grow."""
    slow = SlowQueries(alone, PERIOD)
    gone, remaining = named("g", 50), named("l", 2)
    learn(slow, gone, late=True)
    for moment in range(0, 1200, 60):
        learn(slow, remaining, late=True, at=float(moment))
    assert gone[0] not in slow
    assert len(slow) == len(remaining)
    assert slow.must_be_tried_alone(remaining[0])
