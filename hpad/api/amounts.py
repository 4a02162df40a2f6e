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
    amount = Fraction(milli, 1000)
    for suffix, size in _scales(amount, unit):
        scaled = amount / size
        if (scaled * 1000).denominator == 1:
            return _written(scaled, 3) + suffix
    raise AssertionError("an amount in milli-units has at most three decimals in the unit itself")


def rounded(milli: Fraction | int, beside: int = 0, unit: Unit = Unit.COUNT) -> str:
    """Returns an amount in milli-units with three digits, or as many as it takes to differ from `beside`.

    Digits before the point are never cut. Cores are written in the unit that `exact` takes for `beside`.
    """
    amount, bound = Fraction(milli) / 1000, Fraction(beside, 1000)
    suffix, size = next(_scales(bound if unit is Unit.CORES else amount, unit))
    scaled, edge = amount / size, bound / size
    for decimals in range(_decimals(scaled), _MOST_DECIMALS):
        near = round(scaled, decimals)
        if (near > edge, near < edge) == (scaled > edge, scaled < edge):
            return _written(near, decimals) + suffix
    return _written(scaled, _MOST_DECIMALS) + suffix


def _scales(amount: Fraction, unit: Unit) -> Iterator[tuple[str, Fraction]]:
    """Yields suffixes and their factors, from the largest that fits the amount down to the unit itself."""
    if unit is Unit.CORES and 0 < abs(amount) < 1:
        yield "m", Fraction(1, 1000)
    for suffix, size in _BINARY if unit is Unit.BYTES else _DECIMAL:
        if abs(amount) >= size:
            yield suffix, Fraction(size)
    yield "", Fraction(1)


def _decimals(amount: Fraction) -> int:
    """Returns the number of decimals that leaves three digits."""
    size, decimals = abs(amount), _DIGITS - 1
    while size >= 10 and decimals:
        size, decimals = size / 10, decimals - 1
    while 0 < size < 1 and decimals < _MOST_DECIMALS:
        size, decimals = size * 10, decimals + 1
    return decimals


def _written(amount: Fraction, decimals: int) -> str:
    digits = f"{round(abs(amount) * 10**decimals):0{decimals + 1}d}"
    whole, part = digits[: len(digits) - decimals], digits[len(digits) - decimals :].rstrip("0")
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"
