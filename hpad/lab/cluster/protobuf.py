"""Decodes the protobuf bodies that kubectl's typed clients send (`kubectl autoscale`, `kubectl create`).

`schemas` has the field numbers, from the generated.proto files of Kubernetes.
"""

import base64
import functools
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hpad.lab.cluster import errors, schemas
from hpad.lab.cluster.resources import Object
from hpad.lab.cluster.schemas import Field, Schema, Type

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING: Final = object()
_Numbers = dict[int, Any]
"""Maps the number of a field to its name and Field, or to the numbers of a nested message that JSON flattens."""


def decode(raw: bytes) -> Object:
    """Decodes an object; raises ApiError 415 for a kind without a schema, 400 for an invalid body."""
    if not raw.startswith(_MAGIC):
        raise errors.bad_request("the body is not in the Kubernetes protobuf format")
    try:
        envelope = dict(_fields(raw[len(_MAGIC) :]))
        type_meta = {number: value.decode() for number, value in _fields(envelope[1])}
        header = {"apiVersion": type_meta.get(1, ""), "kind": type_meta.get(2, "")}
        schema = schemas.of_kind(header["apiVersion"], header["kind"])
        if schema is None:
            raise errors.unsupported_media_type(("application/json", "application/yaml"))
        return {**header, **_message(schema, envelope.get(2, b""))}
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, struct.error) as problem:
        raise errors.bad_request(f"the protobuf body cannot be read: {problem}") from problem


@functools.cache
def _numbers(name: str) -> _Numbers:
    found: _Numbers = {}
    for field, each in schemas.EVERYTHING[name].fields.items():
        *around, last = each.flags.get("n", "0").split(".")
        level = found
        for number in around:
            level = level.setdefault(int(number), {})
        level[int(last)] = (field, each)
    return found


def _message(schema: Schema, raw: bytes) -> Object:
    found: Object = {}
    _read_into(found, _numbers(schema.name), raw)
    return found


def _read_into(found: Object, numbers: _Numbers, raw: bytes) -> None:
    for number, value in _fields(raw):
        known = numbers.get(number)
        if isinstance(known, dict):
            _read_into(found, known, value)
        elif known is not None:
            name, field = known
            _set(found, name, field, value)


def _set(found: Object, name: str, field: Field, raw: Any) -> None:
    around, element = field.type.around, field.type.element
    if around.startswith("[]"):
        found.setdefault(name, []).append(_value(element, raw))
    elif around:
        key, value = _entry(element, raw)
        found.setdefault(name, {})[key] = value
    else:
        value = _value(field.type, raw)
        # Go encodes zero values of non-pointer fields in protobuf, but omits them in JSON
        is_zero = value is _NOTHING or value == "" or ("omit" in field.flags and not value)
        if not is_zero:
            found[name] = value


def _entry(kind: Type, raw: bytes) -> tuple[str, Any]:
    parts = dict(_fields(raw))
    value = parts.get(2, 0 if kind.name in ("int32", "int64", "boolean") else b"")
    return parts.get(1, b"").decode(), _value(kind, value)


def _value(kind: Type, raw: Any) -> Any:
    if kind.around:  # a list in a map is a message with one repeated field
        return [_value(kind.element, each) for _, each in _fields(raw)]
    if kind.name in _READERS:
        return _READERS[kind.name](raw)
    return _message(schemas.EVERYTHING[kind.name], raw)


def _signed(raw: int) -> int:
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _quantity(raw: bytes) -> str:
    return bytes(dict(_fields(raw)).get(1, b"0")).decode()


def _either(raw: bytes) -> int | str:
    """Decodes an IntOrString, whose fields are the type (1 for text), the number and the text."""
    parts = dict(_fields(raw))
    return bytes(parts.get(3, b"")).decode() if parts.get(1) else _signed(parts.get(2, 0))


def _moment(raw: bytes, timespec: str) -> Any:
    """Formats a time as RFC 3339; _NOTHING for Go's zero time."""
    parts = dict(_fields(raw))
    if not parts:
        return _NOTHING
    moment = _EPOCH + timedelta(seconds=_signed(parts.get(1, 0)), microseconds=parts.get(2, 0) // 1000)
    return moment.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def _json(raw: bytes) -> Any:
    """Decodes a type whose first field holds JSON of any content."""
    text = dict(_fields(raw)).get(1)
    return json.loads(text) if text else _NOTHING


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "string": bytes.decode,
    "bytes": lambda raw: base64.b64encode(raw).decode(),
    "boolean": bool,
    "int32": _signed,
    "int64": _signed,
    "double": lambda raw: struct.unpack("<d", raw)[0],
    "pkg.api.resource.Quantity": _quantity,
    "pkg.util.intstr.IntOrString": _either,
    "meta.v1.Time": functools.partial(_moment, timespec="seconds"),
    "meta.v1.MicroTime": functools.partial(_moment, timespec="microseconds"),
    "meta.v1.FieldsV1": _json,
    "pkg.runtime.RawExtension": _json,
    "apiextensions.v1.JSON": _json,
}


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Yields field numbers and raw values: int for a varint, bytes for the other wire types."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        if tag & 7 == 0:
            value, at = _varint(raw, at)
            yield tag >> 3, value
            continue
        if tag & 7 == 2:
            length, at = _varint(raw, at)
        elif tag & 7 == 1:
            length = 8
        else:
            raise TypeError(f"wire type {tag & 7}")
        if at + length > len(raw):
            raise IndexError("it ends too early")
        yield tag >> 3, raw[at : at + length]
        at += length


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
