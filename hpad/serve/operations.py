"""The paths of the JSON API v1: what each takes and answers. Routes and the OpenAPI document come from this table.

Descriptions in the document are the docstrings of the types. Unknown fields may be added to answers at any time, so the
schemas allow them.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import msgspec.inspect
from msgspec.inspect import CollectionType, DateTimeType, StructType, Type, UnionType, VarTupleType

from hpad import __version__
from hpad.api.quantity import Quantity
from hpad.serve import api_types, parameters, stream
from hpad.serve.parameters import Parameter

PREFIX: Final = "/api/v1/"
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"


class Operation(NamedTuple):
    """A GET of one path. `answer` is the type of the JSON, or of the data of each event; None: the OpenAPI document."""

    id: str
    path: str
    text: str
    answer: type[msgspec.Struct] | None
    parameters: tuple[Parameter, ...] = ()
    media: str = JSON

    @property
    def names_hpa(self) -> bool:
        """Whether the path names an HPA, which may not exist."""
        return "{name}" in self.path


_HPA: Final = f"{PREFIX}hpas/{{namespace}}/{{name}}"
OPERATIONS: Final = (
    Operation(
        "version",
        f"{PREFIX}version",
        "The version of hpad, and the build it is from.",
        api_types.Version,
    ),
    Operation(
        "status",
        f"{PREFIX}status",
        "What the answering process does at present, and its problems.",
        api_types.Status,
    ),
    Operation(
        "hpas",
        f"{PREFIX}hpas",
        "The HPAs with their states and last decisions, filtered, sorted and in pages. A page begins after the last "
        "HPA of the previous one, so HPAs that come and go meanwhile move no other HPA to another page.",
        api_types.HpaList,
        parameters.HPAS,
    ),
    Operation(
        "hpa",
        _HPA,
        "One HPA with its spec, its status, and the trace of its last decision.",
        api_types.Detail,
        parameters.ONE,
    ),
    Operation(
        "history",
        f"{_HPA}/history",
        "The decision history of an HPA, the newest first. An entry is a stretch of turns with the same decision for "
        "the same reason.",
        api_types.EntryList,
        parameters.HISTORY,
    ),
    Operation(
        "decision",
        f"{_HPA}/decision",
        "The decision that was in force at a time, with its trace. 404 with the begin of the history for an earlier "
        "time.",
        api_types.DecisionAt,
        parameters.DECISION,
    ),
    Operation(
        "recording",
        f"{_HPA}/recording",
        "The last decisions of an HPA with all their inputs, as far as they are in memory (setting record_recent). "
        "404 if they are not kept, or none has been made.",
        api_types.Recording,
        parameters.ONE,
    ),
    Operation(
        "decisions",
        stream.PATH,
        "Server-sent events: one event `decision` for each HPA whose decision or its reason changes, and a comment "
        "every 15 seconds. Events are not stored, and `Last-Event-ID` has no effect: after a (re)connect, first wait "
        "for the head of the answer, then read the list of HPAs, then apply the events. A client that does not read is "
        "disconnected, and a stream ends after 15 minutes.",
        api_types.Summary,
        parameters.STREAM,
        EVENTS,
    ),
    Operation(
        "sources",
        f"{PREFIX}sources",
        "The state of the metric sources.",
        api_types.SourceList,
    ),
    Operation(
        "replicas",
        f"{PREFIX}replicas",
        "The processes of hpad, as far as the answering one knows. A leader does not know the standbys.",
        api_types.ReplicaList,
    ),
    Operation(
        "openapi",
        f"{PREFIX}openapi.json",
        "This document.",
        None,
    ),
)


# The OpenAPI 3.1 document.

_REF: Final = "#/components/schemas/{name}"
_DESCRIPTION: Final = """\
Read-only: what hpad decided for each HPA, when and why. An HPA is a HorizontalPodAutoscaler or an Autoscaler. Times are
RFC 3339 in UTC, amounts are Kubernetes quantities, durations are seconds. A field without a value is left out. New
fields, states and paths may be added to v1; clients ignore the unknown.
"""
_ERRORS: Final[Mapping[int, str]] = {
    400: "A query parameter is unknown or has an invalid value. As text: not HTTP, or a line over 2,048 bytes.",
    401: "The client is not authenticated.",
    403: "The cluster does not allow the client to get this path.",
    404: "There is no such HPA, or no such decision.",
    421: "The Host header names another machine, and the port has no authentication.",
    500: "A bug; the log has the details.",
    503: "hpad has too much to do, or is stopping.",
}
_RETRY: Final = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}


def document() -> dict[str, Any]:
    """Returns the document as JSON-like builtins."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hpad",
            "version": __version__,
            "summary": "Decisions about replica counts, with their reasons.",
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": {operation.path: {"get": _operation(operation)} for operation in OPERATIONS},
        "components": {
            "schemas": _schemas([api_types.Error, *(each.answer for each in OPERATIONS if each.answer is not None)]),
            "responses": {str(status): _error(status, text) for status, text in _ERRORS.items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "If hpad has tokens configured."},
            },
        },
    }


def _schemas(types: Sequence[type[msgspec.Struct]]) -> dict[str, Any]:
    """Returns the JSON Schemas of the types, and of all types in them, by name."""
    _, schemas = msgspec.json.schema_components(types, schema_hook=_schema, ref_template=_REF)
    structs: dict[type, StructType] = {}
    for kind in types:
        collect(msgspec.inspect.type_info(kind), structs)
    for cls, struct in structs.items():
        _complete(schemas[cls.__name__], cls, struct)
    return schemas


def collect(kind: Type, found: dict[type, StructType]) -> None:
    """Adds all structs within a type."""
    if isinstance(kind, UnionType):
        for each in kind.types:
            collect(each, found)
    elif isinstance(kind, CollectionType | VarTupleType):
        collect(kind.item_type, found)
    elif isinstance(kind, StructType) and kind.cls not in found:
        found[kind.cls] = kind
        for field in kind.fields:
            collect(field.type, found)


def _complete(schema: dict[str, Any], cls: type[msgspec.Struct], struct: StructType) -> None:
    """Adds description and format of times, and removes the null of fields that are left out instead."""
    schema["description"] = inspect.cleandoc(cls.__doc__ or "")
    for field in struct.fields:
        schema["description"] = schema["description"].replace(f"`{field.name}`", f"`{field.encode_name}`")
        made = schema["properties"][field.encode_name]
        parts = made.get("anyOf", [made])
        kinds = field.type.types if isinstance(field.type, UnionType) else (field.type,)
        if any(isinstance(kind, DateTimeType) for kind in kinds):
            parts[0]["format"] = "date-time"
        if cls.__struct_config__.omit_defaults:
            present = [part for part in parts if part.get("type") != "null"]
            made.pop("default", None)
            schema["properties"][field.encode_name] = present[0] if len(present) == 1 else {"anyOf": present}


def _schema(kind: type) -> dict[str, Any]:
    if kind is Quantity:
        return {"type": "string", "description": "A Kubernetes quantity, such as 250m or 64Mi.", "examples": ["250m"]}
    raise NotImplementedError(kind)


def _operation(operation: Operation) -> dict[str, Any]:
    statuses = [status for status in _ERRORS if status != 404 or operation.names_hpa]
    return {
        "operationId": operation.id,
        "description": operation.text,
        "parameters": [*_path_parameters(operation), *map(_query_parameter, operation.parameters)],
        "responses": {
            "200": _answer(operation),
            **{str(status): {"$ref": f"#/components/responses/{status}"} for status in statuses},
        },
    }


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    if not operation.names_hpa:
        return []
    return [
        _path_parameter("namespace", "The namespace of the HPA.", "shop"),
        _path_parameter("name", "The name of the HPA.", "checkout"),
    ]


def _path_parameter(name: str, text: str, example: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "description": text, "schema": schema, "example": example}


def _query_parameter(parameter: Parameter) -> dict[str, Any]:
    schema = {"type": "array", "items": parameter.schema} if parameter.repeats else parameter.schema
    return {"name": parameter.name, "in": "query", "description": parameter.description, "schema": schema}


def _answer(operation: Operation) -> dict[str, Any]:
    if operation.media == EVENTS:
        schema: dict[str, Any] = {"type": "string", "description": f"The data of each event is a {_name(operation)}."}
    elif operation.answer is None:
        schema = {"type": "object", "description": "An OpenAPI 3.1 document."}
    else:
        schema = {"$ref": _REF.format(name=_name(operation))}
    return {"description": "The answer.", "content": {operation.media: {"schema": schema}}}


def _name(operation: Operation) -> str:
    return "" if operation.answer is None else operation.answer.__name__


def _error(status: int, text: str) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": {"$ref": _REF.format(name="Error")}, "example": {"error": text}}}
    if status == 400:  # the HTTP parser answers what is no request
        content["text/plain"] = {"schema": {"type": "string"}, "example": "400: Bad Request"}
    made: dict[str, Any] = {"description": text, "content": content}
    return {**made, "headers": _RETRY} if status == 503 else made
