"""Which pods a target's selector means: series know names of pods, not their labels."""

from collections.abc import Iterable, Mapping

import msgspec

from hpad.adapter import AdapterError, Context, Query, Selector

_PAGE = "500"
Wanted = tuple[str, Selector]


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


class Pods:
    """Asks the API server, once per namespace and batch, from its cache (resourceVersion 0)."""

    def __init__(self, context: Context) -> None:
        self._api = context.api

    async def names(self, queries: Iterable[Query]) -> Mapping[Wanted, frozenset[str] | AdapterError]:
        """The names of the pods of each namespace and selector, or why they are not known."""
        wanted: dict[str, set[Selector]] = {}
        for query in queries:
            if query.pods is not None:
                wanted.setdefault(query.namespace, set()).add(query.pods)
        found: dict[Wanted, frozenset[str] | AdapterError] = {}
        for namespace, selectors in wanted.items():
            pods = await self._listed(namespace, selectors)
            for selector in selectors:
                found[namespace, selector] = pods if isinstance(pods, AdapterError) else _matching(pods, selector)
        return found

    async def _listed(self, namespace: str, selectors: set[Selector]) -> list[_Meta] | AdapterError:
        """The pods of the namespace; those of the one selector, where there is but one."""
        if self._api is None:
            return AdapterError(
                "which pods are meant takes an API server to ask; without one, select pods by their labels "
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
        except msgspec.DecodeError:
            return AdapterError(f'the API server\'s list of the pods of "{namespace}" is no PodList', "cluster")


def _matching(pods: Iterable[_Meta], selector: Selector) -> frozenset[str]:
    return frozenset(pod.name for pod in pods if selector.matches(pod.labels or {}))
