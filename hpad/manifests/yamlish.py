"""YAML as Kubernetes' tools read it: PyYAML's C loader with the scalars of YAML 1.2, and where each field stands.

YAML 1.1 takes `no` and `on` for booleans, `1:30` for ninety and a date for a date; here they are text.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from hpad.model.fields import FieldError, duplicate

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


class Loader(yaml.CSafeLoader):
    """The C loader with those scalars."""


Loader.yaml_implicit_resolvers = {}  # its own: add_implicit_resolver would add to PyYAML's
for _name, _pattern, _first in _SCALARS:
    Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), list(_first))


def documents(text: str) -> Iterator[tuple[yaml.Node, Any]]:
    """Each document with its tree of nodes; raises yaml.YAMLError where the text stops making sense."""
    loader = Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                yield node, loader.construct_document(node)
    finally:
        loader.dispose()


def duplicates(node: yaml.Node, path: str = "") -> Iterator[FieldError]:
    """The fields that are given twice; the later one counts."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            here = f"{path}.{key.value}" if path else str(key.value)
            if key.value in seen:
                yield duplicate(here)
            seen.add(key.value)
            yield from duplicates(value, here)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from duplicates(value, f"{path}[{index}]")


def line_of(node: yaml.Node, path: str) -> int:
    """The line (from 1) where a field stands; for one that is missing, that of the object it should be in."""
    line = node.start_mark.line
    for name, index in _STEP.findall(path):
        found = _step(node, name or index)
        if found is None:
            break
        line, node = found
    return int(line) + 1


def _step(node: yaml.Node, step: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        matches = [(key.start_mark.line, value) for key, value in node.value if str(key.value) == step]
        return matches[-1] if matches else None
    if isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
        entry = node.value[int(step)]
        return entry.start_mark.line, entry
    return None
