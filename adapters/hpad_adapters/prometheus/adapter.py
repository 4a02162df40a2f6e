"""The Prometheus adapter: queries become batches of PromQL, and the series of the answers become samples.

Series hold the names of pods, not their labels. The pods that a target's selector matches are listed for that.
"""

import asyncio
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from hpad.adapter import (
    EXTERNAL,
    OBJECT,
    PODS,
    SOURCE_TYPES,
    AdapterError,
    Answer,
    Context,
    Query,
    Selector,
    parse_duration,
)
from hpad_adapters.prometheus import batches, configuration, queries, rules, samples, settings
from hpad_adapters.prometheus.connection import Connection
from hpad_adapters.prometheus.queries import Entry

_PAGE = "500"
PodSelection = tuple[str, Selector]


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _ListMeta(msgspec.Struct, frozen=True, rename={"next": "continue"}):
    next: str = ""


class _List(msgspec.Struct, frozen=True):
    items: list[_Pod] = []
    metadata: _ListMeta = _ListMeta()


_decoder = msgspec.json.Decoder(_List)


class Prometheus:
    """Metrics of every type straight from a Prometheus server, by PromQL or by a prometheus-adapter configuration."""

    serves = frozenset(SOURCE_TYPES)
    metrics: Mapping[str, Sequence[str]] = {}
    Settings = settings.Settings

    def __init__(self, settings: settings.Settings, context: Context) -> None:
        """Raises AdapterError for a wrong template or rule; `rules_file` is read with the first answer."""
        self._settings = settings
        self._context = context
        self._configured = queries.ConfiguredQueries(settings.metrics)
        self.metrics = self._offered()
        self._rules = None if settings.rules_file else self._compiled()
        self._connection = Connection(settings, context)
        self._discovery = rules.Discovery(self._connection, context, parse_duration(settings.discovery_ttl))
        self._pods = Pods(context)

    @staticmethod
    def flaws(settings: settings.Settings) -> Iterator[tuple[rules.Place, str]]:
        """The faults of the queries and the rules, with their places. Blocks, because it reads `rules_file`."""
        yield from queries.flaws(settings.metrics)
        field = "rules_file" if settings.rules_file else "rules"
        try:
            read = configuration.read(settings)
        except AdapterError as error:
            yield (field,), error.message.removeprefix(f"{field}: ")
            return
        file = settings.rules_file
        for place, text in rules.flaws(read, settings, file or "rules"):
            yield ((field,), f"{file}: {rules.written(place)}: {text}") if file else ((field, *place), text)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """One request per rule and namespace where the PromQL allows it, else one per query."""
        try:
            await self._read_rules()
        except AdapterError as error:
            return [error] * len(queries)
        distinct = dict.fromkeys(queries)
        names = await self._pods.names(query for query in distinct if self._needs_pods(query))
        answers: dict[Query, Answer] = {}
        entries: list[Entry] = []
        for query in distinct:
            try:
                entries.append(await self._entry(query, names))
            except AdapterError as error:
                answers[query] = error
        planned = batches.planned(entries, batches.MOST_AT_ONCE[self._settings.method])
        for batch_answers in await asyncio.gather(*map(self._answers, planned)):
            answers |= batch_answers
        return [answers[query] for query in queries]

    async def explain(self, query: Query) -> str:
        """The PromQL of the query on its own, with all variables filled in; raises AdapterError."""
        (batch,) = batches.planned([await self._entry_alone(query)], 1)
        return batch.expression()

    async def history(self, query: Query, times: Sequence[datetime]) -> list[Answer]:
        """The answers at each of these times, from a range query; for pods, those that exist now."""
        (batch,) = batches.planned([await self._entry_alone(query)], 1)
        # In a thread, because it loads requests.
        history = await asyncio.to_thread(importlib.import_module, "hpad_adapters.prometheus.history")
        answers: list[Answer] = await history.answers(self._connection, batch, times)
        return answers

    def group(self, query: Query) -> tuple[str, str, str]:
        """The metric and the namespace: one request may serve several such queries."""
        return query.namespace, query.type, query.name

    def personal(self, query: Query) -> bool:
        """Whether the PromQL depends on the HPA's name, its labels or its target."""
        return self._configured.personal(query)

    async def aclose(self) -> None:
        """Does nothing: hpad closes the session."""

    def _offered(self) -> dict[str, Sequence[str]]:
        """The metrics that need no route. Rules do not attract the resource metrics of all HPAs."""
        offered: dict[str, Sequence[str]] = dict(self._configured.names)
        if self._settings.rules_file or self._settings.rules:
            offered |= dict.fromkeys((PODS, OBJECT, EXTERNAL), ("*",))
        return offered

    def _compiled(self) -> rules.Rules:
        where = self._settings.rules_file or "rules"
        return rules.Rules(configuration.read(self._settings), self._settings, where)

    async def _read_rules(self) -> None:
        if self._rules is None:
            self._rules = await asyncio.to_thread(self._compiled)

    async def _entry_alone(self, query: Query) -> Entry:
        """The entry for one metric on its own; raises AdapterError."""
        await self._read_rules()
        names = await self._pods.names([query] if self._needs_pods(query) else [])
        return await self._entry(query, names)

    def _needs_pods(self, query: Query) -> bool:
        return query.type in queries.OF_PODS and self._configured.needs_pods(query)

    async def _entry(self, query: Query, names: Mapping[PodSelection, frozenset[str] | AdapterError]) -> Entry:
        """The entry for a metric; raises AdapterError."""
        assert self._rules is not None
        pods = names[query.namespace, query.pods] if query.pods is not None and self._needs_pods(query) else None
        if isinstance(pods, AdapterError):
            raise pods
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

    async def _answers(self, batch: batches.Batch) -> dict[Query, Answer]:
        """The answers of one request; its error is the answer to all queries of the batch."""
        now = self._context.clock.now()
        try:
            series = await self._connection.query(batch.expression(), now.timestamp())
            parts = list(batch.answers(series))
        except AdapterError as error:
            return dict.fromkeys((entry.query for entry in batch.entries), error)
        answers: dict[Query, Answer] = {}
        for entry, rows in parts:
            try:
                answers[entry.query] = samples.sample(entry, rows, now)
            except AdapterError as error:
                answers[entry.query] = error
        return answers


class Pods:
    """Lists pods once per namespace and batch, from the cache of the API server (resourceVersion 0)."""

    def __init__(self, context: Context) -> None:
        self._api = context.api

    async def names(self, queries: Iterable[Query]) -> Mapping[PodSelection, frozenset[str] | AdapterError]:
        """The names of the pods of each namespace and selector, or the error of the list."""
        selections: dict[str, set[Selector]] = {}
        for query in queries:
            if query.pods is not None:
                selections.setdefault(query.namespace, set()).add(query.pods)
        found: dict[PodSelection, frozenset[str] | AdapterError] = {}
        lists = await asyncio.gather(*(self._listed(*each) for each in selections.items()))
        for (namespace, selectors), pods in zip(selections.items(), lists, strict=True):
            if isinstance(pods, AdapterError):
                found |= {(namespace, selector): pods for selector in selectors}
                continue
            index = _Index(pods)
            found |= {(namespace, selector): index.names(selector) for selector in selectors}
        return found

    async def _listed(self, namespace: str, selectors: set[Selector]) -> list[_Meta] | AdapterError:
        """The pods of the namespace; only those of the selector, if there is one selector."""
        if self._api is None:
            return AdapterError(
                "finding the pods needs an API server; without one, select pods by their labels "
                "in the query: <<.PodMatchers>>",
                "spec",
            )
        params = {"limit": _PAGE, "resourceVersion": "0"}
        if len(selectors) == 1 and (text := str(next(iter(selectors)))):
            params["labelSelector"] = text
        pods: list[_Meta] = []
        try:
            while True:
                page = _decoder.decode(await self._api.get(f"/api/v1/namespaces/{namespace}/pods", params))
                pods += [pod.metadata for pod in page.items]
                if not page.metadata.next:
                    return pods
                params = {**params, "continue": page.metadata.next}
                params.pop("resourceVersion", None)
        except AdapterError as error:
            return error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return AdapterError(f'the API server\'s list of the pods of "{namespace}" is no PodList', "cluster")


class _Index:
    """Pods by each of their labels, so that a selector tests few of them."""

    def __init__(self, pods: Sequence[_Meta]) -> None:
        self._pods = pods
        self._labelled: dict[tuple[str, str], list[_Meta]] = {}
        for pod in pods:
            for label in (pod.labels or {}).items():
                self._labelled.setdefault(label, []).append(pod)

    def names(self, selector: Selector) -> frozenset[str]:
        """The names of the pods that the selector matches."""
        exact = (term for term in selector.requirements if term.operator.value in ("=", "=="))
        narrowed = (self._labelled.get((term.key, term.values[0]), ()) for term in exact)
        few = min(narrowed, key=len, default=self._pods)
        return frozenset(pod.name for pod in few if selector.matches(pod.labels or {}))
