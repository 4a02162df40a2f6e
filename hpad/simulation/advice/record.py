"""The past of one HPA moment by moment: how far each metric was from its goal, and what the metrics asked for.

A moment lasts from one time of the past to the next, and is known where the replica count is. A time that is far from
the next one holds for one step. What is not known stays None.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.sample import EXTERNAL, OBJECT
from hpad.engine import schedule
from hpad.engine.annotations import PLAIN
from hpad.engine.propose import Tolerances
from hpad.engine.spec import UTILIZATION, CompiledMetric, compiled_spec
from hpad.engine.view import Tunables
from hpad.simulation.advice.demand import allowed
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.backlog import Backlog
from hpad.simulation.history import (
    REPLICAS,
    STALE_STEPS,
    Column,
    HistoryError,
    goal_of,
    is_total,
    metrics_of,
    pointwise,
)

T = TypeVar("T")

SCALING_ACTIVE: Final = "ScalingActive"
REACTION: Final = timedelta(minutes=3)
"""Replicas that the metrics ask for are there after this time if nothing holds them back.

That is a minute until a metric shows the load, a few reconciles, and the step of the past.
"""
INSTANT: Final = 0.001
"""Seconds by which a moment may begin after the end of the one before without a gap: an error of floats."""
_ROUNDING: Final = 1e-9
"""Quotients that are whole numbers but for the error of floats are taken as such."""


@dataclass(frozen=True, kw_only=True)
class PastRecord:
    """Columns with an entry per known moment; durations are in seconds.

    `lowest` and `highest` are the bounds as they were, by the schedule of the HPA, None where they are not known.
    `ratios` has the value of each readable metric divided by its goal, by address; 0 up to its activation threshold.
    `load` is the number of replicas that would have had the leading metric exactly at its goal. `need` is the same of
    the work: of a queue for what arrives, and None where an External metric alone is known, as the length of a queue
    does not tell what arrives. A queue of which nothing is known to arrive is left out beside other metrics. `asked` is
    the whole count that the metrics asked for, without bounds: the present one within the tolerance, and one or more
    where minReplicas is not 0. `above`: a metric is above its goal beyond the tolerance. `failing`: the HPA could not
    read a metric or its target.
    """

    begins: Sequence[float]
    lengths: Sequence[float]
    counts: Sequence[int]
    lowest: Sequence[int | None]
    highest: Sequence[int | None]
    ratios: Mapping[str, Sequence[float | None]]
    load: Sequence[float | None]
    need: Sequence[float | None]
    asked: Sequence[int | None]
    above: Sequence[bool | None]
    failing: Sequence[bool]
    reasons: Mapping[str, Sequence[bool]]
    tolerated: Tolerances
    step: float

    @property
    def seconds(self) -> float:
        return sum(self.lengths, 0.0)

    @property
    def needed(self) -> list[int | None]:
        """The whole count that the work took: what the metrics asked for, and no less than `need`."""
        return [
            None if asked is None or need is None else max(asked, math.ceil(need - _ROUNDING))
            for asked, need in zip(self.asked, self.need, strict=True)
        ]

    @property
    def at_maximum(self) -> list[bool]:
        """Where the count was at the maximum, while that was above the minimum."""
        return [
            high is not None and count >= high and low != high
            for count, low, high in zip(self.counts, self.lowest, self.highest, strict=True)
        ]

    @property
    def at_minimum(self) -> list[bool]:
        """Where the count was at the minimum."""
        return [low is not None and count <= low for count, low in zip(self.counts, self.lowest, strict=True)]

    @property
    def starved(self) -> list[bool]:
        """Where the count was at the maximum and a metric above its goal beyond the tolerance."""
        return [full and bool(above) for full, above in zip(self.at_maximum, self.above, strict=True)]

    @property
    def held_back(self) -> list[bool]:
        """Where the metrics asked for more replicas than there were during the whole REACTION, below the maximum.

        A moment with a gap or a failing metric within that time is not counted: the metrics were not seen then.
        """
        steps = self._reaction_steps
        lacking = [
            asked is not None and asked > count and not failing and (high is None or count < high)
            for asked, count, high, failing in zip(self.asked, self.counts, self.highest, self.failing, strict=True)
        ]
        ends = [begin + length + INSTANT for begin, length in zip(self.begins, self.lengths, strict=True)]
        held = [False] * len(lacking)
        for index in itertools.compress(range(len(lacking) - steps), lacking):
            later, asked = range(index + 1, index + steps + 1), self.asked[index] or 0
            held[index] = all(
                lacking[at] and self.counts[at] < asked and self.begins[at] < ends[at - 1] for at in later
            )
        return held

    def with_reaction(self, held: Sequence[bool]) -> list[bool]:
        """Returns the whole time in which replicas were held back, given the moments of `held_back`."""
        steps = self._reaction_steps
        return [any(held[max(0, index - steps) : index + 1]) for index in range(len(held))]

    @property
    def _reaction_steps(self) -> int:
        return max(1, round(REACTION.total_seconds() / self.step)) if self.step else 1

    def time(self, moments: Sequence[bool | None]) -> float:
        """Returns the duration of the moments that are True."""
        return sum(itertools.compress(self.lengths, moments), 0.0)

    def longest(self, moments: Sequence[bool | None]) -> float:
        """Returns the longest duration without a break."""
        begin, end = self.longest_span(moments)
        return end - begin

    def longest_span(self, moments: Sequence[bool | None]) -> tuple[float, float]:
        """Returns begin and end of the longest time without a break; what is not known is a break."""
        best, start, end = (0.0, 0.0), 0.0, -math.inf
        for begin, seconds, each in zip(self.begins, self.lengths, moments, strict=True):
            if each:
                start = start if begin - end < INSTANT else begin
                end = begin + seconds
                best = max(best, (start, end), key=lambda span: span[1] - span[0])
            else:
                end = -math.inf
        return best


def record_of(past: HpaPast, tunables: Tunables) -> PastRecord:
    """Returns the record. Takes about 40 ms for a week of minutes with one metric.

    The rule is that of `engine.propose` for ready pods: the largest proposal leads, and while a metric has no value the
    others may ask for more replicas, but not for fewer (horizontal.go: computeReplicasForMetrics). All replicas of the
    status count as ready, as the past does not tell.
    """
    load = past.load
    spans = _spans(load.times, load.step)
    kept = [index for index, count in enumerate(load.columns.get(REPLICAS, ())[: len(spans)]) if count is not None]
    counts = [round(count) for count in _taken(load.columns.get(REPLICAS, ()), kept) if count is not None]
    metrics, thresholds = metrics_of(past.hpa), _thresholds(past.hpa)
    ratios = {
        address: _ratios(metric, _active(_taken(load.columns[address], kept), thresholds, address), counts)
        for address, metric in metrics.items()
        if address in load.columns and metric.error is None and metric.amount > 0
    }
    # What the HPA itself saw is nearer to the moment than a rate of cAdvisor.
    seen = [
        _first(_ratios(metrics[address], _active(_taken(past.seen[address], kept), thresholds, address), counts), own)
        if address in past.seen
        else own
        for address, own in ratios.items()
    ]
    tolerated = allowed(past.hpa, tunables)
    asking = _Asking([*ratios.values()], len(metrics) - len(ratios), counts, tolerated)
    loads = asking.load()
    known = ((address, _arriving(past, address, kept, counts)) for address in ratios.keys() & past.queues.keys())
    arriving = {address: column for address, column in known if any(each is not None for each in column)}
    needs = [
        arriving.get(address, own)
        for address, own in ratios.items()
        if address in arriving or (address not in past.queues and metrics[address].type != EXTERNAL)
    ]
    lowest, highest = _bounds(past, kept)
    reasons = {reason: _failing(reason, _taken(column, kept), counts) for reason, column in past.failing.items()}
    return PastRecord(
        begins=_taken(load.times, kept),
        lengths=_taken(spans, kept),
        counts=counts,
        lowest=lowest,
        highest=highest,
        ratios=ratios,
        load=loads,
        need=_Asking(needs, len(metrics) - len(ratios), counts, tolerated).load() if needs else [None] * len(kept),
        asked=asking.counts(loads, min(1, compiled_spec(past.hpa).min_replicas)),
        above=_Asking(seen, len(metrics) - len(ratios), counts, tolerated).above(),
        failing=[any(each) for each in zip(*reasons.values(), strict=True)] if reasons else [False] * len(kept),
        reasons=reasons,
        tolerated=tolerated,
        step=load.step,
    )


def _thresholds(hpa: HorizontalPodAutoscaler) -> dict[str, float]:
    """Returns the activation thresholds (`hpad.io/activation`) by address: none where minReplicas is not 0."""
    policies, metrics = PLAIN.of(hpa).policies, metrics_of(hpa)
    if compiled_spec(hpa).min_replicas or not policies:
        return {}
    return {
        address: policy.activation / 1000
        for (address, metric), policy in zip(metrics.items(), policies, strict=True)
        if policy.activation is not None and metric.type in (OBJECT, EXTERNAL)
    }


def _active(column: Column, thresholds: Mapping[str, float], address: str) -> Column:
    """Returns 0 for each value that is not above the activation threshold of the metric: it asks for nothing."""
    threshold = thresholds.get(address)
    if threshold is None:
        return column
    return pointwise(lambda value: value if value > threshold else 0.0, column)


def _spans(times: Sequence[float], step: float) -> list[float]:
    """Returns for how long each time but the last one holds: until the next one, or one step where that is far."""
    apart = [later - time for time, later in itertools.pairwise(times)]
    return [length if length <= STALE_STEPS * step else step for length in apart]


def _taken(column: Sequence[T], kept: Sequence[int]) -> list[T]:
    return [column[index] for index in kept]


def _bounds(past: HpaPast, kept: Sequence[int]) -> tuple[list[int | None], list[int | None]]:
    """Returns the bounds as they were, by the schedule of the HPA (`hpad.io/schedule`) if it has one."""
    lowest = _bound(past.minimum, kept, compiled_spec(past.hpa).min_replicas)
    highest = _bound(past.maximum, kept, past.hpa.spec.max_replicas)
    windows = PLAIN.of(past.hpa).controls.schedule
    if windows is None:
        return lowest, highest
    for number, index in enumerate(kept):
        low, high = lowest[number], highest[number]
        if low is not None and high is not None:
            found = schedule.bounds(windows, datetime.fromtimestamp(past.load.times[index], UTC), low, high)
            lowest[number], highest[number] = found.low, found.high
    return lowest, highest


def _bound(column: Column, kept: Sequence[int], now: int) -> list[int | None]:
    """Returns a bound as it was; that of now if the past knows none at all."""
    if all(value is None for value in column):
        return [now] * len(kept)
    return [None if value is None else round(value) for value in _taken(column, kept)]


def _failing(reason: str, column: Column, counts: Sequence[int]) -> list[bool]:
    """Returns where the HPA failed. At zero replicas ScalingActive is false without a failure (ScalingDisabled)."""
    if reason == SCALING_ACTIVE:
        return [bool(value) and count > 0 for value, count in zip(column, counts, strict=True)]
    return [bool(value) for value in column]


def _ratios(metric: CompiledMetric, column: Column, counts: Sequence[int]) -> list[float | None]:
    """Returns value / goal; a total is divided by the count. At zero replicas it is compared with one.

    A utilization counts in whole percent, as in the original (metrics/utilization.go: GetResourceUtilizationRatio).
    """
    goal = goal_of(metric)
    if is_total(metric):
        return pointwise(lambda value, count: value / (goal * (count or 1)), column, counts)
    if metric.kind == UTILIZATION:
        return pointwise(lambda value: (value + _ROUNDING) // 1 / goal, column)
    return pointwise(lambda value: value / goal, column)


def _arriving(past: HpaPast, address: str, kept: Sequence[int], counts: Sequence[int]) -> list[float | None]:
    """Returns the part of the replicas that the messages arriving in a queue take; None where that is not known."""
    load, rates = past.load, past.queues[address]
    try:
        each = Backlog(load, address, rates).per_replica
    except HistoryError:
        each = 0.0
    arriving = _taken(load.columns.get(rates.published, [None] * len(load.times)), kept)
    return pointwise(lambda rate, count: rate / each / (count or 1) if each else None, arriving, counts)


def _first(column: Sequence[float | None], other: Sequence[float | None]) -> list[float | None]:
    return [value if value is not None else instead for value, instead in zip(column, other, strict=True)]


def asked_for(load: float, count: int, tolerated: Tolerances) -> int:
    """Returns the whole count that a load in replicas asks for: the present one within the tolerance."""
    is_near = count and 1 - tolerated.down <= load / count <= 1 + tolerated.up
    return count if is_near else math.ceil(load - _ROUNDING)


class _Asking:
    """What the metrics ask for. `unread` is the number of metrics that have no values at all."""

    def __init__(
        self, ratios: Sequence[Sequence[float | None]], unread: int, counts: Sequence[int], tolerated: Tolerances
    ) -> None:
        self._counts, self._tolerated = counts, tolerated
        self._leading: list[float | None] = [None] * len(counts)
        self._whole = [not unread] * len(counts)
        for column in ratios:
            for index, ratio in enumerate(column):
                if ratio is None:
                    self._whole[index] = False
                elif (before := self._leading[index]) is None or ratio > before:
                    self._leading[index] = ratio

    def load(self) -> list[float | None]:
        """Returns the load in replicas; None where a metric is missing and the others do not ask for more."""
        more = 1 + self._tolerated.up
        return [
            ratio * (count or 1) if ratio is not None and (whole or ratio > more) else None
            for ratio, count, whole in zip(self._leading, self._counts, self._whole, strict=True)
        ]

    def counts(self, loads: Sequence[float | None], least: int) -> list[int | None]:
        return [
            None if load is None else max(least, asked_for(load, count, self._tolerated))
            for load, count in zip(loads, self._counts, strict=True)
        ]

    def above(self) -> list[bool | None]:
        up = 1 + self._tolerated.up
        return [
            True if ratio is not None and ratio > up else False if whole and ratio is not None else None
            for ratio, whole in zip(self._leading, self._whole, strict=True)
        ]
