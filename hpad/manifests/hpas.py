"""Loads an HPA from a document: decodes, defaults and validates it in the order of the API server."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from hpad.api import decode, validation
from hpad.api import hpa as v2
from hpad.api.fields import FieldError, type_invalid
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.manifests.documents import Document

DEFAULT_NAMESPACE: Final = "default"

# These versions know no defaults for `behavior`: what is missing there is missing when it is judged.
_JUDGED_BEFORE_BEHAVIOR: Final = ("autoscaling/v1", "autoscaling/v2beta1")


@dataclass(frozen=True)
class Loaded:
    """The result for one document: the HPA in autoscaling/v2 with defaults (None if unreadable), and its errors."""

    document: Document
    hpa: HorizontalPodAutoscaler | None
    errors: tuple[FieldError, ...]
    namespace: str
    name: str

    @property
    def key(self) -> Key | None:
        """The key of the HPA; None if the document has no name."""
        return Key(self.namespace, self.name) if self.name else None

    @property
    def sound(self) -> bool:
        return self.hpa is not None and not self.errors

    def __str__(self) -> str:
        return f"{v2.KIND} {self.namespace}/{self.name or '?'}"


def is_hpa(value: Any) -> bool:
    """Whether a document means to be an HPA; a wrong kind in the group `autoscaling` does too."""
    if not isinstance(value, dict):
        return False
    kind, version = value.get("kind"), value.get("apiVersion")
    return kind == v2.KIND or (isinstance(version, str) and version.startswith("autoscaling/") and kind != "Scale")


def load(document: Document, *, namespace: str = DEFAULT_NAMESPACE, scale_to_zero: bool = False) -> Loaded:
    """Read the HPA of a document; one without a namespace gets `namespace`."""
    reading = decode.read(document.value)
    errors = [*document.faults, *reading.errors]
    hpa = reading.hpa
    if hpa is not None:
        hpa = _in_namespace(hpa, namespace)
        hpa = v2.with_minimum_and_metrics(hpa)
        if reading.version not in _JUDGED_BEFORE_BEHAVIOR:
            hpa = v2.defaulted(hpa)
        errors.extend(validation.validate(hpa, scale_to_zero=scale_to_zero))
        hpa = v2.defaulted(hpa)
    return Loaded(document, hpa, tuple(errors), *_identity(document.value, namespace))


def explained(error: FieldError) -> FieldError:
    """The error, with the feature gate that would allow what it complains about, if there is one."""
    if not is_about_zero(error):
        return error
    return msgspec.structs.replace(error, message=f"{error.message} (0 needs the feature gate HPAScaleToZero)")


def is_about_zero(error: FieldError) -> bool:
    """Whether minReplicas is 0 without the feature gate HPAScaleToZero."""
    return error.field == "spec.minReplicas" and error.message.startswith("spec.minReplicas: Invalid value: 0:")


def convert(document: Document) -> Loaded:
    """Like `load`, but without defaults and validation: the HPA as written."""
    reading = decode.read(document.value)
    errors = (*document.faults, *reading.errors)
    return Loaded(document, reading.hpa, errors, *_identity(document.value, DEFAULT_NAMESPACE))


def identity(document: Document) -> tuple[str, str]:
    """Namespace and name of a document of any kind, as far as they can be told."""
    return _identity(document.value, DEFAULT_NAMESPACE)


def without_empty_policies(built: dict[str, Any]) -> dict[str, Any]:
    """An object as the API server prints it: Go leaves an empty list out, and `policies: []` is told apart from absent
    policies only while it is judged. Changes and returns `built`."""
    for rules in (built["spec"].get("behavior") or {}).values():
        if rules.get("policies") == []:
            del rules["policies"]
    return built


def with_whole_metadata(built: dict[str, Any], document: Document) -> dict[str, Any]:
    """The object with the metadata of its document, of which a struct holds only what decisions read.

    Namespace and annotations are the struct's: the one may have been filled in, of the others some stand for fields.
    """
    raw = document.value.get("metadata") or {}
    metadata = {name: value for name, value in raw.items() if value is not None and name != "annotations"}
    own = {name: built["metadata"][name] for name in ("namespace", "annotations") if name in built["metadata"]}
    return {**built, "metadata": {**metadata, **own}}


def not_an_object(document: Document) -> FieldError:
    """The complaint about a document that is text, a number or a list."""
    return type_invalid("", document.value, "must be an object with apiVersion, kind, metadata and spec")


def _in_namespace(hpa: HorizontalPodAutoscaler, namespace: str) -> HorizontalPodAutoscaler:
    if hpa.metadata.namespace:
        return hpa
    return msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, namespace=namespace))


def _identity(value: Any, namespace: str) -> tuple[str, str]:
    """Namespace and name, as far as they can be told of a document that may be broken."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    found = metadata if isinstance(metadata, dict) else {}
    given, name = found.get("namespace"), found.get("name")
    return given if isinstance(given, str) and given else namespace, name if isinstance(name, str) else ""
