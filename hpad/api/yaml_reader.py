"""Reads YAML as the tools of Kubernetes do, with the line of each field, and bounds the content of a file; writes it.

PyYAML's C loader with the scalars of sigs.k8s.io/yaml: `no` and `on` are booleans, `010` is 8, `1_000` is 1000; `1:30`
and dates are text. Only `y` and `n`, booleans there, are text: they are names more often.

PyYAML takes about 500 bytes per node, so a file of 64 MiB could take 14 GB; its nodes are therefore counted from its
parse events before any is built.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn
from weakref import WeakKeyDictionary

import yaml

from hpad.api.problem import Problem, duplicate, steps
from hpad.api.text import punctuation

MAX_NODES: Final = 500_000
"""The limit of a file in keys, values, lists and objects, with those that aliases repeat; about 10,000 HPAs."""
TOO_MANY: Final = f"has more than {MAX_NODES:,} keys and values: split it into several files"
_MAX_DEPTH: Final = 200
_SMALL: Final = 20_000
"""Nodes up to which aliases may repeat any part of a document."""
_MAX_REPETITION: Final = 10
_LONGEST_INTEGER: Final = 100
_OCTAL: Final = re.compile("[-+]?0[0-7]")
_WHOLE: Final = 1e21
"""From here on Go writes whole floating-point numbers with an exponent."""
# Each `-` or `?` opens a level. Nesting by indentation needs so much text that its length makes it suspect.
_COMPACT_NESTING: Final = re.compile(r"(?:[-?][ \t]+){20}")


def json_nodes(text: str, most: int) -> int:
    """Counts the keys, values, lists and objects of a JSON text by its punctuation.

    An empty list or object counts twice. Punctuation within strings is excluded only if the count exceeds `most`, since
    that takes longer.
    """
    return 1 + punctuation(text.encode(), b",:[{", most - 1)


class TooManyNodes(yaml.YAMLError):
    """The file has more than MAX_NODES nodes."""


def _check(text: str, most: int) -> Iterator[None]:
    """Checks a text from its parse events, one document per step, before the loader builds nodes.

    Raises yaml.YAMLError for a document that is nested too deeply for the C loader, which recurses; for more nodes than
    `most` (TooManyNodes); and, as Kubernetes' tools do, for aliases that multiply the text or contain themselves.
    """
    brackets = text.count("[") + text.count("{")
    # Without an alias, a node takes half a character at least.
    if len(text) <= most // 2 and "*" not in text and brackets <= _MAX_DEPTH and not _COMPACT_NESTING.search(text):
        return
    remaining = most
    size = _Size(remaining)
    for event in yaml.parse(text, Loader=Loader):
        size.add(event)
        if isinstance(event, yaml.DocumentEndEvent):
            size.refuse_repetition()
            yield
            remaining -= size.nodes
            size = _Size(remaining)


class _Size:
    """Counts the nodes of a document: `written` in the text, `nodes` with those that each alias repeats."""

    def __init__(self, most: int) -> None:
        self.nodes = 0
        self.written = 0
        self._most = most
        self._open: list[tuple[str | None, int]] = []
        self._sizes: dict[str, int] = {}

    def add(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._repeat(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._write_one()
            self._sizes[event.anchor or ""] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open.append((event.anchor, self.nodes))
            if len(self._open) > _MAX_DEPTH:
                raise yaml.YAMLError(f"nested more than {_MAX_DEPTH} levels deep")
            self._write_one()
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self._open.pop()
            self._sizes[anchor or ""] = self.nodes - before

    def refuse_repetition(self) -> None:
        """Raises yaml.YAMLError for too much repetition. Called at the end: text after an alias counts as well."""
        if self.nodes > max(_SMALL, _MAX_REPETITION * self.written):
            raise yaml.YAMLError("its aliases stand for far more than was written")

    def _write_one(self) -> None:
        self.written += 1
        self.nodes += 1
        if self.nodes > self._most:
            raise TooManyNodes(TOO_MANY)

    def _repeat(self, event: yaml.AliasEvent) -> None:
        if event.anchor in (anchor for anchor, _ in self._open):
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise yaml.YAMLError(f"line {line}: an anchor whose value contains itself")
        self.nodes += self._sizes.get(event.anchor or "", 1)
        if self.nodes > self._most:
            # The more helpful error first: splitting the file does not help against repetition.
            self.refuse_repetition()
            raise TooManyNodes(TOO_MANY)


_TAG: Final = "tag:yaml.org,2002:"
_SCALARS: Final = (
    (
        "bool",
        "yes|Yes|YES|true|True|TRUE|on|On|ON|no|No|NO|false|False|FALSE|off|Off|OFF",
        "yYtToOnNfF",
    ),
    (
        "int",
        "[-+]?(?:0_*|[1-9][0-9_]*|0[oO]?_*[0-7][0-7_]*|0[bB]_*[01][01_]*|0[xX]_*[0-9a-fA-F][0-9a-fA-F_]*)",
        "-+0123456789",
    ),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", "<<", "<"),
)


_FIELDS: Final[WeakKeyDictionary[yaml.Node, dict[str, tuple[int, yaml.Node]]]] = WeakKeyDictionary()


class Loader(yaml.CSafeLoader):
    """The C loader with the scalars of sigs.k8s.io/yaml."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Refuses a number that no field takes: its digits, if it is hexadecimal, are too many for any message."""
        if len(node.value) > _LONGEST_INTEGER:
            problem = f"a number of {len(node.value):,} digits, at most {_LONGEST_INTEGER} are read"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
        digits = node.value.replace("_", "")
        return int(digits, 8 if _OCTAL.match(digits) else 0)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        """Returns a whole number as such, as it becomes in JSON: 1e3 may be a count."""
        value = float(super().construct_yaml_float(node))
        return int(value) if value.is_integer() and abs(value) < _WHOLE else value

    def construct_undefined(self, node: yaml.Node) -> NoReturn:
        """Refuses a tag without repeating it: a password may begin with an exclamation mark."""
        raise yaml.constructor.ConstructorError(problem="a tag that is not known", problem_mark=node.start_mark)


Loader.add_constructor(None, Loader.construct_undefined)
Loader.add_constructor(f"{_TAG}int", Loader.construct_yaml_int)
Loader.add_constructor(f"{_TAG}float", Loader.construct_yaml_float)


class Dumper(yaml.CSafeDumper):
    """Quotes texts that are something else for Kubernetes' tools (y, 1e3) or for PyYAML (1:30)."""


Loader.yaml_implicit_resolvers = {}  # without this, add_implicit_resolver would change PyYAML's loaders
for _name, _pattern, _first in _SCALARS:
    for _each in (Loader, Dumper):
        _each.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), list(_first))
Dumper.add_implicit_resolver(f"{_TAG}bool", re.compile(r"[yYnN]\Z"), list("yYnN"))
Dumper.add_multi_representer(dict, Dumper.represent_dict)


def documents(text: str, most: int = MAX_NODES) -> Iterator[tuple[yaml.Node, tuple[Problem, ...], Any]]:
    """Yields the nodes of each document, an error for each field that occurs more than once, and its value.

    All documents together have at most so many nodes.

    The last occurrence of a field counts.

    Raises yaml.YAMLError at the first document that is invalid, or that exceeds a limit of `_check`.
    """
    checks, loader = _check(text, most), Loader(text)
    try:
        next(checks, None)  # ahead of the loader, which already builds a document in check_node
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                # Before the construction, which puts merged fields (<<) beside those that override them.
                repeated = tuple(dict.fromkeys(_duplicates(node, "", set())))
                yield node, repeated, _constructed(loader, node)
            next(checks, None)
    finally:
        loader.dispose()


def only(text: str, most: int = MAX_NODES) -> Any:
    """Returns the value of a text with one document, of at most so many nodes; None for one without any.

    Raises ValueError for any other text, and for a field that occurs more than once.
    """
    try:
        found = list(documents(text, most))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from None
    for node, repeated, _ in found:
        for each in repeated:
            raise ValueError(f"line {line_of(node, each.path)}: {each}")
    if len(found) > 1:
        raise ValueError(f"line {found[1][0].start_mark.line + 1}: another document; one is read")
    return found[0][2] if found else None


def _constructed(loader: Loader, node: yaml.Node) -> Any:
    try:
        return loader.construct_document(node)
    except (AttributeError, LookupError, TypeError) as error:  # PyYAML raises these for a tag such as "!!int x"
        raise yaml.YAMLError("a tag does not fit its value") from error


def _duplicates(node: yaml.Node, path: str, seen: set[int]) -> Iterator[Problem]:
    # Aliases share a node: without `seen`, nested aliases would take exponential time.
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
    """Returns the line (from 1) of a field; for a missing field, that of the object around it."""
    line = node.start_mark.line
    for step in steps(path):
        found = _step(node, step)
        if found is None:
            break
        line, node = found
    return int(line) + 1


def _step(node: yaml.Node, step: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        fields = _FIELDS.get(node)
        if fields is None:  # cached: a search for each of many errors would take quadratic time
            fields = _FIELDS[node] = {str(key.value): (key.start_mark.line, value) for key, value in node.value}
        return fields.get(step)
    if isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
        entry = node.value[int(step)]
        return entry.start_mark.line, entry
    return None
