"""CPU and memory of pods and containers from metrics.k8s.io, which metrics-server and others serve.

One list per namespace and batch serves all HPAs of the namespace; pods are selected here, by the labels in the list.
Reference: k8s.io/metrics, API metrics.k8s.io/v1beta1.
"""

import asyncio
from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import quote

import msgspec

from hpad.adapter import (
    CONTAINER_RESOURCE,
    RESOURCE,
    AdapterError,
    Answer,
    Context,
    Operator,
    PodMetrics,
    PodMetricsList,
    Query,
    Selector,
    pod_sample,
)
from hpad_adapters import lists

_LIST = msgspec.json.Decoder(PodMetricsList)
_API = "resource"
_EQUALITY = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)


class _Listed:
    """The pods of a namespace by their labels, so that each of many HPAs tests few of them."""

    def __init__(self, items: Sequence[PodMetrics]) -> None:
        self._items = items
        self._labelled: dict[tuple[str, str], list[PodMetrics]] = {}
        for item in items:
            for label in (item.metadata.labels or {}).items():
                self._labelled.setdefault(label, []).append(item)
        self.unlabelled = bool(items) and all(item.metadata.labels is None for item in items)

    def select(self, pods: Selector) -> list[PodMetrics]:
        """The pods that the selector matches, in the order of the list."""
        return [item for item in self._candidates(pods) if pods.matches(item.metadata.labels or {})]

    def _candidates(self, pods: Selector) -> Sequence[PodMetrics]:
        for term in pods.requirements:
            if term.operator in _EQUALITY and len(term.values) == 1:
                return self._labelled.get((term.key, term.values[0]), ())
        return self._items


class MetricsServer:
    """Resource and ContainerResource metrics."""

    serves: ClassVar[frozenset[str]] = frozenset({RESOURCE, CONTAINER_RESOURCE})
    Settings: ClassVar[type[lists.Settings]] = lists.Settings

    def __init__(self, configured: lists.Settings, context: Context) -> None:
        self._reader = lists.Reader(_API, configured, context)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """A value per selected pod that reports; timestamps and windows are the server's own."""
        namespaces = list(dict.fromkeys(query.namespace for query in queries))
        read = await asyncio.gather(*(self._read(namespace) for namespace in namespaces))
        found = {
            name: each if isinstance(each, AdapterError) else _Listed(each)
            for name, each in zip(namespaces, read, strict=True)
        }
        return [await self._answer(query, found[query.namespace]) for query in queries]

    def group(self, query: Query) -> str:
        """One list serves a namespace."""
        return query.namespace

    async def aclose(self) -> None:
        """Does nothing: hpad closes its client of the API server."""

    async def _read(self, namespace: str, selector: str = "") -> tuple[PodMetrics, ...] | AdapterError:
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{quote(namespace, safe='')}/pods"
        try:
            return (await self._reader.read(path, {"labelSelector": selector}, _LIST)).items or ()
        except AdapterError as error:
            return error

    async def _answer(self, query: Query, listed: _Listed | AdapterError) -> Answer:
        try:
            return pod_sample(await self._selected(query, listed), query.name, query.container)
        except AdapterError as error:
            return error

    async def _selected(self, query: Query, listed: _Listed | AdapterError) -> Sequence[PodMetrics]:
        if isinstance(listed, AdapterError):
            raise listed
        if query.pods is None:
            raise AdapterError(f'{query.type} metric "{query.name}" comes without a selector of pods', "bug")
        if listed.unlabelled:
            return await self._selected_by_server(query, str(query.pods))
        return listed.select(query.pods)

    async def _selected_by_server(self, query: Query, selector: str) -> Sequence[PodMetrics]:
        """Pods that the server selects, because some servers leave out the labels of pods."""
        items = await self._read(query.namespace, selector)
        if isinstance(items, AdapterError):
            raise items
        return items
