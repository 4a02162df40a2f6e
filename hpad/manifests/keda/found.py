"""What a conversion gathers on its way: metrics, sources, annotations, and notes on what is lost or changed."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hpad.api import duration
from hpad.api.fields import invalid, required
from hpad.api.quantity import QuantityError, parse_milli
from hpad.engine import fallback_policy
from hpad.manifests.keda.fields import Fields, Wrong

EXTERNAL: Final = "External"


class Note(msgspec.Struct, frozen=True):
    """What became of a field that is not carried over as it is, and what to do about it.

    `lost`: the result does not do what the field asks for. False: the same is said in another way, or it has no effect.
    """

    field: str
    text: str
    lost: bool = True

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A source that one trigger needs: its adapter, the host it is named after, its settings, and one entry of them.

    `path` is the trigger. The entry stands in `section` of the settings ("metrics") under `entry`. `metric` is the name
    that the HPA asks for, with the labels of `selector`.
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


class Found(msgspec.Struct):
    """Grows as the triggers are read."""

    metrics: list[dict[str, Any]] = []
    sources: list[Source] = []
    notes: list[Note] = []
    activation: dict[str, str] = {}

    def lose(self, field: str, text: str) -> None:
        """Note a field that the result does not do."""
        self.notes.append(Note(field, text))

    def note(self, field: str, text: str) -> None:
        """Note a field that is carried over in another way, or that has no effect."""
        self.notes.append(Note(field, text, lost=False))


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """One trigger; `path` is its field, such as `spec.triggers[0]`, and `metric` the name that hpad gives it."""

    path: str
    metric: str
    type: str
    metadata: Fields
    metric_type: str = ""

    def field(self, name: str) -> str:
        """Where an entry of the metadata stands."""
        return self.metadata.at(name)

    def needed(self, name: str) -> str:
        """An entry without which there is no trigger; raises Wrong."""
        text = self.metadata.text(name)
        if not text:
            raise Wrong(required(self.field(name), f"a trigger of type {self.type} needs it"))
        return text

    def number(self, name: str, default: str = "") -> str:
        """An entry that is a number as quantities are written, or the default for an absent one; raises Wrong."""
        text = self.metadata.text(name, default)
        if not text:
            return text
        try:
            parse_milli(text)
        except QuantityError:
            raise Wrong(invalid(self.field(name), text, "must be a number")) from None
        return text

    def milliseconds(self, name: str) -> str:
        """A timeout as hpad writes it, empty for none; raises Wrong."""
        text = self.metadata.text(name)
        if not text:
            return ""
        if text.isascii() and text.isdigit() and int(text):
            return f"{int(text)}ms"
        try:
            return duration.write(duration.parse(text))
        except ValueError:
            raise Wrong(invalid(self.field(name), text, "must be milliseconds, such as 3000")) from None

    def needless(self, found: Found, reasons: Mapping[str, str]) -> None:
        """Note the entries that have no effect, each with the reason why not."""
        for name, reason in reasons.items():
            if self.metadata.text(name):
                found.note(self.field(name), f"is left out: {reason}")

    def from_environment(self, found: Found, *names: str) -> None:
        """Note as lost what KEDA takes from a variable of the target's container: `NAMEFromEnv`."""
        for name in names:
            variable = self.metadata.text(f"{name}FromEnv")
            if variable:
                found.lose(
                    self.field(f"{name}FromEnv"),
                    f'is not carried over: the variable "{variable}" is one of the target\'s container, which hpad '
                    f"does not read: write the {name} into the source",
                )

    def user(self, found: Found, field: str, name: str, host: str) -> dict[str, str]:
        """The settings of a source's user, with the password in a variable: it is never copied."""
        if not name:
            return {}
        variable = f"HPAD_{''.join(c if c.isascii() and c.isalnum() else '_' for c in host.upper())}_PASSWORD"
        found.note(self.field(field), f"the password is not copied: give it to hpad as {variable}")
        return {"username": name, "password_env": variable}

    def external(self, found: Found, source: Source, value: str, activation: str = "") -> None:
        """Add the External metric that the trigger becomes, and its source; raises Wrong."""
        kind = self.metric_type or "AverageValue"
        if kind not in ("AverageValue", "Value"):
            raise Wrong(invalid(f"{self.path}.metricType", kind, "must be AverageValue or Value"))
        metric: dict[str, Any] = {"name": source.metric}
        if source.selector:
            metric["selector"] = {"matchLabels": dict(source.selector)}
        target = {"type": kind, "averageValue" if kind == "AverageValue" else "value": value}
        found.sources.append(source)
        found.metrics.append({"type": EXTERNAL, "external": {"metric": metric, "target": target}})
        if activation and parse_milli(activation):
            found.activation[source.metric] = activation


def annotations(found: Found, fallback: fallback_policy.Fallback | None) -> dict[str, str]:
    """What hpad reads from an HPA's annotations: thresholds of activity, and what stands in for external metrics."""
    external = [entry["external"]["metric"]["name"] for entry in found.metrics if entry["type"] == EXTERNAL]
    made = {
        fallback_policy.ACTIVATION: ",".join(f"{name}={value}" for name, value in found.activation.items()),
        fallback_policy.FALLBACK: ",".join(f"{name}={fallback}" for name in external) if fallback is not None else "",
    }
    return {name: text for name, text in made.items() if text}
