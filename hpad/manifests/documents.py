"""Reads files with one or many documents: YAML, JSON, or JSON lines. A `kind: List` counts as its items.

A document that cannot be parsed becomes a document with `faults`, not an exception: the other documents are still read.
"""

import collections
import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from hpad.api import yaml_reader
from hpad.api.problem import Problem, duplicate
from hpad.api.text import refuse_halves
from hpad.files import LARGEST, check_size, opened

SUFFIXES: Final = (".yaml", ".yml", ".json", ".jsonl")
_EMPTY: Final = "has no document: it is empty, or a list without items"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
LISTS: Final = ("List", "HorizontalPodAutoscalerList", "AutoscalerList", "ScaledObjectList")


@dataclass(frozen=True)
class Document:
    """One document of a file.

    index: its position in the file, from 0. line: its first line, from 1; 0 for an error that concerns the whole file.
    value: its content, None if it could not be parsed. faults: errors of syntax and repeated fields. prefix: its path
    within the list that contains it, else "". node: its YAML nodes. lines: known lines by path, used without a node.
    """

    file: str
    index: int
    line: int
    value: Any
    faults: tuple[Problem, ...] = ()
    prefix: str = ""
    node: yaml.Node | None = dataclasses.field(default=None, repr=False, compare=False)
    lines: Mapping[str, int] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def line_of(self, path: str) -> int:
        """Returns the line of a field, or of the nearest object around it with a known line."""
        if self.node is None:
            return self.lines.get(path, self.line)
        return yaml_reader.line_of(self.node, f"{self.prefix}.{path}" if self.prefix else path)

    def placed(self, problem: Problem) -> Problem:
        """Returns the problem with the line of its field."""
        return problem._replace(line=self.line_of(problem.path))

    def without_content(self, *paths: str) -> "Document":
        """Returns the document without value and nodes, which take far more memory than an HPA; keeps these lines."""
        lines = {path: self.line_of(path) for path in paths}
        return replace(self, value=None, node=None, lines=lines)

    @property
    def parsed(self) -> bool:
        return self.value is not None


def read_all(names: Iterable[str]) -> Iterator[Document]:
    """Yields the documents of each file, of each folder's files in the order of their names, and of stdin for `-`.

    A file that cannot be read yields a document with a fault, so that the other files are still read.
    """
    for name in names:
        if name == "-":
            yield from parse(sys.stdin.buffer.read(), "<stdin>") or [broken("<stdin>", 1, _EMPTY)]
        else:
            yield from _read_path(Path(name))


def _read_path(path: Path) -> Iterator[Document]:
    try:
        files = [path]
        if path.is_dir():
            files = [file for file in sorted(path.iterdir()) if file.suffix in SUFFIXES and file.is_file()]
        if not files:
            raise FileNotFoundError(f"the folder has no file that ends in {', '.join(SUFFIXES)}")
    except OSError as error:
        yield _unread(path, error)
        return
    for file in files:
        try:
            yield from read(file, pipes=file is path) or [broken(str(file), 1, _EMPTY)]
        except OSError as error:
            yield _unread(file, error)


def _unread(path: Path, error: OSError) -> Document:
    return broken(str(path), 0, f"cannot be read: {error.strerror or error}")


def read(path: Path, *, pipes: bool = True) -> list[Document]:
    """Returns the documents of a file. Raises OSError if it cannot be read. Blocks: call it in a thread.

    `pipes`: the file may be a pipe, as of the shell's `<(command)`, and is waited for.
    """
    with path.open("rb") if pipes else opened(path) as file:
        content = file.read(LARGEST + 1) or b""
    check_size(len(content))
    return parse(content, str(path), path.suffix)


def parse(content: bytes, file: str, suffix: str = "") -> list[Document]:
    """Returns the documents of a text in the format of `suffix`. Without one, a text that begins with "{" is JSON."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return [broken(file, line, f"not UTF-8: byte {content[error.start]:#04x} at offset {error.start}")]
    if suffix == ".jsonl":
        found = _json_lines(text, file)
    elif suffix == ".json" or (not suffix and text.lstrip()[:1] == "{"):
        found = _json_stream(text, file)
    else:
        found = _yaml(text, file)
    return [replace(document, index=index) for index, document in enumerate(_expanded(found))]


def _yaml(text: str, file: str) -> Iterator[Document]:
    try:
        for node, repeated, value in yaml_reader.documents(text, yaml_reader.MAX_NODES):
            if value is not None:
                line = node.start_mark.line + 1
                yield Document(file, 0, line, value, repeated, node=node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        reason = ", ".join(part for part in (error.problem, error.context) if part)
        if any("{{" in each for each in text.splitlines()[line - 1 : line]):
            reason = "it is a template: name a file with what it renders to, as `helm template` prints it"
        yield broken(file, line, f"not valid YAML: {reason} (line {line}, column {column})")
    except yaml_reader.TooManyNodes as error:
        yield broken(file, 1, str(error))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        yield broken(file, 1, f"not valid YAML: {' '.join(str(error).split())}")


def _json_stream(text: str, file: str) -> Iterator[Document]:
    """Yields JSON values that follow each other; ends at an invalid one, since the next one has no known start."""
    if yaml_reader.json_nodes(text, yaml_reader.MAX_NODES) > yaml_reader.MAX_NODES:
        yield broken(file, 1, yaml_reader.TOO_MANY)
        return
    decoded, line = 0, 1
    while (start := _skip_space(text, decoded)) < len(text):
        line += text.count("\n", decoded, start)
        errors: list[Problem] = []
        try:
            value, decoded = _json_decoder(errors).raw_decode(text, start)
            refuse_halves(value, text)
        except (ValueError, RecursionError) as error:
            yield _invalid_json(file, line, error)
            return
        yield Document(file, 0, line, value, tuple(errors), node=_nodes(text[start:decoded], line))
        if not isinstance(value, dict | list):  # no object; such values, without punctuation, were not counted
            return
        line += text.count("\n", start, decoded)


def _json_lines(text: str, file: str) -> Iterator[Document]:
    remaining = yaml_reader.MAX_NODES
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        remaining -= yaml_reader.json_nodes(line, remaining)
        if remaining < 0:
            yield broken(file, number, yaml_reader.TOO_MANY)
            return
        errors: list[Problem] = []
        try:
            value = _json_decoder(errors).decode(line)
            refuse_halves(value, line)
        except (ValueError, RecursionError) as error:
            yield _invalid_json(file, number, error, one_line=True)
        else:
            yield Document(file, 0, number, value, tuple(errors))


def _skip_space(text: str, start: int) -> int:
    found = _SPACE.match(text, start)
    return found.end() if found else start


def _nodes(text: str, line: int) -> yaml.Node | None:
    """Returns the nodes of a JSON text, for the lines of its fields (JSON is YAML, except for tabs)."""
    # Worth the time only for the first value of a file, and only if it takes several lines.
    if line != 1 or text.count("\n") < 2:
        return None
    try:
        return yaml.compose(text, Loader=yaml_reader.Loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _json_decoder(errors: list[Problem]) -> json.JSONDecoder:
    """Returns a decoder that adds an error for each field that occurs more than once in an object."""

    def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = collections.Counter(name for name, _ in pairs)
            errors.extend(duplicate(name) for name in sorted(counts) if counts[name] > 1)
        return found

    return json.JSONDecoder(object_pairs_hook=read_object, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed in JSON")


def _invalid_json(file: str, line: int, error: Exception, one_line: bool = False) -> Document:
    if isinstance(error, json.JSONDecodeError):
        line = line if one_line else error.lineno
        return broken(file, line, f"not valid JSON: {error.msg} (line {line}, column {error.colno})")
    return broken(file, line, f"not valid JSON: {error or 'nested too deeply'}")


def broken(file: str, line: int, reason: str) -> Document:
    """Returns a document without a value, for a file or a part of one that cannot be parsed."""
    return Document(file, 0, line, None, (Problem("", reason),))


def _expanded(documents: Iterator[Document]) -> Iterator[Document]:
    """Yields the items of lists in place of the lists."""
    for document in documents:
        value = document.value
        if not isinstance(value, dict) or value.get("kind") not in LISTS or not isinstance(value.get("items"), list):
            yield document
            continue
        # The items of a typed list, as the API server writes it, have no kind and apiVersion.
        shared = {}
        if value["kind"] != "List":
            shared = {"kind": value["kind"].removesuffix("List"), "apiVersion": value.get("apiVersion")}
        faults: dict[str, list[Problem]] = {}
        for fault in document.faults:
            item, _, field = fault.path.partition(".")
            faults.setdefault(item, []).append(duplicate(field))
        for position, item in enumerate(value["items"]):
            prefix = f"items[{position}]"
            entry = {**shared, **item} if isinstance(item, dict) else item
            line = document.line_of(prefix)
            yield replace(document, line=line, value=entry, faults=tuple(faults.get(prefix, ())), prefix=prefix)
