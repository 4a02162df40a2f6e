"""The rows of a question as a sample. Missing is never zero, unless the operator said so.

Nor is a part ever the whole: of several values, one that is no number leaves no sum to be told.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

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
from hpad_adapters.prometheus import wire
from hpad_adapters.prometheus.batches import Row
from hpad_adapters.prometheus.queries import Ask

_REDUCE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum": wire.total,
    "max": max,
    "min": min,
    "avg": lambda values: wire.total(values) / len(values),
}


def sample(ask: Ask, rows: Sequence[Row], now: datetime) -> Sample:
    """What the rows mean for that metric; raises AdapterError. `now` is when a zero was so."""
    if ask.query.type == EXTERNAL:
        return _external(ask, rows, now)
    if ask.query.type == OBJECT:
        return _object(ask, rows, now)
    return _pods(ask, rows, now)


def _external(ask: Ask, rows: Sequence[Row], now: datetime) -> ExternalSample:
    points = _points(ask, rows)
    if not points:
        return ExternalSample((0,), _zero(ask, now))
    values = tuple(wire.milli(text) for _, text in points)
    return ExternalSample(values, wire.moment(min(seconds for seconds, _ in points)))


def _object(ask: Ask, rows: Sequence[Row], now: datetime) -> ObjectSample:
    points = _points(ask, rows)
    if not points:
        return ObjectSample(0, _zero(ask, now))
    seconds, text = _single(ask, points)
    return ObjectSample(wire.milli(text), wire.moment(seconds))


def _pods(ask: Ask, rows: Sequence[Row], now: datetime) -> PodSample:
    values: dict[str, PodValue] = {}
    span = ask.recipe.window.span if ask.recipe.window else ask.recipe.span
    for pod, points in _by_pod(ask, rows).items():
        values[pod] = PodValue(sum(wire.milli(text) for _, text in points), wire.moment(min(points)[0]), span)
    if ask.recipe.empty == "zero":
        absent = (ask.names or frozenset()) - values.keys()
        values |= {pod: PodValue(0, now, span) for pod in absent}
    if not values:
        raise _missing(ask)
    return PodSample(values, min(value.timestamp for value in values.values()))


def _points(ask: Ask, rows: Sequence[Row]) -> list[wire.Point]:
    """The points of all rows, none if no row has one; raises AdapterError where some lack one."""
    points = [row.point for row in rows if row.point is not None]
    if points and len(points) < len(rows) and ask.recipe.empty != "zero":
        lacking = f"{len(rows) - len(points)} of {len(rows)}"
        raise AdapterError(
            f'{lacking} series that {ask.recipe.origin} finds for "{ask.query.name}" have '
            "no number (NaN, infinite, or a histogram), and without them the others are but a part",
            "spec",
        )
    return points


def _by_pod(ask: Ask, rows: Sequence[Row]) -> dict[str, list[wire.Point]]:
    """A point per container of each pod that is meant; one per pod where containers do not matter.

    A pod that lacks one of its numbers has none, unless that is zero.
    """
    found: dict[str, dict[str, list[wire.Point]]] = {}
    lacking: set[str] = set()
    for row in rows:
        pod = row.labels.get(ask.item, "")
        container = row.labels.get(ask.container, "") if ask.container else ""
        if not pod:
            continue
        if ask.query.type == CONTAINER_RESOURCE and container != ask.query.container:
            continue
        if row.point is not None:
            found.setdefault(pod, {}).setdefault(container, []).append(row.point)
        elif ask.recipe.empty != "zero":
            lacking.add(pod)
    whole = {pod: each for pod, each in found.items() if pod not in lacking}
    return {pod: [_single(ask, points) for points in each.values()] for pod, each in whole.items()}


def _single(ask: Ask, points: Sequence[wire.Point]) -> wire.Point:
    """The one point, or the reduction of several, as old as the oldest; raises AdapterError where none is wanted."""
    if len(points) == 1:
        return points[0]
    if ask.recipe.reduce == "error":
        raise AdapterError(
            f'{ask.recipe.origin} gives {len(points)} values for "{ask.query.name}" where one is needed: '
            "aggregate in the query, or set reduce to sum, max, min or avg",
            "spec",
        )
    reduced = _REDUCE[ask.recipe.reduce]([float(text) for _, text in points])
    return min(seconds for seconds, _ in points), repr(reduced)


def _zero(ask: Ask, now: datetime) -> datetime:
    if ask.recipe.empty != "zero":
        raise _missing(ask)
    return now


def _missing(ask: Ask) -> AdapterError:
    labels = ", ".join(f'{label}="{value}"' for label, value in ask.wanted.items())
    where = f" with {labels}" if labels else ""
    return AdapterError(
        f'no values for {ask.query.type} metric "{ask.query.name}"{where}: the query of {ask.recipe.origin} '
        "finds no series, or none with a number",
        "spec",
    )
