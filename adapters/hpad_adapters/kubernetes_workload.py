"""Numbers of pods, or of their nodes, by a label selector: one workload follows the size of another.

Source: Kubernetes, API v1 Pod (status.phase, spec.nodeName); "API Concepts: retrieving large results sets in chunks".
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Final
from urllib.parse import quote

import msgspec

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query, or_error
from hpad.adapter_http import UNDECODABLE
from hpad_adapters import lists
from hpad_adapters.selection import no_metric

PODS: Final = "workload_pods"
NODES: Final = "workload_nodes"
_ENDED: Final = ("Succeeded", "Failed")
_PAGE: Final = 500
_MOST_EMPTY_PAGES: Final = 100
_CONCURRENCY: Final = 4

Group = tuple[str, str]


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] | None
    metadata: lists.ListMetadata = lists.ListMetadata()


_PODS: Final = msgspec.json.Decoder(_Pods)


class WorkloadCounts(msgspec.Struct):
    """What is counted of the pods that a selector matches, page by page."""

    nodes: set[str]
    pods: int = 0

    def add(self, items: Sequence[_Pod]) -> None:
        """Counts the pods of a page that have not ended."""
        for pod in items:
            if pod.status.phase not in _ENDED:
                self.pods += 1
                self.nodes.add(pod.spec.node_name)

    def of(self, metric: str) -> int:
        """Returns the value of a metric. A pod that is not scheduled is on no node."""
        return self.pods if metric == PODS else len(self.nodes - {""})


class WorkloadSettings(lists.Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """max_pods: of one selector; more are an error. request_timeout: of the list of one selector, such as "5s"."""

    max_pods: Annotated[int, msgspec.Meta(ge=1)] = 10_000


class KubernetesWorkload:
    """The number of pods of another workload, or of their nodes: `workload_pods`, `workload_nodes`.

    The selector of the metric is that of the pods. Pods of the HPA's namespace count that have not ended: their phase
    is neither Succeeded nor Failed. No such pod is the number zero. Pods on one node count once for `workload_nodes`,
    and pods without a node do not.
    """

    serves: ClassVar[frozenset[str]] = frozenset({EXTERNAL})
    metrics: ClassVar[tuple[str, ...]] = (PODS, NODES)
    Settings: ClassVar[type[lists.Settings]] = WorkloadSettings

    def __init__(self, settings: WorkloadSettings, context: Context) -> None:
        self._max_pods = settings.max_pods
        self._timeout = context.within(settings.timeout_seconds())
        self._api = context.api
        self._clock = context.clock
        self._semaphore = asyncio.Semaphore(_CONCURRENCY)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; each selector of a namespace is listed once."""
        groups = [self._checked(query) for query in queries]
        distinct = list(dict.fromkeys(group for group in groups if not isinstance(group, AdapterError)))
        counted = await asyncio.gather(*(or_error(self._counts, *group) for group in distinct))
        found = dict(zip(distinct, counted, strict=True))
        return [
            group if isinstance(group, AdapterError) else self._sample(query, found[group])
            for query, group in zip(queries, groups, strict=True)
        ]

    def group(self, query: Query) -> Group | None:
        """Returns namespace and selector: one list serves both metrics."""
        group = self._checked(query)
        return None if isinstance(group, AdapterError) else group

    async def aclose(self) -> None:
        """Does nothing: hpad closes its client of the API server."""

    def _checked(self, query: Query) -> Group | AdapterError:
        if query.name not in self.metrics:
            return no_metric(query, self.metrics)
        selector = "" if query.selector is None else str(query.selector)
        if not selector:
            return AdapterError(f'metric "{query.name}" needs the selector of the pods, such as "app=backend"', "spec")
        return query.namespace, selector

    def _sample(self, query: Query, counts: WorkloadCounts | AdapterError) -> Answer:
        if isinstance(counts, AdapterError):
            return counts
        return ExternalSample((counts.of(query.name) * 1000,), self._clock.now())

    async def _counts(self, namespace: str, selector: str) -> WorkloadCounts:
        """Counts the pods of a selector; raises AdapterError."""
        where = f'pods "{selector}" of namespace {namespace}'
        try:
            async with asyncio.timeout(self._timeout), self._semaphore:
                return await self._listed(namespace, selector, where)
        except TimeoutError:
            raise AdapterError(f"{where}: the API server did not answer within {self._timeout:g}s", "cluster") from None

    async def _listed(self, namespace: str, selector: str, where: str) -> WorkloadCounts:
        if self._api is None:
            raise AdapterError(f"{where}: hpad runs without an API server, which lists pods", "spec")
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
        counts, seen, more = WorkloadCounts(nodes=set()), 0, ""
        # A page may be empty, since the server filters it; a bound on pages ends a server that always has another one.
        for _ in range(self._max_pods // _PAGE + _MOST_EMPTY_PAGES):
            page = self._decoded(await self._api.get(path, dict(_parameters(selector, more))), where)
            items, more = page.items or (), page.metadata.more
            counts.add(items)
            seen += len(items)
            if seen + bool(more) > self._max_pods:
                raise AdapterError(f"{where} are more than max_pods ({self._max_pods})", alive=True)
            if not more:
                return counts
        raise AdapterError(f"{where}: the API server always answers that there is another page", "cluster")

    def _decoded(self, body: bytes, where: str) -> _Pods:
        try:
            return _PODS.decode(lists.sized(body))
        except AdapterError as error:
            raise AdapterError(f"{where}: {error.message}", error.blame, lasting=True) from None
        except UNDECODABLE:
            raise AdapterError(f"{where}: the API server answered something other than pods", "cluster") from None


def _parameters(selector: str, more: str) -> Iterator[tuple[str, str]]:
    yield "labelSelector", selector
    # Pods of Jobs that have ended may be many: the server leaves them out.
    yield "fieldSelector", ",".join(f"status.phase!={phase}" for phase in _ENDED)
    yield "limit", str(_PAGE)
    if more:
        yield "continue", more
