"""Pasts of HPAs for the tests of advice: painted by hand, or lived by a plain controller under a load.

The plain controller is not hpad's engine: it knows ratios, the tolerance, bounds, windows and policies, decides once
per step, and its pods are ready at the next step.
"""

import functools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from hpad.api import hpa as v2
from hpad.api.behavior import DISABLED, MIN_CHANGE, PERCENT, DirectionRules
from hpad.api.hpa import HorizontalPodAutoscaler, from_builtins
from hpad.engine.addresses import addresses
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION, CompiledMetric, compiled_spec
from hpad.simulation.advice.past import HpaPast, MetricReading
from hpad.simulation.history import REPLICAS, LoadHistory

BEGIN: Final = datetime(2026, 1, 5, tzinfo=UTC).timestamp()
"""A Monday, 00:00."""
MINUTE: Final = 60.0
HOUR: Final = 3600.0
DAY: Final = 86_400.0
DAYS: Final = 4
"""The days of a past: an advice is chosen by the first three of them, and checked on the last."""

Load = Callable[[float], float]
"""A load at a time in seconds since BEGIN."""
Values = float | Sequence[float | None] | None
"""One value for all times, or a value for each."""


def spec(*metrics: dict[str, Any], low: int = 1, high: int = 10, **more: Any) -> HorizontalPodAutoscaler:
    """Returns an HPA with the defaults of the API server; `more` are `name`, `kind` of the target, and `behavior`."""
    name, kind = more.pop("name", "web"), more.pop("kind", "Deployment")
    target = {"kind": kind, "name": name, "apiVersion": "apps/v1"}
    fields = {"scaleTargetRef": target, "minReplicas": low, "maxReplicas": high, "metrics": list(metrics), **more}
    return v2.defaulted(from_builtins({"metadata": {"name": name, "namespace": "shop"}, "spec": fields}))


def column_names(hpa: HorizontalPodAutoscaler) -> tuple[str, ...]:
    """Returns the column of each metric."""
    return addresses(compiled_spec(hpa).metrics)


def painted(
    hpa: HorizontalPodAutoscaler,
    replicas: Values,
    metrics: Mapping[str, Values] | None = None,
    step: float = MINUTE,
    **more: Any,
) -> HpaPast:
    """Returns a past with these columns; `more` are other fields of HpaPast, their columns also as single values.

    The longest column says how many times there are. The bounds are those of the spec, the desired count is the
    replica count, unless they are given.
    """
    columns: dict[str, Values] = {REPLICAS: replicas, **(metrics or {})}
    given = {"desired": replicas, "minimum": hpa.spec.min_replicas, "maximum": hpa.spec.max_replicas}
    bounds: dict[str, Values] = {name: more.pop(name, value) for name, value in given.items()}
    failing: Mapping[str, Values] = more.pop("failing", {})
    count = max(len(each) for each in (*columns.values(), *failing.values()) if isinstance(each, Sequence))
    fill = functools.partial(_filled, count)
    readings = {name: MetricReading("the test") for name in column_names(hpa)}
    return HpaPast(
        hpa=hpa,
        load=LoadHistory([BEGIN + step * index for index in range(count)], {k: fill(v) for k, v in columns.items()}),
        failing={reason: fill(values) for reason, values in failing.items()},
        readings=readings,
        desired=fill(bounds["desired"]),
        minimum=fill(bounds["minimum"]),
        maximum=fill(bounds["maximum"]),
        **more,
    )


def _filled(count: int, values: Values) -> Sequence[float | None]:
    return values if isinstance(values, Sequence) else [values] * count


def flat(value: float) -> Load:
    return lambda at: value


def daily(least: float, most: float) -> Load:
    """Returns a load with its least value at 02:00 and its greatest at 14:00."""
    middle, swing = (most + least) / 2, (most - least) / 2
    return lambda at: middle - swing * math.cos(2 * math.pi * (at - 2 * HOUR) / DAY)


def bursts(usual: float, most: float, every: float, length: float) -> Load:
    """Returns a load that is `most` for the last `length` seconds of each interval."""
    return lambda at: most if at % every >= every - length else usual


def noisy(load: Load, share: float, seed: int = 1) -> Load:
    """Returns the load with noise of plus or minus this share, another one in each minute."""
    return lambda at: load(at) * (1 + share * (2 * _dice(seed, at // MINUTE) - 1))


@functools.cache
def _dice(seed: int, minute: float) -> float:
    return random.Random(f"{seed} {minute:.0f}").random()


def lived(hpa: HorizontalPodAutoscaler, *loads: Load, days: float = DAYS, step: float = MINUTE, **more: Any) -> HpaPast:
    """Returns the past of an HPA under a load for each of its metrics.

    A load is the total that the pods share, in units of the metric target; for an Object or External metric with an
    AverageValue the total that it shows. `first` is the first count, `own` the number of each metric whose load is the
    value of each single pod, however many there are. `more` is for `painted`.
    """
    first, own = more.pop("first", hpa.spec.min_replicas or 1), more.pop("own", ())
    controller = _Controller(hpa, first, step)
    names, metrics = column_names(hpa), compiled_spec(hpa).metrics
    columns: dict[str, list[float | None]] = {name: [] for name in names}
    counts: list[float | None] = []
    for index in range(round(days * DAY / step) + 1):
        at, count = index * step, controller.count
        shown = []
        for number, (metric, load) in enumerate(zip(metrics, loads, strict=True)):
            single = number in own or (not metric.of_pods and metric.kind == AVERAGE_VALUE)
            shown.append(load(at) if single else load(at) / count if count else None)
        for name, value in zip(names, shown, strict=True):
            columns[name].append(value)
        counts.append(count)
        controller.decide(at, shown)
    return painted(hpa, counts, columns, step, **more)


_LONGEST_PERIOD: Final = 1800.0
"""Seconds that the period of a policy may have."""


class _Change(NamedTuple):
    at: float
    by: int


class _Controller:
    def __init__(self, hpa: HorizontalPodAutoscaler, first: int, step: float) -> None:
        self._spec = compiled_spec(hpa)
        self._step = step
        self.count = first
        self._asked: list[tuple[float, int]] = [(-step, first)]
        self._changes: list[_Change] = []

    def decide(self, at: float, shown: Sequence[float | None]) -> None:
        """Sets the count from what the metrics show: stabilized by the windows, limited by policies and bounds."""
        spec, behavior = self._spec, self._spec.behavior
        asked = [_asked(metric, value, self.count) for metric, value in zip(spec.metrics, shown, strict=True)]
        known = max((each for each in asked if each is not None), default=self.count)
        up, down = (0.0, 300.0)
        if behavior is not None:
            up = behavior.up.window.total_seconds() if behavior.up.window is not None else up
            down = behavior.down.window.total_seconds() if behavior.down.window is not None else down
        self._asked = [*((t, n) for t, n in self._asked if t > at - max(up, down)), (at, known)]
        count = max(self.count, min(n for t, n in self._asked if t > at - up or t == at))
        count = min(count, max(n for t, n in self._asked if t > at - down or t == at))
        if behavior is not None:
            count = min(count, self._reach(at, behavior.up, 1)) if count > self.count else count
            count = max(count, self._reach(at, behavior.down, -1)) if count < self.count else count
        count = min(max(count, spec.min_replicas), spec.max_replicas)
        if count != self.count:
            recent = [each for each in self._changes if each.at > at - _LONGEST_PERIOD]
            self._changes = [*recent, _Change(at, count - self.count)]
        self.count = count

    def _reach(self, at: float, rules: DirectionRules, sign: int) -> int:
        if rules.select == DISABLED:
            return self.count
        found = []
        for policy in rules.policies:
            seconds = policy.period.total_seconds()
            before = self.count - sum(
                each.by for each in self._changes if each.at > at - seconds and each.by * sign > 0
            )
            times = max(1.0, self._step / seconds)
            part = before * policy.value / 100 if policy.type == PERCENT else policy.value
            found.append(before + sign * math.ceil(part * times))
        return (min if (rules.select == MIN_CHANGE) == (sign > 0) else max)(found)


def _asked(metric: CompiledMetric, value: float | None, count: int) -> int | None:
    goal = metric.amount if metric.kind == UTILIZATION else metric.amount / 1000
    if value is None:
        return None
    value = math.floor(value) if metric.kind == UTILIZATION else value
    if not metric.of_pods and metric.kind == AVERAGE_VALUE:
        wanted = value / goal
    else:
        wanted = value / goal * count if count else value / goal
    return count if count and 0.9 <= wanted / count <= 1.1 else math.ceil(wanted - 1e-9)
