"""Numbers in documents: trees (JSON, YAML and XML, each of a bounded size and depth), and the text of Prometheus.

XML with a document type (and so with entities) is refused: a short text of these can stand for a huge tree.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal
from xml.parsers import expat

import msgspec

from hpad.adapter import AdapterError, Quantity, parse_yaml, shown
from hpad.adapter_http import decoded
from hpad_adapters import exposition, selection

# Paths to numbers in a document: names, positions in lists, all elements of a list, the length of a list.

_STEP: Final = re.compile(r'\.?([^.\[\]"]+)|\["([^"]+)"\]|\[(-?\d{1,9})\]|\[([*#])\]')
_INT64: Final = range(-(2**63), 2**63)

Step = str | int | tuple[Literal["*", "#"]]
EVERY: Final[Step] = ("*",)
LENGTH: Final[Step] = ("#",)
TEXT: Final = "#text"
"""The name of the text of an XML element."""


class Element(dict[str, Any]):
    """An XML element: its text, its attributes ("@name"), and its children, which are lists (`Elements`)."""


class Elements(list[Any]):
    """The XML elements of one name below another. A single one needs no position in a path."""


class NoNumberError(Exception):
    """There is no number where it should be; the message says why."""


def steps(path: str) -> list[Step]:
    """Parses a path such as `queues[0]["a.b"].depth`, `shards[*].backlog` or `jobs[#]`. Raises ValueError."""
    found: list[Step] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (match.start() == 0 and match.group().startswith(".")) or found[-1:] == [LENGTH]:
            raise ValueError(f'path: {shown(path)} is not of the form "queues[0].depth"')
        name, quoted, index, sign = match.groups()
        found.append((EVERY if sign == "*" else LENGTH) if sign else int(index) if index else name or quoted)
        position = match.end()
    return found


def numbers(document: Any, path: Sequence[Step]) -> list[int]:
    """Returns thousandths of the numbers at the end of the path; raises NoNumberError."""
    try:
        return [milli(_text(_single(value))) for value in _found(document, path)]
    except KeyError as error:
        raise NoNumberError(f"no {shown(error.args[0])}") from None
    except IndexError:
        raise NoNumberError("the list is too short") from None
    except (TypeError, ValueError):
        raise NoNumberError("the value there is of another kind") from None


def _found(document: Any, path: Sequence[Step]) -> list[Any]:
    values = [document]
    for step in path:
        if step == EVERY:
            values = [element for value in values for element in _list(value)]
        elif step == LENGTH:
            values = [len(_list(value)) for value in values]
        elif isinstance(step, int):
            values = [_list(value)[step] for value in values]
        else:
            values = [_single(value)[step] for value in values]
    return values


def milli(value: Any) -> int:
    """Returns thousandths of a number, or of a quantity in a text; raises ValueError, TypeError."""
    # In Python a bool is an int.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    # Of a text without a number, such as "-", Kubernetes makes the quantity 0.
    if isinstance(value, str) and not any(map(str.isdigit, value)):
        raise ValueError
    if isinstance(value, float):  # digits below a billionth are noise, which must not round 30 up to 30.001
        value = f"{value:.9f}"
    exact = value * 1000 if isinstance(value, int) else Quantity.parse(value).milli()
    if exact not in _INT64:
        raise ValueError
    return exact


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _single(value: Any) -> Any:
    """Returns the only one of XML elements; anything else as it is."""
    if not isinstance(value, Elements):
        return value
    if len(value) > 1:
        raise NoNumberError(f"there are {len(value)} elements of that name; write [0] or [*] behind it")
    return value[0]


def _text(value: Any) -> Any:
    return value.get(TEXT) if isinstance(value, Element) else value


# Documents as trees.

_JSON: Final = msgspec.json.Decoder()
_DEEPEST: Final = 100


class RefusedDocumentError(Exception):
    """The document is refused. The message is what it has, such as "more than max_elements (1000)"."""


def tree(format: str, body: bytes, name: str, max_elements: int) -> Any:
    """Returns the document of the server `name`; raises AdapterError. Blocks: call it in a thread."""
    if format == "json":
        return decoded(_JSON, body, name, "JSON", max_elements=max_elements)
    try:
        return parse_yaml(body, max_elements) if format == "yaml" else _xml(body, max_elements)
    except RefusedDocumentError as error:
        raise AdapterError(f"{name} answers {error}", alive=True) from None
    # LookupError: XML in an encoding that Python does not know.
    except (ValueError, LookupError, expat.ExpatError):
        limit = f", or more than max_elements ({max_elements})" if format == "yaml" else ""
        raise AdapterError(f"{name} answered something other than {format.upper()}{limit}") from None


def _xml(body: bytes, max_elements: int) -> Element:
    builder = _Builder(max_elements)
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = builder.refuse_doctype
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    parser.Parse(body, True)
    return builder.document


class _Builder:
    """Builds the tree of an XML document: its root is the only child of `document`. Namespaces are left out."""

    def __init__(self, max_elements: int) -> None:
        self.document = Element()
        self._open = [self.document]
        self._max_elements = max_elements
        self._count = 0

    def refuse_doctype(self, *_: object) -> None:
        raise RefusedDocumentError("XML with a document type (DOCTYPE), which is not read")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1 + len(attributes)
        if self._count > self._max_elements:
            raise RefusedDocumentError(f"more than max_elements ({self._max_elements})")
        if len(self._open) > _DEEPEST:
            raise RefusedDocumentError(f"a document nested more than {_DEEPEST} levels deep")
        element = Element({f"@{_local(key)}": value for key, value in attributes.items()})
        self._open[-1].setdefault(_local(name), Elements()).append(element)
        self._open.append(element)

    def end(self, name: str) -> None:
        element = self._open.pop()
        if TEXT in element:
            element[TEXT] = "".join(element[TEXT]).strip()

    def text(self, text: str) -> None:
        self._open[-1].setdefault(TEXT, []).append(text)


def _local(name: str) -> str:
    return name.rpartition("}")[2]


# Samples in the text format of Prometheus, chosen by name and labels.
#
# Source: Prometheus, "Exposition formats" and "Querying basics: time series selectors".

_SELECTOR: Final = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s*", re.DOTALL)
_MATCHER: Final = re.compile(r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|\Z)', re.ASCII)
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\", '"': '"'}

Test = Callable[[str], bool]


class ExposedSeries(msgspec.Struct, frozen=True):
    """A selector of series: a name, and tests of labels; a label that a series lacks counts as an empty text."""

    name: str
    tests: tuple[tuple[str, Test], ...] = ()

    def matches(self, labels: dict[str, str]) -> bool:
        """Returns whether each test holds."""
        return all(test(labels.get(label, "")) for label, test in self.tests)


def selector(text: str, *, exact: bool = False) -> ExposedSeries:
    """Parses a selector such as `jobs{queue="mail",state!="done"}`; raises ValueError.

    With `exact` it may have no regular expressions: those of a stranger may take for ever.
    """
    match = _SELECTOR.fullmatch(text)
    if match is None:
        raise ValueError(f"path: {shown(text)} is not of the form 'jobs{{queue=\"mail\"}}'")
    return ExposedSeries(match[1], tuple(_tests(match[2] or "", text, exact)))


def values(body: bytes, series: ExposedSeries, limit: int) -> list[int]:
    """Returns thousandths of the samples that match; raises NoNumberError, also for more than `limit` lines."""
    # Of a long document only the lines with this name are parsed.
    begins = tuple(f"{series.name}{behind}".encode() for behind in "{ \t")
    lines = [line for line in (each.lstrip() for each in body.split(b"\n")) if line.startswith(begins)]
    if len(lines) > limit:
        raise NoNumberError(f"there are more than max_elements ({limit}) samples of that name")
    try:
        found = [milli(value) for value in _parsed(lines, series)]
    except (ValueError, OverflowError):
        raise NoNumberError("a line with that name is not a sample with a finite number") from None
    if not found:
        raise NoNumberError("no series matches")
    return found


def _parsed(lines: Sequence[bytes], series: ExposedSeries) -> Iterator[float]:
    """Yields the values of the lines that match; raises ValueError."""
    texts = (line.decode() for line in lines)
    for _, sample in exposition.samples(texts, lambda name: name == series.name):
        if series.matches(sample.labels):
            yield sample.value


def _tests(text: str, whole: str, exact: bool) -> Iterator[tuple[str, Test]]:
    position = 0
    while text[position:].strip():
        match = _MATCHER.match(text, position)
        if match is None:
            raise ValueError(f"path: {shown(whole)}: {shown(text[position:])} is not of the form 'queue=\"mail\"'")
        label, operator, value = match.groups()
        if exact and operator in ("=~", "!~"):
            raise ValueError(f"path: {shown(whole)}: an own query takes = and != only, not {operator}")
        yield label, _test(operator, re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), value))
        position = match.end()


def _test(operator: str, value: str) -> Test:
    if operator in ("=", "!="):
        return lambda text: (text == value) is (operator == "=")
    try:
        pattern = selection.pattern(value)
    except re.error as error:
        raise ValueError(f"path: {shown(value)} is not a regular expression: {error}") from None
    return lambda text: (pattern.fullmatch(text) is not None) is (operator == "=~")
