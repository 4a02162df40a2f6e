"""Reads YAML as the tools of Kubernetes do, with the line of each field, and bounds what a file may hold.

PyYAML's C loader with the scalars of YAML 1.2: `no`, `on`, `1:30` and dates are text, not booleans, numbers or dates.
PyYAML takes about 500 bytes per node, so a file of 64 MiB could take 14 GB; its nodes are therefore counted from its
parse events before any is built.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

import yaml

from hpad.api.fields import FieldError, duplicate

MAX_NODES: Final = 500_000
"""Of a file: keys, values, lists and objects, those that aliases stand for included; some 10,000 HPAs."""
TOO_MANY: Final = f"holds more than {MAX_NODES:,} keys and values: split it into several files"
"""What is said of a file with more."""
_DEEPEST: Final = 200
_SMALL: Final = 20_000
_MOST_REPEATED: Final = 10
_COMPACT_NESTING: Final = re.compile(
    r"(?:[-?][ \t]+){20}"
)  # each sign opens a level; by indentation it takes far more text
_TEXT: Final = re.compile(r'"[^"\\]*(?:\\(?:.|\Z)[^"\\]*)*(?:"|\Z)', re.DOTALL)
"""A text of JSON, up to the end where it is not closed: it matches at each quote, and so takes linear time."""


def json_nodes(text: str, most: int) -> int:
    """How many keys, values, lists and objects a JSON text holds; an empty list or object counts twice.

    In texts the signs mean nothing; texts are left out only if there are more than `most` signs.
    """
    count = _signs(text)
    return count if count <= most else _signs(_TEXT.sub("", text))


def _signs(text: str) -> int:
    return 1 + sum(map(text.count, ",:[{"))


class TooMany(yaml.YAMLError):
    """More nodes than a file may hold."""


class Judge:
    """Goes through the documents of a YAML text ahead of the loader that composes them."""

    def __init__(self, text: str, loader: type[yaml.CSafeLoader]) -> None:
        self._left = MAX_NODES
        self._events: Iterator[yaml.Event] | None = yaml.parse(text, Loader=loader) if _is_suspect(text) else None

    def document(self) -> None:
        """Judge the next document. Raises yaml.YAMLError for one that is nested too deeply for the C loader, which
        recurses; for more nodes than a file may hold; and for aliases that stand for far more than was written, or for
        what they are inside of, as Kubernetes' own tools do."""
        if self._events is None:
            return
        found = _Document(self._left)
        for event in self._events:
            found.take(event)
            if isinstance(event, yaml.DocumentEndEvent):
                break
        found.refuse_repetition()
        self._left -= found.nodes

    def close(self) -> None:
        """Let go of the text."""
        self._events = None


def _is_suspect(text: str) -> bool:
    """Whether the text may break a rule at all: one node takes half a character at least."""
    brackets = text.count("[") + text.count("{")
    return len(text) > MAX_NODES // 2 or "*" in text or brackets > _DEEPEST or bool(_COMPACT_NESTING.search(text))


class _Document:
    """What its events add up to. `nodes` has the nodes that aliases stand for in it, `written` has not."""

    def __init__(self, most: int) -> None:
        self.nodes = 0
        self.written = 0
        self._most = most
        self._open: list[tuple[str | None, int]] = []
        self._sizes: dict[str, int] = {}

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._repeat(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._add(1)
            self._sizes[event.anchor or ""] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            self._enter(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self._open.pop()
            self._sizes[anchor or ""] = self.nodes - before

    def refuse_repetition(self) -> None:
        """Judged at the end: what an anchor holds may be written after the first alias, but not be used before."""
        if self.nodes > max(_SMALL, _MOST_REPEATED * self.written):
            raise yaml.YAMLError("its aliases stand for far more than was written")

    def _enter(self, event: yaml.CollectionStartEvent) -> None:
        self._open.append((event.anchor, self.nodes))
        if len(self._open) > _DEEPEST:
            raise yaml.YAMLError(f"nested more than {_DEEPEST} levels deep")
        self._add(1)

    def _add(self, nodes: int) -> None:
        self.written += nodes
        self.nodes += nodes
        if self.nodes > self._most:
            raise TooMany(TOO_MANY)

    def _repeat(self, event: yaml.AliasEvent) -> None:
        if event.anchor in (anchor for anchor, _ in self._open):
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise yaml.YAMLError(f"line {line}: an anchor whose value contains itself")
        self.nodes += self._sizes.get(event.anchor or "", 1)
        if self.nodes > self._most:
            self.refuse_repetition()
            raise TooMany(TOO_MANY)


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
    judge, loader = Judge(text, Loader), Loader(text)
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
