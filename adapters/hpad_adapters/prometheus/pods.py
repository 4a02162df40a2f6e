"""The names of the pods that the selectors of targets match: series hold the names of pods, not their labels."""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec

from hpad.adapter import AdapterError, ApiReader, Context, Selector, or_error
from hpad.adapter_http import UNDECODABLE
from hpad_adapters.lists import LabelIndex, ListMetadata

_PAGE = "500"
_FRESH_SECONDS = 5.0
"""How long a list of all pods of a namespace is used: its HPAs are due within as many seconds, in many calls."""
PodSelection = tuple[str, Selector]
PodNames = Mapping[PodSelection, frozenset[str] | AdapterError]


class _Pod(msgspec.Struct, frozen=True):
    name: str = ""
    labels: dict[str, str] | None = None


class _Item(msgspec.Struct, frozen=True):
    metadata: _Pod = _Pod()


class _List(msgspec.Struct, frozen=True):
    items: list[_Item] = []
    metadata: ListMetadata = ListMetadata()


_decoder = msgspec.json.Decoder(_List)


class TargetPods:
    """Lists the pods of namespaces from the cache of the API server (resourceVersion 0)."""

    def __init__(self, context: Context) -> None:
        self._api = context.api
        self._clock = context.clock
        self._whole: dict[str, tuple[float, LabelIndex[_Pod]]] = {}

    async def names(self, selections: Iterable[PodSelection]) -> PodNames:
        """Returns the names of the pods of each namespace and selector, or the error of the list.

        Lists the pods of a namespace once for all selectors.
        """
        by_namespace: dict[str, set[Selector]] = {}
        for namespace, selector in selections:
            by_namespace.setdefault(namespace, set()).add(selector)
        found: dict[PodSelection, frozenset[str] | AdapterError] = {}
        lists = await asyncio.gather(*(or_error(self._pods(*each)) for each in by_namespace.items()))
        for (namespace, selectors), pods in zip(by_namespace.items(), lists, strict=True):
            for selector in selectors:
                found[namespace, selector] = pods if isinstance(pods, AdapterError) else _names(pods.select(selector))
        return found

    async def _pods(self, namespace: str, selectors: set[Selector]) -> LabelIndex[_Pod]:
        """Returns the pods of the namespace, or only those of the selector, if there is one selector."""
        now = self._clock.monotonic()
        self._whole = {name: kept for name, kept in self._whole.items() if now - kept[0] < _FRESH_SECONDS}
        if namespace in self._whole:
            return self._whole[namespace][1]
        only = str(next(iter(selectors))) if len(selectors) == 1 else ""
        index = LabelIndex(await _listed(self._api, namespace, only), lambda pod: pod.labels)
        if not only:
            self._whole[namespace] = now, index
        return index


def _names(pods: Iterable[_Pod]) -> frozenset[str]:
    return frozenset(pod.name for pod in pods)


async def _listed(api: ApiReader | None, namespace: str, selector: str) -> list[_Pod]:
    if api is None:
        raise AdapterError(
            "finding the pods needs an API server; without one, select pods by their labels "
            "in the query: <<.PodMatchers>>",
            "spec",
        )
    params = {"limit": _PAGE, "resourceVersion": "0"}
    if selector:
        params["labelSelector"] = selector
    pods: list[_Pod] = []
    while True:
        body = await api.get(f"/api/v1/namespaces/{namespace}/pods", params)
        try:
            page = _decoder.decode(body)
        except UNDECODABLE:
            text = f'the API server\'s list of the pods of "{namespace}" is no PodList'
            raise AdapterError(text, "cluster") from None
        pods += [item.metadata for item in page.items]
        if not page.metadata.more:
            return pods
        params = {**params, "continue": page.metadata.more}
        # The API server refuses a continued list with a resourceVersion.
        params.pop("resourceVersion", None)
