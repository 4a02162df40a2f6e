"""Decodes JSON with the error messages of Go's encoding/json, and finds duplicate fields.

Clients see these messages in Status objects.
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
    """Invalid JSON; `str()` is the message of Go."""


def loads(raw: bytes) -> Any:
    """Decodes JSON; raises SyntaxFault."""
    try:
        return json.loads(raw, parse_constant=_refused)
    except RecursionError:
        raise SyntaxFault("exceeded max depth") from None
    except ValueError:
        raise SyntaxFault(fault(raw)) from None


def kind_of(value: Any) -> str:
    """Returns Go's name of a JSON type."""
    if isinstance(value, bool):
        return "bool"
    names = {dict: "object", list: "array", str: "string", int: "number", float: "number", type(None): "null"}
    return names[type(value)]


def duplicates(raw: bytes) -> list[str]:
    """Returns the paths of fields that an object has more than once, such as `metadata.name`; `raw` is valid JSON."""
    suspicious = False  # a cheap first pass: nearly all bodies have no duplicates

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
    """Yields the paths of duplicates; an object is a tuple of pairs here, a list is a list."""
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
    """Returns the message of Go for invalid JSON."""
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
    if 0xDC80 <= ord(sign) <= 0xDCFF:  # a byte that is not UTF-8, escaped by `surrogateescape`
        shown = f"\\x{ord(sign) - 0xDC00:02x}"
    elif not sign.isprintable() and sign not in _QUOTED:
        shown = f"\\x{ord(sign):02x}" if ord(sign) < 0x80 else f"\\u{ord(sign):04x}"
    raise SyntaxFault(f"invalid character '{shown}' {where}")


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _value(text: str, position: int) -> int:
    """Returns the end of the value that begins at `position`."""
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
    for offset, expected in enumerate(literal):
        if text[position + offset : position + offset + 1] != expected:
            _unexpected(text, position + offset, f"in literal {literal} (expecting '{expected}')")
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
