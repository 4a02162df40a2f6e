"""The circuit breaker of a source, in virtual time."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import structlog
from support import virtual_time
from support.scripted_source import DOWN, A, B, C, Scripted, now, opened

from hpad import testing
from hpad.adapter import AdapterError, ExternalSample, Query
from hpad.sources import report
from hpad.sources.limits import Breaker


def test_a_source_that_keeps_failing_is_tried_about_once_a_rest():
    async def behave(queries: Sequence[Query]) -> Any:
        if now() < 60:
            raise DOWN

    async def main() -> None:
        adapter = Scripted(behave)
        source = opened(adapter, failures=5, rest=15.0, fresh=0.0)
        said = []
        for _ in range(80):
            said.append(await source.ask(A))
            await asyncio.sleep(1)
        calls = [moment for moment, _ in adapter.batches]
        assert calls[:15] == list(range(15))
        assert calls[15:20] == [28, 42, 56, 70, 71]  # a tenth of a rest may be missing: 13.5 seconds
        assert said[20] == AdapterError(
            'source "mine" keeps failing and is asked again every 15s; its last failure: the broker is down'
        )
        assert isinstance(said[70], ExternalSample)
        assert source.report("x").state == report.OK

    virtual_time.run(main())


def test_one_metric_that_works_now_and_then_keeps_the_source_in_use():
    """Many HPAs with a metric that fails must not open the breaker for an HPA whose metric works."""

    async def behave(queries: Sequence[Query]) -> Any:
        if A not in queries:
            raise DOWN

    async def main() -> None:
        source = opened(Scripted(behave), fresh=0.0)
        for turn in range(60):
            await source.ask(A if turn % 14 == 0 else B)
            await asyncio.sleep(1)
        assert isinstance(await source.ask(A), ExternalSample)

    virtual_time.run(main())


def test_a_metric_that_never_failed_is_asked_while_the_breaker_is_open():
    """All metrics in use may be misspelt: that must not keep out the first one that is not."""

    async def behave(queries: Sequence[Query]) -> Any:
        if C not in queries:
            raise DOWN

    async def main() -> None:
        source = opened(Scripted(behave), fresh=0.0)
        for _ in range(20):
            await source.ask(A)
            await asyncio.sleep(1)
        assert source.report("x").state == report.OPEN
        assert await source.ask(B) == DOWN or "keeps failing" in str(await source.ask(B))
        assert isinstance(await source.ask(C), ExternalSample)
        assert source.report("x").state == report.OK

    virtual_time.run(main())


def test_a_plain_source_repeats_its_last_error_while_the_breaker_is_open():
    """So that a condition reads as Kubernetes has it, however long its metrics API is down."""

    async def behave(queries: Sequence[Query]) -> Any:
        return [AdapterError(f"no {query.name}: the server is down") for query in queries]

    async def main() -> None:
        adapter = Scripted(behave)
        source = opened(adapter, plain=True, fresh=0.0)
        for _ in range(60):
            for query in (A, B):
                assert str(await source.ask(query)) == f"no {query.name}: the server is down"
            await asyncio.sleep(1)
        assert len(adapter.batches) < 60

    virtual_time.run(main())


def test_errors_of_hpa_authors_never_open_the_breaker():
    async def behave(queries: Sequence[Query]) -> Any:
        raise AdapterError("no such queue", "spec")

    async def main() -> None:
        adapter = Scripted(behave)
        source = opened(adapter, fresh=0.0)
        for _ in range(60):
            await source.ask(A)
            await asyncio.sleep(1)
        assert len(adapter.batches) == 60

    virtual_time.run(main())


def test_during_a_trial_other_calls_are_refused():
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
    assert breaker.state == report.OK


def test_an_hpa_that_is_alone_with_its_source_tries_it_at_each_of_its_turns():
    """And so has its metric a period after the source is well again, though failing takes time and turns waver."""
    dice = random.Random(20261121)
    well = 10

    async def behave(queries: Sequence[Query]) -> None:
        await asyncio.sleep(dice.uniform(0, 4))
        if len(adapter.batches) < well:
            raise DOWN

    adapter = Scripted(behave)

    async def main() -> None:
        source = opened(adapter, failures=3, rest=15.0, fresh=0.0)
        for turn in range(well):
            await asyncio.sleep(max(0.0, turn * 15 + dice.uniform(-0.3, 0.3) - now()))
            answer = await source.ask(A)
            assert len(adapter.batches) == turn + 1
        assert not isinstance(answer, AdapterError)

    virtual_time.run(main())


def test_an_adapter_that_blocks_the_loop_is_named_and_asked_less_each_time():
    async def behave(queries: Sequence[Query]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualLoop)
        loop.jump(2.5)

    async def main() -> None:
        adapter = Scripted(behave)
        source = opened(adapter, rest=15.0, fresh=0.0)
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

    virtual_time.run(main())


def test_an_adapter_that_blocks_the_loop_is_logged_once():
    async def behave(queries: Sequence[Query]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualLoop)
        loop.jump(2.5 if now() < 2000 else 0.0)

    async def main() -> tuple[int, list[Any]]:
        with structlog.testing.capture_logs() as logged:
            adapter = Scripted(behave)
            source = opened(adapter, rest=15.0, fresh=0.0)
            while now() < 3000:
                await source.ask(A)
                await asyncio.sleep(15)
        return len(adapter.batches), logged

    calls, logged = virtual_time.run(main())
    assert [line["event"] for line in logged] == [
        "the adapter blocked the event loop",
        "the adapter no longer blocks the event loop",
    ]
    assert (logged[0]["source"], logged[0]["seconds"]) == ("mine", 2.5)
    assert 5 <= logged[1]["times"] < calls


def test_the_number_of_failing_metrics_that_are_remembered_is_bounded():
    async def main():
        async def down(queries):
            raise DOWN

        adapter = Scripted(down)
        source = opened(adapter, rate=1e9, failures=1, rest=0.001)
        for turn in range(6):
            asked = [source.ask(testing.external(f"m-{turn}-{number}")) for number in range(5000)]
            await asyncio.gather(*asked)
            await asyncio.sleep(1)
        held = getattr(source, "_failed")  # noqa: B009  # what is not to be seen from outside
        assert 10_000 < len(held) <= 1 << 14
        await source.aclose()

    virtual_time.run(main())
