"""What a schema of a CustomResourceDefinition refuses: by jsonschema, and its rules in CEL by cel-python."""

import functools
import sys
from collections.abc import Iterator
from typing import Any

import celpy
import jsonschema


def refusals(schema: dict[str, Any], value: dict[str, Any]) -> list[str]:
    """Returns the paths of what is refused, such as `spec.metrics[0].type`; rules run only on what the schema takes."""
    return by_schema(schema, value) or list(_by_rules(schema, value, ""))


def by_schema(schema: dict[str, Any], value: dict[str, Any]) -> list[str]:
    """Returns the paths of what is refused without rules."""
    return [_shown(error.absolute_path) for error in jsonschema.Draft202012Validator(schema).iter_errors(value)]


def _by_rules(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if not _program(rule["rule"]).evaluate({"self": celpy.json_to_cel(value)}):
            yield f"{path}{rule.get('fieldPath', '')}"
    for name, each in schema.get("properties", {}).items():
        if isinstance(value, dict) and name in value:
            yield from _by_rules(each, value[name], f"{path}.{name}".removeprefix("."))
    for index, each in enumerate(value if isinstance(value, list) else ()):
        yield from _by_rules(schema["items"], each, f"{path}[{index}]")


@functools.cache
def _program(rule: str) -> celpy.Runner:
    limit = sys.getrecursionlimit()
    environment = celpy.Environment()
    sys.setrecursionlimit(limit)  # an environment raises it, for every test that follows in this process
    return environment.program(environment.compile(rule))


def _shown(path: Any) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path).removeprefix(".")
