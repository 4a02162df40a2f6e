"""JSON as the API server reads it: what is wrong with a text in Go's words, and which fields come twice.

Clients see these words in the messages of Status objects. They are those of Go's encoding/json.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

_SPACE: Final = " \t\r\n"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_SO_FAR: Final = re.compile(
    r"-?(?:(?:0|[1-9][0-9]*)(?:\.(?:[0-9]+(?:[eE](?:[+-]?[0-9]*)?)?)?|[eE][+-]?[0-9]*)?)?"
)
_LITERALS: Final = ("true", "false", "null")
_END: Final = "unexpected end of JSON input"
_QUOTED: Final = {"'": "\\'", '"': '"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class SyntaxFault(ValueError):
    """A text that is no JSON; `str()` of it is what Go says."""


def loads(raw: bytes) -> Any:
    """The value of a text; raises SyntaxFault."""
    try:
        return json.loads(raw, parse_constant=_refused)
    except RecursionError:
        raise SyntaxFault("exceeded max depth") from None
    except ValueError:
        raise SyntaxFault(fault(raw)) from None


def kind_of(value: Any) -> str:
    """What Go calls a JSON value."""
    if isinstance(value, bool):
        return "bool"
    names = {dict: "object", list: "array", str: "string", int: "number", float: "number", type(None): "null"}
    return names[type(value)]


def duplicates(raw: bytes) -> list[str]:
    """Paths of the fields that come more than once in an object, e.g. `metadata.name`; the text is JSON."""
    suspicious = False

    def seen(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal suspicious
        made = dict(pairs)
        suspicious = suspicious or len(made) < len(pairs)
        return made

    json.loads(raw, object_pairs_hook=seen)
    if not suspicious:
        return []
    return list(_twice(json.loads(raw, object_pairs_hook=tuple), ""))


def _twice(value: Any, path: str) -> Iterator[str]:
    """In pairs for objects, which are tuples here, and lists for lists."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _twice(each, f"{path}[{number}]")
    elif isinstance(value, tuple):
        names: set[str] = set()
        for name, each in value:
            where = f"{path}.{name}" if path else name
            if name in names:
                yield where
            names.add(name)
            yield from _twice(each, where)


def fault(raw: bytes) -> str:
    """What Go says of a text that is no JSON."""
    text = raw.decode("utf-8", "surrogateescape")
    try:
        position = _skip(text, _value(text, _skip(text, 0)))
        if position < len(text):
            _unexpected(text, position, "after top-level value")
    except SyntaxFault as found:
        return str(found)
    return "invalid UTF-8"


def _refused(constant: str) -> NoReturn:
    raise ValueError(constant)


def _unexpected(text: str, position: int, where: str) -> NoReturn:
    if position >= len(text):
        raise SyntaxFault(_END)
    sign = text[position]
    shown = _QUOTED.get(sign, sign)
    if 0xDC80 <= ord(sign) <= 0xDCFF:  # a byte that is no UTF-8
        shown = f"\\x{ord(sign) - 0xDC00:02x}"
    elif not sign.isprintable() and sign not in _QUOTED:
        shown = f"\\x{ord(sign):02x}" if ord(sign) < 0x80 else f"\\u{ord(sign):04x}"
    raise SyntaxFault(f"invalid character '{shown}' {where}")


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _value(text: str, position: int) -> int:
    """Where the value that begins here ends."""
    sign = text[position : position + 1]
    if sign == "{":
        return _object(text, position + 1)
    if sign == "[":
        return _array(text, position + 1)
    if sign == '"':
        return _string(text, position + 1)
    if sign and sign in "-0123456789":
        return _number(text, position)
    for literal in _LITERALS:
        if sign == literal[0]:
            return _literal(text, position, literal)
    _unexpected(text, position, "looking for beginning of value")


def _literal(text: str, position: int, literal: str) -> int:
    for offset, wanted in enumerate(literal):
        if text[position + offset : position + offset + 1] != wanted:
            _unexpected(text, position + offset, f"in literal {literal} (expecting '{wanted}')")
    return position + len(literal)


def _number(text: str, position: int) -> int:
    so_far = _NUMBER_SO_FAR.match(text, position)
    whole = _NUMBER.match(text, position)
    assert so_far is not None
    if whole is None or so_far.end() > whole.end():
        _unexpected(text, so_far.end(), "in numeric literal")
    return whole.end()


def _string(text: str, position: int) -> int:
    while position < len(text) and text[position] != '"':
        if text[position] == "\\":
            position = _escape(text, position)
        elif text[position] < " ":
            _unexpected(text, position, "in string")
        else:
            position += 1
    if position >= len(text):
        raise SyntaxFault(_END)
    return position + 1


def _escape(text: str, position: int) -> int:
    length = 6 if text[position + 1 : position + 2] == "u" else 2
    escape = text[position : position + length]
    if len(escape) < length and '"' not in escape:
        raise SyntaxFault(_END)
    if not re.fullmatch(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})', escape):
        raise SyntaxFault(f"invalid escape sequence `{escape}` in string")
    return position + length


def _array(text: str, position: int) -> int:
    position = _skip(text, position)
    if text[position : position + 1] == "]":
        return position + 1
    while True:
        position = _skip(text, _value(text, position))
        sign = text[position : position + 1]
        if sign == "]":
            return position + 1
        if sign != ",":
            _unexpected(text, position, "after array element")
        position = _skip(text, position + 1)


def _object(text: str, position: int) -> int:
    position = _skip(text, position)
    if text[position : position + 1] == "}":
        return position + 1
    while True:
        if text[position : position + 1] != '"':
            _unexpected(text, position, "looking for beginning of object key string")
        position = _skip(text, _string(text, position + 1))
        if text[position : position + 1] != ":":
            _unexpected(text, position, "after object key")
        position = _skip(text, _value(text, _skip(text, position + 1)))
        sign = text[position : position + 1]
        if sign == "}":
            return position + 1
        if sign != ",":
            _unexpected(text, position, "after object key:value pair")
        position = _skip(text, position + 1)
