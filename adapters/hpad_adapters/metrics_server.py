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
    PodMetrics,
    PodMetricsList,
    Query,
    pod_sample,
)
from hpad_adapters import lists

_LIST = msgspec.json.Decoder(PodMetricsList)
_API = "resource"


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
        found = dict(zip(namespaces, read, strict=True))
        return [await self._answer(query, found[query.namespace]) for query in queries]

    async def aclose(self) -> None:
        """Nothing of its own is open."""

    async def _read(self, namespace: str, selector: str = "") -> tuple[PodMetrics, ...] | AdapterError:
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{quote(namespace, safe='')}/pods"
        try:
            return (await self._reader.read(path, {"labelSelector": selector}, _LIST)).items or ()
        except AdapterError as error:
            return error

    async def _answer(self, query: Query, listed: tuple[PodMetrics, ...] | AdapterError) -> Answer:
        try:
            return pod_sample(await self._selected(query, listed), query.name, query.container)
        except AdapterError as error:
            return error

    async def _selected(self, query: Query, listed: tuple[PodMetrics, ...] | AdapterError) -> Sequence[PodMetrics]:
        if isinstance(listed, AdapterError):
            raise listed
        if query.pods is None:
            raise AdapterError(f'{query.type} metric "{query.name}" comes without a selector of pods', "bug")
        if listed and all(item.metadata.labels is None for item in listed):
            return await self._selected_there(query, str(query.pods))
        return [item for item in listed if query.pods.matches(item.metadata.labels or {})]

    async def _selected_there(self, query: Query, selector: str) -> Sequence[PodMetrics]:
        """Some servers leave the pods' labels out: they have to select."""
        items = await self._read(query.namespace, selector)
        if isinstance(items, AdapterError):
            raise items
        return items
