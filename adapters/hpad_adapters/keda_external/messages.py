"""The messages of KEDA's ExternalScaler service, in the binary encoding of Protocol Buffers.

Source: KEDA, externalscaler.proto (names and numbers of the fields); Protocol Buffers, "Encoding": a field is a tag
(number and wire type) and its value. Unknown fields are skipped, and of a field given twice the last value counts.
"""

import struct
from collections.abc import Iterator, Mapping

SERVICE = "externalscaler.ExternalScaler"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_DOUBLE = struct.Struct("<d")
_SIZES = {_FIXED64: 8, _FIXED32: 4}

Value = int | bytes


class MessageError(Exception):
    """The bytes are not the message; the text is the end of a sentence that begins with the server."""


def scaled_object(name: str, namespace: str, metadata: Mapping[str, str]) -> bytes:
    """Encodes a ScaledObjectRef: 1 name, 2 namespace, 3 a map whose entries have 1 key and 2 value."""
    entries = (_field(3, _text(1, key) + _text(2, value)) for key, value in metadata.items())
    return _text(1, name) + _text(2, namespace) + b"".join(entries)


def metrics_request(reference: bytes, metric: str) -> bytes:
    """Encodes a GetMetricsRequest: 1 scaledObjectRef, 2 metricName."""
    return _field(1, reference) + _text(2, metric)


def is_active(data: bytes) -> bool:
    """Decodes an IsActiveResponse: 1 result. Raises MessageError."""
    return bool(dict(_fields(data)).get((1, _VARINT), 0))


def metric_names(data: bytes) -> list[str]:
    """Decodes the names of a GetMetricSpecResponse: 1 metricSpecs. Raises MessageError."""
    return [name for name, _ in map(_named_number, _embedded(data))]


def metric_values(data: bytes) -> list[float]:
    """Decodes the values of a GetMetricsResponse: 1 metricValues. Raises MessageError."""
    return [value for _, value in map(_named_number, _embedded(data))]


def _named_number(data: bytes) -> tuple[str, float]:
    """Returns 1 the name, and the number: 3 a double where it is above zero, else 2 the older int64, as KEDA does."""
    fields = dict(_fields(data))
    name, whole, number = fields.get((1, _BYTES), b""), fields.get((2, _VARINT), 0), fields.get((3, _FIXED64))
    assert isinstance(name, bytes)
    assert isinstance(whole, int)
    exact = _DOUBLE.unpack(number)[0] if isinstance(number, bytes) else 0.0
    signed = whole - (1 << 64) if whole >= 1 << 63 else whole
    try:
        # A double that is no number is not replaced by the integer: it is an error of the scaler.
        return name.decode(), float(signed) if exact <= 0 else exact
    except UnicodeDecodeError:
        raise MessageError("sent a name that is not UTF-8 text") from None


def _embedded(data: bytes) -> Iterator[bytes]:
    for (number, kind), value in _fields(data):
        if (number, kind) == (1, _BYTES):
            assert isinstance(value, bytes)
            yield value


def _fields(data: bytes) -> Iterator[tuple[tuple[int, int], Value]]:
    """Yields ((number, wire type), value): an integer for a varint, else the bytes. Raises MessageError."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield (number, kind), value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise MessageError("sent a message that is not in the encoding of Protocol Buffers")
        if size > len(data) - at:
            raise MessageError("sent a message that is cut off")
        yield (number, kind), data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the unsigned number of 64 bits at that place, and the place after it."""
    number = 0
    for index, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number & ((1 << 64) - 1), at + index + 1
    raise MessageError("sent a message that is cut off")


def _text(number: int, text: str) -> bytes:
    """Encodes a text; an empty one is left out, as it is the default."""
    return _field(number, text.encode()) if text else b""


def _field(number: int, content: bytes) -> bytes:
    return _encoded_varint(number << 3 | _BYTES) + _encoded_varint(len(content)) + content


def _encoded_varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
