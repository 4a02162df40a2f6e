"""Numbers on the command line, as the `type` of an argument: they raise argparse.ArgumentTypeError."""

import argparse
from collections.abc import Callable

from hpad.api import duration
from hpad.api.quantity import MAX_INT32, QuantityError, parse_milli
from hpad.api.text import shown


def seconds(text: str) -> float:
    """Parses a duration of zero or more."""
    try:
        value = duration.parse(text).total_seconds()
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if value < 0:
        raise argparse.ArgumentTypeError(f"{shown(text)} is negative")
    return value


def some_seconds(text: str) -> float:
    """Parses a duration above zero."""
    value = seconds(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{shown(text)} is zero; a duration above zero is needed")
    return value


def number(text: str) -> float:
    """Parses a number of zero or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number of 0 or more")
    return value


def some(text: str) -> float:
    """Parses a number above zero."""
    value = number(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number above 0")
    return value


def whole(least: int, most: int = MAX_INT32) -> Callable[[str], int]:
    """Returns the parser of a whole number in these bounds."""
    bounds = f"of {least} or more" if most == MAX_INT32 else f"from {least} to {most}"

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text[:11]) <= most:
            raise argparse.ArgumentTypeError(f"{shown(text)} is not a whole number {bounds}")
        return int(text)

    return parse


def amount(text: str) -> int:
    """Parses a Kubernetes quantity of zero or more: milli-units."""
    try:
        value = parse_milli(text)
    except QuantityError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not an amount such as 500m, 2 or 64Mi")
    return value
