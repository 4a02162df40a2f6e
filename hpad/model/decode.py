"""From a document, whatever autoscaling version it is written in, to an HPA in autoscaling/v2."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hpad.model import conversion, mixes, strict
from hpad.model import hpa as v2
from hpad.model.conversion import annotations, v1, v2beta1
from hpad.model.fields import FieldError, not_supported, required, type_invalid
from hpad.model.hpa import HorizontalPodAutoscaler


def _from_v2(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    metadata = annotations.without_fields(hpa.metadata)
    return msgspec.structs.replace(hpa, metadata=metadata, api_version=v2.API_VERSION)


_VERSIONS: Final[dict[str, tuple[type, Callable[[Any], HorizontalPodAutoscaler]]]] = {
    "autoscaling/v1": (v1.HorizontalPodAutoscaler, conversion.from_v1),
    "autoscaling/v2beta1": (v2beta1.HorizontalPodAutoscaler, conversion.from_v2beta1),
    "autoscaling/v2beta2": (HorizontalPodAutoscaler, _from_v2),
    "autoscaling/v2": (HorizontalPodAutoscaler, _from_v2),
}
VERSIONS: Final = tuple(_VERSIONS)


class DecodeError(ValueError):
    """The document is no HPA; `errors` says what is wrong with which field."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(error.message for error in errors))
        self.errors = errors


class Reading(msgspec.Struct, frozen=True):
    """What could be read of a document: the HPA (None where a value has the wrong type), and all that is wrong."""

    hpa: HorizontalPodAutoscaler | None
    errors: tuple[FieldError, ...] = ()
    version: str = v2.API_VERSION


def decode(value: Any) -> HorizontalPodAutoscaler:
    """The HPA of a JSON-like document in autoscaling/v1, v2beta1, v2beta2 or v2, neither defaulted nor validated.

    Raises DecodeError for a document that holds anything beside an HPA, unknown fields included.
    """
    reading = read(value)
    if reading.hpa is None or reading.errors:
        raise DecodeError(list(reading.errors))
    return reading.hpa


def read(value: Any) -> Reading:
    """Like `decode`, but with whatever could be read in spite of errors."""
    version = value.get("apiVersion") if isinstance(value, dict) else None
    fault = _header_fault(value, version)
    if fault is not None:
        return Reading(None, (fault,))
    assert isinstance(version, str)
    kind, convert = _VERSIONS[version]
    reader = strict.Reader(mixes.hint(version))
    clean = reader.read(value, kind)
    if not reader.sound:
        return Reading(None, tuple(reader.errors), version)
    hpa = convert(msgspec.convert(clean, kind, dec_hook=v2.dec_hook))
    return Reading(hpa, tuple(reader.errors), version)


def _header_fault(value: Any, version: Any) -> FieldError | None:
    if not isinstance(value, dict):
        return type_invalid("", value, "must be an object with apiVersion, kind, metadata and spec")
    if value.get("kind") != v2.KIND:
        return not_supported("kind", value.get("kind"), [v2.KIND])
    if not version:
        return required("apiVersion", f"one of {', '.join(VERSIONS)}")
    return None if version in VERSIONS else not_supported("apiVersion", version, VERSIONS)
