"""YAML as Kubernetes' tools read it: PyYAML's C loader with the scalars of YAML 1.2, and where each field stands.

YAML 1.1 takes `no` and `on` for booleans, `1:30` for ninety and a date for a date; here they are text.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

import yaml

from hpad.api.fields import FieldError, duplicate
from hpad.manifests import budget

_TAG: Final = "tag:yaml.org,2002:"
_STEP: Final = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
_SCALARS: Final = (
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", "[-+]?(?:0|[1-9][0-9]*|0[0-7]+|0o[0-7]+|0x[0-9a-fA-F]+)", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", "<<", "<"),
)


_FIELDS: Final[WeakKeyDictionary[yaml.Node, dict[str, tuple[int, yaml.Node]]]] = WeakKeyDictionary()


class Loader(yaml.CSafeLoader):
    """The C loader with those scalars."""


Loader.yaml_implicit_resolvers = {}  # its own: add_implicit_resolver would add to PyYAML's
for _name, _pattern, _first in _SCALARS:
    Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), list(_first))


def documents(text: str) -> Iterator[tuple[yaml.Node, Any]]:
    """Each document with its tree of nodes; raises yaml.YAMLError where the text stops making sense, and before the
    first document with which it becomes too much (`budget`)."""
    judge, loader = budget.Judge(text, Loader), Loader(text)
    try:
        judge.document()
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                yield node, _constructed(loader, node)
            judge.document()
    finally:
        loader.dispose()
        judge.close()


def _constructed(loader: Loader, node: yaml.Node) -> Any:
    try:
        return loader.construct_document(node)
    except (AttributeError, LookupError, TypeError) as error:  # from PyYAML, where a tag is not true of its value
        raise yaml.YAMLError("a tag says what its value is not") from error


def duplicates(node: yaml.Node) -> Iterator[FieldError]:
    """The fields that are given twice or more, each once; the last one counts. An anchor's node is looked at once,
    however often used."""
    return iter(dict.fromkeys(_duplicates(node, "", set())))


def _duplicates(node: yaml.Node, path: str, seen: set[int]) -> Iterator[FieldError]:
    if id(node) in seen or isinstance(node, yaml.ScalarNode):
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        names = set()
        for key, value in node.value:
            name = str(key.value)
            here = f"{path}.{name}" if path else name
            if name in names:
                yield duplicate(here)
            names.add(name)
            yield from _duplicates(value, here, seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _duplicates(value, f"{path}[{index}]", seen)


def line_of(node: yaml.Node, path: str) -> int:
    """The line (from 1) where a field stands; for one that is missing, that of the object it should be in."""
    return line_at(node, (name or index for name, index in _STEP.findall(path)))


def line_at(node: yaml.Node, steps: Iterable[str]) -> int:
    """As `line_of`, by the steps of a path."""
    line = node.start_mark.line
    for step in steps:
        found = _step(node, step)
        if found is None:
            break
        line, node = found
    return int(line) + 1


def _step(node: yaml.Node, step: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        fields = _FIELDS.get(node)
        if fields is None:  # looked through once, not for each of many complaints
            fields = _FIELDS[node] = {str(key.value): (key.start_mark.line, value) for key, value in node.value}
        return fields.get(step)
    if isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
        entry = node.value[int(step)]
        return entry.start_mark.line, entry
    return None
