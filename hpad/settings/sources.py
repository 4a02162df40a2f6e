"""The sections `sources`, `routes` and `store`: their types, with the settings in each, and their parsers."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hpad.api.sample import SOURCE_TYPES
from hpad.api.text import hint, shown
from hpad.engine import fallback_policy
from hpad.settings import parsers, rows
from hpad.settings.parsers import each, takes
from hpad.settings.rows import Setting

STORES = ("memory", "sqlite", "cluster")


@takes(parsers.list_of({"enum": list(SOURCE_TYPES)}))
def metric_types(value: Any) -> tuple[str, ...]:
    names = parsers.names(value)
    for name in names:
        if name not in SOURCE_TYPES:
            raise ValueError(f"there is no metric type {shown(name)}{hint(name, SOURCE_TYPES)}")
    return names


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """Selects metrics. Each list holds names or shell-style patterns ("queue_*"); an empty list matches any name.

    `labels` choose the source, whose adapter gets the selector without them, unless they are parameters of the adapter
    (routes.py: Offer.chosen_by).
    """

    types: Annotated[tuple[str, ...], Setting(metric_types, "metric types; empty: any")] = ()
    metrics: Annotated[
        tuple[str, ...], Setting(parsers.patterns, "names of metrics, or patterns such as queue_*; empty: any")
    ] = ()
    namespaces: Annotated[
        tuple[str, ...], Setting(parsers.patterns, "namespaces of HPAs, or patterns; empty: any")
    ] = ()
    labels: Annotated[
        Mapping[str, str],
        Setting(
            parsers.labels,
            "labels that the metric's selector must have: label -> value or pattern; they choose the source and are no "
            "part of the query, unless the adapter has a parameter of that name",
        ),
    ] = {}


match = rows.mapping(Match)


@takes({"anyOf": [match.form, parsers.list_of(match.form)]})
def matches(value: Any) -> tuple[Match, ...]:
    """Accepts one rule or a list of rules."""
    if not isinstance(value, list):
        return (match(value),)
    return tuple(each((index, partial(match, entry)) for index, entry in enumerate(value)))


class SourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on calls to a source.

    `fresh` None: a third of the sync period. After `failures` failed calls in a row the source is called once per
    `rest` (None: the sync period).
    """

    concurrency: Annotated[int, Setting(parsers.count, "concurrent calls")] = 4
    rate: Annotated[float, Setting(parsers.rate, "calls per second")] = 20.0
    retries: Annotated[int, Setting(parsers.whole, "how often a failed call is repeated")] = 1
    fresh: Annotated[
        timedelta | None,
        Setting(
            parsers.duration,
            "maximum age of an answer that is shared with another HPA; 0s: answers are not shared",
        ),
    ] = None
    max_age: Annotated[
        timedelta | None,
        Setting(parsers.positive_duration, "maximum age of a sample by its own timestamp"),
    ] = None
    failures: Annotated[int, Setting(parsers.count, "failed calls in a row after which the circuit breaker opens")] = 5
    rest: Annotated[
        timedelta | None,
        Setting(parsers.positive_duration, "how long the circuit breaker stays open before it tries a call"),
    ] = None


class OpenedQueries(msgspec.Struct, frozen=True, kw_only=True):
    """Which Autoscalers may bring queries of their own to a source: those of `namespaces`, none by default."""

    namespaces: Annotated[
        tuple[str, ...],
        Setting(
            parsers.patterns,
            "namespaces, or patterns, whose Autoscalers may bring queries of their own (spec.queries): these read all "
            "that the credentials of the source can see; empty: none",
        ),
    ] = ()


opened_queries = rows.mapping(OpenedQueries)


@takes({"type": "string"})
def _fallback(value: Any) -> fallback_policy.Fallback:
    return fallback_policy.parse(parsers.text(value))


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One configured instance of an adapter, whose own schema validates `settings`.

    `timeout` None: the default. `match` holds unless a route decides (empty: the metrics that the adapter serves by
    default). `fallback` applies to HPAs without a policy of their own (see `hpad.engine.fallback_policy`). `origin`:
    the file or variable that configures it.
    """

    name: str
    adapter: Annotated[
        str,
        Setting(
            parsers.text,
            "kind of source (default: the source's name); `hpad adapters list` shows the installed ones",
        ),
    ]
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    timeout: Annotated[
        timedelta | None,
        Setting(parsers.positive_duration, "how long one attempt may take; at most 0.6 of the sync period"),
    ] = None
    match: Annotated[
        tuple[Match, ...],
        Setting(matches, "metrics that the source answers (default: those that its adapter offers)"),
    ] = ()
    namespaces: Annotated[
        tuple[str, ...],
        Setting(parsers.patterns, "the namespaces, or patterns, whose HPAs may use the source; empty: all"),
    ] = ()
    limits: Annotated[
        SourceLimits,
        Setting(rows.mapping(SourceLimits), "limits of calls to the source, and of the age of answers"),
    ] = SourceLimits()
    fallback: Annotated[
        fallback_policy.Fallback | None,
        Setting(
            _fallback,
            "while its metrics fail: hold, ignore, replicas:N, at-least:N, at-most:N or last-good:AGE, "
            "such as `replicas:5 after 3m`",
        ),
    ] = None
    queries: Annotated[
        OpenedQueries,
        Setting(opened_queries, "queries of Autoscalers, which the source takes from no namespace by default"),
    ] = OpenedQueries()
    origin: str = ""


_OF_SOURCES = rows.parsers_in(SourceSettings)
"""Fields that every source may have beside those of its adapter."""


def _source(name: str, value: Any) -> SourceSettings:
    if not isinstance(value, dict):
        raise ValueError(f'a source is a mapping such as {{adapter: "{name}", url: …}}')
    common = rows.fields({key: entry for key, entry in value.items() if key in _OF_SOURCES}, _OF_SOURCES)
    return SourceSettings(**{"name": name, "adapter": name, "settings": of_adapter(value), **common})


def of_adapter(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a source that its adapter validates."""
    return {key: entry for key, entry in value.items() if key not in _OF_SOURCES}


@takes({"type": "object"})
def sources(value: Any) -> tuple[SourceSettings, ...]:
    if not isinstance(value, dict):
        raise ValueError("sources are a mapping of a name of your choice to {adapter: …, …}")
    return tuple(each((str(name), partial(_source, str(name), entry)) for name, entry in value.items()))


def joined(earlier: tuple[SourceSettings, ...], later: tuple[SourceSettings, ...]) -> tuple[SourceSettings, ...]:
    """Returns the sources of both; a later one replaces the one of the same name."""
    names = {source.name for source in later}
    return (*(source for source in earlier if source.name not in names), *later)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Sends metrics that match to the named source. The first matching route wins."""

    match: Annotated[Match, Setting(match, "metrics that take the route")]
    source: Annotated[str, Setting(parsers.text, "name of the source that answers them")]


_route = rows.mapping(Route)


@takes(parsers.list_of(_route.form), write=list)
def routes(value: Any) -> tuple[Route, ...]:
    if not isinstance(value, list):
        raise ValueError("routes are a list of {match: {metrics: […]}, source: …}")
    return tuple(each((index, partial(_route, entry)) for index, entry in enumerate(value)))


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the state of HPAs is kept: the file `path` (`sqlite`), ConfigMaps NAME-0, NAME-1, ... (`cluster`), or
    only in the process (`memory`).

    `namespace` is that of the ConfigMaps, None for that of the Lease or of hpad; without a `name` it follows
    that of the Lease. `chosen`: the settings name a kind.
    """

    kind: Annotated[str, Setting(parsers.one_of(*STORES), "memory, sqlite (a file) or cluster (ConfigMaps)")] = "memory"
    path: Annotated[Path | None, Setting(parsers.path, "the file of sqlite")] = None
    namespace: Annotated[str | None, Setting(parsers.namespace, "namespace of the ConfigMaps")] = None
    name: Annotated[
        str,
        Setting(
            parsers.object_name, "name of the ConfigMaps: NAME-0, NAME-1, … (default: that of the Lease with -history)"
        ),
    ] = "hpad-history"
    chosen: bool = False


_STORE = rows.parsers_in(StoreSettings)


@takes(
    {
        "anyOf": [
            {"type": "string", "description": "memory, cluster, sqlite or sqlite:FILE"},
            parsers.closed(rows.schema_of(StoreSettings)),
        ]
    },
    "KIND",
)
def store(value: Any) -> dict[str, Any]:
    """Accepts a mapping such as `{kind: sqlite, path: FILE}`, or the text memory, cluster, sqlite or sqlite:FILE.

    Returns fields of StoreSettings: defaults of the others depend on how hpad runs.
    """
    if isinstance(value, str):
        kind, _, path = value.partition(":")
        value = {"kind": kind, **({"path": path} if path else {})}
    read = rows.fields(value, _STORE)
    read.setdefault("kind", "sqlite" if "path" in read else None)
    if read["kind"] is None:
        raise ValueError(f"kind is missing: one of {', '.join(STORES)}")
    for name, kind in (("path", "sqlite"), ("namespace", "cluster"), ("name", "cluster")):
        if name in read and read["kind"] != kind:
            raise ValueError(f"{name}: applies only to the kind {kind}, not to {read['kind']}")
    return read
