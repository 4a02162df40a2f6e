"""Go's int32, int64 and float64, where a decision depends on how they round, wrap and overflow.

The conversions of a float that does not fit are those of amd64, where Kubernetes' decisions were recorded: the most
negative number.
"""

import math
from typing import Final

MAX_INT32: Final = 2**31 - 1
MIN_INT32: Final = -(2**31)
MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)


def int32(number: int) -> int:
    """The low 32 bits, signed."""
    return number if MIN_INT32 <= number <= MAX_INT32 else (number + 2**31) % 2**32 - 2**31


def int64(number: int) -> int:
    """The low 64 bits, signed."""
    return number if MIN_INT64 <= number <= MAX_INT64 else (number + 2**63) % 2**64 - 2**63


def float_to_int32(number: float) -> int:
    """A float without its fraction."""
    return int(number) if MIN_INT32 - 1 < number < MAX_INT32 + 1 else MIN_INT32


def ceil_int32(number: float) -> int:
    """The next whole number upwards."""
    return math.ceil(number) if MIN_INT32 - 1 < number <= MAX_INT32 else MIN_INT32


def ceil_int64(number: float) -> int:
    """The next whole number upwards."""
    return math.ceil(number) if MIN_INT64 <= number < MAX_INT64 else MIN_INT64


def truncated(dividend: int, divisor: int) -> int:
    """Integer division that rounds towards zero; the divisor is positive."""
    return dividend // divisor if dividend >= 0 else -(-dividend // divisor)


def quotient(dividend: float, divisor: float) -> float:
    """Float division: by zero it is infinite, or no number where the dividend is zero as well."""
    if divisor:
        return dividend / divisor
    return math.copysign(math.inf, dividend) if dividend else math.nan
