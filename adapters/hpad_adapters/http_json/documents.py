"""Documents as trees: JSON, YAML and XML, each of a bounded size and depth.

YAML with anchors, aliases or tags, and XML with a document type (and so with entities), are refused: a short text of
these can stand for a huge tree.
"""

import re
from typing import Any, Final
from xml.parsers import expat

import msgspec
import yaml

from hpad.adapter import AdapterError
from hpad.adapter_http import decoded
from hpad_adapters.http_json.paths import TEXT, Element, Elements

_JSON: Final = msgspec.json.Decoder()
_DEEPEST: Final = 100
_LONG_NUMBER: Final = re.compile(r"[-+.:_0-9a-fA-FxX]{400,}")
"""Text that YAML may take for a number: 1:30 is 90, by arithmetic whose time grows with the square of the length."""
_BEGINS: Final = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_ENDS: Final = (yaml.SequenceEndEvent, yaml.MappingEndEvent)
# The parser in C is some ten times as fast; PyYAML has none without libyaml.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _RefusedError(Exception):
    """The document is refused; the message is the end of a sentence that begins with the server."""


def tree(format: str, body: bytes, name: str, max_elements: int) -> Any:
    """Returns the document of the server `name`; raises AdapterError. Blocks: call it in a thread."""
    if format == "json":
        return decoded(_JSON, body, name, "JSON", max_elements=max_elements)
    try:
        return _yaml(body, max_elements) if format == "yaml" else _xml(body, max_elements)
    except _RefusedError as error:
        raise AdapterError(f"{name} {error}", lasting=True, alive=True) from None
    # LookupError: XML in an encoding that Python does not know.
    except (yaml.YAMLError, expat.ExpatError, LookupError, ValueError, TypeError, RecursionError):
        raise AdapterError(f"{name} answered something other than {format.upper()}") from None


def _yaml(body: bytes, max_elements: int) -> Any:
    count = depth = 0
    for event in yaml.parse(body, _Loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise _RefusedError("answers YAML with anchors, aliases or tags, which are not read")
        depth += isinstance(event, _BEGINS) - isinstance(event, _ENDS)
        count += isinstance(event, (yaml.ScalarEvent, *_BEGINS))
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _LONG_NUMBER.fullmatch(event.value):
            raise _RefusedError("answered something other than YAML: it has a number that is too long")
        _check(count, depth, max_elements)
    return yaml.load(body, _Loader)


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
        raise _RefusedError("answers XML with a document type (DOCTYPE), which is not read")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1 + len(attributes)
        _check(self._count, len(self._open), self._max_elements)
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


def _check(count: int, depth: int, max_elements: int) -> None:
    if count > max_elements:
        raise _RefusedError(f"answers more than max_elements ({max_elements})")
    if depth > _DEEPEST:
        raise _RefusedError(f"answers a document nested more than {_DEEPEST} levels deep")
