"""The Prometheus adapter: queries become batches of PromQL, and the series of the answers become samples.

Series hold the names of pods, not their labels: so the pods that a target's selector matches are listed.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from hpad.adapter import (
    EXTERNAL,
    OBJECT,
    PODS,
    SOURCE_TYPES,
    AdapterError,
    Answer,
    ApiReader,
    Context,
    PastPromQL,
    Query,
    Selector,
    or_error,
    parse_duration,
)
from hpad.adapter_http import UNDECODABLE, TooLargeError
from hpad_adapters.lists import LabelIndex, ListMetadata
from hpad_adapters.prometheus import batches, configuration, queries, rules, samples, settings
from hpad_adapters.prometheus.connection import PrometheusConnection
from hpad_adapters.prometheus.queries import QueryEntry
from hpad_adapters.prometheus.settings import OwnPromQL
from hpad_adapters.selection import attempt, or_raise

_PAGE = "500"
_MANY = 10_000
"""Series from which on a thread makes the samples: so many take some 20 ms."""
_SPLITS = 32
"""How often a batch that the server refuses is halved, all its parts together."""
PodSelection = tuple[str, Selector]


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _List(msgspec.Struct, frozen=True):
    items: list[_Pod] = []
    metadata: ListMetadata = ListMetadata()


_decoder = msgspec.json.Decoder(_List)


class Prometheus:
    """Metrics of every type straight from a Prometheus server, by PromQL or by a prometheus-adapter configuration."""

    serves = frozenset(SOURCE_TYPES)
    ignores_containers = True
    metrics: Mapping[str, Sequence[str]] = {}
    Settings = settings.Settings
    QuerySchema = OwnPromQL

    def __init__(self, settings: settings.Settings, context: Context) -> None:
        """Raises AdapterError for a wrong rule; `prepare` reads `rules_file`."""
        self._settings = settings
        self._context = context
        self._configured = queries.ConfiguredQueries(settings.metrics)
        self.metrics = self._offered()
        self._rules = None if settings.rules_file else self._compiled()
        self.files = (settings.rules_file,) if settings.rules_file else ()
        self._connection = PrometheusConnection(settings, context)
        self._discovery = rules.SeriesDiscovery(self._connection, context, parse_duration(settings.discovery_ttl))

    @staticmethod
    def flaws(settings: settings.Settings) -> Iterator[tuple[configuration.Place, str]]:
        """Yields the errors of the rules, with their places. Blocks, because it reads `rules_file`."""
        file = settings.rules_file
        field = "rules_file" if file else "rules"
        problems: Iterable[tuple[configuration.Place, str]]
        try:
            problems = rules.flaws(configuration.read(settings), settings)
        except configuration.RulesError as error:
            problems = error.problems
        except AdapterError as error:
            yield (field,), error.message.removeprefix(f"{field}: ")
            return
        for place, text in problems:
            in_file = ": ".join(filter(None, (file, configuration.written(place), text)))
            yield ((field,), in_file) if file else ((field, *place), text)

    async def prepare(self) -> None:
        """Reads `rules_file`, unless it has been read; raises AdapterError for a wrong rule."""
        if self._rules is None:
            self._rules = await asyncio.to_thread(self._compiled)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns one answer per query; raises AdapterError for a wrong rule.

        Sends one request per rule and namespace if the PromQL allows it, else one per query.
        """
        await self.prepare()
        distinct = dict.fromkeys(queries)
        names = await _pod_names(self._context.api, (query for query in distinct if self._needs_pods(query)))
        made = {query: await or_error(self._entry, query, names) for query in distinct}
        answers: dict[Query, Answer] = {query: each for query, each in made.items() if isinstance(each, AdapterError)}
        entries = [each for each in made.values() if isinstance(each, QueryEntry)]
        planned = batches.planned(entries, batches.MOST_AT_ONCE[self._settings.method])
        for batch_answers in await asyncio.gather(*(self._answers(batch, iter(range(_SPLITS))) for batch in planned)):
            answers |= batch_answers
        return [answers[query] for query in queries]

    async def explain(self, query: Query) -> str:
        """Returns the PromQL of this query alone, with all variables filled in; raises AdapterError."""
        await self.prepare()
        names = await _pod_names(self._context.api, [query] if self._needs_pods(query) else [])
        (batch,) = batches.planned([await self._entry(query, names)], 1)
        return batch.expression()

    async def past(self, query: Query, window: timedelta) -> PastPromQL:
        """Returns the PromQL of this query alone, reduced as its answer is; it has its own windows.

        Raises AdapterError, also where hpad picks the rows of pods from the answer by names that are those of today.
        """
        await self.prepare()
        if self._needs_pods(query):
            text = "the query names no pods by their labels (.PodMatchers), and the pods of the past are not known"
            raise AdapterError(f'"{query.name}": {text}: write its PromQL into the series file', "spec")
        return PastPromQL(batches.past(await self._entry(query, {})))

    def group(self, query: Query) -> tuple[str, str, str] | None:
        """Returns namespace, type and metric name for a metric of pods: one list of pods, or one request, serves these.

        Others share a request if they are due together. As a group they would be isolated together, too: where one
        hangs, or a request for all takes too long, none would ever have an answer.
        """
        return (query.namespace, query.type, query.name) if query.type in queries.OF_PODS else None

    def personal(self, query: Query) -> bool:
        """Returns whether the PromQL depends on the HPA's name, its labels or its target."""
        return self._configured.personal(query)

    async def aclose(self) -> None:
        """Does nothing: hpad closes the session."""

    def _offered(self) -> dict[str, Sequence[str]]:
        """Returns the metrics that need no route."""
        # Not Resource: the rules of one server should not answer for the CPU of all HPAs of the cluster.
        offered: dict[str, Sequence[str]] = dict(self._configured.names)
        if self._settings.rules_file or self._settings.rules:
            offered |= dict.fromkeys((PODS, OBJECT, EXTERNAL), ("*",))
        return offered

    def _compiled(self) -> rules.CompiledRules:
        return rules.CompiledRules(configuration.read(self._settings), self._settings)

    def _needs_pods(self, query: Query) -> bool:
        return query.type in queries.OF_PODS and self._configured.needs_pods(query)

    async def _entry(self, query: Query, names: Mapping[PodSelection, frozenset[str] | AdapterError]) -> QueryEntry:
        """Returns the entry for a metric; raises AdapterError."""
        assert self._rules is not None
        pods = None
        if query.pods is not None and self._needs_pods(query):
            pods = or_raise(names[query.namespace, query.pods])
        entry = self._configured.entry(query, pods)
        if entry is None and query.type in rules.RESOURCES:
            entry = self._rules.resource(query, pods or frozenset())
        elif entry is None:
            chosen = await self._discovery.choose(self._rules.find(query), query.name)
            entry = chosen and rules.entry(*chosen, query, pods)
        if entry is None:
            raise rules.unknown_metric(query.name, query.type, self._configured.names.get(query.type, ()))
        if entry.names is not None and not entry.names:
            raise AdapterError(f'no pods in "{query.namespace}" match the target\'s selector "{query.pods}"', "spec")
        return entry

    async def _answers(self, batch: batches.Batch, splits: Iterator[int]) -> dict[Query, Answer]:
        """Returns the answers of one request; its error is the answer to all queries of the batch.

        A query that the server refuses, because it has too many series for instance, is asked again in halves while
        there are `splits` left: a single metric may be the cause.
        """
        now = self._context.clock.now()
        try:
            own = batch.entries[0].recipe.own
            series = await self._connection.query(batch.expression(), now.timestamp(), own=own)
            if len(series) > _MANY:
                return await asyncio.to_thread(_sampled, batch, series, now)
            return _sampled(batch, series, now)
        except AdapterError as error:
            halves = list(batch.halves()) if error.blame == "spec" or isinstance(error, TooLargeError) else []
            if not halves or next(splits, None) is None:
                return dict.fromkeys((entry.query for entry in batch.entries), error)
            first, second = await asyncio.gather(*(self._answers(half, splits) for half in halves))
            return first | second


def _sampled(batch: batches.Batch, series: Sequence[samples.PrometheusSeries], now: datetime) -> dict[Query, Answer]:
    """Returns the samples of a batch; raises AdapterError for series that cannot be read."""
    return {entry.query: attempt(samples.sample, entry, rows, now) for entry, rows in batch.answers(series)}


async def _pod_names(
    api: ApiReader | None, queries: Iterable[Query]
) -> Mapping[PodSelection, frozenset[str] | AdapterError]:
    """Returns the names of the pods of each namespace and selector, or the error of the list.

    Lists pods once per namespace and batch, from the cache of the API server (resourceVersion 0).
    """
    selections: dict[str, set[Selector]] = {}
    for query in queries:
        if query.pods is not None:
            selections.setdefault(query.namespace, set()).add(query.pods)
    found: dict[PodSelection, frozenset[str] | AdapterError] = {}
    pods = await asyncio.gather(*(or_error(_listed, api, *each) for each in selections.items()))
    for (namespace, selectors), listed in zip(selections.items(), pods, strict=True):
        if isinstance(listed, AdapterError):
            found |= {(namespace, selector): listed for selector in selectors}
            continue
        index = LabelIndex(listed, lambda pod: pod.labels)
        found |= {
            (namespace, selector): frozenset(pod.name for pod in index.select(selector)) for selector in selectors
        }
    return found


async def _listed(api: ApiReader | None, namespace: str, selectors: set[Selector]) -> list[_Meta]:
    """Lists the pods of the namespace; only those of the selector, if there is one selector."""
    if api is None:
        raise AdapterError(
            "finding the pods needs an API server; without one, select pods by their labels "
            "in the query: <<.PodMatchers>>",
            "spec",
        )
    params = {"limit": _PAGE, "resourceVersion": "0"}
    if len(selectors) == 1 and (text := str(next(iter(selectors)))):
        params["labelSelector"] = text
    pods: list[_Meta] = []
    while True:
        body = await api.get(f"/api/v1/namespaces/{namespace}/pods", params)
        try:
            page = _decoder.decode(body)
        except UNDECODABLE:
            text = f'the API server\'s list of the pods of "{namespace}" is no PodList'
            raise AdapterError(text, "cluster") from None
        pods += [pod.metadata for pod in page.items]
        if not page.metadata.more:
            return pods
        params = {**params, "continue": page.metadata.more}
        # The API server refuses a continued list with a resourceVersion.
        params.pop("resourceVersion", None)
