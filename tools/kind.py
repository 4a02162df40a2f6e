"""Writes config/crd/autoscalers.hpad.io.yaml, the CustomResourceDefinition of the kind Autoscaler: `make docs`.

`--check` writes nothing and exits with status 1 if the file is not current. docs/reference/autoscaler.md is made here
too, and written by `tools.reference`.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from hpad.lab.autoscaler import definition
from tools.markdown import table

FILE = Path(__file__).resolve().parent.parent / "config" / "crd" / "autoscalers.hpad.io.yaml"
_NOTE = "# The kind Autoscaler. Written by `make docs` from the code; changes made here are lost.\n"
_INTRO = """\
An Autoscaler does what a HorizontalPodAutoscaler does, and only hpad sees it: Kubernetes' own controller may go on
working. Its spec is that of autoscaling/v2, field by field, so two lines make an HPA one: `apiVersion: hpad.io/v1` and
`kind: Autoscaler`. `options` and `queries` are its own. [`config/autoscalers`](../../config/autoscalers) has samples.

    kubectl apply -f config/crd/autoscalers.hpad.io.yaml
    kubectl explain autoscaler.spec.options
    kubectl get asr -o wide

`kubectl get` shows the name of the target, and `-o wide` its kind and the decision in one sentence. hpad sets no
defaults in the object and applies those of autoscaling/v2 when it reads: `MINPODS` is empty where `minReplicas` is
absent, which means 1.

The API server refuses what breaks the bounds and rules below. What it cannot check becomes a condition in the status,
with the words that it has for HPAs: a spec of more than 64 KiB, a name such as `..`, a resource that does not exist.
Servers before Kubernetes 1.28 take the definition with `kubectl apply --validate=false`; those before 1.25 do not run
the rules, and hpad reports what these would refuse.
Some notations of an HPA are refused in an Autoscaler: a quantity with a decimal point and without quotes (`0.5`: write
`"0.5"` or `500m`), the name of a field in other case, a text of more than 1,024 characters, and what could never be
read: an Object metric whose `target.type` is not that of its value, and an unknown operator in a selector."""
_OPTIONS = """\
The options are the [annotations](annotations.md) without `hpad.io/`; each is a field with a description of its own."""
_STATUS = """\
The fields of `currentMetrics` and `conditions` are those of autoscaling/v2."""
_ELSEWHERE = frozenset({"options", "currentMetrics[]", "conditions[]"})
"""Fields whose own fields are described elsewhere."""
_RULES = """\
## Rules

What spans fields, in CEL; `kubectl apply` prints the message."""


def text() -> str:
    """Returns the file as it should be."""
    made: str = yaml.dump(definition(), Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)
    return _NOTE + made


class _Plain(yaml.SafeDumper):
    """Writes an object that occurs twice in full."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def page() -> tuple[str, ...]:
    """Returns the parts of docs/reference/autoscaler.md."""
    [version] = definition()["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]
    parts = [_INTRO]
    head = ["field", "type", "meaning"]
    for part, note in (("spec", _OPTIONS), ("status", _STATUS)):
        parts += [f"## `{part}`", table(head, _fields(root["properties"][part], "", {})), note]
    rules = [[f"`{path}`", f"`{rule['rule']}`", rule["message"]] for path, rule in _rules(root, "")]
    return (*parts, _RULES, table(["object", "rule", "message"], rules))


def _fields(schema: dict[str, Any], path: str, seen: dict[str, str]) -> Iterator[list[str]]:
    """Yields a row for each field, those of lists with `[]`; `seen` has where the fields of a type are listed."""
    for name, each in schema.get("properties", {}).items():
        where, inner = f"{path}{name}", each.get("items", each)
        if inner is not each:
            where += "[]"
        needed = ", required" if name in schema.get("required", ()) else ""
        listed = seen.setdefault(str(inner.get("properties", where)), where)
        above = "" if listed == where else f" Its fields are those of `{listed}`."
        yield [f"`{where}`", _type(each) + needed, each["description"] + above]
        if not above and where not in _ELSEWHERE:
            yield from _fields(inner, f"{where}.", seen)


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " ".join(f"`{each}`" for each in schema["enum"])
    if "x-kubernetes-int-or-string" in schema:
        return "quantity"
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}s" + _range(schema, "minItems", "maxItems")
    if "additionalProperties" in schema:
        return "map"
    name = {"integer": "whole number", "string": "text"}.get(schema["type"], schema["type"])
    return name + _range(schema, "minimum", "maximum")


def _range(schema: dict[str, Any], least: str, most: str) -> str:
    bounds = [f"{word} {schema[name]:,}" for name, word in ((least, "from"), (most, "to")) if name in schema]
    return f", {' '.join(bounds)}" if bounds else ""


def _rules(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, str]]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule
    for name, each in schema.get("properties", {}).items():
        yield from _rules(each, f"{path}.{name}".removeprefix("."))
    if "items" in schema:
        yield from _rules(schema["items"], f"{path}[]")


def run(arguments: Sequence[str]) -> int:
    """Writes the file, or with `--check` compares it."""
    if list(arguments) == ["--check"]:
        is_current = FILE.is_file() and FILE.read_text("utf-8") == text()
        if not is_current:
            print(f"not current: {FILE.name}; run `make docs`", file=sys.stderr)
        return int(not is_current)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
