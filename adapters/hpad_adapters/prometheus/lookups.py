"""Which pods a target's selector means: series know names of pods, not their labels.

Which series there are, for rules whose names of metrics cannot be read backwards to one series.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import msgspec

from hpad.adapter import AdapterError, Context, Query, Selector, meant
from hpad_adapters.prometheus.connection import Connection
from hpad_adapters.prometheus.rules import Found, Rule

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
        lists = await asyncio.gather(*(self._listed(*each) for each in wanted.items()))
        for (namespace, selectors), pods in zip(wanted.items(), lists, strict=True):
            if isinstance(pods, AdapterError):
                found |= {(namespace, selector): pods for selector in selectors}
                continue
            index = _Index(pods)
            found |= {(namespace, selector): index.names(selector) for selector in selectors}
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
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return AdapterError(f'the API server\'s list of the pods of "{namespace}" is no PodList', "cluster")


class _Index:
    """Pods by each of their labels, so that a selector looks at few of them."""

    def __init__(self, pods: Sequence[_Meta]) -> None:
        self._pods = pods
        self._labelled: dict[tuple[str, str], list[_Meta]] = {}
        for pod in pods:
            for label in (pod.labels or {}).items():
                self._labelled.setdefault(label, []).append(pod)

    def names(self, selector: Selector) -> frozenset[str]:
        """The names of the pods that it selects."""
        exact = (term for term in selector.requirements if term.operator.value in ("=", "=="))
        narrowed = (self._labelled.get((term.key, term.values[0]), ()) for term in exact)
        few = min(narrowed, key=len, default=self._pods)
        return frozenset(pod.name for pod in few if selector.matches(pod.labels or {}))


_LOOK_AGAIN_SECONDS = 30.0


class _Seen(msgspec.Struct, frozen=True):
    names: frozenset[str]
    at: float


class Discovery:
    """The names of the series that rules query, remembered for `ttl` (which is also how far back it looks).

    A metric that is not among them is looked for again after half a minute, so that a new one need not wait that long.
    """

    def __init__(self, connection: Connection, context: Context, ttl: timedelta) -> None:
        self._connection = connection
        self._clock = context.clock
        self._ttl = ttl.total_seconds()
        self._seen: dict[str, _Seen] = {}

    async def choose(self, found: Sequence[Found], metric: str) -> tuple[Rule, str] | None:
        """The first rule that has a series for the metric; raises AdapterError if the server does not answer.

        A single rule whose series is known needs no look at all.
        """
        if len(found) == 1 and found[0].series is not None:
            return found[0].rule, found[0].series
        for fresh in (self._ttl, _LOOK_AGAIN_SECONDS):
            for candidate in found:
                names = await self._names(candidate.rule.naming.series_query, min(fresh, self._ttl))
                series = candidate.rule.naming.among(names, metric)
                if series is not None:
                    return candidate.rule, series
        return None

    async def _names(self, selector: str, fresh: float) -> frozenset[str]:
        now = self._clock.monotonic()
        seen = self._seen.get(selector)
        if seen is None or now - seen.at > fresh:
            until = self._clock.now().timestamp()
            names = frozenset(await self._connection.series_names(selector, until - self._ttl, until))
            seen = self._seen[selector] = _Seen(names, now)
        return seen.names


def unknown(metric: str, kind: str, known: Sequence[str]) -> AdapterError:
    """Nothing is configured for the metric, or no rule finds a series for it."""
    listed = ", ".join(known) or "none"
    return AdapterError(
        f'nothing answers {kind} metric "{metric}": no rule finds a series that it would name so, '
        f"and queries of its type are written for: {listed}{meant(metric, known)}",
        "spec",
    )
