"""Quantities, numbers with units as the Kubernetes API writes them: `10500m`, `15Mi`, `1e3`.

Source: apimachinery, pkg/api/resource/quantity.go. Numbers are exact decimals; anything finer than nano is rounded away
from zero, and binary suffixes are capped at 2^63-1. Go's int32, int64 and float64 arithmetic is here too, where a
decision depends on rounding, wrapping and overflow. A float that does not fit an integer becomes the most negative one,
as on amd64.
"""

import enum
import functools
import math
import re
from typing import Final, Never, final

_FORMAT_ERROR: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_NUMERIC_ERROR: Final = "unable to parse numeric part of quantity"
_SUFFIX_ERROR: Final = "unable to parse quantity's suffix"

# More lenient than the expression in the message, as Kubernetes is: "." and "Ki" are zero.
# Possessive quantifiers ("*+") avoid backtracking on long texts that are not quantities.
_SPLIT: Final = re.compile(r"(([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?+)([eEinumkKMGTP]*+[-+]?[0-9]*+)")
_EXPONENT: Final = re.compile(r"[eE]([+-]?[0-9]+)")

MAX_INT32: Final = 2**31 - 1
MIN_INT32: Final = -(2**31)
MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)
_NANO: Final = -9
_MAX_EXPONENT: Final = 308  # where float64 ends
_MAX_EXPONENT_CHARACTERS: Final = 20  # an int64 with its sign
_MAX_DIGITS: Final = 400  # bounds the time of big integers; a float64 has at most 309 digits before the point

# Up to this many digits, Kubernetes keeps an int64 with the exponent as written; beyond, a count of nanos.
# Only the last bits of the float depend on it.
_SHORT_DECIMAL: Final = 18
_SHORT_BINARY: Final = 14
_PLAIN: Final = 13
"""The longest text that `parse_milli` reads by itself: Kubernetes does not cap such a number, or count it in nanos."""


class QuantityError(ValueError):
    """The text is not a quantity; the message is that of Kubernetes."""


class Format(enum.Enum):
    """The family of suffixes that a quantity is printed with."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


_DECIMAL_SUFFIXES: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_NAMES: Final = ("", *_BINARY_SUFFIXES)


@final
@functools.total_ordering
class Quantity:
    """`mantissa * 10**exponent`, exact, with the format it is printed in; compared and hashed by its value.

    Build one with `parse`, `from_milli` or `from_value`; the exponent lies between -9 (nano) and 308.
    """

    # A dataclass would not do: msgspec reads and writes it as an object of three fields, without calling the hooks.
    __slots__ = ("exponent", "format", "mantissa")
    mantissa: int
    exponent: int
    format: Format

    def __init__(self, mantissa: int, exponent: int, format: Format) -> None:
        object.__setattr__(self, "mantissa", mantissa)
        object.__setattr__(self, "exponent", exponent)
        object.__setattr__(self, "format", format)

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"a quantity never changes: {name} cannot be set")

    def __reduce__(self) -> tuple[type["Quantity"], tuple[int, int, Format]]:
        return Quantity, (self.mantissa, self.exponent, self.format)

    @classmethod
    def parse(cls, text: str | int | float) -> "Quantity":
        """Returns the quantity of a text, or of a number of JSON or YAML.

        Raises QuantityError; unlike Kubernetes also for an exponent beyond 308, and for more than 400 digits, in the
        text or in the printed form.
        """
        if isinstance(text, str):
            return parsed(text)
        if isinstance(text, bool) or not isinstance(text, int | float):
            raise QuantityError(_FORMAT_ERROR)
        if isinstance(text, int) and abs(text) >= 10**_MAX_DIGITS:
            raise QuantityError(_NUMERIC_ERROR)
        return parsed(repr(text))

    @classmethod
    def from_milli(cls, milli: int, format: Format = Format.DECIMAL_SI) -> "Quantity":
        """Returns the quantity of `milli` thousandths."""
        return cls(milli, -3, format)

    @classmethod
    def from_value(cls, value: int) -> "Quantity":
        """Returns the quantity of `value` whole units."""
        return cls(value, 0, Format.DECIMAL_SI)

    @property
    def nano(self) -> int:
        """The number of billionths, exact."""
        return _scaled(self.mantissa, self.exponent - _NANO)

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.mantissa > 0) - (self.mantissa < 0)

    @property
    def is_zero(self) -> bool:
        """Whether the quantity is zero, in any notation."""
        return self.mantissa == 0

    def milli(self) -> int:
        """Returns thousandths, rounded away from zero. Never overflows, unlike int64 in Kubernetes."""
        return _scaled(self.mantissa, self.exponent + 3)

    def value(self) -> int:
        """Returns whole units, rounded away from zero. Never overflows, unlike int64 in Kubernetes."""
        return _scaled(self.mantissa, self.exponent)

    def __float__(self) -> float:
        """Returns the same bits as Kubernetes (quantity.go: AsApproximateFloat64), even if a nearer float exists."""
        try:
            mantissa = float(self.mantissa)
        except OverflowError:
            return math.inf * self.sign
        if self.exponent >= 0:
            return mantissa * (float(f"1e{self.exponent & ~31}") * float(f"1e{self.exponent & 31}"))
        return mantissa * (1.0 / 10.0**-self.exponent)

    def __str__(self) -> str:
        """Returns the canonical text: no fraction, and the largest suffix that is exact."""
        if self.mantissa == 0:
            return "0"
        if self.format is Format.BINARY_SI:
            units, rest = divmod(self.nano, 10**9)
            if not rest and abs(units) >= 1024:
                return _binary_text(units)
        return _decimal_text(self.mantissa, self.exponent, self.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __hash__(self) -> int:
        return hash(self.nano)

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano


@functools.lru_cache(maxsize=1 << 12)
def parse_milli(text: str | bytes) -> int:
    """Returns the thousandths of a quantity's text, rounded away from zero: `parse_milli("194209608n")` is 195.

    The cache serves requests and usages that many pods have. It is small, because most usages never come again, and
    those in the units of metrics-server are read without the expression. Raises QuantityError.
    """
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    if len(text) <= _PLAIN and text.isascii():
        if text[-1:] == "n" and text[:-1].isdecimal():
            return -(-int(text[:-1]) // 10**6)
        if text[-2:] == "Ki" and text[:-2].isdecimal():
            return int(text[:-2]) * 1_024_000
    mantissa, exponent, _ = _read(text)
    return _scaled(mantissa, exponent + 3)


@functools.lru_cache(maxsize=1 << 14)
def parsed(text: str) -> Quantity:
    """Returns `Quantity.parse` of a text, from a cache. Raises QuantityError."""
    return Quantity(*_read(text))


def _read(text: str) -> tuple[int, int, Format]:
    """Returns mantissa, exponent and format of a text. Raises QuantityError."""
    match = _SPLIT.fullmatch(text)
    if match is None or not text:
        raise QuantityError(_FORMAT_ERROR)
    number, sign, whole, fraction, suffix = match.groups("")
    digits = (len(whole) or 1) + len(fraction)
    if digits > _MAX_DIGITS:
        raise QuantityError(_NUMERIC_ERROR)
    mantissa = int(f"{sign}0{whole}{fraction}")
    power = _BINARY_SUFFIXES.get(suffix)
    if power is not None:
        short = not fraction and digits + (power * 3 // 10) <= _SHORT_BINARY
        return (mantissa << power, 0, Format.BINARY_SI) if short else _binary(mantissa << power, -len(fraction))
    exponent = _DECIMAL_SUFFIXES.get(suffix)
    format = Format.DECIMAL_SI
    if exponent is None:
        exponent, format = _exponent(suffix), Format.DECIMAL_EXPONENT
    exponent -= len(fraction)
    if digits + exponent % 3 > _MAX_DIGITS:  # the printed exponent is a multiple of 3, which adds digits
        raise QuantityError(_NUMERIC_ERROR)
    if exponent >= _NANO and digits <= _SHORT_DECIMAL:
        return mantissa, exponent, format
    if not number.strip("+-."):
        raise QuantityError(_NUMERIC_ERROR)
    return _scaled(mantissa, exponent - _NANO), _NANO, format


def _exponent(suffix: str) -> int:
    """Returns the power of ten of `e3`, `E-2` or `e+02`. Raises QuantityError."""
    match = _EXPONENT.fullmatch(suffix)
    if match is None or len(suffix) > _MAX_EXPONENT_CHARACTERS or int(match[1]) > _MAX_EXPONENT:
        raise QuantityError(_SUFFIX_ERROR)
    return int(match[1])


def _binary(mantissa: int, exponent: int) -> tuple[int, int, Format]:
    """Returns a number with a binary suffix in nanos: capped, and in decimal format if it is below one."""
    nano = _scaled(mantissa, exponent - _NANO)
    if abs(nano) > MAX_INT64 * 10**9:
        return (MAX_INT64 if nano > 0 else -MAX_INT64), 0, Format.BINARY_SI
    return nano, _NANO, Format.DECIMAL_SI if 0 < abs(nano) < 10**9 else Format.BINARY_SI


def _scaled(mantissa: int, exponent: int) -> int:
    """Returns `mantissa * 10**exponent` as an integer, rounded away from zero."""
    if exponent >= 0:
        factor: int = 10**exponent
        return mantissa * factor
    divisor: int = 10 ** min(-exponent, _MAX_DIGITS)  # beyond that every mantissa rounds to one
    return -(-mantissa // divisor) if mantissa > 0 else mantissa // divisor


def _binary_text(units: int) -> str:
    step = 0
    while units % 1024 == 0 and step < len(_BINARY_NAMES) - 1:
        units //= 1024
        step += 1
    return f"{units}{_BINARY_NAMES[step]}"


def _decimal_text(mantissa: int, exponent: int, format: Format) -> str:
    while mantissa % 10 == 0 and exponent < _MAX_EXPONENT:  # `_exponent` refuses a larger one
        mantissa //= 10
        exponent += 1
    mantissa *= 10 ** (exponent % 3)
    exponent -= exponent % 3
    if format is not Format.DECIMAL_EXPONENT and exponent in _DECIMAL_NAMES:
        return f"{mantissa}{_DECIMAL_NAMES[exponent]}"
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)


def int32(number: int) -> int:
    """Returns the low 32 bits, signed."""
    return number if MIN_INT32 <= number <= MAX_INT32 else (number + 2**31) % 2**32 - 2**31


def int64(number: int) -> int:
    """Returns the low 64 bits, signed."""
    return number if MIN_INT64 <= number <= MAX_INT64 else (number + 2**63) % 2**64 - 2**63


def float_to_int32(number: float) -> int:
    """Truncates a float to an int32."""
    return int(number) if MIN_INT32 - 1 < number < MAX_INT32 + 1 else MIN_INT32


def ceil_int32(number: float) -> int:
    """Rounds a float up to an int32."""
    return math.ceil(number) if MIN_INT32 - 1 < number <= MAX_INT32 else MIN_INT32


def ceil_int64(number: float) -> int:
    """Rounds a float up to an int64."""
    return math.ceil(number) if MIN_INT64 <= number < MAX_INT64 else MIN_INT64


def truncated(dividend: int, divisor: int) -> int:
    """Divides integers, rounding towards zero; `divisor` is positive."""
    return dividend // divisor if dividend >= 0 else -(-dividend // divisor)


def quotient(dividend: float, divisor: float) -> float:
    """Divides floats as Go: by zero the result is infinite, or NaN where `dividend` is zero too."""
    if divisor:
        return dividend / divisor
    return math.copysign(math.inf, dividend) if dividend else math.nan
