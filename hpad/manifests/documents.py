"""Reads files with one or many documents: YAML, JSON, or JSON lines. A `kind: List` counts as its items.

A document that cannot be parsed becomes a document with `faults`, not an exception, so that the others are still read.
"""

import collections
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from hpad.api.fields import INVALID, FieldError, duplicate
from hpad.manifests import yaml_reader

SUFFIXES: Final = (".yaml", ".yml", ".json", ".jsonl")
LISTS: Final = ("List", "HorizontalPodAutoscalerList", "ScaledObjectList")


@dataclass(frozen=True)
class Document:
    """One document: the `index`-th of its file (from 0), from `line` (from 1) on.

    `value` is what it says, None where it could not be parsed. `faults` are those of its form: bad syntax, a field
    given twice.
    """

    file: str
    index: int
    line: int
    value: Any
    faults: tuple[FieldError, ...] = ()
    prefix: str = ""
    node: yaml.Node | None = field(default=None, repr=False, compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    def line_of(self, path: str) -> int:
        """The line where a field stands, as near as is known."""
        if self.node is None:
            return self.lines.get(path, self.line)
        return yaml_reader.line_of(self.node, f"{self.prefix}.{path}" if self.prefix else path)

    def line_at(self, place: Sequence[str | int]) -> int:
        """As `line_of`, by keys and positions: keys may hold dots."""
        return self.line if self.node is None else yaml_reader.line_at(self.node, map(str, place))

    def slim(self, *paths: str) -> "Document":
        """The document without its value and its nodes, which take far more than what was made of it; the lines of
        these fields are still known."""
        lines = {path: self.line_of(path) for path in paths}
        return replace(self, value=None, node=None, lines=lines)

    @property
    def parsed(self) -> bool:
        return self.value is not None


def read(path: Path) -> list[Document]:
    """The documents of a file; raises OSError where it cannot be read. This blocks: call it in a thread."""
    return parse(path.read_bytes(), str(path), path.suffix)


def parse(content: bytes, file: str, suffix: str = "") -> list[Document]:
    """The documents in `content`; `suffix` says the format, without one it is JSON if it looks so, else YAML."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return [broken(file, 0, line, f"not UTF-8: byte {content[error.start]:#04x} at offset {error.start}")]
    if suffix == ".jsonl":
        found = _json_lines(text, file)
    elif suffix == ".json" or (not suffix and text.lstrip()[:1] == "{"):
        found = _json_stream(text, file)
    else:
        found = _yaml(text, file)
    return [replace(document, index=index) for index, document in enumerate(_expanded(found))]


def _yaml(text: str, file: str) -> Iterator[Document]:
    try:
        for node, value in yaml_reader.documents(text):
            if value is not None:
                line = node.start_mark.line + 1
                yield Document(file, 0, line, value, tuple(yaml_reader.duplicates(node)), node=node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        reason = ", ".join(part for part in (error.problem, error.context) if part)
        yield broken(file, 0, line, f"not valid YAML: {reason} (line {line}, column {column})")
    except yaml_reader.TooMany as error:
        yield broken(file, 0, 1, str(error))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        yield broken(file, 0, 1, f"not valid YAML: {' '.join(str(error).split())}")


def _json_stream(text: str, file: str) -> Iterator[Document]:
    """One JSON value after the other; where one is broken, the rest cannot be told apart."""
    if yaml_reader.json_nodes(text, yaml_reader.MAX_NODES) > yaml_reader.MAX_NODES:
        yield broken(file, 0, 1, yaml_reader.TOO_MANY)
        return
    start = _skip_space(text, 0)
    while start < len(text):
        line = text.count("\n", 0, start) + 1
        reader = _Json()
        try:
            value, end = reader.decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            yield _bad_json(file, line, error)
            return
        yield Document(file, 0, line, value, reader.faults, node=_tree(text[start:end], line))
        start = _skip_space(text, end)


def _json_lines(text: str, file: str) -> Iterator[Document]:
    left = yaml_reader.MAX_NODES
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        left -= yaml_reader.json_nodes(line, left)
        if left < 0:
            yield broken(file, 0, number, yaml_reader.TOO_MANY)
            return
        reader = _Json()
        try:
            value = reader.decoder.decode(line)
        except (ValueError, RecursionError) as error:
            yield _bad_json(file, number, error, one_line=True)
        else:
            yield Document(file, 0, number, value, reader.faults)


def _skip_space(text: str, start: int) -> int:
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    return start


def _tree(text: str, line: int) -> yaml.Node | None:
    """The nodes of a JSON text (JSON is YAML, tabs aside), for the lines of its fields; only worth it for few."""
    if line != 1 or text.count("\n") < 2:
        return None
    try:
        return yaml.compose(text, Loader=yaml_reader.Loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


class _Json:
    """A JSON decoder that remembers the fields that are given twice."""

    def __init__(self) -> None:
        self._twice: list[str] = []
        self.decoder = json.JSONDecoder(object_pairs_hook=self._object, parse_constant=_no_constant)

    @property
    def faults(self) -> tuple[FieldError, ...]:
        return tuple(duplicate(name) for name in self._twice)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = collections.Counter(name for name, _ in pairs)
            self._twice.extend(sorted(name for name, count in counts.items() if count > 1))
        return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _bad_json(file: str, line: int, error: Exception, one_line: bool = False) -> Document:
    if isinstance(error, json.JSONDecodeError):
        line = line if one_line else error.lineno
        return broken(file, 0, line, f"not valid JSON: {error.msg} (line {line}, column {error.colno})")
    return broken(file, 0, line, f"not valid JSON: {error or 'nested too deeply'}")


def broken(file: str, index: int, line: int, reason: str) -> Document:
    """A document of which nothing can be told but why."""
    return Document(file, index, line, None, (FieldError(INVALID, "", reason),))


def _expanded(documents: Iterator[Document]) -> Iterator[Document]:
    for document in documents:
        value = document.value
        if not isinstance(value, dict) or value.get("kind") not in LISTS or not isinstance(value.get("items"), list):
            yield document
            continue
        # The API server's own lists leave out what their entries have in common.
        shared = {}
        if value["kind"] != "List":
            shared = {"kind": value["kind"].removesuffix("List"), "apiVersion": value.get("apiVersion")}
        faults = _faults_of_items(document.faults)
        for position, item in enumerate(value["items"]):
            prefix = f"items[{position}]"
            entry = {**shared, **item} if isinstance(item, dict) else item
            line = document.line_of(prefix)
            yield replace(document, line=line, value=entry, faults=tuple(faults.get(prefix, ())), prefix=prefix)


def _faults_of_items(faults: Iterable[FieldError]) -> dict[str, list[FieldError]]:
    """The fields given twice, by the item of a list that they are in."""
    found: dict[str, list[FieldError]] = {}
    for fault in faults:
        item, dot, field = fault.field.partition(".")
        if dot:
            found.setdefault(item, []).append(duplicate(field))
    return found
