"""Loads an HPA or an Autoscaler from a document: decodes, defaults and validates it in the order of the API server."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from hpad.api import decode, limits, validation
from hpad.api import hpa as v2
from hpad.api.hpa import AUTOSCALER, HorizontalPodAutoscaler
from hpad.api.metadata import AUTOSCALER_KEY, Key
from hpad.api.problem import Problem
from hpad.manifests.documents import Document

DEFAULT_NAMESPACE: Final = "default"

# The API server validates these versions before it sets defaults in their behavior.
_WITHOUT_BEHAVIOR_DEFAULTS: Final = ("autoscaling/v1", "autoscaling/v2beta1")


@dataclass(frozen=True)
class Loaded:
    """The result for one document: its HPA in autoscaling/v2 with defaults (None if undecodable), and its errors.

    `kind` is the one that the document is meant to be.
    """

    document: Document
    hpa: HorizontalPodAutoscaler | None
    errors: tuple[Problem, ...]
    namespace: str
    name: str
    kind: str = v2.KIND

    @property
    def key(self) -> Key | None:
        """The key of the HPA; None if the document has no name."""
        kind = AUTOSCALER_KEY if self.kind == AUTOSCALER else ""
        return Key(self.namespace, self.name, kind) if self.name else None

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name or '?'}"


def is_hpa(value: Any) -> bool:
    """Returns whether a document is meant as an HPA or an Autoscaler."""
    return bool(decode.kind_of(value))


def load(document: Document, *, namespace: str = DEFAULT_NAMESPACE, scale_to_zero: bool = False) -> Loaded:
    """Loads the HPA or Autoscaler of a document. One without a namespace gets `namespace`."""
    kind = decode.kind_of(document.value) or v2.KIND
    if _exceeds(document.value, limits.OBJECT):
        large = Problem("", f"an object of more than {limits.OBJECT:,} characters, which no API server takes")
        return Loaded(document, None, (large,), *_identity(document.value, namespace), kind)
    reading = decode.read(document.value)
    errors = [*document.faults, *reading.errors]
    hpa = reading.hpa
    if hpa is not None:
        metadata = msgspec.structs.replace(hpa.metadata, namespace=hpa.metadata.namespace or namespace)
        hpa = v2.with_minimum_and_metrics(msgspec.structs.replace(hpa, metadata=metadata))
        filled = v2.defaulted(hpa)
        validated = hpa if reading.version in _WITHOUT_BEHAVIOR_DEFAULTS else filled
        if hpa.kind == AUTOSCALER:  # its options stand among the annotations, and the API server takes any name there
            own = (document.value.get("metadata") or {}).get("annotations")
            validated = msgspec.structs.replace(validated, metadata=msgspec.structs.replace(metadata, annotations=own))
        # An API server takes 0 in an Autoscaler; the feature gate of hpad decides what it means.
        takes_zero = scale_to_zero or hpa.kind == AUTOSCALER
        errors.extend(validation.validate(validated, scale_to_zero=takes_zero))
        if (fault := limits.size_fault(_size(hpa)) or limits.fault(hpa)) is not None:
            errors.append(Problem("spec", fault))
        hpa = filled
    return Loaded(document, hpa, tuple(errors), *_identity(document.value, namespace), kind)


def _exceeds(value: Any, most: int) -> bool:
    """Returns whether the texts in a value have more characters. Does not recurse."""
    left, waiting = most, [value]
    while waiting and left >= 0:
        each = waiting.pop()
        if isinstance(each, str):
            left -= len(each)
        elif isinstance(each, dict):
            waiting.extend((*each, *each.values()))
        elif isinstance(each, list):
            waiting.extend(each)
    return left < 0


def _size(hpa: v2.HorizontalPodAutoscaler) -> int:
    return len(msgspec.json.encode(hpa.spec, enc_hook=v2.enc_hook))


def explained(error: Problem) -> Problem:
    """Returns the error; its message names the feature gate that would allow the value, if there is one."""
    if not is_about_zero(error):
        return error
    return error._replace(text=f"{error.text} (0 needs the feature gate HPAScaleToZero)")


def is_about_zero(error: Problem) -> bool:
    """Returns whether minReplicas is 0 without the feature gate HPAScaleToZero."""
    return error.path == "spec.minReplicas" and error.text.startswith("spec.minReplicas: Invalid value: 0:")


def without_empty_policies(built: dict[str, Any]) -> dict[str, Any]:
    """Returns an HPA as the API server prints it: without empty lists of policies. Changes and returns `built`.

    Go omits an empty list, so `policies: []` differs from absent policies in validation only.
    """
    for rules in (built["spec"].get("behavior") or {}).values():
        if rules.get("policies") == []:
            del rules["policies"]
    return built


def with_whole_metadata(built: dict[str, Any], document: Document) -> dict[str, Any]:
    """Returns the object with all metadata of its document; a struct has only the part that decisions need.

    Namespace and annotations come from the struct: it has the default namespace, and no annotations that carry fields.
    """
    raw = document.value.get("metadata") or {}
    metadata = {name: value for name, value in raw.items() if value is not None and name != "annotations"}
    own = {name: built["metadata"][name] for name in ("namespace", "annotations") if name in built["metadata"]}
    return {**built, "metadata": {**metadata, **own}}


def _identity(value: Any, namespace: str) -> tuple[str, str]:
    """Returns namespace and name ("" if unknown) of a document that may be invalid."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    found = metadata if isinstance(metadata, dict) else {}
    return _name(found.get("namespace")) or namespace, _name(found.get("name"))


def _name(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= limits.NAME else ""
