"""Calls of a source: shared answers, retries, rate limit, redaction; in virtual time."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support import engine, virtual_time
from support.scripted_source import DOWN, A, B, Grouped, Scripted, failing, opened, sleeping
from support.virtual_time import in_virtual_time, now

from hpad import testing
from hpad.adapter import RESOURCE, AdapterError, ExternalSample, PodSample, PodValue, Query
from hpad.api import settings_errors
from hpad.cli import config
from hpad.sources import call, limits
from hpad.sources import source as sources
from hpad.sources.limits import RateLimit
from hpad.sources.redact import Redactor
from hpad.sources.source import QueriedSource

DEFAULTS = limits.CallLimits()
CPU = Query(type=RESOURCE, namespace="shop", name="cpu")
SPAN = timedelta(seconds=30)


@in_virtual_time
async def test_an_answer_is_shared_until_it_is_stale_and_keeps_its_timestamp():
    adapter = Scripted()
    source = opened(adapter, fresh=5.0)
    first = await source.ask(A)
    await asyncio.sleep(5)
    assert await source.ask(A) is first
    assert first.timestamp == virtual_time.START
    await asyncio.sleep(0.1)
    assert (await source.ask(A)).timestamp == virtual_time.START + timedelta(seconds=5.1)
    assert len(adapter.batches) == 2
    counts = source.report("x")
    assert (counts.asked, counts.hits, counts.calls) == (3, 1, 2)


@in_virtual_time
async def test_an_hpa_with_a_shorter_period_shares_answers_for_a_third_of_it():
    adapter = Scripted()
    source = opened(adapter, fresh=5.0)
    await source.ask(A)
    await asyncio.sleep(0.6)
    await source.ask(A, period=2.0)
    assert len(adapter.batches) == 1
    await asyncio.sleep(0.1)
    await source.ask(A, period=2.0)
    assert len(adapter.batches) == 2
    await asyncio.sleep(4.9)
    await source.ask(A)
    assert len(adapter.batches) == 2
    await source.ask(A, period=3600.0)
    assert len(adapter.batches) == 2
    await asyncio.sleep(0.2)
    await source.ask(A, period=3600.0)
    assert len(adapter.batches) == 3


@in_virtual_time
async def test_a_configured_age_of_answers_holds_for_every_period():
    adapter = Scripted()
    source = opened(adapter, fresh=5.0, fresh_is_default=False)
    await source.ask(A)
    await asyncio.sleep(4)
    await source.ask(A, period=2.0)
    assert len(adapter.batches) == 1


@in_virtual_time
async def test_an_hpa_with_a_shorter_period_waits_for_a_call_that_is_running():
    adapter = Scripted(sleeping(3))
    source = opened(adapter, fresh=5.0)
    first = source.ask(A)
    await asyncio.sleep(2)
    assert await source.ask(A, period=2.0) is await first
    assert len(adapter.batches) == 1


@in_virtual_time
async def test_the_answer_of_a_running_call_is_shared():
    adapter = Scripted(sleeping(2))
    source = opened(adapter, fresh=5.0)
    first = source.ask(A)
    await asyncio.sleep(1)
    assert await source.ask(A) is await first
    assert len(adapter.batches) == 1


@in_virtual_time
async def test_without_freshness_nothing_is_shared():
    adapter = Scripted()
    source = opened(adapter)
    await source.ask(A)
    await source.ask(A)
    assert len(adapter.batches) == 2


@in_virtual_time
async def test_errors_are_not_cached():
    adapter = Scripted(failing)
    source = opened(adapter, fresh=5.0)
    assert [await source.ask(A), await source.ask(A)] == [DOWN, DOWN]
    assert len(adapter.batches) == 2


@pytest.mark.parametrize(("kind", "most"), [(Scripted, 30), (Grouped, 3)])
@in_virtual_time
async def test_a_group_shares_calls_over_the_period(kind, most):
    """30 HPAs, spread over 15 seconds, answers fresh for 5: three lists a period instead of 30 calls."""
    adapter = kind()
    source = opened(adapter, fresh=5.0, period=15.0)

    async def hpa(number: int) -> None:
        await asyncio.sleep(number * 0.5)
        for _ in range(3):
            answer = await source.ask(testing.external(f"m{number}"))
            assert virtual_time.VirtualClock().now() - answer.timestamp <= timedelta(seconds=5)
            await asyncio.sleep(15)

    await asyncio.gather(*(hpa(number) for number in range(30)))
    assert sum(1 for moment, _ in adapter.batches if 29.9 < moment < 44.9) <= most + 1


@in_virtual_time
async def test_a_query_that_no_longer_comes_is_left_out_of_calls():
    adapter = Grouped()
    source = opened(adapter, fresh=5.0, period=15.0)
    await source.ask(A)
    await source.ask(B)
    for _ in range(6):
        await asyncio.sleep(15)
        await source.ask(A)
    assert adapter.batches[-1][1] == "a"


@in_virtual_time
async def test_a_failed_attempt_is_retried_for_the_queries_that_failed():
    async def behave(queries: Sequence[Query]) -> Any:
        if now() == 0:
            return [DOWN if query == B else ExternalSample((1,), virtual_time.START) for query in queries]
        return None

    adapter = Scripted(behave)
    source = opened(adapter, retries=2)
    answered = await asyncio.gather(source.ask(A), source.ask(B))
    assert all(isinstance(answer, ExternalSample) for answer in answered)
    assert adapter.names == ["ab", "b"]
    assert 0.1 <= now() <= 0.3
    assert source.report("x").retries == 1


@pytest.mark.parametrize(
    "error",
    [
        AdapterError("no such queue", "spec"),
        AdapterError("x", "bug"),
        AdapterError("401", lasting=True),
        AdapterError("the queue has no rates yet", alive=True),
    ],
)
@in_virtual_time
async def test_what_another_attempt_would_not_change_is_not_retried(error):
    async def behave(queries: Sequence[Query]) -> Any:
        return [error] * len(queries)

    adapter = Scripted(behave)
    assert await opened(adapter, retries=3).ask(A) == error
    assert len(adapter.batches) == 1


@in_virtual_time
async def test_retries_end_within_the_budget_of_the_call():
    async def behave(queries: Sequence[Query]) -> Any:
        await asyncio.sleep(3)
        raise DOWN

    adapter = Scripted(behave)
    assert await opened(adapter, retries=9, budget=8.0).ask(A)
    assert now() <= 8.0


@in_virtual_time
async def test_a_retry_that_times_out_leaves_the_error_of_the_first_attempt():
    """It is the more exact one. The query is slow all the same."""

    async def behave(queries: Sequence[Query]) -> Any:
        await asyncio.sleep(5)
        return [AdapterError("the server answered 503")]

    source = opened(Scripted(behave), retries=2, timeout=8.0, budget=8.0)
    answer = await source.ask(A)
    assert answer.message == "the server answered 503"
    assert now() == 8.0
    assert A in source._slow
    assert source.report("x").state == "failing"


@in_virtual_time
async def test_the_number_of_attempts_that_never_end_is_bounded():
    """The adapter ignores its cancellation: a bounded number of its calls is abandoned, and it is called again as soon
    as they end."""
    ends = asyncio.Event()

    async def deaf(queries):
        while not ends.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await ends.wait()

    adapter = Scripted(deaf)
    source = opened(adapter, timeout=1.0, failures=10**6)
    try:
        errors = [str(await source.ask(A)) for _ in range(call.MOST_ABANDONED + 5)]
    finally:
        ends.set()
    assert len(adapter.batches) == call.MOST_ABANDONED
    assert errors[0] == 'source "mine" did not answer within 1s'
    assert f"has {call.MOST_ABANDONED} calls that do not end even when they are cancelled" in errors[-1]
    await asyncio.sleep(1)
    assert isinstance(await source.ask(A), ExternalSample)
    await source.aclose()


@in_virtual_time
async def test_calls_keep_to_the_rate_limit_and_waiting_queries_share_one():
    adapter = Scripted()
    source = opened(adapter, rate=2.0)
    for _ in range(100):
        source.ask(A)
        await asyncio.sleep(0.1)
    assert len(adapter.batches) <= 2 + 10 * 2


@in_virtual_time
async def test_the_error_of_a_query_delayed_by_the_rate_limit_keeps_its_text():
    """A text that changes costs a status write per period."""
    limited = 'no answer to "b": source "mine" is limited to 0.1 calls a second'
    source = opened(Scripted(), rate=0.1)
    await source.ask(A)
    waiting = source.ask(B)
    messages = []
    for _ in range(3):
        await asyncio.sleep(4)
        error = source.rate_limit_error(B)
        messages.append(None if error is None else error.message)
    assert source.rate_limit_error(A) is None  # it has its answer
    assert isinstance(await waiting, ExternalSample)
    assert messages == [limited, limited, None]


def test_the_rate_limit_allows_bursts_of_a_second():
    limit = RateLimit(2.0)
    assert [limit.take(0), limit.take(0)] == [0, 0]
    assert limit.take(0) == pytest.approx(0.5)
    assert limit.take(0.5) == 0
    assert [limit.take(100), limit.take(100)] == [0, 0]
    assert limit.take(100) > 0


@pytest.mark.parametrize(("rate", "answered"), [(DEFAULTS.rate, False), (DEFAULTS.concurrency / 7.0, True)])
@in_virtual_time
async def test_a_rate_limit_spreads_calls_that_take_most_of_the_patience(rate: float, answered: bool):
    """The queries are spread over the period, and calls take 7 of the 9 seconds that a reconcile waits.

    Without a low rate limit, all calls begin at once; a later HPA waits for one to end and then for its own, too long.
    """
    patience = limits.PERIOD * limits.PATIENCE

    async def last(_: Sequence[Query]) -> None:
        await asyncio.sleep(7.0)

    async def hpa(source: QueriedSource, number: int) -> list[bool]:
        turns = []
        for turn in range(4):
            await asyncio.sleep(limits.PERIOD * (turn + number / 20) - now())
            answer = source.ask(testing.external(f"m{number}"))
            await asyncio.wait({answer}, timeout=patience)
            turns.append(answer.done() and isinstance(answer.result(), ExternalSample))
        return turns

    source = opened(Scripted(last), rate=rate)
    turns = await asyncio.gather(*(hpa(source, number) for number in range(20)))
    assert all(map(all, turns)) is answered
    await source.aclose()


@in_virtual_time
async def test_a_sample_that_is_too_old_is_an_error():
    old = virtual_time.START - timedelta(seconds=95)

    async def behave(queries: Sequence[Query]) -> Any:
        return [ExternalSample((1,), old)]

    error = await opened(Scripted(behave), max_age=60.0).ask(A)
    assert error == AdapterError('source "mine": sample is older than max_age 60s')


def test_a_pod_whose_value_is_too_old_has_none():
    moments = {"young": virtual_time.START, "old": virtual_time.START - timedelta(minutes=5)}
    sample = PodSample(
        {pod: PodValue(1, moment, timedelta(seconds=30)) for pod, moment in moments.items()}, virtual_time.START
    )
    kept = sources.not_too_old("s", sample, virtual_time.START, 60)
    assert isinstance(kept, PodSample)
    assert list(kept.values) == ["young"]
    assert sources.not_too_old("s", sample, virtual_time.START, None) is sample


@in_virtual_time
async def test_an_answer_that_is_an_error_holds_no_secret():
    async def behave(queries: Sequence[Query]) -> Any:
        raise AdapterError("login as admin:hunter22 at http://admin:x@broker failed")

    error = await opened(Scripted(behave)).ask(A)
    assert error.message == "login as admin:*** at http://***@broker failed"


@in_virtual_time
async def test_a_note_is_short_on_one_line_and_holds_no_secret():
    async def behave(queries: Sequence[Query]) -> Any:
        return [ExternalSample((1,), virtual_time.START, "of admin:hunter22\nat http://admin:x@broker " + "x" * 2000)]

    sample = await opened(Scripted(behave)).ask(A)
    assert sample.note.startswith("of admin:***\\nat http://***@broker xxx")
    assert len(sample.note) == 300


HIDING = (
    "pwd", "pw", "auth", "basic_auth", "privateKey", "account_key", "access_key_id", "header", "signature", "dsn",
    "connection_string", "ConnectionString", "passphrase", "credentials",
)  # fmt: skip


@pytest.mark.parametrize("name", HIDING)
def test_a_field_is_hidden_in_errors_and_in_shown_settings_alike(name: str) -> None:
    class Schema(msgspec.Struct):
        settings: dict[str, str]

    [error] = settings_errors.check({"settings": {name: 1234567}}, Schema)
    assert "1234567" not in str(error)
    configured = {"url": "http://h", "metrics": {"depth": {name: "hunter22"}}}
    assert "hunter22" not in str(config.without_secrets("http-json", configured))


@pytest.mark.parametrize(
    ("settings", "text", "shown"),
    [
        ({"password": "hunter22"}, "wrong: hunter22", "wrong: ***"),
        ({"headers": {"Authorization": "Bearer abcdef"}}, "token abcdef", "token ***"),
        ({"metrics": {"a": {"api_key": "k-12345"}}}, "k-12345", "***"),
        ({"password_file": "/run/pw"}, "cannot read /run/pw", "cannot read /run/pw"),
        ({"url": "http://host"}, "http://host is down", "http://host is down"),
        ({"password": "ab"}, "absent", "absent"),
        *(({name: "hunter22"}, "wrong: hunter22", "wrong: ***") for name in HIDING),
        ({"dsn_file": "/run/dsn"}, "cannot read /run/dsn", "cannot read /run/dsn"),
        ({"params": {"dedup": "true"}}, "true", "true"),
        ({"metrics": {"a": {"params": ["queue"]}}}, "no such queue", "no such queue"),
        ({"metrics": {"password_resets": {"query": "rate(x)"}}}, "rate(x): timeout", "rate(x): timeout"),
        ({"metrics": {"password_resets": {"token": "hunter22"}}}, "hunter22", "***"),
        ({"oauth2": {"client_id": "hpad-id", "client_auth": "basic"}}, "hpad-id, basic", "hpad-id, basic"),
        ({}, "x" * 2000, "x" * 1000 + "…"),
        ({}, "half a letter: \ud83d", "half a letter: \\ud83d"),
    ],
)
def test_error_texts_lose_the_secrets_of_the_settings(settings, text, shown):
    assert Redactor(settings)(text) == shown


def test_a_sample_dated_in_the_future_is_an_error():
    later = virtual_time.START + timedelta(minutes=6)
    for sample in (ExternalSample((1,), later), PodSample({"web-1": PodValue(1, later, SPAN)}, later)):
        query = A if isinstance(sample, ExternalSample) else CPU
        [error] = call.checked("mine", [query], [sample], virtual_time.START)
        assert (error.blame, error.lasting, error.alive) == ("source", True, True)
        assert error.message == (
            f'source "mine": each value of "{query.name}" has a timestamp more than five minutes in the future: '
            "correct the clock of the source, of its nodes, or of hpad's machine"
        )
    near = ExternalSample((1,), virtual_time.START + timedelta(minutes=4))
    assert call.checked("mine", [A], [near], virtual_time.START) == [near]


@pytest.mark.parametrize("hours", [0.2, 30, 24 * 365 * 1000])
def test_a_value_of_a_node_whose_clock_is_ahead_counts(hours: float):
    """Kubernetes does not judge the time (replica_calculator.go: groupPods): the count is that of the raw sample."""
    right, ahead = (
        PodValue(amount, engine.START + timedelta(hours=late), SPAN) for amount, late in ((200, 0), (500, hours))
    )
    sample = PodSample({"web-0": right, "web-1": ahead}, ahead.timestamp)
    [found] = call.checked("mine", [CPU], [sample], engine.START)
    limit = engine.START + timedelta(minutes=5)
    assert found == PodSample({"web-0": right, "web-1": msgspec.structs.replace(ahead, timestamp=limit)}, limit)
    desired = []
    for each in (sample, found):
        web = engine.Workload(engine.resource("cpu", averageUtilization=50), replicas=2)
        # In its initialization period a pod counts once a whole window has passed since it became ready.
        web.pods = tuple(engine.pod(name, age=40, ready_since=engine.START) for name in each.values)
        desired.append(web.reconcile(each).desired)
    assert desired == [5, 5]  # 500m of 100m per pod; of the pod that is not ready yet, 0m
