"""Queries that Autoscalers bring along: which sources take them, who shares a call, and what is left of them."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest

from hpad import clock as clocks
from hpad import settings, testing
from hpad.adapter import EXTERNAL, AdapterError, ExternalSample, Query, QueryDefinition
from hpad.api.hpa import from_builtins
from hpad.sources import own_queries, plugins
from hpad.sources.manager import Gatherer
from hpad.sources.plugins import Contexts

pytestmark = pytest.mark.usefixtures("outsider")
PROM = settings.SourceSettings(
    name="prom", adapter="open", settings={"url": "u"}, queries=settings.OpenedQueries(namespaces=("shop", "team-*"))
)
CLOSED = settings.SourceSettings(name="closed", adapter="open", settings={"url": "u"})


def own(name: str = "orders", source: str = "prom", namespace: str = "shop", **parameters: object) -> Query:
    """Returns the query of an Autoscaler, as the engine makes it for each of them."""
    text = msgspec.json.encode(parameters, order="deterministic").decode()
    return Query(type=EXTERNAL, namespace=namespace, name=name, definition=QueryDefinition(source, text))


@asynccontextmanager
async def gatherer(*sources: settings.SourceSettings, calls: list[str] | None = None) -> AsyncIterator[Gatherer]:
    seen: list[str] = [] if calls is None else calls
    made = Gatherer(sources, contexts=Contexts(clocks.SystemClock()), observer=lambda name, *_: seen.append(name))
    await made.start()
    try:
        yield made
    finally:
        await made.aclose()


async def answered(*sources: settings.SourceSettings, queries: Sequence[Query]) -> list[object]:
    async with gatherer(*sources) as asked:
        found = await asked.gather(queries, deadline=60)
    return [each.values if isinstance(each, ExternalSample) else each.message for each in found]


async def test_an_open_source_answers_a_query_by_its_parameters() -> None:
    queries = [own(depth=3), own(namespace="team-a", depth=4)]
    assert await answered(PROM, queries=queries) == [(3000,), (4000,)]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        (
            own(namespace="blog", depth=3),
            'source "prom" is not open to queries of namespace "blog": its configuration would need queries: '
            "{namespaces: [blog]}",
        ),
        (own(source="closed", depth=3), 'source "closed" is not open to queries of namespace "shop"'),
        (own(source="pro", depth=3), 'there is no source "pro" (did you mean "prom"?); open to queries of namespace '
         '"shop": prom'),
        (own(namespace="blog", source="x", depth=3), 'open to queries of namespace "blog": none'),
        (own(depth="three"), "depth: 'three' is not a whole number"),
        (own(deep=3, depth=-1), "deep: unknown field; did you mean 'depth'? (value: 3)"),
        (own(depth=-1), "depth: must not be negative"),
        (own(), "depth: is missing"),
        (own(depth=13), 'no value for "orders"'),
        (own(source="external-metrics", depth=1), 'source "external-metrics" is not open'),
    ],
)  # fmt: skip
async def test_an_error_names_the_query_and_what_would_be_right(query: Query, error: str) -> None:
    good = own("good", depth=1)
    answers = await answered(PROM, CLOSED, queries=[query, good])
    assert isinstance(answers[0], str)
    assert answers[0].startswith("spec.queries[orders]: ")
    assert error in answers[0]
    assert answers[1] == (1000,)


async def test_a_source_that_is_not_offered_to_a_namespace_takes_no_queries_from_it() -> None:
    confined = msgspec.structs.replace(PROM, namespaces=("team-a",))
    queries = [own(depth=1), own(namespace="team-a", depth=1)]
    refused, answer = await answered(confined, queries=queries)
    assert refused == 'spec.queries[orders]: source "prom" is not offered to namespace "shop"'
    assert answer == (1000,)


async def test_what_a_closed_source_would_answer_cannot_be_asked_around() -> None:
    """What was read of a definition says that its source is open."""
    async with gatherer(PROM, CLOSED) as asked:
        query = own(source="closed", depth=1)
        for _ in range(2):
            with pytest.raises(AdapterError, match="is not open"):
                asked.handed(query)


async def test_a_source_that_does_not_work_says_why() -> None:
    broken = msgspec.structs.replace(PROM, settings={"url": 5})
    (answer,) = await answered(broken, queries=[own(depth=1)])
    assert isinstance(answer, str)
    assert answer.startswith('spec.queries[orders]: source "prom" (adapter "open"): url: 5 is not text')


async def test_equal_parameters_share_a_call_whatever_the_names_and_other_ones_do_not() -> None:
    calls: list[str] = []
    async with gatherer(PROM, calls=calls) as asked:
        await asked.gather([own(depth=1), own("jobs", depth=1)], deadline=60)
        await asked.gather([own("mail", depth=1)], deadline=60)
        assert asked.reports()[0].hits == 1
        assert len(calls) == 1
        await asked.gather([own(depth=2)], deadline=60)
        assert len(calls) == 2


async def test_queries_that_hang_delay_none_of_the_configuration() -> None:
    hanging = [own(depth=99, number=number) for number in range(10)]
    patient = msgspec.structs.replace(PROM, timeout=timedelta(minutes=5))
    asked = Gatherer([patient], contexts=Contexts(clocks.SystemClock()), period=1000.0)
    await asked.start()
    async with asyncio.TaskGroup() as group:
        for each in hanging:  # each is a call of its own
            group.create_task(asked.gather([each], deadline=300))
            await asyncio.sleep(0.01)
        together = [own(depth=99, number=11), testing.external("depth")]
        answers = group.create_task(asked.gather([together[1]], deadline=60))
        waiting = group.create_task(asked.gather(together, deadline=300))
        assert isinstance((await answers)[0], ExternalSample)
        await asked.aclose()
    assert isinstance((await waiting)[1], ExternalSample)


async def test_what_was_read_of_a_query_goes_with_it() -> None:
    """Without shared answers; a cached answer keeps its query for some periods."""
    unshared = msgspec.structs.replace(PROM, limits=settings.SourceLimits(fresh=timedelta(0)))
    async with gatherer(unshared) as asked:
        queries = [own(depth=1), own("jobs", depth=1)]
        await asked.gather(queries, deadline=60)
        first, second = map(asked.handed, queries)
        assert first == second
        left = weakref.ref(first.definition)
        del first, second
        gc.collect()
        assert left() is not None
        del queries
        gc.collect()
        assert left() is None


@pytest.mark.parametrize(
    ("adapter", "fields", "error"),
    [
        ("open", {}, []),
        ("open", {"depth": 2}, ["queries: it takes none: depth: must be 1"]),
        ("numbers", {}, ['queries: it takes none: the adapter "numbers" answers only metrics of the configuration']),
    ],
)
def test_a_source_that_takes_no_queries_cannot_be_opened(adapter: str, fields: dict, error: list[str]) -> None:
    source = msgspec.structs.replace(PROM, adapter=adapter, settings={"url": "u", **fields})
    assert [problem.text for problem in plugins.check_settings(source)] == error
    closed = msgspec.structs.replace(source, queries=settings.OpenedQueries())
    assert plugins.check_settings(closed) == []


def test_the_queries_of_a_manifest_are_checked_without_building_a_source() -> None:
    broken = msgspec.structs.replace(PROM, name="broken", adapter="rabitmq")
    entries = [
        {"name": "good", "source": "prom", "parameters": {"depth": 1}},
        {"name": "wrong", "source": "prom", "parameters": {"depth": -1}},
        {"name": "closed", "source": "closed", "parameters": {"depth": 1}},
        {"name": "broken", "source": "broken"},
        {"name": "nowhere"},
    ]
    spec = {"hpad.io/queries": entries}
    hpa = from_builtins({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
    found = list(own_queries.problems(hpa, [PROM, CLOSED, broken]))
    assert [(problem.path, problem.text.partition(": ")[0]) for problem in found] == [
        (f"spec.queries[{index}]", f"spec.queries[{name}]")
        for index, name in ((1, "wrong"), (2, "closed"), (3, "broken"), (4, "nowhere"))
    ]
    assert "there is no adapter" in found[2].text
    assert [problem.path for problem in own_queries.problems(hpa, None)] == ["spec.queries[4]"]
