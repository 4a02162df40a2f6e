"""What a conversion gathers on its way: metrics, sources, annotations, and notes on what is lost or changed.

An object of the input that remembers which of its fields were read, so that none is dropped without a word.

What stands in settings for a value that objects of KEDA do not tell; `hpad check` takes none of it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from hpad.api import duration
from hpad.api.fields import FieldError, invalid, required
from hpad.api.quantity import QuantityError, parse_milli
from hpad.engine import fallback_policy

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_MOST: Final = 2**31 - 1


class Wrong(Exception):
    """The object is not one that KEDA takes either."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(error.message)
        self.error = error


class Fields:
    """The fields of the object at `path` of a document; `unread` yields those that no method was called for.

    A field whose value is null counts as absent, as in Kubernetes.
    """

    def __init__(self, value: Mapping[Any, Any], path: str = "") -> None:
        self._value = {str(name): each for name, each in value.items() if each is not None}
        self._path = path
        self._read: set[str] = set()
        self._within: dict[str, list[Fields]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._value

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def at(self, name: str) -> str:
        """The path of a field, whether there is one or not."""
        if not _PLAIN.fullmatch(name):
            return f"{self._path}[{name}]"
        return f"{self._path}.{name}" if self._path else name

    def get(self, name: str, default: Any = None) -> Any:
        """The whole value; from now on the caller answers for all that is in it."""
        self._read.add(name)
        return self._value.get(name, default)

    def text(self, name: str, default: str = "") -> str:
        """A text, or a number or truth as text, which KEDA wants as text; raises Wrong for anything else."""
        value = self.get(name, default)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (dict, list)):
            raise Wrong(invalid(self.at(name), value, "must be text"))
        return str(value)

    def truth(self, name: str) -> bool:
        """A truth, also as text; absent is false."""
        return self.text(name).lower() in ("true", "t", "1")

    def count(self, name: str, default: int) -> int:
        """A whole number of 31 bits; raises Wrong for anything else."""
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
            raise Wrong(invalid(self.at(name), value, f"must be a whole number from 0 to {_MOST}"))
        return value

    def object(self, name: str) -> "Fields":
        """The object that a field holds, empty where it is absent; raises Wrong for anything else."""
        if name not in self._within:
            value = self._value.get(name, {})
            if not isinstance(value, dict):
                raise Wrong(invalid(self.at(name), value, "must be an object"))
            self._within[name] = [Fields(value, self.at(name))]
        return self._within[name][0]

    def objects(self, name: str) -> "list[Fields]":
        """The objects of a list, empty where it is absent; raises Wrong for anything else."""
        value = self._value.get(name, [])
        if not isinstance(value, list):
            raise Wrong(invalid(self.at(name), value, "must be a list"))
        for index, entry in enumerate(value):
            if not isinstance(entry, dict):
                raise Wrong(invalid(f"{self.at(name)}[{index}]", entry, "must be an object"))
        self._within[name] = [Fields(entry, f"{self.at(name)}[{index}]") for index, entry in enumerate(value)]
        return self._within[name]

    def skip(self) -> None:
        """Count all that is in the object as read: it was noted as a whole."""
        self._within.clear()
        self._read.update(self._value)

    def unread(self) -> Iterator[str]:
        """The paths of the fields that nothing was made of: of an object that was not looked into, its own alone."""
        for name in self._value:
            if name in self._within:
                for each in self._within[name]:
                    yield from each.unread()
            elif name not in self._read:
                yield self.at(name)


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


VALUE: Final = "REPLACE-ME"
