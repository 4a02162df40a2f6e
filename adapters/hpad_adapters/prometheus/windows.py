"""The samples of a time span as one value."""

from collections.abc import Callable, Mapping, Sequence

from hpad_adapters.prometheus import wire
from hpad_adapters.prometheus.settings import Window

_FOLDS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "avg": lambda values: wire.total(values) / len(values),
    "sum": wire.total,
    "max": max,
    "min": min,
    "newest": lambda values: values[-1],
}


def asked(expression: str, window: Window) -> str:
    """The expression that fetches the samples: a range selector, or a subquery where there is a step."""
    if window.step:
        return f"({expression})[{window.fetch}:{window.step}]"
    return f"{expression.rstrip()}[{window.fetch}]"


def reduced(points: Sequence[wire.Point], window: Window) -> wire.Point | None:
    """One point, at the time of the newest, None where there is none; the span is open at its start, as in PromQL."""
    if not points:
        return None
    newest = points[-1][0]
    start = newest - window.span.total_seconds()
    counted = [float(value) for time, value in points if time > start]
    return newest, repr(_FOLDS[window.reduce](counted))
