"""The Prometheus adapter: queries become PromQL, and the series of the answers become samples.

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
    Context,
    PastPromQL,
    Query,
    parse_duration,
)
from hpad_adapters.prometheus import configuration, queries, rules, samples, settings
from hpad_adapters.prometheus.connection import PrometheusConnection
from hpad_adapters.prometheus.pods import PodNames, TargetPods
from hpad_adapters.prometheus.queries import QueryEntry, QueryRecipe
from hpad_adapters.prometheus.settings import OwnPromQL
from hpad_adapters.selection import attempt, or_raise

_MANY = 10_000
"""Series from which on a thread makes the samples: so many take some 20 ms."""


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
        self._pods = TargetPods(context)
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

        Sends one request for queries of the same PromQL; the error of a request is the answer to its queries.
        """
        await self.prepare()
        distinct = dict.fromkeys(queries)
        names = await self._pod_names(distinct)
        answers: dict[Query, Answer] = {}
        requests: dict[tuple[str, QueryRecipe, str], list[QueryEntry]] = {}
        for query in distinct:
            try:
                entry = await self._entry(query, names)
                requests.setdefault((entry.expression(), entry.recipe, entry.item), []).append(entry)
            except AdapterError as error:
                answers[query] = error
        answering = (self._answers(expression, entries) for (expression, *_), entries in requests.items())
        for found in await asyncio.gather(*answering):
            answers |= found
        return [answers[query] for query in queries]

    async def explain(self, query: Query) -> str:
        """Returns the PromQL of this query alone, with all variables filled in; raises AdapterError."""
        await self.prepare()
        return (await self._entry(query, await self._pod_names([query]))).expression()

    async def past(self, query: Query, window: timedelta) -> PastPromQL:
        """Returns the PromQL of this query alone, reduced as its answer is; it has its own windows.

        Raises AdapterError, also where hpad picks the rows of pods from the answer by names that are those of today.
        """
        await self.prepare()
        if self._needs_pods(query):
            text = "the query names no pods by their labels (.PodMatchers), and the pods of the past are not known"
            raise AdapterError(f'"{query.name}": {text}: write its PromQL into the series file', "spec")
        return PastPromQL(queries.past(await self._entry(query, {})))

    def group(self, query: Query) -> Query | None:
        """Returns what queries of the same PromQL agree in if their pods may differ; None for all others."""
        if not self._needs_pods(query) or not self._configured.answers(query):
            return None  # the PromQL of a rule names the pods
        return msgspec.structs.replace(query, pods=None)

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

    async def _pod_names(self, asked: Iterable[Query]) -> PodNames:
        needing = (query for query in asked if self._needs_pods(query))
        return await self._pods.names((query.namespace, query.pods) for query in needing if query.pods is not None)

    async def _entry(self, query: Query, names: PodNames) -> QueryEntry:
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

    async def _answers(self, expression: str, entries: Sequence[QueryEntry]) -> dict[Query, Answer]:
        """Returns the answers of one request to entries of the same recipe and item."""
        now = self._context.clock.now()
        try:
            series = await self._connection.query(expression, now.timestamp(), own=entries[0].recipe.own)
            if len(series) > _MANY:
                return await asyncio.to_thread(_sampled, entries, series, now)
            return _sampled(entries, series, now)
        except AdapterError as error:
            return dict.fromkeys((entry.query for entry in entries), error)


def _sampled(
    entries: Sequence[QueryEntry], series: Sequence[samples.PrometheusSeries], now: datetime
) -> dict[Query, Answer]:
    """Returns the samples of one request; raises AdapterError for series that cannot be read."""
    rows = [samples.row(each, entries[0].recipe.window) for each in series]
    by_pod: dict[str, list[samples.SampleRow]] = {}
    if item := entries[0].item:
        for row in rows:
            by_pod.setdefault(row.labels.get(item, ""), []).append(row)

    def own(entry: QueryEntry) -> Sequence[samples.SampleRow]:
        """Returns the rows of its pods; if there are none, those without a pod, for its error."""
        if entry.names is None:
            return rows
        return [row for name in entry.names for row in by_pod.get(name, ())] or by_pod.get("", ())

    return {entry.query: attempt(samples.sample, entry, own(entry), now) for entry in entries}
