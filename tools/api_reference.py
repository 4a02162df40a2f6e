"""The page docs/reference/api.md: each path of the JSON API with its parameters, and the fields of its answers.

It is made from the OpenAPI document that hpad serves, so its texts are the docstrings of the types.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec.inspect

from hpad.serve import operations
from hpad.serve.operations import OPERATIONS
from tools.markdown import table

_INTRO: Final = (
    "The paths, parameters and fields of [the JSON API](../api.md), which has examples. The same is in"
    ' `/api/v1/openapi.json`. A field that a text calls None, or "", is left out.'
)
_KUBERNETES: Final = "hpad.api."
"""The package of the types of `autoscaling/v2`, which Kubernetes describes."""

Schema = Mapping[str, Any]


def parts() -> Iterator[str]:
    """Yields the paragraphs and tables of the page."""
    document = operations.document()
    yield _INTRO
    yield "## Paths"
    for path, methods in document["paths"].items():
        yield from _path(path, methods["get"])
    yield "## Answers"
    schemas = document["components"]["schemas"]
    described = _own_types()
    for name in described:
        yield from _answer(name, schemas[name], described)


def _path(path: str, operation: Schema) -> Iterator[str]:
    yield f"`{path}`: {operation['description']}{_content(operation)}"
    rows = [[f"`{each['name']}`", _meaning(each)] for each in operation["parameters"] if each["in"] == "query"]
    if rows:
        yield table(["parameter", "meaning"], rows)


def _content(operation: Schema) -> str:
    [media] = operation["responses"]["200"]["content"].values()
    reference = media["schema"].get("$ref", "")
    return f" Answer: {_link(reference)}." if reference else ""


def _meaning(parameter: Schema) -> str:
    """Returns the description of a parameter, with its bounds, its values and its default."""
    schema = parameter["schema"]
    found = [parameter["description"]]
    if "maximum" in schema:
        found.append(f"From {schema['minimum']} to {schema['maximum']}.")
    values = schema.get("items", schema).get("enum", ())
    if values:
        found.append(f"One of {', '.join(f'`{value}`' for value in values if not value.startswith('-'))}.")
    if "default" in schema:
        found.append(f"Default: `{msgspec.json.encode(schema['default']).decode().strip(chr(34))}`.")
    return " ".join(found)


def _own_types() -> list[str]:
    """Returns the names of the types of the answers in the order of the document, without those of Kubernetes."""
    structs: dict[type, Any] = {}
    for each in OPERATIONS:
        if each.answer is not None:
            operations.collect(msgspec.inspect.type_info(each.answer), structs)
    return [kind.__name__ for kind in structs if not kind.__module__.startswith(_KUBERNETES)]


def _answer(name: str, schema: Schema, described: Sequence[str]) -> Iterator[str]:
    yield f"### {name}"
    yield schema["description"]
    rows = [[f"`{field}`", _kind(each, described)] for field, each in schema["properties"].items()]
    yield table(["field", "type"], rows)


def _kind(schema: Schema, described: Sequence[str]) -> str:
    """Returns the type of a field in words, with a link where the page describes it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _link(schema["$ref"]) if name in described else f"{name} of Kubernetes"
    if "anyOf" in schema:
        return " or ".join(_kind(each, described) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'], described)}" if "items" in schema else "list"
    if schema.get("type") == "object":
        return f"map of {_kind(schema.get('additionalProperties', {}), described)}"
    return "time" if schema.get("format") == "date-time" else str(schema.get("type", "any"))


def _link(reference: str) -> str:
    name = reference.rpartition("/")[2]
    return f"[{name}](#{name.lower()})"
