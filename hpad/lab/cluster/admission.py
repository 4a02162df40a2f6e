"""HPAs on their way in and out: defaulting, validation, and the versions v1 and v2 of one object.

Objects are stored as autoscaling/v2. All rules are those of `hpad.model`; other kinds pass through.
"""

from typing import Any, Final

import msgspec

from hpad.api import conversion, decode, fields, hpa, quantity, validation
from hpad.api import metadata as meta
from hpad.api.conversion import older
from hpad.api.quantity import QuantityError
from hpad.lab.cluster import errors, events
from hpad.lab.cluster.resources import EVENTS, EVENTS_V1, HPAS, Object, Resource

_FILLED: Final = {"v1": hpa.with_minimum_and_metrics, "v2": hpa.defaulted}
"""What each version fills in before it validates; what is stored has all of v2's defaults."""


def admit(resource: Resource, obj: Object, *, scale_to_zero: bool = False) -> Object:
    """The object in its stored version, defaulted; raises ApiError 400 or 422 for an HPA that is wrong."""
    if resource == EVENTS:
        obj = events.as_core(obj)
    stored = {**obj, "apiVersion": resource.api_version, "kind": resource.kind}
    if resource != HPAS:
        return stored
    decoded = _decoded(obj)
    filled = _FILLED[_version(obj)](decoded)
    faults = validation.validate(filled, scale_to_zero=scale_to_zero)
    if faults:
        raise _refusal(filled.metadata.name, faults)
    spec = hpa.to_builtins(hpa.defaulted(filled).spec)
    return {**stored, "metadata": _metadata(obj, decoded.metadata), "spec": spec}


def admit_status(resource: Resource, obj: Object) -> Object:
    """A body of PUT on `/status` in the stored version; its spec is not looked at. Raises ApiError 400 or 422."""
    stored = {**obj, "apiVersion": resource.api_version, "kind": resource.kind}
    if resource != HPAS:
        return stored
    status = _decoded({**obj, "spec": {}}).status
    counts = {"currentReplicas": status.current_replicas, "desiredReplicas": status.desired_replicas}
    faults = [
        fields.invalid(f"status.{name}", count, "must be greater than or equal to 0")
        for name, count in counts.items()
        if count < 0
    ]
    _check_int32(obj.get("status") or {})
    if faults:
        raise _refusal((obj.get("metadata") or {}).get("name", ""), faults)
    return {**stored, "status": hpa.to_builtins(_as_kept(status))}


def present(resource: Resource, obj: Object, version: str) -> Object:
    """A stored object as a client of `version` (`v1`, `events.k8s.io/v1`) sees it, kind and apiVersion first."""
    if resource == EVENTS and version == EVENTS_V1:
        obj = events.as_v1(obj)
    rest: dict[str, Any] = {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
    if resource == HPAS and version == "v1":
        old = conversion.to_v1(hpa.from_builtins(obj))
        shown = hpa.to_builtins(old)
        metadata = _metadata(obj, old.metadata)
        rest = {**rest, "metadata": metadata, "spec": shown["spec"], "status": shown["status"]}
    return {"kind": resource.kind, "apiVersion": resource.group_version(version), **rest}


def unknown_fields(resource: Resource, obj: Object) -> list[str]:
    """Paths of fields of an HPA that its version does not have."""
    if resource != HPAS:
        return []
    return [fault.field for fault in decode.read(obj).errors if fault.type == fields.UNKNOWN]


def empty_status() -> Object:
    """The status of an HPA that no controller has seen yet."""
    return dict(hpa.to_builtins(hpa.HorizontalPodAutoscalerStatus()))


def _as_kept(status: hpa.HorizontalPodAutoscalerStatus) -> hpa.HorizontalPodAutoscalerStatus:
    """What is left of it in storage: an empty list becomes null, the time of a rescale loses its fraction."""
    scaled = status.last_scale_time
    return msgspec.structs.replace(
        status,
        current_metrics=status.current_metrics or None,
        last_scale_time=None if scaled is None else scaled.replace(microsecond=0),
    )


def _check_int32(value: Any, path: str = "status") -> None:
    """Raises ApiError 400 for a number that no int32 of the API holds; quantities are text."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name != "observedGeneration":
                _check_int32(each, f"{path}.{name}")
    elif isinstance(value, list):
        for each in value:
            _check_int32(each, path)
    elif isinstance(value, int) and not quantity.MIN_INT32 <= value <= quantity.MAX_INT32:
        what = f"json: cannot unmarshal number {value} into Go struct field {path} of type int32"
        raise errors.bad_request(f'{hpa.KIND} in version "v2" cannot be handled as a {hpa.KIND}: {what}')


def _decoded(obj: Object) -> hpa.HorizontalPodAutoscaler:
    version = _version(obj)
    try:
        if version == "v1":
            return conversion.from_v1(msgspec.convert(obj, older.HorizontalPodAutoscaler, dec_hook=hpa.dec_hook))
        return hpa.from_builtins(obj)
    except (msgspec.ValidationError, ValueError) as problem:
        said = problem.__cause__ if isinstance(problem.__cause__, QuantityError) else problem
        message = f'{hpa.KIND} in version "{version}" cannot be handled as a {hpa.KIND}: {said}'
        raise errors.bad_request(message) from problem


def _version(obj: Object) -> str:
    return str(obj.get("apiVersion") or hpa.API_VERSION).rpartition("/")[2]


def _metadata(obj: Object, converted: meta.ObjectMeta) -> Object:
    """The whole metadata, with the annotations as the conversion left them."""
    metadata = dict(obj.get("metadata") or {})
    metadata.pop("annotations", None)
    if converted.annotations:
        metadata["annotations"] = converted.annotations
    return metadata


def _refusal(name: str, faults: list[fields.FieldError]) -> errors.ApiError:
    causes = [errors.Cause(fault.field, fault.type, fault.message.removeprefix(f"{fault.field}: ")) for fault in faults]
    return errors.invalid(hpa.KIND, HPAS.group, name, causes)
