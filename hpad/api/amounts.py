"""Amounts in messages: three digits or more, enough to show on which side of its target a value lies.

The API writes "449996m"; a message has "450". Exact quantities are in `hpad.api.quantity`.
"""

import enum
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

_DIGITS: Final = 3
_MOST_DECIMALS: Final = 40
_DECIMAL: Final = (("E", 10**18), ("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6))
_BINARY: Final = (("Ei", 2**60), ("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


class Unit(enum.Enum):
    """What an amount counts: anything, cores (written in millicores below one), or bytes (Ki, Mi, …)."""

    COUNT = "count"
    CORES = "cores"
    BYTES = "bytes"


def exact(milli: int, unit: Unit = Unit.COUNT) -> str:
    """Returns an amount in milli-units in full: "15", "0.5", "200m" (cores), "64Mi" (bytes)."""
    for suffix, size, parts in _scales(milli, 1000, unit):
        thousandths, rest = divmod(milli * parts, size)
        if not rest:
            return _written(thousandths, 3, negative=milli < 0) + suffix
    raise AssertionError("an amount in milli-units has at most three decimals in the unit itself")


def rounded(milli: Fraction | int, beside: int = 0, unit: Unit = Unit.COUNT) -> str:
    """Returns an amount in milli-units with three digits, or as many as it takes to differ from `beside`.

    Digits before the point are never cut. Cores are written in the unit that `exact` takes for `beside`.
    """
    # All in integers: sentences and traces of each decision need amounts, and fractions are ten times slower.
    above, below = milli.numerator, milli.denominator * 1000
    suffix, size, parts = next(_scales(beside, 1000, unit) if unit is Unit.CORES else _scales(above, below, unit))
    above, below, edge, edges = above * parts, below * size, beside * parts, 1000 * size
    side = _sign(above * edges - edge * below)
    for decimals in range(_decimals(above, below), _MOST_DECIMALS):
        shift = 10**decimals
        near = _nearest(above * shift, below)
        if _sign(near * edges - edge * shift) == side:
            return _written(near, decimals, negative=near < 0) + suffix
    near = _nearest(above * 10**_MOST_DECIMALS, below)
    return _written(near, _MOST_DECIMALS, negative=above < 0) + suffix


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _nearest(dividend: int, divisor: int) -> int:
    """Divides and rounds to the nearest integer, from the middle between two to the even one."""
    found, rest = divmod(dividend, divisor)
    return found + (2 * rest > divisor or (2 * rest == divisor and found % 2 == 1))


def _scales(above: int, below: int, unit: Unit) -> Iterator[tuple[str, int, int]]:
    """Yields suffixes and their factors, from the largest that fits the amount down to the unit itself.

    The amount is a fraction, as each factor is: dividend and divisor.
    """
    size = abs(above)
    if unit is Unit.CORES and 0 < size < below:
        yield "m", 1, 1000
    for suffix, factor in _BINARY if unit is Unit.BYTES else _DECIMAL:
        if size >= factor * below:
            yield suffix, factor, 1
    yield "", 1, 1


def _decimals(above: int, below: int) -> int:
    """Returns the number of decimals that leaves three digits of a fraction."""
    size, decimals = abs(above), _DIGITS - 1
    while size >= 10 * below and decimals:
        below, decimals = below * 10, decimals - 1
    while 0 < size < below and decimals < _MOST_DECIMALS:
        size, decimals = size * 10, decimals + 1
    return decimals


def _written(number: int, decimals: int, *, negative: bool) -> str:
    """Returns a number of which the last `decimals` digits are behind the point, without zeros at its end."""
    digits = f"{abs(number):0{decimals + 1}d}"
    whole, part = digits[: len(digits) - decimals], digits[len(digits) - decimals :].rstrip("0")
    sign = "-" if negative else ""
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"
