"""What a conversion gathers on its way: metrics, sources, annotations, and what it has to tell."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hpad.model import duration, terms
from hpad.model.fields import FieldError, invalid, required
from hpad.model.quantity import QuantityError, parse_milli


class Note(msgspec.Struct, frozen=True):
    """Something that is not, or not quite, carried over: the field of the ScaledObject, and what to do about it."""

    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


class Source(msgspec.Struct, frozen=True):
    """A source that metrics need: its adapter, a host to be named after, its settings, and its one metric."""

    adapter: str
    host: str
    settings: Mapping[str, Any]
    metric: str
    query: Mapping[str, Any]


class Found(msgspec.Struct):
    """Grows as the triggers are read."""

    metrics: list[dict[str, Any]] = []
    sources: list[Source] = []
    notes: list[Note] = []
    activation: dict[str, str] = {}

    def note(self, field: str, text: str) -> None:
        """Tell of something that is left behind."""
        self.notes.append(Note(field, text))


class Wrong(Exception):
    """The ScaledObject is not one that KEDA takes either."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(error.message)
        self.error = error


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """One trigger; `path` is its field, such as `spec.triggers[0]`, and `metric` the name that hpad gives it."""

    path: str
    metric: str
    type: str
    metadata: Mapping[str, str]
    metric_type: str = ""
    authentication: str = ""

    def field(self, name: str) -> str:
        """Where an entry of the metadata stands."""
        return f"{self.path}.metadata.{name}"

    def needed(self, name: str) -> str:
        """An entry without which there is no trigger; raises Wrong."""
        if not self.metadata.get(name):
            raise Wrong(required(self.field(name), f"a trigger of type {self.type} needs it"))
        return self.metadata[name]

    def number(self, name: str, text: str) -> str:
        """`text` if it is a number as quantities are written; raises Wrong."""
        try:
            parse_milli(text)
        except QuantityError:
            raise Wrong(invalid(self.field(name), text, "must be a number")) from None
        return text

    def flag(self, name: str) -> bool:
        """A truth in KEDA's text form; absent is false."""
        return self.metadata.get(name, "").lower() in ("true", "t", "1")

    def milliseconds(self, name: str) -> str | None:
        """A timeout as hpad writes it; raises Wrong."""
        text = self.metadata.get(name)
        if text is None:
            return None
        if text.isascii() and text.isdigit() and int(text):
            return f"{int(text)}ms"
        try:
            return duration.write(duration.parse(text))
        except ValueError:
            raise Wrong(invalid(self.field(name), text, "must be milliseconds, such as 3000")) from None

    def leftover(self, found: Found, known: frozenset[str]) -> None:
        """Tell of the metadata that nothing was made of."""
        for name in self.metadata:
            if name not in known:
                found.note(self.field(name), "is not carried over: there is no counterpart")

    def external(self, found: Found, value: str, activation: str | None) -> None:
        """Add the External metric that the trigger becomes."""
        kind = self.metric_type or "AverageValue"
        if kind not in ("AverageValue", "Value"):
            raise Wrong(invalid(f"{self.path}.metricType", kind, "must be AverageValue or Value"))
        amount = {"averageValue" if kind == "AverageValue" else "value": value}
        target = {"type": kind, **amount}
        found.metrics.append({"type": "External", "external": {"metric": {"name": self.metric}, "target": target}})
        if activation is not None and parse_milli(activation):
            found.activation[self.metric] = activation


def annotations(found: Found, fallback: terms.Fallback | None) -> dict[str, str]:
    """What hpad reads from an HPA's annotations: thresholds of activity, and what stands in for external metrics."""
    external = [entry["external"]["metric"]["name"] for entry in found.metrics if entry["type"] == "External"]
    made = {
        terms.ACTIVATION: ",".join(f"{name}={value}" for name, value in found.activation.items()),
        terms.FALLBACK: ",".join(f"{name}={fallback}" for name in external) if fallback is not None else "",
    }
    return {name: text for name, text in made.items() if text}
