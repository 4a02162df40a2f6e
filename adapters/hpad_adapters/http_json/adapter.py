"""External metrics from the documents of HTTP servers.

The configuration names the document and the place of the number in it. An HPA chooses a metric by its name
and may set the URL parameters that the configuration lists.
"""

import asyncio
import codecs
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakKeyDictionary

from hpad.adapter import (
    EXTERNAL,
    PODS,
    AdapterError,
    Answer,
    Context,
    ExternalSample,
    PodSample,
    PodValue,
    Query,
    QueryDefinition,
    or_error,
)
from hpad_adapters.http_json import documents, fetching
from hpad_adapters.http_json.fetching import FetchedDocument, Part
from hpad_adapters.http_json.settings import EACH, HttpJsonSettings, Metric, OwnDocument
from hpad_adapters.selection import attempt, no_metric

Parts = Sequence[Part] | AdapterError
Tree = tuple[str, Any]
"""A document and the name of its server; the document is bytes in the format of Prometheus, or an AdapterError."""


class HttpJson:
    """A number in what a URL answers (JSON, XML, YAML, text of Prometheus), also of all pods of a Service.

    Each document is fetched once per batch.
    """

    serves = frozenset({EXTERNAL, PODS})
    metrics: Mapping[str, tuple[str, ...]] = MappingProxyType({EXTERNAL: (), PODS: ()})
    knows_members = True
    Settings = HttpJsonSettings
    QuerySchema = OwnDocument

    def __init__(self, settings: HttpJsonSettings, context: Context) -> None:
        each = tuple([name for name, metric in settings.metrics.items() if metric.pods == EACH])
        self.parameters = frozenset(name for metric in settings.metrics.values() for name in metric.params)
        self.metrics = {EXTERNAL: tuple([name for name in settings.metrics if name not in each]), PODS: each}
        self._settings = settings
        self._own: WeakKeyDictionary[QueryDefinition, Metric] = WeakKeyDictionary()
        self._clock = context.clock
        self._fetcher = fetching.Fetcher(settings, context)

    @staticmethod
    def closed(settings: HttpJsonSettings) -> str:
        """Returns why the source takes no queries of Autoscalers; "" if it does."""
        missing = 'base_url: is missing, the begin of the URLs that they may read, such as "http://host/path"'
        return "" if settings.base_url else missing

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; each document is fetched once."""
        wanted = [attempt(self._document, query) for query in queries]
        pairs = list(zip(queries, wanted, strict=True))
        by_pod = await asyncio.gather(*(self._of_members(*pair) for pair in pairs if pair[0].members is not None))
        plain = [pair for pair in pairs if pair[0].members is None]
        totals = await self._totals([query for query, _ in plain], [document for _, document in plain])
        found, others = iter(by_pod), iter(totals)
        return [next(others) if query.members is None else next(found) for query in queries]

    async def _of_members(self, query: Query, wanted: FetchedDocument | AdapterError) -> Answer:
        if isinstance(wanted, AdapterError):
            return wanted
        parts = await self._fetcher.of_members(wanted, query.members or ())
        return await asyncio.to_thread(self._by_pod, query, wanted, parts)

    async def _totals(self, queries: Sequence[Query], wanted: Sequence[FetchedDocument | AdapterError]) -> list[Answer]:
        distinct = list(dict.fromkeys(each for each in wanted if isinstance(each, FetchedDocument)))
        configured = {each for query, each in zip(queries, wanted, strict=True) if query.definition is None}
        parts = (or_error(self._fetcher.parts, each, own=each not in configured) for each in distinct)
        fetched = await asyncio.gather(*parts)
        return await asyncio.to_thread(self._samples, queries, wanted, dict(zip(distinct, fetched, strict=True)))

    def group(self, query: Query) -> FetchedDocument | None:
        """Returns the document: one request serves all the numbers in it."""
        document = attempt(self._document, query)
        return None if isinstance(document, AdapterError) else document

    async def aclose(self) -> None:
        """Does nothing: hpad closes the session."""

    def _document(self, query: Query) -> FetchedDocument:
        """Returns the document of a query; raises AdapterError."""
        metric = self._metric(query)
        if (metric.pods == EACH) != (query.members is not None):
            kind = "one value per pod, for hpad.io/busy-metric alone" if metric.pods == EACH else "no value per pod"
            raise AdapterError(f'metric "{query.name}" has {kind}', "spec")
        return fetching.document(query, metric)

    def _metric(self, query: Query) -> Metric:
        """Returns the metric of a query: of the configuration, or that it brings along; raises AdapterError."""
        definition = query.definition
        if definition is not None:
            known = self._own.get(definition)
            if known is None:
                known = self._own[definition] = definition.metric.below(self._settings.base_url)
            return known
        metric = self._settings.metrics.get(query.name)
        if metric is None:
            raise no_metric(query, self._settings.metrics)
        return metric

    def _samples(
        self,
        queries: Sequence[Query],
        wanted: Sequence[FetchedDocument | AdapterError],
        fetched: Mapping[FetchedDocument, Parts],
    ) -> list[Answer]:
        """Decodes the documents. Runs in a thread, because a document may hold `max_elements` numbers."""
        trees = {document: self._trees(document, parts) for document, parts in fetched.items()}
        return [
            each if isinstance(each, AdapterError) else self._sample(query, trees[each])
            for query, each in zip(queries, wanted, strict=True)
        ]

    def _trees(self, document: FetchedDocument, parts: Parts) -> list[Tree] | AdapterError:
        return parts if isinstance(parts, AdapterError) else [(part.name, self._tree(document, part)) for part in parts]

    def _tree(self, document: FetchedDocument, part: Part) -> Any:
        if isinstance(part.body, AdapterError):
            return part.body
        # RFC 8259, section 8.1: a parser may ignore a byte order mark, which programs of Windows write.
        body = part.body.removeprefix(codecs.BOM_UTF8)
        if document.format == "prometheus":
            return body
        try:
            return documents.tree(document.format, body, part.name, self._settings.max_elements)
        except AdapterError as error:
            return _unfit(error.message, lasting=error.lasting)

    def _sample(self, query: Query, trees: Sequence[Tree] | AdapterError) -> Answer:
        if isinstance(trees, AdapterError):
            return trees
        metric = self._metric(query)
        found = [self._values(query.name, metric, tree) for tree in trees]
        if metric.pods is not None:
            return self._combined(query.name, metric, found)
        (values,) = found
        return values if isinstance(values, AdapterError) else ExternalSample(tuple(values), self._clock.now())

    def _values(self, name: str, metric: Metric, tree: Tree) -> list[int] | AdapterError:
        """Returns thousandths of the numbers of a metric in one document."""
        server, document = tree
        where = "the document" if metric.pods is None else server
        if isinstance(document, AdapterError):
            return document
        try:
            if metric.format == "prometheus":
                return documents.values(document, documents.selector(metric.path), self._settings.max_elements)
            values = documents.numbers(document, documents.steps(metric.path))
        except documents.NoNumberError as error:
            return _unfit(f'metric "{name}": there is no number at "{metric.path}" of {where}: {error}')
        return values or _unfit(f'metric "{name}": the list at "{metric.path}" of {where} is empty')

    def _by_pod(self, query: Query, document: FetchedDocument, parts: Sequence[Part]) -> Answer:
        """Returns the value of each pod that has answered; the error of the first where none has."""
        now, nothing = self._clock.now(), timedelta(0)
        trees = [(part.name, self._tree(document, part)) for part in parts]
        found = {tree[0]: self._values(query.name, self._metric(query), tree) for tree in trees}
        failed = [each for each in found.values() if isinstance(each, AdapterError)]
        values = {
            name: PodValue(sum(each), now, nothing)
            for name, each in found.items()
            if not isinstance(each, AdapterError)
        }
        if not values and query.members:
            return failed[0] if failed else _unfit(f'metric "{query.name}": no pod has an address')
        return PodSample(values, now)

    def _combined(self, name: str, metric: Metric, found: Sequence[list[int] | AdapterError]) -> Answer:
        """Returns the sample of all pods, or the error of those that failed, if too many did."""
        sums = [sum(values) for values in found if not isinstance(values, AdapterError)]
        failed = [error for error in found if isinstance(error, AdapterError)]
        allowed = len(found) // 2 if metric.missing_pods == "average" else 0
        if len(failed) > allowed:
            count = f'metric "{name}": {len(failed)} of {len(found)} pods failed'
            return AdapterError(f"{count}; the first: {failed[0].message}", alive=bool(sums) or failed[0].alive)
        return ExternalSample((_COMBINED[metric.pods or "sum"](sums, len(found)),), self._clock.now())


_COMBINED: Final[Mapping[str, Callable[[list[int], int], int]]] = {
    "sum": lambda values, pods: sum(values) * pods // len(values),
    "avg": lambda values, pods: sum(values) // len(values),
    "max": lambda values, pods: max(values),
    "min": lambda values, pods: min(values),
}
"""Thousandths from those of the pods that answered, and the number of all pods."""


def _unfit(message: str, *, lasting: bool = False) -> AdapterError:
    """Makes an error of one document: the server has answered, and its other documents may be valid."""
    return AdapterError(message, lasting=lasting, alive=True)
