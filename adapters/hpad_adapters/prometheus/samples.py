"""The answers of Prometheus as samples: series, the reduction of a time span to one point, and exact thousandths.

A missing value is never zero, unless the configuration says so. If one of several values is not a number, their sum is
unknown: the rest is not taken for the whole.
Source: Prometheus, "HTTP API": expression query result formats.
"""

import decimal
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from hpad.adapter import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    AdapterError,
    ExternalSample,
    ObjectSample,
    PodSample,
    PodValue,
    Sample,
)
from hpad.adapter_http import decoded
from hpad_adapters.prometheus.queries import QueryEntry
from hpad_adapters.prometheus.settings import QueryWindow

ANSWER = "an answer of the Prometheus API"
"""The expected body, in errors about another one."""
_INT64 = 2**63 - 1
_NANO = decimal.Decimal("1e-9")
_WIDE = decimal.Context(prec=400)

Point = tuple[float, str]


class PrometheusSeries(msgspec.Struct, frozen=True, gc=False):
    """An element of a vector (`value`) or of a matrix (`values`): seconds since 1970 and a number as text."""

    metric: dict[str, str] | None = None
    value: Point | None = None
    values: list[Point] | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.metric or {}

    @property
    def points(self) -> list[Point]:
        """The points with finite values, oldest first; a stale marker is a NaN. Raises AdapterError."""
        points = self.values or [] if self.value is None else [self.value]
        try:
            return [point for point in points if math.isfinite(_float(point[1]))]
        except ValueError:
            raise AdapterError("the answer holds a value that is not a number") from None


def _float(text: str) -> float:
    """Returns a number as Go writes it; raises ValueError, also for what only Python reads: 1_000, １, and spaces."""
    if not text.isascii() or "_" in text or text != text.strip():
        raise ValueError
    return float(text)


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    """The field `data` of an answer; `result_type` decides how `result` is decoded. A list without rows may be null."""

    result_type: str | None = None
    result: msgspec.Raw = msgspec.Raw(b"[]")


_data = msgspec.json.Decoder(_Data)
_series = msgspec.json.Decoder(list[PrometheusSeries] | None)
_point = msgspec.json.Decoder(Point)


def series(body: msgspec.Raw, name: str) -> list[PrometheusSeries]:
    """Decodes the series of an answer; a scalar is one without labels. Raises AdapterError naming the server."""
    data = decoded(_data, body, name, ANSWER)
    if data.result_type in ("vector", "matrix") or (not data.result_type and bytes(data.result) == b"null"):
        return decoded(_series, data.result, name, ANSWER) or []
    if data.result_type == "scalar":
        return [PrometheusSeries(value=decoded(_point, data.result, name, ANSWER))]
    raise AdapterError(f"the query answers a {data.result_type or 'nothing'}, which is not a number", "spec")


def moment(seconds: float) -> datetime:
    """Converts seconds since 1970; raises AdapterError for a time that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise AdapterError(f"the answer holds an impossible time: {seconds:g} seconds since 1970") from None


def total(values: Iterable[float]) -> float:
    """Returns the sum of finite numbers; infinite if it exceeds the range of floats."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def milli(text: str) -> int:
    """Returns thousandths of a finite number, rounded away from zero.

    Raises AdapterError beyond 64 bits: of this query alone, since the server works.
    """
    if text.isdecimal() and len(text) <= 15:
        return int(text) * 1000
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent beyond Decimal, of a zero or almost zero
        number = decimal.Decimal(repr(float(text)))
    if not number.is_finite():
        raise AdapterError("the sum of the values is infinite", alive=True)
    # Digits below a billionth are floating-point noise (5.000000000000001), which must not round 5 up to 5.001.
    nearest = number.quantize(_NANO, decimal.ROUND_HALF_EVEN, _WIDE)
    thousandths = int(nearest.scaleb(3, _WIDE).to_integral_value(decimal.ROUND_UP, _WIDE))
    if abs(thousandths) > _INT64:
        raise AdapterError(f"the value {text[:40]} does not fit into 64 bits of thousandths", alive=True)
    return thousandths


_REDUCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "avg": lambda values: total(values) / len(values),
    "sum": total,
    "max": max,
    "min": min,
    "newest": lambda values: values[-1],
}


def reduced(points: Sequence[Point], window: QueryWindow) -> Point | None:
    """Reduces points to one with the newest time; None without points."""
    if not points:
        return None
    newest = points[-1][0]
    start = newest - window.span.total_seconds()
    # The span is open at its start, as range selectors are since Prometheus 3.
    counted = [float(value) for time, value in points if time > start]
    return newest, repr(_REDUCTIONS[window.reduce](counted))


class SampleRow(msgspec.Struct, frozen=True, gc=False):
    """A series of the answer: its labels and its point; None: no number (NaN, infinite, a histogram)."""

    labels: dict[str, str]
    point: Point | None


def sample(entry: QueryEntry, rows: Sequence[SampleRow], now: datetime) -> Sample:
    """Makes the sample of the rows of one metric; raises AdapterError. `now` is the timestamp of a zero for no rows."""
    if entry.query.type == EXTERNAL:
        return _external(entry, rows, now)
    if entry.query.type == OBJECT:
        return _object(entry, rows, now)
    return _pods(entry, rows, now)


def _external(entry: QueryEntry, rows: Sequence[SampleRow], now: datetime) -> ExternalSample:
    points = _points(entry, rows)
    if not points:
        return ExternalSample((0,), _zero(entry, now))
    values = tuple(milli(text) for _, text in points)
    return ExternalSample(values, moment(min(seconds for seconds, _ in points)))


def _object(entry: QueryEntry, rows: Sequence[SampleRow], now: datetime) -> ObjectSample:
    points = _points(entry, _own(entry, rows))
    if not points:
        return ObjectSample(0, _zero(entry, now))
    seconds, text = _single(entry, points)
    return ObjectSample(milli(text), moment(seconds))


def _pods(entry: QueryEntry, rows: Sequence[SampleRow], now: datetime) -> PodSample:
    values: dict[str, PodValue] = {}
    span = entry.recipe.window.span if entry.recipe.window else entry.recipe.span
    for pod, points in _by_pod(entry, rows).items():
        values[pod] = PodValue(sum(milli(text) for _, text in points), moment(min(points)[0]), span)
    if entry.recipe.empty == "zero":
        absent = (entry.names or frozenset()) - values.keys()
        values |= {pod: PodValue(0, now, span) for pod in absent}
    if not values:
        raise _missing(entry, rows)
    return PodSample(values, min(value.timestamp for value in values.values()))


def _own(entry: QueryEntry, rows: Sequence[SampleRow]) -> Sequence[SampleRow]:
    """Returns the rows whose labels name the described object; the unlabelled ones, if there are no others.

    prometheus-adapter takes the row of that name, too (series_registry.go: MatchValuesToNames). An unlabelled row is
    that of `or vector(0)`, or of a query that selects the object and drops its label.
    """
    if not entry.subject:
        return rows
    label = entry.subject[0]
    named = [row for row in rows if row.labels.get(label)]
    own = {each: ("", entry.exact[each]) for each in entry.subject}
    return [row for row in named or rows if all(row.labels.get(each, "") in own[each] for each in own)]


def _points(entry: QueryEntry, rows: Sequence[SampleRow]) -> list[Point]:
    """Returns the points of all rows, [] if no row has one; raises AdapterError if only some have one."""
    points = [row.point for row in rows if row.point is not None]
    if points and len(points) < len(rows) and entry.recipe.empty != "zero":
        lacking = f"{len(rows) - len(points)} of {len(rows)}"
        raise AdapterError(
            f'{lacking} series that {entry.recipe.origin} finds for "{entry.query.name}" have '
            "no number (NaN, infinite, or a histogram), and the others are only a part",
            "spec",
        )
    return points


def _by_pod(entry: QueryEntry, rows: Sequence[SampleRow]) -> dict[str, list[Point]]:
    """Returns a point per container of each pod, or one per pod where containers do not matter.

    A pod that lacks one of its numbers is left out, unless a missing number is zero.
    """
    found: dict[str, dict[str, list[Point]]] = {}
    lacking: set[str] = set()
    for row in rows:
        pod = row.labels.get(entry.item, "")
        container = row.labels.get(entry.container, "") if entry.container else ""
        if not pod:
            continue
        if entry.query.type == CONTAINER_RESOURCE and container != entry.query.container:
            continue
        if entry.query.ignored_containers and not container:
            raise _without_containers(entry)
        if container in entry.query.ignored_containers:
            continue
        if row.point is not None:
            found.setdefault(pod, {}).setdefault(container, []).append(row.point)
        elif entry.recipe.empty != "zero":
            lacking.add(pod)
    whole = {pod: each for pod, each in found.items() if pod not in lacking}
    return {pod: [_single(entry, points) for points in each.values()] for pod, each in whole.items()}


def _single(entry: QueryEntry, points: Sequence[Point]) -> Point:
    """Reduces points to one with the oldest timestamp; raises AdapterError for several with `reduce: error`."""
    if len(points) == 1:
        return points[0]
    if entry.recipe.reduce == "error":
        raise AdapterError(
            f'{entry.recipe.origin} gives {len(points)} values for "{entry.query.name}" where one is needed: '
            "aggregate in the query, or set reduce to sum, max, min or avg",
            "spec",
        )
    reduced = _REDUCTIONS[entry.recipe.reduce]([float(text) for _, text in points])
    return min(seconds for seconds, _ in points), repr(reduced)


def _zero(entry: QueryEntry, now: datetime) -> datetime:
    if entry.recipe.empty != "zero":
        raise _missing(entry)
    return now


def _without_containers(entry: QueryEntry) -> AdapterError:
    names = ", ".join(entry.query.ignored_containers)
    return AdapterError(
        f'{entry.recipe.origin} gives "{entry.query.name}" without a label of the container, so the usage of {names}'
        " cannot be left out: keep that label in the query",
        "spec",
    )


def _missing(entry: QueryEntry, rows: Sequence[SampleRow] = ()) -> AdapterError:
    """Returns the error of a metric without values. `rows`: what the query found, for a metric of pods."""
    labels = ", ".join(f'{label}="{value}"' for label, value in entry.exact.items())
    where = f" with {labels}" if labels else ""
    found = "finds no series, or none with a number"
    if rows and not any(row.labels.get(entry.item) for row in rows):
        found = f'finds only series without the label "{entry.item}": keep it, as sum by ({entry.item}) does'
    return AdapterError(
        f'no values for {entry.query.type} metric "{entry.query.name}"{where}: '
        f"the query of {entry.recipe.origin} {found}",
        "spec",
    )
