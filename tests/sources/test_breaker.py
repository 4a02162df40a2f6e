"""The circuit breaker of a source, in virtual time."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
import structlog
from support import virtual_time
from support.scripted_source import DOWN, A, B, C, Scripted, failing, opened
from support.virtual_time import in_virtual_time, now

from hpad import testing
from hpad.adapter import AdapterError, ExternalSample, Query
from hpad.sources import limits
from hpad.sources.limits import Breaker


@in_virtual_time
async def test_a_failing_source_is_called_about_once_per_rest():
    async def behave(queries: Sequence[Query]) -> Any:
        if now() < 60:
            raise DOWN

    adapter = Scripted(behave)
    source = opened(adapter, failures=5, rest=15.0)
    answers = []
    for _ in range(80):
        answers.append(await source.ask(A))
        await asyncio.sleep(1)
    calls = [moment for moment, _ in adapter.batches]
    assert calls[:15] == list(range(15))
    assert calls[15:20] == [28, 42, 56, 70, 71]  # a tenth of a rest may be missing: 13.5 seconds
    assert answers[20] == AdapterError('the broker is down; source "mine" keeps failing and is asked again every 15s')
    assert isinstance(answers[70], ExternalSample)
    assert source.report("x").state == limits.OK


@in_virtual_time
async def test_without_the_breaker_a_failing_source_is_called_at_each_turn():
    async def behave(queries: Sequence[Query]) -> Any:
        raise DOWN

    adapter = Scripted(behave)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Breaker, "failed", lambda *_: None)
        source = opened(adapter, failures=5, rest=15.0)
        for _ in range(60):
            await source.ask(A)
            await asyncio.sleep(1)
    assert len(adapter.batches) == 60


@in_virtual_time
async def test_one_metric_that_works_now_and_then_keeps_the_breaker_closed():
    """Many HPAs with a metric that fails must not open the breaker for an HPA whose metric works."""

    async def behave(queries: Sequence[Query]) -> Any:
        if A not in queries:
            raise DOWN

    source = opened(Scripted(behave))
    for turn in range(60):
        await source.ask(A if turn % 14 == 0 else B)
        await asyncio.sleep(1)
    assert isinstance(await source.ask(A), ExternalSample)


@in_virtual_time
async def test_a_metric_that_never_failed_is_asked_while_the_breaker_is_open():
    """All metrics in use may be misspelt: a correct one that is added must still be read."""

    async def behave(queries: Sequence[Query]) -> Any:
        if C not in queries:
            raise DOWN

    source = opened(Scripted(behave))
    for _ in range(20):
        await source.ask(A)
        await asyncio.sleep(1)
    assert source.report("x").state == limits.OPEN
    assert await source.ask(B) == DOWN or "keeps failing" in str(await source.ask(B))
    assert isinstance(await source.ask(C), ExternalSample)
    assert source.report("x").state == limits.OK


@in_virtual_time
async def test_a_plain_source_repeats_its_last_error_while_the_breaker_is_open():
    """A condition keeps the text of Kubernetes, however long its metrics API is down."""

    async def behave(queries: Sequence[Query]) -> Any:
        return [AdapterError(f"no {query.name}: the server is down") for query in queries]

    adapter = Scripted(behave)
    source = opened(adapter, plain=True)
    for _ in range(60):
        for query in (A, B):
            assert str(await source.ask(query)) == f"no {query.name}: the server is down"
        await asyncio.sleep(1)
    assert len(adapter.batches) < 60


@in_virtual_time
async def test_errors_of_hpa_authors_never_open_the_breaker():
    async def behave(queries: Sequence[Query]) -> Any:
        raise AdapterError("no such queue", "spec")

    adapter = Scripted(behave)
    source = opened(adapter)
    for _ in range(60):
        await source.ask(A)
        await asyncio.sleep(1)
    assert len(adapter.batches) == 60


def test_during_a_trial_call_other_calls_are_refused():
    breaker = Breaker("mine", 1, 15.0)
    breaker.failed(0, DOWN)
    assert breaker.refusal(0.1) is None
    breaker.failed(15, DOWN)
    assert breaker.refusal(28.4) is not None
    assert breaker.refusal(29.9) is None
    assert breaker.begin()
    assert breaker.refusal(30.0) is not None
    breaker.failed(30, DOWN)
    assert breaker.refusal(43.4) is not None
    breaker.begin()
    breaker.succeeded()
    assert breaker.refusal(45.0) is None
    assert breaker.state == limits.OK


@in_virtual_time
async def test_the_only_hpa_of_a_source_calls_it_at_each_turn():
    """So the HPA has its metric a period after the source recovered, although calls take time and turns vary."""
    dice = random.Random(20261121)
    recovery = 10

    async def behave(queries: Sequence[Query]) -> None:
        await asyncio.sleep(dice.uniform(0, 4))
        if len(adapter.batches) < recovery:
            raise DOWN

    adapter = Scripted(behave)
    source = opened(adapter, failures=3, rest=15.0)
    for turn in range(recovery):
        await asyncio.sleep(max(0.0, turn * 15 + dice.uniform(-0.3, 0.3) - now()))
        answer = await source.ask(A)
        assert len(adapter.batches) == turn + 1
    assert not isinstance(answer, AdapterError)


@in_virtual_time
async def test_an_adapter_that_blocks_the_loop_is_named_and_called_less_and_less():
    async def behave(queries: Sequence[Query]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualLoop)
        loop.jump(2.5)

    adapter = Scripted(behave)
    source = opened(adapter, rest=15.0)
    error = await source.ask(A)
    assert error == AdapterError('source "mine" blocked the event loop for 2.5s, a bug of its adapter', "bug")
    for _ in range(150):
        assert "blocked the event loop for 2.5s" in (await source.ask(A)).message
        await asyncio.sleep(1)
    gaps = [later - earlier for (earlier, _), (later, _) in zip(adapter.batches, adapter.batches[1:], strict=False)]
    assert len(gaps) == 3
    assert gaps == sorted(gaps)
    assert gaps[0] >= 15
    assert gaps[1] >= 30


@in_virtual_time
async def test_an_adapter_that_blocks_the_loop_is_logged_once():
    async def behave(queries: Sequence[Query]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualLoop)
        loop.jump(2.5 if now() < 2000 else 0.0)

    with structlog.testing.capture_logs() as logged:
        adapter = Scripted(behave)
        source = opened(adapter, rest=15.0)
        while now() < 3000:
            await source.ask(A)
            await asyncio.sleep(15)
    calls, logged = len(adapter.batches), logged
    assert [line["event"] for line in logged] == [
        "the adapter blocked the event loop",
        "the adapter no longer blocks the event loop",
    ]
    assert [line["source"] for line in logged] == ["mine", "mine"]
    assert logged[0]["seconds"] == 2.5
    assert 5 <= logged[1]["times"] < calls


@in_virtual_time
async def test_the_number_of_failing_metrics_that_are_remembered_is_bounded():
    """While the breaker is open, a metric known to fail is refused at once; a forgotten one waits for a call."""
    source = opened(Scripted(failing), rate=1e9, failures=1, rest=1e6)
    metrics = [testing.external(f"m-{number}") for number in range(30_000)]
    for start in range(0, len(metrics), 5000):
        await asyncio.sleep(2e6)
        await asyncio.gather(*map(source.ask, metrics[start : start + 5000]))
    refused = [query.name for query in metrics if source.ask(query).done()]
    assert 10_000 < len(refused) <= 1 << 14
    assert refused[-1] == metrics[-1].name
    assert not any(isinstance(key, Query) for key in source._failed), "authors choose how long a query is"
    await source.aclose()
