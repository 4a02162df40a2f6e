"""OpenAPI v3 documents: the types of the served kinds, and the parts of the operations that kubectl reads.

Only custom kinds have descriptions, those of their definitions. Without a schema there, or in `schemas.txt`, a kind is
an object of any content. Each operation names its kind; PATCH also lists the parameters `dryRun`, `fieldManager` and
`fieldValidation`.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Final

from hpad.lab.cluster import schemas
from hpad.lab.cluster.resources import Object, Registry, Resource

_KIND: Final = "x-kubernetes-group-version-kind"
_EVERYWHERE: Final = tuple(
    f"meta.v1.{name}" for name in ("APIResourceList", "DeleteOptions", "ObjectMeta", "Patch", "Status", "WatchEvent")
)
_SCALARS: Final[dict[str, Object]] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "boolean": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "object": {"type": "object"},
}


def index(registry: Registry) -> Object:
    """Returns the body of `/openapi/v3`: the URL of each version's document, with a hash of its content."""
    paths = {}
    for group, versions in sorted(registry.groups().items()):
        for version in versions:
            place = f"apis/{group}/{version}" if group else f"api/{version}"
            content = digest(document(registry, place.split("/")))
            paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={content}"}
    return {"paths": paths}


def digest(content: Object | None) -> str:
    """Returns the hash by which clients cache a document."""
    return hashlib.sha512(json.dumps(content).encode()).hexdigest().upper()


def document(registry: Registry, parts: list[str]) -> Object | None:
    """Returns the document of `["api", "v1"]` or `["apis", group, version]`; None for an unknown one."""
    match parts:
        case ["api", version]:
            return _document(registry, "", version)
        case ["apis", group, version]:
            return _document(registry, group, version)
        case _:
            return None


def patches(registry: Registry) -> list[tuple[str, dict[str, str]]]:
    """Returns every path that accepts PATCH, with group, version and kind of its objects."""
    return [
        (f"{_collection(resource, version)}/{{name}}", _kind(resource, version))
        for group, versions in registry.groups().items()
        for version in versions
        for resource in registry.in_version(group, version)
        if "patch" in resource.verbs
    ]


def _document(registry: Registry, group: str, version: str) -> Object | None:
    resources = list(registry.in_version(group, version))
    if not resources:
        return None
    paths = {path: operations for each in resources for path, operations in _paths(each, version)}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.36"},
        "paths": paths,
        "components": {"schemas": _components(group, version, resources)},
    }


def _components(group: str, version: str, resources: list[Resource]) -> Object:
    own = f"{group}/{version}/"
    named = [name for name, each in schemas.EVERYTHING.items() if any(kind.startswith(own) for kind in each.kinds)]
    shown = {
        schemas.EVERYTHING[name].full_name: _rendered(schemas.EVERYTHING[name])
        for name in schemas.closure(iter((*named, *_EVERYWHERE)))
    }
    for each in resources:
        if schemas.of_kind(each.group_version(version), each.kind) is None:
            shown[f"{'.'.join(reversed(group.split('.')))}.{version}.{each.kind}"] = _custom(each, version)
    return shown


def _custom(resource: Resource, version: str) -> Object:
    """Returns the type of a kind that `schemas.txt` lacks."""
    head: Object = {name: dict(_SCALARS["string"]) for name in ("apiVersion", "kind")}
    metadata = {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]}
    known = resource.schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {**head, **known.get("properties", {}), "metadata": metadata}
    return {**known, "properties": properties, _KIND: [_kind(resource, version)]}


def _rendered(schema: schemas.Schema) -> Object:
    shown: Object = dict(schema.form) if schema.form is not None else {"type": "object"}
    if required := [name for name, each in schema.fields.items() if each.is_required]:
        shown["required"] = required
    if schema.fields:
        shown["properties"] = {name: _property(each) for name, each in schema.fields.items()}
    if schema.kinds:
        split = [kind.split("/") for kind in schema.kinds]
        shown[_KIND] = [{"group": group, "version": version, "kind": kind} for group, version, kind in split]
    if schema.is_atomic:
        shown["x-kubernetes-map-type"] = "atomic"
    return shown


def _property(field: schemas.Field) -> Object:
    flags = field.flags
    shown = _typed(field.type, flags["enum"].split(",") if "enum" in flags else [], inside=False)
    if "default" in flags:
        shown["default"] = json.loads(flags["default"])
    if "keys" in flags:
        shown |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": flags["keys"].split(",")}
    for flag, name in (("list", "list-type"), ("map", "map-type"), ("patch", "patch-strategy")):
        if flag in flags:
            shown[f"x-kubernetes-{name}"] = flags[flag]
    if "merge" in flags:
        shown["x-kubernetes-patch-merge-key"] = flags["merge"]
    return shown


def _typed(kind: schemas.Type, enum: list[str], *, inside: bool) -> Object:
    if kind.around.startswith("[]"):
        return {"type": "array", "items": _typed(kind.element, enum, inside=True)}
    if kind.around:
        return {"type": "object", "additionalProperties": _typed(kind.element, enum, inside=True)}
    if kind.name in _SCALARS:
        return {**_SCALARS[kind.name], **({"enum": enum} if enum else {})}
    reference: Any = {"$ref": f"#/components/schemas/{schemas.EVERYTHING[kind.name].full_name}"}
    return dict(reference) if inside else {"allOf": [reference]}


def _paths(resource: Resource, version: str) -> Iterator[tuple[str, Object]]:
    operation = {_KIND: _kind(resource, version), "responses": {}}
    queries = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    patch = {"patch": {**operation, "parameters": queries}}
    verbs = {"create": "post", "deletecollection": "delete", "list": "get"}
    yield _collection(resource, version), {verbs[verb]: operation for verb in resource.verbs if verb in verbs}
    if "get" in resource.verbs:
        verbs = {"get": "get", "update": "put", "patch": "patch", "delete": "delete"}
        one = {verbs[verb]: operation for verb in resource.verbs if verb in verbs}
        yield f"{_collection(resource, version)}/{{name}}", {**one, **(patch if "patch" in one else {})}
    if resource.has_status:
        status = {"get": operation, "put": operation, **patch}
        yield f"{_collection(resource, version)}/{{name}}/status", status


def _collection(resource: Resource, version: str) -> str:
    root = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    middle = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{root}{middle}/{resource.plural}"


def _kind(resource: Resource, version: str) -> dict[str, str]:
    return {"group": resource.group, "version": version, "kind": resource.kind}


# The OpenAPI v2 document in protobuf and JSON, which kubectl before 1.27 reads before `apply`.
#
# It has no definitions, so that kubectl leaves validation to the server. Its PATCH operations list the parameter
# `dryRun`, which kubectl looks for. Field numbers are those of OpenAPIv2.proto of github.com/google/gnostic.

V2_ACCEPTED: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
V2_MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The Content-Type of the response. Clients send the name above, whose `@` is invalid in a media type."""


def v2_encoded(registry: Registry) -> bytes:
    """Returns the encoded Document message."""
    info = _text(1, "Kubernetes") + _text(2, "v1.36.2")
    items = b"".join(
        _message(2, _text(1, path) + _message(2, _message(8, _operation(kind)))) for path, kind in patches(registry)
    )
    return _text(1, "2.0") + _message(2, info) + _message(8, items)


def v2_document(registry: Registry) -> dict[str, object]:
    """Returns the document in its JSON form."""
    operations = {
        path: {"patch": {"parameters": [{"name": "dryRun", "in": "query"}], _KIND: kind}}
        for path, kind in patches(registry)
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
    extension = _text(1, _KIND) + _message(2, _text(2, yaml))
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
