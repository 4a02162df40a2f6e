"""Numbers and durations that a person writes, in a flag or a load. Each parser raises ValueError with the value."""

import math
from collections.abc import Callable

from hpad.api import duration
from hpad.api.quantity import MAX_INT32, QuantityError, parse_milli
from hpad.api.text import shown


def seconds(text: str) -> float:
    """Parses a duration of zero or more."""
    value = duration.parse(text).total_seconds()
    if value < 0:
        raise ValueError(f"{shown(text)} is negative")
    return value


def some_seconds(text: str) -> float:
    """Parses a duration above zero."""
    value = seconds(text)
    if value == 0:
        raise ValueError(f"{shown(text)} is zero; a duration above zero is needed")
    return value


def number(text: str) -> float:
    """Parses a number of zero or more."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{shown(text)} is not a number of 0 or more")
    return value


def some(text: str) -> float:
    """Parses a number above zero."""
    value = number(text)
    if value == 0:
        raise ValueError(f"{shown(text)} is not a number above 0")
    return value


def whole(least: int, most: int = MAX_INT32) -> Callable[[str], int]:
    """Returns the parser of a whole number in these bounds."""
    bounds = f"of {least} or more" if most == MAX_INT32 else f"from {least} to {most}"

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text[:11]) <= most:
            raise ValueError(f"{shown(text)} is not a whole number {bounds}")
        return int(text)

    return parse


def amount(text: str) -> int:
    """Parses a Kubernetes quantity of zero or more: milli-units."""
    try:
        value = parse_milli(text)
    except QuantityError:
        value = -1
    if value < 0:
        raise ValueError(f"{shown(text)} is not an amount such as 500m, 2 or 64Mi")
    return value
