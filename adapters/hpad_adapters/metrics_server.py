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
    PodSample,
    Query,
    or_error,
    pod_sample,
)
from hpad_adapters import lists

_LIST = msgspec.json.Decoder(PodMetricsList)
_Pods = lists.LabelIndex[PodMetrics]


class MetricsServer:
    """CPU and memory of pods and containers, from the metrics API of Kubernetes (metrics-server)."""

    serves: ClassVar[frozenset[str]] = frozenset({RESOURCE, CONTAINER_RESOURCE})
    ignores_containers = True
    Settings: ClassVar[type[lists.Settings]] = lists.Settings

    def __init__(self, configured: lists.Settings, context: Context) -> None:
        self._reader = lists.Reader("resource", configured, context)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a value per selected pod that reports; timestamps and windows are the server's own."""
        namespaces = list(dict.fromkeys(query.namespace for query in queries))
        read = await asyncio.gather(*(or_error(self._read(namespace)) for namespace in namespaces))
        found = {
            namespace: each if isinstance(each, AdapterError) else _Pods(each, lambda item: item.metadata.labels)
            for namespace, each in zip(namespaces, read, strict=True)
        }
        return [await or_error(self._answer(query, found[query.namespace])) for query in queries]

    def group(self, query: Query) -> str:
        """Returns the namespace, which one list serves."""
        return query.namespace

    async def aclose(self) -> None:
        """Does nothing: hpad closes its client of the API server."""

    async def _read(self, namespace: str, selector: str = "") -> Sequence[PodMetrics]:
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{quote(namespace, safe='')}/pods"
        return (await self._reader.read(path, {"labelSelector": selector}, _LIST)).items or ()

    async def _answer(self, query: Query, pods: _Pods | AdapterError) -> PodSample:
        if isinstance(pods, AdapterError):
            raise pods
        if query.pods is None:
            raise AdapterError(f'{query.type} metric "{query.name}" comes without a selector of pods', "bug")
        # Some servers leave out the labels of pods: then the server selects, with one list per query.
        selected = await self._read(query.namespace, str(query.pods)) if pods.unlabelled else pods.select(query.pods)
        return pod_sample(selected, query.name, query.container, query.ignored_containers)
