"""The past of one HPA as a load for any spec of it, prepared once for all of its runs."""

import functools
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.engine.annotations import PLAIN
from hpad.engine.spec import UTILIZATION, CompiledMetric, compiled_spec
from hpad.simulation.advice.assessment import AdviceOptions
from hpad.simulation.advice.demand import allowed
from hpad.simulation.advice.model.leap import NEVER, Plan
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.words import days
from hpad.simulation.backlog import Backlog
from hpad.simulation.history import (
    DAY,
    REPLICAS,
    STALE_STEPS,
    HistoryError,
    LoadHistory,
    goal_of,
    is_total,
    metrics_of,
    named,
    pointwise,
)
from hpad.simulation.past import SPAN, PastLoad, PastModel, assumptions
from hpad.simulation.run import BEYOND

_OVERLOADED: Final = 90.0
"""Percent of the CPU request above which a pod counts as overloaded, also where its goal is lower."""
_SOON: Final = 240.0
"""Seconds until replicas for a surge are ready: the load is seen a minute or two late, and rates are smooth."""
_LONG: Final = 600.0
"""Seconds of a load that was cut off from which on they are worth a note."""
Row = tuple[float | None, ...]
"""For each metric its total over the replicas if they share it, else its value; None in a gap."""


class Needs(NamedTuple):
    """The ready replicas with which each metric would be just at its limit, from each time on; None in a gap.

    `goal`: the limit is the metric's own target with its tolerance. `level`: it is the level of overload. After
    `longest` seconds without a later time, nothing is known.
    """

    times: Sequence[float]
    goal: Sequence[float | None]
    level: Sequence[float | None]
    longest: float


@dataclass(frozen=True, kw_only=True)
class LoadModel:
    """The load of one HPA.

    `options` have the HPA's own period (`hpad.io/sync-period`). `hpa` has the spec of now with the metrics that have
    values; `kept` are their indices in the spec. `load` begins with the first known count. `rows` has an entry for
    each of its times. `levels` are the values per replica above which a metric counts as overload, for all specs.
    `split`: where the first days end, in seconds since 1970.
    """

    past: HpaPast
    options: AdviceOptions
    hpa: HorizontalPodAutoscaler
    kept: tuple[int, ...]
    load: LoadHistory
    rows: Sequence[Row]
    levels: tuple[float, ...]
    split: float

    @classmethod
    def of(cls, past: HpaPast, options: AdviceOptions) -> "LoadModel | None":
        """Returns the model; None if no metric has values, or no replica count is known."""
        load = _from_first_count(past.load)
        columns = named(past.hpa)
        kept = tuple(index for index, name in enumerate(columns) if _is_known(load, past, name))
        if load is None or not kept:
            return None
        period = PLAIN.sync_period(past.hpa)
        options = options if period is None else options._replace(period=period)
        hpa = reduced(past.hpa, kept)
        try:
            workload = PastModel(hpa, load, _used(past, options, named(hpa)))
        except HistoryError:
            return None
        return cls(
            past=past,
            options=options,
            hpa=hpa,
            kept=kept,
            load=load,
            rows=_rows(hpa, load, workload.backlogs),
            levels=tuple(_levels(hpa, options)),
            split=_split(load),
        )

    @functools.cached_property
    def notes(self) -> tuple[str, ...]:
        """What is assumed, a sentence each."""
        backlogs, columns = self.workload(self.hpa).backlogs, named(self.hpa)
        left_out = [
            f"{name}: has no values, so the model is without it" for name in named(self.past.hpa) if name not in columns
        ]
        return (*assumptions(self.hpa, backlogs), *left_out, *self._cut_off())

    def _cut_off(self) -> Iterator[str]:
        """Yields that the load is not known where replicas at the maximum had more than their goal."""
        counts, highest = self.load.columns[REPLICAS], self.past.maximum[-len(self.load.times) :]
        moments = zip(counts[:-1], highest, self.needs(self.hpa, {}).goal, strict=False)
        full = sum(
            count >= high and need > count
            for count, high, need in moments
            if count is not None and high is not None and need is not None
        )
        seconds = full * self.load.step
        if seconds >= _LONG:
            yield (
                f"for {days(seconds)} it was at its maximum with a metric above its goal: what pods at their limit"
                " could not serve is in no metric, so the load then is underestimated"
            )

    def workload(self, hpa: HorizontalPodAutoscaler) -> PastModel:
        """Returns the workload of a run; `hpa` has the metrics that are kept."""
        return PastModel(hpa, self.load, _used(self.past, self.options, named(hpa)))

    @property
    def plan(self) -> Plan:
        """The turns from the first time to the last."""
        options, start = self.options, self.load.start
        period = timedelta(seconds=options.period)
        settling = timedelta(seconds=options.startup + options.lag) + SPAN
        return Plan(start, period, (self.load.end - start) // (period + BEYOND) + 1, settling)

    @functools.cached_property
    def steps(self) -> tuple[list[int], list[Row]]:
        """The first turn that sees each row, with one more at the end, and the rows; one without values where a value
        is too old.
        """
        times, longest = self.load.times, STALE_STEPS * self.load.step
        unknown: Row = (None,) * len(self.levels)
        begins, rows, plan = [0], [self.rows[0]], self.plan
        for index in range(len(times)):
            later = times[index + 1] if index + 1 < len(times) else math.inf
            if later - times[index] > longest:
                begins.append(self._sees(times[index] + longest, plan))
                rows.append(unknown)
            if later < math.inf:
                begins.append(self._sees(later, plan))
                rows.append(self.rows[index + 1])
        return [*begins, NEVER], rows

    def surges(self, factor: float, higher: float = 1.0) -> float:
        """Returns the share of the time in which the load rises to `factor` times the capacity within four minutes.

        The capacity is what the replicas do that are asked for before, the minimum at least, with goals that are
        `higher` times those of now.
        """
        needs, low = self.needs(self.hpa, {}).goal, compiled_spec(self.hpa).min_replicas
        most, ahead = 1 + allowed(self.hpa, self.options.tunables).up, max(1, round(_SOON / (self.load.step or _SOON)))
        known = [need * most / higher for need in needs if need is not None]
        later = zip(*(known[step:] for step in range(1, ahead + 1)), strict=False)
        rises = [max(soon) > factor * max(need, low) for need, soon in zip(known, later, strict=False)]
        return sum(rises) / len(rises) if rises else 0.0

    @functools.cached_property
    def asked(self) -> list[float]:
        """The replicas that the load needs by the goals of now, ascending; those of a queue are not known before."""
        most = 1 + allowed(self.hpa, self.options.tunables).up
        return sorted(need * most for need in self.needs(self.hpa, {}).goal if need is not None)

    def _sees(self, time: float, plan: Plan) -> int:
        """Returns the first turn that sees a value of this time, which is in seconds since 1970."""
        return max(0, plan.turns(timedelta(seconds=time - self.load.times[0] + self.options.lag)))

    def needs(self, hpa: HorizontalPodAutoscaler, backlogs: Mapping[str, Backlog]) -> Needs:
        """Returns the ready replicas that the load needs, by the goals of a spec and by the levels of overload.

        `backlogs` are those of a run of the spec.
        """
        times, rows = self.load.times, self.rows
        if backlogs:
            times, rows = _with_backlogs(times, rows, named(hpa), backlogs)
        return Needs(
            times=times,
            goal=_needed(rows, _goals(hpa, self.options)),
            level=_needed(rows, self.levels),
            longest=STALE_STEPS * self.load.step,
        )


def reduced(hpa: HorizontalPodAutoscaler, kept: Sequence[int]) -> HorizontalPodAutoscaler:
    """Returns the HPA with these metrics only."""
    metrics = hpa.spec.metrics
    if len(kept) == len(metrics):
        return hpa
    return msgspec.structs.replace(
        hpa, spec=msgspec.structs.replace(hpa.spec, metrics=tuple(metrics[index] for index in kept))
    )


def is_cpu_utilization(metric: CompiledMetric) -> bool:
    """Whether the metric compares the CPU usage with the request."""
    return metric.is_cpu and metric.kind == UTILIZATION


def _from_first_count(load: LoadHistory) -> LoadHistory | None:
    counts = load.columns.get(REPLICAS, ())
    first = next((index for index, count in enumerate(counts) if count), None)
    if first is None or len(load.times) - first < 2:
        return None
    if first == 0:
        return load
    return LoadHistory(load.times[first:], {name: column[first:] for name, column in load.columns.items()})


def _is_known(load: LoadHistory | None, past: HpaPast, name: str) -> bool:
    if load is None:
        return False
    return name in past.queues or any(value is not None for value in load.columns.get(name, ()))


def _used(past: HpaPast, options: AdviceOptions, columns: Sequence[str]) -> PastLoad:
    queues = {name: rates for name, rates in past.queues.items() if name in columns}
    return PastLoad(options.startup, options.lag, queues=queues)


def _rows(hpa: HorizontalPodAutoscaler, load: LoadHistory, backlogs: Mapping[str, Backlog]) -> list[Row]:
    counts = load.columns[REPLICAS]
    columns: list[Sequence[float | None]] = []
    for name, metric in metrics_of(hpa).items():
        values = load.columns.get(name)
        if values is None or name in backlogs:
            columns.append([None] * len(counts))
        elif not is_total(metric):
            columns.append(pointwise(lambda value, count: value * count if count else None, values, counts))
        else:
            columns.append(values)
    return list(zip(*columns, strict=True))


def _goals(hpa: HorizontalPodAutoscaler, options: AdviceOptions) -> list[float]:
    """Returns the value per replica above which each metric asks for more."""
    most = 1 + allowed(hpa, options.tunables).up
    return [goal_of(metric) * most for metric in compiled_spec(hpa).metrics]


def _levels(hpa: HorizontalPodAutoscaler, options: AdviceOptions) -> list[float]:
    metrics = compiled_spec(hpa).metrics
    return [
        max(_OVERLOADED, goal) if is_cpu_utilization(metric) else goal
        for metric, goal in zip(metrics, _goals(hpa, options), strict=True)
    ]


def _needed(rows: Sequence[Row], limits: Sequence[float]) -> list[float | None]:
    """Returns for each row the replicas with which the metric that needs most of them is at its limit."""
    factors = [1 / limit if limit > 0 else math.inf for limit in limits]
    if len(factors) == 1:
        (factor,) = factors
        return [None if value is None else value * factor for (value,) in rows]
    return [
        max((value * factor for value, factor in zip(row, factors, strict=True) if value is not None), default=None)
        for row in rows
    ]


def _with_backlogs(
    times: Sequence[float], rows: Sequence[Row], columns: Sequence[str], backlogs: Mapping[str, Backlog]
) -> tuple[Sequence[float], list[Row]]:
    """Returns the rows at the times of the simulated backlogs, with their messages."""
    seen = {name: each.seen for name, each in backlogs.items()}
    moments = [time for time, _ in next(iter(seen.values()))]
    found: list[Row] = []
    for index, moment in enumerate(moments):
        row = rows[bisect_right(times, moment) - 1]
        found.append(
            tuple(seen[name][index][1] if name in seen else value for name, value in zip(columns, row, strict=True))
        )
    return moments, found


def _split(load: LoadHistory) -> float:
    """Returns where the last days begin: after about five sevenths, a day at least on each side, or the end."""
    begin, end = load.times[0], load.times[-1]
    if end - begin < 2 * DAY:
        return end
    return min(max(begin + (end - begin) * 5 / 7, begin + DAY), end - DAY)
