"""Admission of HPAs: defaulting, validation, and conversion between v1 and the stored version v2.

The rules are those of `hpad.api`. Events are converted to core/v1. Fields that a kind does not have are dropped.
"""

from typing import Any, Final

import msgspec

from hpad.api import hpa, older, problem, quantity, validation
from hpad.api import metadata as meta
from hpad.api.quantity import QuantityError
from hpad.lab.cluster import customs, decoding, errors, schemas
from hpad.lab.cluster.resources import EVENTS, EVENTS_V1, HPAS, Object, Resource

_FILLED: Final = {"v1": hpa.with_minimum_and_metrics, "v2": hpa.defaulted}
"""The defaults that each version sets before validation. The stored object has all defaults of v2."""
_NEWER: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""Field names of an Event in core/v1, and the names of the same fields in events.k8s.io/v1.

Source: Kubernetes 1.36, pkg/apis/events/v1/conversion.go.
"""
_OLDER: Final = {new: old for old, new in _NEWER.items()}


def admit(resource: Resource, obj: Object, *, scale_to_zero: bool = False) -> Object:
    """Returns the object in its stored version, with defaults; raises ApiError 400 or 422 for an invalid HPA."""
    if resource == EVENTS:
        obj = _core_event(obj)
    obj = _known(resource, obj)
    stored = _stored(resource, obj)
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
    """Returns the body of a PUT on `/status` in the stored version; ignores its spec. Raises ApiError 400 or 422."""
    obj = _known(resource, obj)
    stored = _stored(resource, obj)
    if resource != HPAS:
        return stored
    status = _decoded({**obj, "spec": {}}).status
    counts = {"currentReplicas": status.current_replicas, "desiredReplicas": status.desired_replicas}
    faults = [
        problem.invalid(f"status.{name}", count, "must be greater than or equal to 0")
        for name, count in counts.items()
        if count < 0
    ]
    _check_int32(obj.get("status") or {})
    if faults:
        raise _refusal((obj.get("metadata") or {}).get("name", ""), faults)
    return {**stored, "status": hpa.to_builtins(_as_stored(status))}


def present(resource: Resource, obj: Object, version: str) -> Object:
    """Converts a stored object to `version` (such as `v1` or `events.k8s.io/v1`), with kind and apiVersion first."""
    if resource == EVENTS and version == EVENTS_V1:
        obj = _event_v1(obj)
    rest: dict[str, Any] = {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
    if resource == HPAS and version == "v1":
        old = older.to_v1(hpa.from_builtins(obj))
        shown = hpa.to_builtins(old)
        metadata = _metadata(obj, old.metadata)
        rest = {**rest, "metadata": metadata, "spec": shown["spec"], "status": shown["status"]}
    return {"kind": resource.kind, "apiVersion": resource.group_version(version), **rest}


def _stored(resource: Resource, obj: Object) -> Object:
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind}


def _known(resource: Resource, obj: Object) -> Object:
    """Returns the object without the fields that its kind does not have; of an unknown kind, as it is."""
    if resource.schema is not None:
        return customs.pruned(resource.schema, obj)
    schema = schemas.of_kind(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    return obj if schema is None else decoding.known(schema, obj)


def unknown_fields(resource: Resource, obj: Object) -> list[str]:
    """Returns the paths of the fields that the kind of an object, or of its scale, does not have."""
    schema = schemas.of_kind(str(obj["apiVersion"]), str(obj["kind"]))
    if schema is not None:
        return decoding.unknown(schema, obj)
    return [] if resource.schema is None else customs.unknown(resource.schema, obj)


def empty_status() -> Object:
    """Returns the status of a new HPA that no controller has written yet."""
    return dict(hpa.to_builtins(hpa.HorizontalPodAutoscalerStatus()))


def _as_stored(status: hpa.HorizontalPodAutoscalerStatus) -> hpa.HorizontalPodAutoscalerStatus:
    """Returns the status as etcd keeps it: an empty list becomes null, lastScaleTime loses its fraction of a second."""
    scaled = status.last_scale_time
    return msgspec.structs.replace(
        status,
        current_metrics=status.current_metrics or None,
        last_scale_time=None if scaled is None else scaled.replace(microsecond=0),
    )


def _check_int32(value: Any, path: str = "status") -> None:
    """Raises ApiError 400 for a number outside the range of int32, which all counts of a status have."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name != "observedGeneration":  # the only int64 in the status of an HPA
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
            return older.from_v1(msgspec.convert(obj, older.V1, dec_hook=hpa.dec_hook))
        found = hpa.from_builtins(obj)
        return msgspec.structs.replace(found, metadata=older.without_annotations(found.metadata))
    except (msgspec.ValidationError, ValueError) as error:
        # msgspec adds its own path to the text; the API server answers with that of the quantity alone
        reason = error.__cause__ if isinstance(error.__cause__, QuantityError) else error
        message = f'{hpa.KIND} in version "{version}" cannot be handled as a {hpa.KIND}: {reason}'
        raise errors.bad_request(message) from error


def _version(obj: Object) -> str:
    return str(obj.get("apiVersion") or hpa.API_VERSION).rpartition("/")[2]


def _metadata(obj: Object, converted: meta.ObjectMeta) -> Object:
    """Returns the metadata of `obj` with the annotations of `converted`."""
    metadata = dict(obj.get("metadata") or {})
    metadata.pop("annotations", None)
    if converted.annotations:
        metadata["annotations"] = converted.annotations
    return metadata


def _refusal(name: str, faults: list[problem.Problem]) -> errors.ApiError:
    # the text starts with the path, and so does that of a Cause
    causes = [errors.Cause(fault.path, fault.reason, fault.text.removeprefix(f"{fault.path}: ")) for fault in faults]
    return errors.invalid(hpa.KIND, HPAS.group, name, causes)


def _event_v1(event: Object) -> Object:
    """Converts a stored event to events.k8s.io/v1."""
    renamed = {_NEWER.get(name, name): value for name, value in event.items()}
    if not renamed.get("reportingInstance"):
        renamed.pop("reportingInstance", None)
    return {**renamed, "apiVersion": EVENTS_V1, "eventTime": event.get("eventTime")}


def _core_event(event: Object) -> Object:
    """Converts an event of either group to core/v1."""
    if event.get("apiVersion") != EVENTS_V1:
        return event
    return {**{_OLDER.get(name, name): value for name, value in event.items()}, "apiVersion": "v1"}
