"""Paths to numbers in a document: names, positions in lists, all elements of a list, the length of a list."""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal

from hpad.adapter import Quantity, shown

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
        if match is None or (match.start() == 0 and match.group().startswith(".")) or LENGTH in found:
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
