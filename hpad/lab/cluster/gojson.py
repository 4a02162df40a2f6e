"""Decodes JSON with error messages like those of Go's encoding/json, and finds duplicate fields.

Clients see these messages in Status objects.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, NoReturn

_END: Final = "unexpected end of JSON input"
_UNEXPECTED: Final = "invalid character '{}' looking for beginning of value"


class SyntaxFault(ValueError):
    """Invalid JSON; `str()` is the message."""


def loads(raw: bytes) -> Any:
    """Decodes JSON; raises SyntaxFault."""
    try:
        return json.loads(raw, parse_constant=_refused)
    except RecursionError:
        raise SyntaxFault("exceeded max depth") from None
    except ValueError:
        raise SyntaxFault(_fault(raw)) from None


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


def _fault(raw: bytes) -> str:
    """Returns the message for invalid JSON: it names the character as Go does, but not what Go expects there."""
    text = raw.decode("utf-8", "surrogateescape")
    try:
        json.loads(text, parse_constant=_refused)
    except json.JSONDecodeError as error:
        if error.pos >= len(text) or error.msg.startswith("Unterminated"):
            return _END
        return _UNEXPECTED.format(_shown(text[error.pos]))
    except ValueError as constant:
        return _UNEXPECTED.format(str(constant)[0])
    return "invalid UTF-8"


def _refused(constant: str) -> NoReturn:
    raise ValueError(constant)


def _shown(sign: str) -> str:
    """Returns a character, escaped if it is a control character; of a byte that is not UTF-8 its hexadecimal form."""
    if 0xDC80 <= ord(sign) <= 0xDCFF:
        return f"\\x{ord(sign) - 0xDC00:02x}"
    return sign if sign.isprintable() else repr(sign)[1:-1]
