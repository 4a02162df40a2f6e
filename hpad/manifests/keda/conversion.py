"""The parts of a conversion: metrics, sources, settings, annotations, and notes on what is lost."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from hpad.api.hpa import MetricSpec
from hpad.engine import addresses, annotations, controls, fallback_policy
from hpad.engine.spec import CompiledMetric, compile_metric
from hpad.manifests.keda.fields import Note

EXTERNAL: Final = "External"
PLACEHOLDER: Final = "REPLACE-ME"
"""Stands in the settings for a value that KEDA's objects do not have; `hpad check` refuses it."""


class ConvertedSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source that one trigger needs, with the entry for its metric.

    path: field of the trigger. host: server, for the source's name. section, entry, query: `query` is written under
    `entry` in the setting `section`, or nothing is without an entry. metric, labels: what sends the HPA's External
    metric to the source.
    """

    path: str
    adapter: str
    host: str = ""
    settings: Mapping[str, Any] = {}
    section: str = "metrics"
    entry: str = ""
    query: Any = None
    metric: str
    labels: Mapping[str, str] = {}


def _compiled(metric: dict[str, Any]) -> CompiledMetric:
    """Returns the metric without its target, which its address does not depend on."""
    bare = {
        name: {key: value for key, value in entry.items() if key != "target"} if isinstance(entry, dict) else entry
        for name, entry in metric.items()
    }
    return compile_metric(msgspec.convert(bare, MetricSpec), "")


Policy = Callable[[tuple[str, ...]], str]
"""Returns the expression of a metric policy for the addresses of the metrics."""


class Conversion(msgspec.Struct):
    """Metrics with their sources, and notes; filled as the triggers are read.

    origins: the source of each metric, None for cpu and memory. activation: thresholds by index of the metric. names:
    the index of the metric of each named trigger. own: annotations for hpad. policy: the metric policy, once all
    metrics are known. constants: the metrics that are no trigger's. taken: the names of metrics of all ScaledObjects,
    which share the settings.
    """

    metrics: list[dict[str, Any]] = []
    origins: list[ConvertedSource | None] = []
    notes: list[Note] = []
    activation: dict[int, str] = {}
    names: dict[str, int] = {}
    own: dict[str, str] = {}
    policy: Policy | None = None
    constants: set[int] = set()
    taken: set[str] = set()

    def note_loss(self, field: str, text: str) -> None:
        """Notes a field whose effect the result lacks, once."""
        if (note := Note(field, text)) not in self.notes:
            self.notes.append(note)

    def note_change(self, field: str, text: str) -> None:
        """Notes a field that is carried over in another way, or that has no effect."""
        self.notes.append(Note(field, text, lost=False))

    def unique(self, name: str) -> str:
        """Returns the name in lower case, with a number appended if another metric has it; takes it."""
        name = unique = name.lower()
        number = 1
        while unique in self.taken:
            number += 1
            unique = f"{name}-{number}"
        self.taken.add(unique)
        return unique

    def external(self) -> list[int]:
        """Returns the indices of the metrics of triggers that are read without pods."""
        return [
            index
            for index, entry in enumerate(self.metrics)
            if entry["type"] == EXTERNAL and index not in self.constants
        ]

    def drop(self, dropped: set[int]) -> dict[int, int]:
        """Removes metrics with their sources. Returns the new index of each metric that stays."""
        kept = [index for index in range(len(self.metrics)) if index not in dropped]
        places = {old: new for new, old in enumerate(kept)}
        self.metrics = [self.metrics[index] for index in kept]
        self.origins = [self.origins[index] for index in kept]
        self.activation = {places[old]: text for old, text in self.activation.items() if old in places}
        self.names = {name: places[old] for name, old in self.names.items() if old in places}
        self.constants = {places[old] for old in self.constants if old in places}
        return places

    @property
    def sources(self) -> tuple[ConvertedSource, ...]:
        """The sources of all metrics."""
        return tuple([source for source in self.origins if source is not None])

    def add(self, metric: dict[str, Any], target: dict[str, Any], source: ConvertedSource) -> int:
        """Adds an External metric. Returns its index."""
        self.add_spec({"type": EXTERNAL, "external": {"metric": metric, "target": target}}, source)
        return len(self.metrics) - 1

    def add_spec(self, spec: dict[str, Any], source: ConvertedSource | None = None) -> None:
        """Adds an entry of spec.metrics."""
        self.metrics.append(spec)
        self.origins.append(source)

    def truncate(self, count: int) -> None:
        """Removes the metrics from an index on."""
        del self.metrics[count:], self.origins[count:]

    def add_constant(self, name: str, replicas: int, path: str) -> int:
        """Adds a metric that asks for the same number of replicas at any time. Returns its index."""
        name = self.unique(name)
        window = {"start": "0 0 * * *", "end": "0 0 * * *", "replicas": replicas, "otherwise": replicas}
        source = ConvertedSource(path=path, adapter="cron", entry=name, query=window, metric=name)
        index = self.add({"name": name}, {"type": "AverageValue", "averageValue": "1"}, source)
        self.constants.add(index)
        return index

    def annotations(self, fallback: fallback_policy.Fallback | None) -> dict[str, str]:
        """Returns the annotations of the HPA for hpad: those of `own`, thresholds, fallback and metric policy."""
        names = addresses.addresses(tuple(map(_compiled, self.metrics)))
        fallbacks = self.external() if fallback is not None else []
        texts = {
            annotations.ACTIVATION: ",".join(f"{names[index]}={value}" for index, value in self.activation.items()),
            annotations.FALLBACK: ",".join(f"{names[index]}={fallback}" for index in fallbacks),
            controls.METRIC_POLICY: "" if self.policy is None else self.policy(names),
            **self.own,
        }
        return {name: text for name, text in texts.items() if text}


class Converted(msgspec.Struct, frozen=True):
    """The result for one ScaledObject: the HPA as a document (None: no HPA), its sources, and notes."""

    namespace: str
    name: str
    hpa: dict[str, Any] | None
    sources: tuple[ConvertedSource, ...] = ()
    notes: tuple[Note, ...] = ()
    scale_to_zero: bool = False


# The settings that converted objects need.

_NOT_OWN: Final = ("namespaces", "match", "metrics", "keys")
"""Settings that differ between metrics of one server, or that every source has."""


def settings_document(converted: Iterable[Converted]) -> dict[str, Any]:
    """Returns the settings that the converted objects need; empty if they need none.

    Metrics of the same server share one source, limited to the namespaces of their objects.
    """
    sources: dict[str, dict[str, Any]] = {}
    scale_to_zero = False
    for each in converted:
        scale_to_zero |= each.scale_to_zero
        for source in each.sources:
            _add(_settings_of(sources, source), source, each.namespace)
    gates: dict[str, Any] = {"feature_gates": {"HPAScaleToZero": True}} if scale_to_zero else {}
    return {**gates, "sources": sources} if sources else gates


def _add(settings: dict[str, Any], source: ConvertedSource, namespace: str) -> None:
    if source.labels:
        match = {"types": [EXTERNAL], "metrics": [source.metric], "labels": dict(source.labels)}
        settings.setdefault("match", []).append(match)
    else:
        names = settings.setdefault("match", {"types": [EXTERNAL], "metrics": []})["metrics"]
        if source.metric not in names:
            names.append(source.metric)
    if source.entry:
        settings.setdefault(source.section, {})[source.entry] = source.query
    if namespace not in settings["namespaces"]:
        settings["namespaces"].append(namespace)


def _settings_of(sources: dict[str, dict[str, Any]], source: ConvertedSource) -> dict[str, Any]:
    """Returns the entry in `sources` with the same adapter and settings, or adds one, named after adapter and host."""
    settings = {"adapter": source.adapter, **source.settings}
    host = source.host.rpartition("@")[2]  # the settings refuse a user and a password
    label = host.lower().partition(".")[0]
    stem = "-".join(filter(None, (source.adapter, host if label.isdigit() else label)))
    name, number = stem, 1
    while True:
        known = sources.setdefault(name, {**settings, "namespaces": []})
        if {key: value for key, value in known.items() if key not in _NOT_OWN} == settings:
            return known
        number += 1
        name = f"{stem}-{number}"
