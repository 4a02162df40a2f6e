"""The answers of Prometheus' HTTP API, and the numbers in them.

Source: Prometheus, "HTTP API": response format, expression query result formats.

The samples of a time span as one value.
"""

import decimal
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from hpad.adapter import AdapterError
from hpad_adapters.prometheus.settings import Window

_INT64 = 2**63 - 1
_NANO = decimal.Decimal("1e-9")
_WIDE = decimal.Context(prec=400)

Point = tuple[float, str]


class Series(msgspec.Struct, frozen=True, gc=False):
    """An element of a vector (`value`) or of a matrix (`values`): seconds since 1970 and a number as text."""

    metric: dict[str, str] = {}
    value: Point | None = None
    values: list[Point] = []

    @property
    def points(self) -> list[Point]:
        """The usable points, oldest first: neither NaN (stale markers too) nor infinities. Raises AdapterError."""
        points = self.values if self.value is None else [self.value]
        try:
            return [point for point in points if math.isfinite(float(point[1]))]
        except ValueError:
            raise AdapterError("the answer holds a value that is no number") from None


class Data(msgspec.Struct, frozen=True, rename="camel"):
    """`result` is decoded by `result_type`."""

    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """What surrounds every answer; an error has `error_type` and `error` and no data.

    `is_partial` is VictoriaMetrics' own: some of its storage nodes did not answer.
    """

    status: str
    data: msgspec.Raw = msgspec.Raw(b"{}")
    error_type: str = ""
    error: str = ""
    warnings: list[str] = []
    is_partial: bool = False
    infos: list[str] = []


_data = msgspec.json.Decoder(Data)
_series = msgspec.json.Decoder(list[Series])
_point = msgspec.json.Decoder(Point)
_names = msgspec.json.Decoder(list[str])


def series(body: msgspec.Raw) -> list[Series]:
    """The series of an answer to a query, a scalar as one without labels; raises AdapterError, msgspec.DecodeError."""
    data = _data.decode(body)
    if data.result_type in ("vector", "matrix"):
        return _series.decode(data.result)
    if data.result_type == "scalar":
        return [Series(value=_point.decode(data.result))]
    raise AdapterError(f"the query answers a {data.result_type or 'nothing'}, which is no number", "spec")


def names(body: msgspec.Raw) -> list[str]:
    """The values of a label; raises msgspec.DecodeError."""
    return _names.decode(body)


def moment(seconds: float) -> datetime:
    """A time of Prometheus; raises AdapterError for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise AdapterError(f"the answer holds a time that is none: {seconds:g} seconds since 1970") from None


def total(values: Iterable[float]) -> float:
    """The sum of finite numbers, infinite where it is too large for one."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def milli(text: str) -> int:
    """Thousandths of a finite number, rounded away from zero; raises AdapterError beyond 64 bits.

    Below a billionth there is only the noise of floating point (5.000000000000001), which must not round 5 up to 5.001.
    """
    if text.isdecimal() and len(text) <= 15:
        return int(text) * 1000
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent that only floats swallow: of a zero, or of next to nothing
        number = decimal.Decimal(repr(float(text)))
    if not number.is_finite():
        raise AdapterError("the sum of the values is beyond all numbers")
    nearest = number.quantize(_NANO, decimal.ROUND_HALF_EVEN, _WIDE)
    thousandths = int(nearest.scaleb(3, _WIDE).to_integral_value(decimal.ROUND_UP, _WIDE))
    if abs(thousandths) > _INT64:
        raise AdapterError(f"the value {text[:40]} does not fit into 64 bits of thousandths")
    return thousandths


_FOLDS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "avg": lambda values: total(values) / len(values),
    "sum": total,
    "max": max,
    "min": min,
    "newest": lambda values: values[-1],
}


def asked(expression: str, window: Window) -> str:
    """The expression that fetches the samples: a range selector, or a subquery where there is a step."""
    if window.step:
        return f"({expression})[{window.fetch}:{window.step}]"
    return f"{expression.rstrip()}[{window.fetch}]"


def reduced(points: Sequence[Point], window: Window) -> Point | None:
    """One point, at the time of the newest, None where there is none; the span is open at its start, as in PromQL."""
    if not points:
        return None
    newest = points[-1][0]
    start = newest - window.span.total_seconds()
    counted = [float(value) for time, value in points if time > start]
    return newest, repr(_FOLDS[window.reduce](counted))
