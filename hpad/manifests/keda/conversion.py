"""The parts of a conversion: metrics, sources, annotations, and notes on what is lost."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from hpad.api.hpa import MetricSpec
from hpad.engine import addresses, annotations, controls, fallback_policy
from hpad.engine.spec import CompiledMetric, compile_metric
from hpad.manifests.keda.fields import Note

EXTERNAL: Final = "External"
PLACEHOLDER: Final = "REPLACE-ME"
"""Stands in the settings for a value that KEDA's objects do not have; `hpad check` refuses it."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The source that one trigger needs, with the entry for its metric.

    path: field of the trigger. host: server, for the source's name. section, entry, query: `query` is written under
    `entry` in the setting `section`. metric, selector: name and labels in the HPA's External metric.
    """

    path: str
    adapter: str
    host: str = ""
    settings: Mapping[str, Any] = {}
    section: str = "metrics"
    entry: str
    query: Any
    metric: str
    selector: Mapping[str, str] = {}


def _compiled(metric: dict[str, Any]) -> CompiledMetric:
    """Returns the metric without its target, which its address does not depend on."""
    bare = {
        name: {key: value for key, value in entry.items() if key != "target"} if isinstance(entry, dict) else entry
        for name, entry in metric.items()
    }
    return compile_metric(msgspec.convert(bare, MetricSpec), "")


def _identity(metric: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Returns name and labels of an External metric."""
    named = metric["external"]["metric"]
    return named["name"], named.get("selector", {}).get("matchLabels", {})


Policy = Callable[[tuple[str, ...]], str]
"""Returns the expression of a metric policy for the addresses of the metrics."""


class Conversion(msgspec.Struct):
    """Metrics, sources and notes; filled as the triggers are read.

    activation: thresholds by index of the metric. names: the index of the metric of each named trigger. own:
    annotations for hpad. policy: the metric policy, once all metrics are known. constants: the metrics that are no
    trigger's. taken: the names of metrics of all ScaledObjects, which share the settings.
    """

    metrics: list[dict[str, Any]] = []
    sources: list[Source] = []
    notes: list[Note] = []
    activation: dict[int, str] = {}
    names: dict[str, int] = {}
    own: dict[str, str] = {}
    policy: Policy | None = None
    constants: set[int] = set()
    taken: set[str] = set()

    def note_loss(self, field: str, text: str) -> None:
        """Notes a field whose effect the result lacks."""
        self.notes.append(Note(field, text))

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
        gone = [_identity(self.metrics[index]) for index in dropped]
        self.sources = [each for each in self.sources if (each.metric, dict(each.selector)) not in gone]
        self.metrics = [self.metrics[index] for index in kept]
        self.activation = {places[old]: text for old, text in self.activation.items() if old in places}
        self.names = {name: places[old] for name, old in self.names.items() if old in places}
        self.constants = {places[old] for old in self.constants if old in places}
        return places

    def add_constant(self, name: str, replicas: int, path: str) -> int:
        """Adds a metric that asks for the same number of replicas at any time. Returns its index."""
        name = self.unique(name)
        window = {"start": "0 0 * * *", "end": "0 0 * * *", "replicas": replicas, "otherwise": replicas}
        self.sources.append(Source(path=path, adapter="cron", entry=name, query=window, metric=name))
        target = {"type": "AverageValue", "averageValue": "1"}
        self.metrics.append({"type": EXTERNAL, "external": {"metric": {"name": name}, "target": target}})
        self.constants.add(len(self.metrics) - 1)
        return len(self.metrics) - 1

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
    sources: tuple[Source, ...] = ()
    notes: tuple[Note, ...] = ()
    scale_to_zero: bool = False
