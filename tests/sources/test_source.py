"""One source: batches, concurrency, timeouts, and errors of the adapter, in virtual time."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest
from support import virtual_time
from support.scripted_source import DOWN, A, B, C, Scripted, failing, opened, sleeping
from support.virtual_time import in_virtual_time, now

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, HPAIdentity, Member, PodSample, Query
from hpad.daemon import process

LATE = AdapterError('source "mine" did not answer within 10s')
RAISED = 'source "mine" cannot answer "{}": its adapter raised an exception, a bug of the adapter; the log says where'


async def call_of(answer: Awaitable[Answer]) -> int:
    """Returns the number of the call that the sample came from."""
    sample = await answer
    assert isinstance(sample, ExternalSample), sample
    return sample.values[0]


def test_an_error_that_is_cached_does_not_keep_the_objects_of_the_adapter_alive():
    """Neither through its traceback nor through its cause; without the help of the garbage collector."""

    class Body(bytearray):
        """The body of a response."""

    bodies: list[weakref.ref[Body]] = []

    async def refuse(queries: Sequence[Query]) -> None:
        body = Body(1_000_000)
        bodies.append(weakref.ref(body))
        try:
            body[:1].decode("ascii").index("x")
        except ValueError:
            raise AdapterError("not decodable") from None

    async def ask() -> Answer:
        return await opened(Scripted(refuse)).ask(A)

    gc.disable()
    try:
        error = virtual_time.run(ask())
        [body] = bodies
        assert body() is None
    finally:
        gc.enable()
    assert error == AdapterError("not decodable")


@in_virtual_time
async def test_only_an_adapter_that_says_so_is_asked_to_leave_out_containers():
    adapter = Scripted()
    query = testing.resource("cpu", "app=web", ignored_containers=["proxy"])
    answer = await opened(adapter).ask(query)
    refused = 'no answer to "cpu": the adapter of source "mine" cannot leave out the usage of containers (proxy)'
    assert answer == AdapterError(refused, "spec")
    assert adapter.names == []
    adapter.ignores_containers = True
    source = opened(adapter)
    await asyncio.gather(source.ask(query), source.ask(testing.resource("cpu", "app=web")))
    assert adapter.names == ["cpucpu"]  # the two queries are not equal


@in_virtual_time
async def test_only_an_adapter_that_says_so_is_asked_what_each_pod_is_working_on():
    members = [Member("web-0", "10.0.0.1")]
    query, of_pods = testing.by_pod(A, members), testing.by_pod(testing.pods_metric("jobs", "app=web"), members)
    seen: list[Query] = []

    async def answer(queries: Sequence[Query]) -> list[Answer]:
        seen.extend(queries)
        return [PodSample({}, virtual_time.VirtualClock().now()) for _ in queries]

    source = opened(Scripted(answer), fresh=10.0)
    refused = 'no answer to "a" by pod: the adapter of source "mine" does not know what each pod is working on'
    assert await source.ask(query) == AdapterError(refused, "spec")
    await source.ask(of_pods)
    assert [each.members for each in seen] == [None]  # as any Pods metric
    adapter = Scripted(answer)
    adapter.knows_members = True
    source = opened(adapter, fresh=10.0)
    del seen[:]
    assert isinstance(await source.ask(query), PodSample)
    await asyncio.sleep(1)
    await source.ask(query)
    assert [each.members for each in seen] == [(members[0],)] * 2  # read anew each time


@in_virtual_time
async def test_queries_of_one_turn_of_the_loop_share_a_call_and_equal_ones_are_asked_once():
    adapter = Scripted()
    source = opened(adapter)
    equal = testing.external("a")
    assert [await call_of(answer) for answer in [source.ask(query) for query in (A, B, equal, C, B)]] == [1] * 5
    assert adapter.names == ["abc"]


@in_virtual_time
async def test_while_all_calls_are_running_queries_wait_for_the_next_one():
    adapter = Scripted(sleeping(5))
    source = opened(adapter, concurrency=1)
    asked = []
    for query in (A, B, C):
        asked.append(source.ask(query))
        await asyncio.sleep(1)
    assert [await call_of(answer) for answer in asked] == [1, 2, 2]
    assert now() == 10
    assert adapter.names == ["a", "bc"]


@in_virtual_time
async def test_no_more_calls_run_at_once_than_the_limit():
    running, most = 0, 0

    async def behave(queries: Sequence[Query]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(3)
        running -= 1

    source = opened(Scripted(behave), concurrency=2)
    asked = []
    for number in range(9):
        asked.append(source.ask(testing.external(f"m{number}")))
        await asyncio.sleep(0.5)
    await asyncio.gather(*asked)
    assert most == 2


class HandClock(virtual_time.VirtualClock):
    """Its time passes only when a test sets it."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def test_a_wait_that_is_shorter_than_a_timer_can_measure_ends():
    """uvloop's timers count milliseconds: it runs a shorter one at once, before the rate limit has a token."""
    sample = ExternalSample((1,), virtual_time.START)

    async def behave(queries: Sequence[Query]) -> list[Answer]:
        return [sample]

    adapter = Scripted(behave)

    async def main() -> None:
        clock = HandClock()
        source = opened(adapter, clock=clock, rate=1.0)
        assert await source.ask(A) == sample
        clock.seconds = 0.9999
        second = source.ask(B)
        for _ in range(5):
            await asyncio.sleep(0)
        clock.seconds = 1.0
        async with asyncio.timeout(10):
            assert await second == sample

    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        runner.run(main())
    assert adapter.names == ["a", "b"]


@in_virtual_time
async def test_a_call_that_hangs_ends_at_the_timeout_and_frees_its_place():
    hang = asyncio.Event()
    source = opened(Scripted(lambda queries: hang.wait() if A in queries else asyncio.sleep(0)), concurrency=1)
    hanging = source.ask(A)
    await asyncio.sleep(1)
    second = source.ask(B)
    assert await hanging == LATE
    assert await call_of(second) == 2
    assert now() == 10


@in_virtual_time
async def test_an_adapter_that_ignores_its_cancellation_delays_no_other_call():
    async def stubborn(queries: Sequence[Query]) -> None:
        while A in queries and now() < 100:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                await asyncio.sleep(90)

    source = opened(Scripted(stubborn), concurrency=1)
    assert await source.ask(A) == LATE
    assert await call_of(source.ask(B)) == 2
    assert now() == 10
    await source.aclose()
    assert now() <= 12


@in_virtual_time
async def test_a_cancelled_hpa_does_not_cancel_the_call_that_another_shares():
    source = opened(Scripted(sleeping(5)))

    async def wait() -> int:
        future = source.ask(A)
        await asyncio.wait({future})
        return await call_of(future)

    first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(1)
    first.cancel()
    assert await second == 1
    assert first.cancelled()


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
            'source "mine" gave an error whose blame is none of spec, source, cluster, bug: no such queue',
            "bug",
        ),
        (asyncio.CancelledError(), 'source "mine" cancelled its own call, a bug of its adapter', "bug"),
    ],
)
@in_virtual_time
async def test_an_exception_of_an_adapter_answers_the_whole_batch(raised, message, blame):
    async def behave(queries: Sequence[Query]) -> None:
        raise raised

    observed: list[tuple[str, float, AdapterError | None]] = []
    source = opened(Scripted(behave), observer=lambda *call: observed.append(call))
    errors = await asyncio.gather(source.ask(A), source.ask(B))
    assert errors == [AdapterError(message.format(name), blame) for name in "ab"]
    assert observed == [("mine", 0.0, AdapterError(message.format("a"), blame))]


@in_virtual_time
async def test_the_observer_is_called_after_each_call_and_gets_no_error_of_a_spec():
    async def behave(queries: Sequence[Query]) -> None:
        await asyncio.sleep(2)
        if B in queries:
            raise AdapterError("no such queue", "spec")

    observed: list[tuple[str, float, AdapterError | None]] = []
    source = opened(Scripted(behave), observer=lambda *call: observed.append(call))
    await source.ask(A)
    await source.ask(B)
    assert observed == [("mine", 2.0, None), ("mine", 2.0, None)]


@in_virtual_time
async def test_a_report_has_the_time_of_the_last_error():
    source = opened(Scripted(failing))
    assert source.report("x").last_error_at is None
    for _ in range(2):
        await asyncio.sleep(30)
        await source.ask(A)
    found = source.report("x")
    assert found.last_error == DOWN.message
    assert found.last_error_at == virtual_time.START + timedelta(seconds=60)


@in_virtual_time
async def test_closing_answers_all_queries_and_closes_the_adapter():
    adapter = Scripted(sleeping(5))
    source = opened(adapter, concurrency=1)
    running = source.ask(A)
    await asyncio.sleep(1)
    waiting = source.ask(B)
    await source.aclose()
    for future in (running, waiting, source.ask(C)):
        assert await future == AdapterError('source "mine" is shutting down')
    assert adapter.closed
    assert now() == 1


@pytest.mark.parametrize(
    ("personal", "calls"),
    [
        (None, ["a", "b"]),
        (lambda query: False, ["a", "b"]),
        (lambda query: query.name == "a", ["aa", "b"]),
        (lambda query: 1 / 0, ["aa", "bb"]),
    ],
)
@in_virtual_time
async def test_equal_queries_of_different_hpas_are_separate_only_if_the_adapter_calls_them_personal(
    personal: Callable[[Query], object] | None, calls: list[str]
):
    web, api = (HPAIdentity(name=name, target_kind="Deployment", target_name=name) for name in ("web", "api"))
    adapter = Scripted()
    if personal is not None:
        adapter.personal = personal
    source = opened(adapter, fresh=5.0)
    for query in (A, B):
        await asyncio.gather(source.ask(query, web), source.ask(query, api))
        await asyncio.gather(source.ask(query, api), source.ask(query, web))
    assert adapter.names == calls
