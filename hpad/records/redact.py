"""Replaces the names of a recording, so that it can be given away. The decisions stay the same.

Replaced are the names of HPAs, namespaces, targets, described objects, pods and containers, and the keys and values of
labels and selectors, in every text of the recording. One name has one replacement. Replacements sort like the names.
Pods of a StatefulSet keep their ordinals, on which its floor at busy pods depends.

Fields that the format does not know, such as annotations, are left out, and so are the queries of Autoscalers. Kept are
numbers, times, the names of metrics, and words of errors and notes, unless they contain one of the names.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from hpad.api.autoscaler import PREFIX
from hpad.api.hpa import to_builtins
from hpad.engine import controls
from hpad.records import replay
from hpad.records.format import RecordingError, decode_scenario, decode_step, encode_step

_WORD: Final = re.compile(r"[A-Za-z0-9]+(?:[-._]+[A-Za-z0-9]+)*")
_SEPARATORS: Final = re.compile(r"([-._]+)")
_RESERVED: Final = frozenset({"cpu", "memory", "in", "notin"})
"""Resources and operators: their meaning is part of the decision."""
_KEPT: Final = frozenset(
    [
        "action",
        "allocatedResources",
        "apiVersion",
        "averageValue",
        "controller",
        "currentReplicas",
        "errorLabel",
        "featureGates",
        "kind",
        "metricComputations",
        "operator",
        "overhead",
        "phase",
        "policies",
        "reason",
        "resources",
        "selectPolicy",
        "terms",
        "time",
        "timestamp",
        "tolerance",
        "type",
        "usage",
        "value",
        "window",
        "startTime",
        "lastTransitionTime",
        "lastProbeTime",
        "lastScaleTime",
        "deletionTimestamp",
        "creationTimestamp",
        "good_at",
        "failing_since",
        "since",
        "seen",
        "lasted",
    ]
)
"""Fields that hold no names."""
_QUERIES: Final = f"{PREFIX}queries"
_LABELS: Final = frozenset({"labels", "matchLabels"})
_NAME_KEYS: Final = frozenset({"otherHpaSelectors"})
_BY_NAME: Final = _LABELS | _NAME_KEYS | {"customMetrics", "externalMetrics"}
"""Objects whose keys are names."""
_CONTROLS: Final = "controls"
_IGNORED: Final = f"{PREFIX}ignore-containers"
_NAMING: Final = frozenset({_IGNORED, controls.METRIC_POLICY, controls.BUSY_METRIC})
"""The controls with names in their texts; the words of the others have a meaning of their own."""
_ANSWERS: Final = frozenset({"answers", "work"})
_DECISION: Final = ("scaleTo", "scaleUpdateAttempts", "action", "errorLabel", "metricComputations")
_RESULTS: Final = (*_DECISION, "statusUpdate", "events", "error")
_LONGEST_LABEL: Final = 63
_STATEFUL_SET: Final = "statefulset"


class Redaction:
    """Replaces names consistently. `collect` all scenarios first, then `redact` each; `names` maps old to new."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._ordinal: set[str] = set()
        self.names: dict[str, str] = {}

    def collect(self, scenario: dict[str, Any]) -> None:
        """Notes the names of a scenario. Raises RecordingError."""
        known = _known(scenario)
        found = set(_names(known))
        self._found |= found
        self._ordinal |= _with_ordinal(known, found)
        self.names = {}

    def redact(self, scenario: dict[str, Any], name: str) -> dict[str, Any]:
        """Returns the scenario with replaced names and the id `name`.

        Raises RecordingError if it cannot be read, or if its replay would not give the same decisions.
        """
        if not self.names:
            self.names = self._numbered()
        redacted: dict[str, Any] = self._value(_known(scenario)) | {"id": name}
        before, after = replay.replay(scenario)["steps"], replay.replay(redacted)["steps"]
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            if any(old[field] != new[field] for field in _DECISION):
                raise RecordingError(f"steps[{index}]: the decision depends on a name; this HPA cannot be redacted")
        return redacted

    def text(self, text: str) -> str:
        """Returns the text with replaced names: whole words, and parts of words between `-`, `.` and `_`."""
        return _WORD.sub(lambda found: self._word(found.group()), text)

    def _numbered(self) -> dict[str, str]:
        prefix = "n"
        parts = {part.lower() for name in self._found for part in _SEPARATORS.split(name)}
        while any(re.fullmatch(f"{prefix}[0-9]+", part) for part in parts):
            prefix += "n"
        ordered = sorted(self._found - self._ordinal)
        width = len(str(len(ordered)))
        made = {}
        for number, name in enumerate(ordered, start=1):
            new = f"{prefix}{number:0{width}}"
            # A value that is too long for a label is an error, and stays one.
            made[name] = new.ljust(len(name), "x") if len(name) > _LONGEST_LABEL else new
        return made

    def _word(self, word: str) -> str:
        if word in self.names:
            return self.names[word]
        parts = _SEPARATORS.split(word)
        done, start = [], 0
        while start < len(parts):
            end = next(
                (end for end in range(len(parts), start, -1) if "".join(parts[start:end]) in self.names), start + 1
            )
            part = "".join(parts[start:end])
            done.append(self.names.get(part, part))
            start = end
        return "".join(done)

    def _value(self, value: Any, field: str = "", parent: str = "") -> Any:
        """Returns a value with replaced names; it is the `field` of an object that is the field `parent`."""
        if isinstance(value, dict):
            if field in _BY_NAME or (field == "pods" and parent in _ANSWERS):
                return {self.text(name): self._value(each) for name, each in value.items()}
            if field == _CONTROLS:
                return {name: self.text(each) if name in _NAMING else each for name, each in value.items()}
            return {
                name: each if _is_kept(name, each) else self._value(each, name, field) for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._value(each, field, parent) if field in _ANSWERS else self._value(each) for each in value]
        return self.text(value) if isinstance(value, str) else value


def _is_kept(field: str, value: Any) -> bool:
    """Whether a field holds no names; a status that is a text is that of a condition, such as True."""
    return field in _KEPT or (field == "status" and isinstance(value, str))


def _known(scenario: dict[str, Any]) -> dict[str, Any]:
    """Returns the scenario with the fields of the format alone. Raises RecordingError."""
    decoded = decode_scenario(scenario)
    known: dict[str, Any] = to_builtins(decoded)
    metadata = known["hpa"].get("metadata", {})
    generation = {"generation": metadata["generation"]} if "generation" in metadata else {}
    known["hpa"]["metadata"] = _identity(metadata) | generation
    known["hpa"].get("spec", {}).pop(_QUERIES, None)
    known["steps"] = [_known_step(step, f"steps[{index}]") for index, step in enumerate(decoded.steps)]
    return known


def _known_step(value: Any, where: str) -> dict[str, Any]:
    step = encode_step(decode_step(value, where))
    (step.get("spec") or {}).pop(_QUERIES, None)
    scale = step.get("scale")
    if scale is not None:
        step["scale"] = scale | {"metadata": _identity(scale.get("metadata", {}))}
    usages = (step.get("podMetrics") or {}).get("items", ())
    for each in (*step.get("pods", ()), *usages):
        each.get("metadata", {}).pop("annotations", None)
    if isinstance(value.get("expect"), dict):
        step["expect"] = {field: value["expect"][field] for field in _RESULTS if field in value["expect"]}
    return step


def _identity(metadata: dict[str, Any]) -> dict[str, Any]:
    return {field: metadata[field] for field in ("name", "namespace") if field in metadata}


def _with_ordinal(known: dict[str, Any], names: Iterable[str]) -> set[str]:
    """Returns the names that consist of the name of a StatefulSet, which is replaced, and an ordinal, which is kept."""
    target = known["hpa"]["spec"]["scaleTargetRef"]
    if target["kind"].lower() != _STATEFUL_SET:
        return set()
    pod = re.compile(rf"{re.escape(target['name'])}-[0-9]+")
    return {name for name in names if pod.fullmatch(name)}


def _names(value: Any, field: str = "", parent: str = "") -> Iterator[str]:
    """Yields the names below a value, which is the `field` of an object that is the field `parent`."""
    if isinstance(value, dict):
        for key, each in value.items():
            if field in _LABELS or field in _NAME_KEYS or (field == "pods" and parent in _ANSWERS):
                yield from _words(key)
                yield from _words(each)
            elif field == _CONTROLS and key == _IGNORED:
                yield from _words(each)
            elif not _is_kept(key, each) and key != "expect":
                yield from _names(each, key, field)
    elif isinstance(value, list | tuple):
        for each in value:
            if field in ("values", "rivals"):
                yield from _words(each)
            else:
                yield from _names(each, field, parent)
    elif field in ("namespace", "container", "key", "selector") or (field == "name" and parent not in _METRICS):
        yield from _words(value)


_METRICS: Final = frozenset({"metric", "resource", "containerResource"})
"""Objects whose `name` is that of a metric."""


def _words(value: Any) -> Iterable[str]:
    if not isinstance(value, str):
        return ()
    return (word for word in _WORD.findall(value) if word not in _RESERVED and not word.isdigit())
