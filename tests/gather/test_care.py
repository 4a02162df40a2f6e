"""How a source is spared: answers shared, failed attempts repeated, a failing source left alone; in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import structlog
import virtual

from hpad import testing
from hpad.adapter import EXTERNAL, AdapterError, Answer, ExternalSample, PodSample, PodValue, Query
from hpad.gather import answers, report
from hpad.gather.breaker import Breaker
from hpad.gather.limits import Limits
from hpad.gather.pace import Pace
from hpad.gather.redact import Redactor
from hpad.gather.source import Source

A, B, C = (testing.external(name) for name in "abc")
DOWN = AdapterError("the broker is down")


def now() -> float:
    return asyncio.get_running_loop().time()


class Scripted:
    """Answers with the second at which it was asked, unless `behave` has something else to say."""

    serves = frozenset({EXTERNAL})
    Settings = msgspec.Struct

    def __init__(self, behave: Callable[[Sequence[Query]], Awaitable[Any]] | None = None) -> None:
        self.batches: list[tuple[float, str]] = []
        self._behave = behave

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        self.batches.append((now(), "".join(sorted(query.name for query in queries))))
        moment = virtual.VirtualClock().now()
        said = await self._behave(queries) if self._behave is not None else None
        return said or [ExternalSample((int(now()),), moment) for _ in queries]

    async def aclose(self) -> None:
        """Nothing."""


class Grouped(Scripted):
    """One list serves a namespace."""

    def group(self, query: Query) -> str:
        return query.namespace


def opened(adapter: Scripted, *, plain: bool = False, **limits: Any) -> Source:
    told = Limits(**{"retries": 0, **limits})
    return Source(
        "mine", adapter, clock=virtual.VirtualClock(), log=structlog.get_logger(), observer=lambda *_: None,
        limits=told, redact=Redactor({"password": "hunter22"}), plain=plain,
    )  # fmt: skip


async def failing(queries: Sequence[Query]) -> None:
    raise DOWN


def test_an_answer_is_shared_until_it_is_stale_and_keeps_its_timestamp():
    async def main() -> None:
        adapter = Scripted()
        source = opened(adapter, fresh=5.0)
        first = await source.ask(A)
        await asyncio.sleep(5)
        assert await source.ask(A) is first
        assert first.timestamp == virtual.START
        await asyncio.sleep(0.1)
        assert (await source.ask(A)).timestamp == virtual.START + timedelta(seconds=5.1)
        assert len(adapter.batches) == 2
        held = source.report("x")
        assert (held.asked, held.hits, held.hit_rate, held.calls) == (3, 1, 1 / 3, 2)

    virtual.run(main())


def test_an_answer_under_way_is_shared():
    async def main() -> None:
        adapter = Scripted(lambda _: asyncio.sleep(2))
        source = opened(adapter, fresh=5.0)
        first = source.ask(A)
        await asyncio.sleep(1)
        assert await source.ask(A) is await first
        assert len(adapter.batches) == 1

    virtual.run(main())


def test_without_freshness_nothing_is_shared():
    async def main() -> None:
        adapter = Scripted()
        source = opened(adapter, fresh=0.0)
        await source.ask(A)
        await source.ask(A)
        assert len(adapter.batches) == 2

    virtual.run(main())


def test_errors_are_not_kept():
    async def main() -> None:
        adapter = Scripted(failing)
        source = opened(adapter, fresh=5.0)
        assert [await source.ask(A), await source.ask(A)] == [DOWN, DOWN]
        assert len(adapter.batches) == 2

    virtual.run(main())


@pytest.mark.parametrize(("kind", "most"), [(Scripted, 30), (Grouped, 3)])
def test_a_group_is_read_for_all_who_ask_in_the_course_of_a_period(kind, most):
    """30 HPAs, spread over 15 seconds, answers fresh for 5: three lists a period instead of 30 calls."""

    async def main() -> None:
        adapter = kind()
        source = opened(adapter, fresh=5.0, period=15.0)

        async def hpa(number: int) -> None:
            await asyncio.sleep(number * 0.5)
            for _ in range(3):
                answer = await source.ask(testing.external(f"m{number}"))
                assert virtual.VirtualClock().now() - answer.timestamp <= timedelta(seconds=5)
                await asyncio.sleep(15)

        await asyncio.gather(*(hpa(number) for number in range(30)))
        assert sum(1 for moment, _ in adapter.batches if 29.9 < moment < 44.9) <= most + 1

    virtual.run(main())


def test_what_nobody_asks_any_more_is_not_read_either():
    async def main() -> None:
        adapter = Grouped()
        source = opened(adapter, fresh=5.0, period=15.0)
        await source.ask(A)
        await source.ask(B)
        for _ in range(6):
            await asyncio.sleep(15)
            await source.ask(A)
        assert adapter.batches[-1][1] == "a"

    virtual.run(main())


def test_a_failed_attempt_is_repeated_for_those_it_failed_for():
    async def behave(queries: Sequence[Query]) -> Any:
        if now() == 0:
            return [DOWN if query == B else ExternalSample((1,), virtual.START) for query in queries]
        return None

    async def main() -> None:
        adapter = Scripted(behave)
        source = opened(adapter, retries=2)
        answered = await asyncio.gather(source.ask(A), source.ask(B))
        assert all(isinstance(answer, ExternalSample) for answer in answered)
        assert [names for _, names in adapter.batches] == ["ab", "b"]
        assert 0.1 <= now() <= 0.3
        assert source.report("x").retries == 1

    virtual.run(main())


@pytest.mark.parametrize(
    "error",
    [AdapterError("no such queue", "spec"), AdapterError("x", "bug"), AdapterError("401", lasting=True)],
)
def test_what_will_not_get_better_is_not_repeated(error):
    async def behave(queries: Sequence[Query]) -> Any:
        return [error] * len(queries)

    async def main() -> None:
        adapter = Scripted(behave)
        assert await opened(adapter, retries=3).ask(A) == error
        assert len(adapter.batches) == 1

    virtual.run(main())


def test_retries_end_within_the_budget_of_the_call():
    async def behave(queries: Sequence[Query]) -> Any:
        await asyncio.sleep(3)
        raise DOWN

    async def main() -> None:
        adapter = Scripted(behave)
        assert await opened(adapter, retries=9, budget=8.0).ask(A)
        assert now() <= 8.0

    virtual.run(main())


def test_a_source_that_keeps_failing_is_left_alone_and_tried_once_a_rest():
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
        assert calls[:16] == list(range(16))
        assert calls[16:20] == [30, 45, 60, 61]
        assert said[20] == AdapterError(
            'source "mine" keeps failing and is asked again every 15s; its last failure: the broker is down'
        )
        assert isinstance(said[60], ExternalSample)
        assert source.report("x").state == report.OK

    virtual.run(main())


def test_one_metric_that_works_now_and_then_keeps_the_source_in_use():
    """Many HPAs of a metric that fails must not take the source from one whose metric is there."""

    async def behave(queries: Sequence[Query]) -> Any:
        if A not in queries:
            raise DOWN

    async def main() -> None:
        source = opened(Scripted(behave), fresh=0.0)
        for turn in range(60):
            await source.ask(A if turn % 14 == 0 else B)
            await asyncio.sleep(1)
        assert isinstance(await source.ask(A), ExternalSample)

    virtual.run(main())


def test_a_metric_that_never_failed_is_asked_even_of_a_source_that_is_left_alone():
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

    virtual.run(main())


def test_a_plain_source_says_what_it_said_of_that_metric_while_it_is_left_alone():
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

    virtual.run(main())


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

    virtual.run(main())


def test_while_one_call_is_on_trial_the_others_do_without():
    breaker = Breaker("mine", 1, 15.0)
    breaker.failed(0, DOWN)
    assert breaker.refusal(0.1) is None
    breaker.failed(15, DOWN)
    assert breaker.refusal(29.9) is not None
    assert breaker.refusal(30.0) is None
    assert breaker.begin()
    assert breaker.refusal(30.0) is not None
    breaker.failed(31, DOWN)
    assert breaker.refusal(45.9) is not None
    breaker.begin()
    breaker.succeeded()
    assert breaker.refusal(46.0) is None
    assert breaker.state == report.OK


def test_an_adapter_that_holds_up_the_loop_is_named_and_kept_away_longer_each_time():
    async def behave(queries: Sequence[Query]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual.VirtualLoop)
        loop.jump(2.5)

    async def main() -> None:
        adapter = Scripted(behave)
        source = opened(adapter, rest=15.0, fresh=0.0)
        error = await source.ask(A)
        assert error == AdapterError('source "mine" held up all of hpad for 2.5s, a bug of its adapter', "bug")
        for _ in range(150):
            assert "held up all of hpad for 2.5s" in (await source.ask(A)).message
            await asyncio.sleep(1)
        gaps = [later - earlier for (earlier, _), (later, _) in zip(adapter.batches, adapter.batches[1:], strict=False)]
        assert len(gaps) == 3
        assert gaps == sorted(gaps)
        assert gaps[0] >= 15
        assert gaps[1] >= 30

    virtual.run(main())


def test_calls_keep_to_the_rate_and_those_who_wait_share_one():
    async def main() -> None:
        adapter = Scripted()
        source = opened(adapter, rate=2.0, fresh=0.0)
        for _ in range(100):
            source.ask(A)
            await asyncio.sleep(0.1)
        assert len(adapter.batches) <= 2 + 10 * 2

    virtual.run(main())


def test_the_pace_is_a_bucket_of_a_second():
    pace = Pace(2.0)
    assert [pace.take(0), pace.take(0)] == [0, 0]
    assert pace.take(0) == pytest.approx(0.5)
    assert pace.take(0.5) == 0
    assert [pace.take(100), pace.take(100)] == [0, 0]
    assert pace.take(100) > 0


def test_a_sample_that_is_too_old_is_an_error():
    old = virtual.START - timedelta(seconds=95)

    async def behave(queries: Sequence[Query]) -> Any:
        return [ExternalSample((1,), old)]

    async def main() -> None:
        error = await opened(Scripted(behave), max_age=60.0).ask(A)
        assert error == AdapterError('source "mine": sample is 95s old, older than max_age 60s')

    virtual.run(main())


def test_a_pod_whose_value_is_too_old_has_none():
    moments = {"young": virtual.START, "old": virtual.START - timedelta(minutes=5)}
    sample = PodSample(
        {pod: PodValue(1, moment, timedelta(seconds=30)) for pod, moment in moments.items()}, virtual.START
    )
    left = answers.not_too_old("s", sample, virtual.START, 60)
    assert isinstance(left, PodSample)
    assert list(left.values) == ["young"]
    assert answers.not_too_old("s", sample, virtual.START, None) is sample


def test_a_secret_in_an_error_is_not_passed_on():
    async def behave(queries: Sequence[Query]) -> Any:
        raise AdapterError("login as admin:hunter22 at http://admin:x@broker failed")

    async def main() -> None:
        error = await opened(Scripted(behave)).ask(A)
        assert error.message == "login as admin:*** at http://***@broker failed"

    virtual.run(main())


@pytest.mark.parametrize(
    ("settings", "text", "shown"),
    [
        ({"password": "hunter22"}, "wrong: hunter22", "wrong: ***"),
        ({"headers": {"Authorization": "Bearer abcdef"}}, "token abcdef", "token ***"),
        ({"metrics": {"a": {"api_key": "k-12345"}}}, "k-12345", "***"),
        ({"password_file": "/run/pw"}, "cannot read /run/pw", "cannot read /run/pw"),
        ({"url": "http://host"}, "http://host is down", "http://host is down"),
        ({"password": "ab"}, "absent", "absent"),
        ({}, "x" * 2000, "x" * 1000 + "…"),
    ],
)
def test_what_is_redacted(settings, text, shown):
    assert Redactor(settings)(text) == shown


def test_a_timestamp_of_the_future_is_nonsense():
    later = virtual.START + timedelta(minutes=6)
    [error] = answers.checked("mine", [A], [ExternalSample((1,), later)], virtual.START)
    assert error.blame == "bug"
    assert "lies in the future" in error.message
    near = ExternalSample((1,), virtual.START + timedelta(minutes=4))
    assert answers.checked("mine", [A], [near], virtual.START) == [near]
