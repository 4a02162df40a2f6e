"""The OpenAPI v2 document in protobuf and JSON, which kubectl before 1.27 reads before `apply`.

It has no definitions, so that kubectl leaves validation to the server. Its PATCH operations list the parameter
`dryRun`, which kubectl looks for. Field numbers are those of OpenAPIv2.proto of github.com/google/gnostic.
"""

from typing import Final

from hpad.lab.cluster import openapi
from hpad.lab.cluster.resources import Registry

ACCEPTED: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The Content-Type of the response. Clients send the name above, whose `@` is invalid in a media type."""
_GROUP_VERSION_KIND: Final = "x-kubernetes-group-version-kind"


def encoded(registry: Registry) -> bytes:
    """Returns the encoded Document message."""
    info = _text(1, "Kubernetes") + _text(2, "v1.36.2")
    items = b"".join(
        _message(2, _text(1, path) + _message(2, _message(8, _operation(kind))))
        for path, kind in openapi.patches(registry)
    )
    return _text(1, "2.0") + _message(2, info) + _message(8, items)


def document(registry: Registry) -> dict[str, object]:
    """Returns the document in its JSON form."""
    operations = {
        path: {"patch": {"parameters": [{"name": "dryRun", "in": "query"}], _GROUP_VERSION_KIND: kind}}
        for path, kind in openapi.patches(registry)
    }
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.2"},
        "paths": operations,
        "definitions": {},
    }


def _operation(kind: dict[str, str]) -> bytes:
    query = _text(2, "query") + _text(4, "dryRun") + _text(6, "string")
    parameter = _message(1, _message(2, _message(3, query)))
    yaml = "".join(f'{name}: "{value}"\n' for name, value in kind.items())
    extension = _text(1, _GROUP_VERSION_KIND) + _message(2, _text(2, yaml))
    return _message(8, parameter) + _message(13, extension)


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    head = b""
    while value > 0x7F:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])
