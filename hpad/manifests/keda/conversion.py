"""The parts of a conversion: triggers, sources, and notes on what is lost."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hpad.api import duration
from hpad.api.fields import invalid, required
from hpad.api.hpa import MetricSpec
from hpad.api.quantity import QuantityError, parse_milli
from hpad.engine import addresses, annotations, fallback_policy
from hpad.engine.spec import CompiledMetric, compile_metric
from hpad.manifests.keda.fields import ConversionError, Fields

EXTERNAL: Final = "External"
PLACEHOLDER: Final = "REPLACE-ME"
"""Stands in the settings for a value that KEDA's objects do not have; `hpad check` refuses it."""


class Note(msgspec.Struct, frozen=True):
    """A field that is not carried over unchanged, and what the user can do.

    `lost`: the result lacks the field's effect. False: the effect is kept in another way, or the field has none.
    """

    field: str
    text: str
    lost: bool = True

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


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


class Conversion(msgspec.Struct):
    """Metrics, sources and notes; filled as the triggers are read. `activation`: thresholds by index of the metric."""

    metrics: list[dict[str, Any]] = []
    sources: list[Source] = []
    notes: list[Note] = []
    activation: dict[int, str] = {}

    def note_loss(self, field: str, text: str) -> None:
        """Notes a field whose effect the result lacks."""
        self.notes.append(Note(field, text))

    def note_change(self, field: str, text: str) -> None:
        """Notes a field that is carried over in another way, or that has no effect."""
        self.notes.append(Note(field, text, lost=False))

    def annotations(self, fallback: fallback_policy.Fallback | None) -> dict[str, str]:
        """Returns the annotations of the HPA for hpad: activation thresholds, and the fallback of external metrics."""
        names = addresses.addresses(tuple(map(_compiled, self.metrics)))
        external = [index for index, entry in enumerate(self.metrics) if entry["type"] == EXTERNAL]
        fallbacks = external if fallback is not None else []
        texts = {
            annotations.ACTIVATION: ",".join(f"{names[index]}={value}" for index, value in self.activation.items()),
            annotations.FALLBACK: ",".join(f"{names[index]}={fallback}" for index in fallbacks),
        }
        return {name: text for name, text in texts.items() if text}


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """One trigger, and the conversion that it adds to.

    `path`: its field, such as `spec.triggers[0]`. `metric`: the name of its metric in the HPA.
    """

    path: str
    metric: str
    type: str
    metadata: Fields
    conversion: Conversion
    metric_type: str = ""

    def invalid(self, name: str, value: Any, detail: str) -> ConversionError:
        """Returns the error for an invalid entry of the metadata."""
        return ConversionError(invalid(self.metadata.at(name), value, detail))

    def note_loss(self, name: str, text: str) -> None:
        """Notes an entry of the metadata whose effect the result lacks."""
        self.conversion.note_loss(self.metadata.at(name), text)

    def note_change(self, name: str, text: str) -> None:
        """Notes an entry of the metadata that is carried over in another way, or that has no effect."""
        self.conversion.note_change(self.metadata.at(name), text)

    def needed(self, name: str) -> str:
        """Returns a required entry. Raises ConversionError if it is missing."""
        text = self.metadata.text(name)
        if not text:
            raise ConversionError(required(self.metadata.at(name), f"a trigger of type {self.type} needs it"))
        return text

    def number(self, name: str, default: str = "") -> str:
        """Returns an entry that is a quantity, or the default if it is absent. Raises ConversionError."""
        text = self.metadata.text(name, default)
        if not text:
            return text
        try:
            parse_milli(text)
        except QuantityError:
            raise self.invalid(name, text, "must be a number") from None
        return text

    def whole_number(self, name: str, text: str) -> int:
        """Returns the number in the text of an entry. Raises ConversionError for anything but digits."""
        if not (text.isascii() and text.isdigit()):
            raise self.invalid(name, text, "must be a whole number")
        return int(text)

    def milliseconds(self, name: str) -> str:
        """Returns a timeout in hpad's form, such as "3000ms"; "" if absent. Raises ConversionError."""
        text = self.metadata.text(name)
        if not text:
            return ""
        if text.isascii() and text.isdigit() and int(text):
            return f"{int(text)}ms"
        try:
            return duration.write(duration.parse(text))
        except ValueError:
            raise self.invalid(name, text, "must be milliseconds, such as 3000") from None

    def note_unneeded(self, reasons: Mapping[str, str]) -> None:
        """Notes entries that have no effect, each with the reason."""
        for name, reason in reasons.items():
            if self.metadata.text(name):
                self.note_change(name, f"is left out: {reason}")

    def from_environment(self, *names: str) -> None:
        """Notes as lost each entry `NAMEFromEnv`, which KEDA reads from a variable of the target's container."""
        for name in names:
            variable = self.metadata.text(f"{name}FromEnv")
            if variable:
                self.note_loss(
                    f"{name}FromEnv",
                    f'is not carried over: the variable "{variable}" is one of the target\'s container, which hpad '
                    f"does not read: write the {name} into the source",
                )

    def user(self, field: str, name: str, host: str) -> dict[str, str]:
        """Returns the settings of a source's user. The password is not copied: an environment variable replaces it."""
        if not name:
            return {}
        variable = f"HPAD_{''.join(c if c.isascii() and c.isalnum() else '_' for c in host.upper())}_PASSWORD"
        self.note_change(field, f"the password is not copied: give it to hpad as {variable}")
        return {"username": name, "password_env": variable}

    def source(self, adapter: str, query: Any, host: str = "", settings: Mapping[str, Any] = {}) -> Source:
        """Returns the source whose entry and metric have the name of the trigger's metric."""
        return Source(
            path=self.path,
            adapter=adapter,
            host=host,
            settings=settings,
            entry=self.metric,
            query=query,
            metric=self.metric,
        )

    def external(self, source: Source, value: str, activation: str = "") -> None:
        """Adds the trigger's External metric and its source; raises ConversionError for an invalid metricType."""
        kind = self.metric_type or "AverageValue"
        if kind not in ("AverageValue", "Value"):
            raise ConversionError(invalid(f"{self.path}.metricType", kind, "must be AverageValue or Value"))
        metric: dict[str, Any] = {"name": source.metric}
        if source.selector:
            metric["selector"] = {"matchLabels": dict(source.selector)}
        target = {"type": kind, "averageValue" if kind == "AverageValue" else "value": value}
        self.conversion.sources.append(source)
        self.conversion.metrics.append({"type": EXTERNAL, "external": {"metric": metric, "target": target}})
        if activation and parse_milli(activation):
            self.conversion.activation[len(self.conversion.metrics) - 1] = activation


class Converted(msgspec.Struct, frozen=True):
    """The result for one ScaledObject: the HPA as a document (None: no HPA), its sources, and notes."""

    namespace: str
    name: str
    hpa: dict[str, Any] | None
    sources: tuple[Source, ...] = ()
    notes: tuple[Note, ...] = ()
    scale_to_zero: bool = False
