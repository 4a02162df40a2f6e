"""All sources together: a source that fails affects its own metrics alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from hpad import clock as clocks
from hpad import settings, testing
from hpad.adapter import AdapterError, Context, ExternalSample, HPAIdentity
from hpad.lab.servers import ports
from hpad.sources import plugins
from hpad.sources.manager import Gatherer
from hpad.sources.plugins import Contexts
from hpad.sources.replacement import Sources
from hpad.sources.source import QueriedSource

pytestmark = pytest.mark.usefixtures("outsider")


def source(name: str, adapter: str = "numbers", timeout: float = 10, **fields: object) -> settings.SourceSettings:
    match = (settings.Match(metrics=(f"{name}_*",)),)
    fields.setdefault("url", name)
    return settings.SourceSettings(
        name=name, adapter=adapter, settings=fields, timeout=timedelta(seconds=timeout), match=match
    )


@asynccontextmanager
async def gatherer(
    *sources: settings.SourceSettings, routes=(), observed: list | None = None
) -> AsyncIterator[Gatherer]:
    made = Gatherer(
        sources, routes, contexts=Contexts(clocks.SystemClock()),
        observer=lambda *call: observed.append(call) if observed is not None else None,
    )  # fmt: skip
    await made.start()
    try:
        yield made
    finally:
        await made.aclose()


async def test_every_query_has_its_answer_in_order():
    observed: list[tuple[str, float, AdapterError | None]] = []
    error = AdapterError("spec.metrics[1] is nonsense", "spec")
    queries = [testing.external("good_a"), error, testing.external("good_b"), testing.external("good_a")]
    async with gatherer(source("good"), observed=observed) as asked:
        answers = await asked.gather(queries, deadline=60)
    assert answers[1] is error
    assert [answer.values for answer in answers if isinstance(answer, ExternalSample)] == [(7000,)] * 3
    assert [(name, error) for name, _, error in observed] == [("good", None)]


@pytest.mark.parametrize(("period", "seconds"), [(15.0, 8.0), (5.0, 2.7)])
async def test_an_adapter_knows_how_long_a_call_may_take(
    monkeypatch: pytest.MonkeyPatch, period: float, seconds: float
) -> None:
    """That is the timeout of the source, and at most 0.9 of 0.6 of the sync period."""
    contexts = []
    instance = plugins.instance

    def recorded(source: Any, adapter: Any, context: Context) -> Any:
        contexts.append(context)
        return instance(source, adapter, context)

    monkeypatch.setattr(plugins, "instance", recorded)
    made = Gatherer((source("good", timeout=8),), contexts=Contexts(clocks.SystemClock()), period=period)
    await made.start()
    await made.aclose()
    (context,) = (each for each in contexts if each.name == "good")
    assert context.timeout == pytest.approx(seconds)
    assert context.within(1.0) == 1.0
    assert context.within(60.0) == pytest.approx(0.9 * seconds)


async def test_two_servers_of_one_kind_are_told_apart_by_a_label():
    """The label chooses the server; the adapter, which would refuse it, does not get it."""
    at = dict(zip(("eu", "us"), ports.free(2), strict=True))
    brokers = [
        settings.SourceSettings(
            name=name,
            adapter="redis",
            settings={"url": f"redis://127.0.0.1:{at[name]}"},
            match=(settings.Match(metrics=("redis_*",), labels={"server": name}),),
        )
        for name in ("eu", "us")
    ]
    queries = [testing.external("redis_list_length", f"key=mail,server={name}") for name in ("us", "eu", "mars")]
    async with gatherer(*brokers) as asked:
        asked.announce(queries, HPAIdentity(name="web", target_kind="Deployment", target_name="web"))
        us, eu, mars = await asked.gather(queries, deadline=60)
    assert f":{at['us']} refused the connection" in us.message
    assert f":{at['eu']} refused the connection" in eu.message
    assert "Redis" not in mars.message


async def test_an_announcement_of_a_query_that_no_source_answers_is_ignored():
    queries = [AdapterError("nonsense", "spec"), *map(testing.external, ("good_a", "bad_a", "unknown"))]
    async with gatherer(source("good"), source("bad", "absent")) as asked:
        asked.announce(queries, HPAIdentity(name="web", target_kind="Deployment", target_name="web"))
        answers = await asked.gather([testing.external("good_a")], deadline=60)
    assert isinstance(answers[0], ExternalSample)


async def test_an_announcement_reaches_the_source_of_the_query(monkeypatch):
    seen: list[tuple[str, str, str]] = []
    monkeypatch.setattr(
        QueriedSource, "announce", lambda self, query, of: seen.append((self.name, query.name, of.name))
    )
    web = HPAIdentity(name="web", target_kind="Deployment", target_name="web")
    async with gatherer(source("good"), source("other")) as asked:
        Sources(asked, clocks.SystemClock()).announce([testing.external("other_a")], web)
    assert seen == [("other", "other_a", "web")]


async def test_without_queries_there_are_no_answers():
    async with gatherer() as asked:
        assert await asked.gather([], deadline=60) == []


async def test_a_broken_source_affects_its_own_metrics_only():
    sources = [
        source("good"),
        source("typo", adapter="rabitmq"),
        source("broken", adapter="broken"),
        source("unset", url=5),
        source("raise"),
        source("short"),
        source("hang", timeout=0.1),
    ]
    names = ["good", "typo", "broken", "unset", "raise", "short", "hang"]
    async with gatherer(*sources) as asked:
        answers = await asked.gather([testing.external(f"{name}_x") for name in names], deadline=60)
        assert set(asked.problems()) == {"typo", "broken", "unset"}
    good, *errors = answers
    assert isinstance(good, ExternalSample)
    texts = {name: (error.message, error.blame) for name, error in zip(names[1:], errors, strict=True)}
    assert texts.pop("typo")[0].startswith('source "typo": there is no adapter "rabitmq"; installed: ')
    assert texts == {
        "broken": (
            'source "broken": adapter "broken" (outsider_broken:Good) cannot be imported: half installed',
            "bug",
        ),
        "unset": ('source "unset" (adapter "numbers"): url: 5 is not text', "spec"),
        "raise": (
            'source "raise" cannot answer "raise_x": its adapter raised an exception, a bug of the adapter; '
            "the log says where",
            "bug",
        ),
        "short": (
            'source "short" answered nothing where the External metric "short_x" needs a list of values, '
            "a bug of its adapter",
            "bug",
        ),
        "hang": ('source "hang" did not answer within 0.1s', "source"),
    }


async def test_at_the_deadline_the_answers_so_far_are_kept():
    async with gatherer(source("hang"), source("good")) as asked:
        slow, good = await asked.gather([testing.external("hang_x"), testing.external("good_x")], deadline=6)
    assert slow == AdapterError('no answer to "hang_x" within the 6s that a reconcile may wait for metrics')
    assert isinstance(good, ExternalSample)


async def test_an_answer_that_the_rate_limit_delays_names_the_limit():
    limited = msgspec.structs.replace(source("good"), limits=settings.SourceLimits(rate=0.001))
    async with gatherer(limited) as asked:
        (first,) = await asked.gather([testing.external("good_a")], deadline=60)
        (second,) = await asked.gather([testing.external("good_b")], deadline=0.1)
    assert isinstance(first, ExternalSample)
    assert isinstance(second, AdapterError)
    assert second.message == 'no answer to "good_b": source "good" is limited to 0.001 calls a second'
    assert second.blame == "source"


async def test_a_cancelled_hpa_does_not_cancel_the_answer_of_another():
    async with gatherer(source("hang", timeout=2)) as asked:
        first, second = (asyncio.create_task(asked.gather([testing.external("hang_x")], deadline=60)) for _ in range(2))
        await asyncio.sleep(0.05)
        first.cancel()
        assert await second == [AdapterError('source "hang" did not answer within 2s')]
        assert first.cancelled()


async def test_two_instances_of_one_adapter_are_two_sources():
    route = settings.Route(match=settings.Match(namespaces=("slow",)), source="hang")
    async with gatherer(source("hang", timeout=0.1), source("good"), routes=[route]) as asked:
        queries = [testing.external("good_x"), testing.external("good_x", namespace="slow")]
        good, slow = await asked.gather(queries, deadline=60)
    assert isinstance(good, ExternalSample)
    assert isinstance(slow, AdapterError)


async def test_metrics_server_needs_no_configuration():
    async with gatherer() as asked:
        [answer] = await asked.gather([testing.resource("cpu", "app=web")], deadline=60)
    assert isinstance(answer, AdapterError)
    assert answer.message.startswith("unable to fetch metrics from resource metrics API: ")


async def test_an_adapter_that_fails_to_close_does_not_fail_the_others():
    async with gatherer(source("sad"), source("good")) as asked:
        assert isinstance((await asked.gather([testing.external("sad_x")], deadline=60))[0], ExternalSample)
