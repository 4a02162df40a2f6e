"""Encodes lists of pod metrics in the protobuf format of Kubernetes.

Field numbers: generated.proto of k8s.io/metrics (v1beta1) and of k8s.io/apimachinery (meta/v1, runtime, resource).
"""

from collections.abc import Mapping
from typing import Any, Final

MEDIA_TYPE: Final = b"application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_WINDOW_NANOSECONDS: Final = 15_000_000_000


def pod_metrics_list(document: Mapping[str, Any], seconds: int) -> bytes:
    """Encodes a PodMetricsList whose times are all `seconds` since 1970, and whose windows are 15 s."""
    items = b"".join(_field(2, _pod_metrics(item, seconds)) for item in document["items"])
    type_meta = _text(1, document["apiVersion"]) + _text(2, document["kind"])
    envelope = _field(1, type_meta) + _field(2, _field(1, b"") + items) + _field(3, b"") + _field(4, b"")
    return _MAGIC + envelope


def _pod_metrics(item: Mapping[str, Any], seconds: int) -> bytes:
    own, time = item["metadata"], _number(1, seconds) + _number(2, 0)
    labels = b"".join(_field(11, _text(1, name) + _text(2, value)) for name, value in own["labels"].items())
    metadata = _text(1, own["name"]) + _text(3, own["namespace"]) + _field(8, time) + labels
    containers = b"".join(_field(4, _container(each)) for each in item["containers"])
    return _field(1, metadata) + _field(2, time) + _field(3, _number(1, _WINDOW_NANOSECONDS)) + containers


def _container(container: Mapping[str, Any]) -> bytes:
    used = b"".join(_field(2, _text(1, name) + _field(2, _text(1, size))) for name, size in container["usage"].items())
    return _text(1, container["name"]) + used


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    """Returns a field with a length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
