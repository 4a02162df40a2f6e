"""Runs a spec over the past of one HPA, and says how it did on the first and on the last days."""

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.clock import MICROSECOND
from hpad.engine.spec import compiled_spec
from hpad.simulation.advice.assessment import Curve, Figures
from hpad.simulation.advice.model.leap import Course, LeapRun
from hpad.simulation.advice.model.load_model import LoadModel, Needs, reduced
from hpad.simulation.advice.rescales import Leg, flaps
from hpad.simulation.history import is_total, named
from hpad.simulation.past import PastModel
from hpad.simulation.run import BEYOND


class Rerun(NamedTuple):
    """How a spec did: `chosen` on the first days, `checked` on the last ones; without last days that is of no seconds.

    `held`: the seconds in which a window or policy kept the count from what the metrics asked for, by its path:
    "behavior.scaleDown.stabilizationWindowSeconds", "behavior.scaleUp.policies" and so on. `turns` is the number of
    turns that the engine ran.
    """

    curve: Curve
    chosen: Figures
    checked: Figures
    held: Mapping[str, float] = {}
    turns: int = 0


def rerun(hpa: HorizontalPodAutoscaler, model: LoadModel, *, every_turn: bool = False) -> Rerun:
    """Runs a spec over the whole past, from the recorded count on. `every_turn`: leaves none out.

    `hpa` is the HPA of the model with other settings; its metrics are the same ones.
    """
    hpa = reduced(hpa, model.kept)
    workload, begin, end = model.workload(hpa), model.load.times[0], model.load.times[-1]
    seen = None if every_turn else LoadReader(model, hpa, workload).values
    course = LeapRun(hpa, workload, model.options.tunables, model.plan, seen).done()
    needs = model.needs(hpa, workload.backlogs)
    return Rerun(
        curve=[*course.counts, (end, course.counts[-1][1])],
        chosen=figures(course, needs, begin, model.split),
        checked=figures(course, needs, model.split, end),
        held=course.held,
        turns=course.turns,
    )


class LoadReader:
    """What turns read of a load (`leap.TurnInputs`): what `PastModel` answers while all replicas are ready."""

    def __init__(self, model: LoadModel, hpa: HorizontalPodAutoscaler, workload: PastModel) -> None:
        self._start = model.load.times[0]
        self._period = (timedelta(seconds=model.options.period) + BEYOND) // MICROSECOND
        self._lag = model.options.lag
        self._shared = [not is_total(metric) for metric in compiled_spec(hpa).metrics]
        self._backlogs = [workload.backlogs.get(name) for name in named(hpa)] if workload.backlogs else []
        self._begins, self._rows = model.steps
        self._index = 0

    def values(self, turn: int, count: int) -> tuple[int, Sequence[float | None]]:
        begins = self._begins
        while begins[self._index + 1] <= turn:
            self._index += 1
        shown = [
            value / count if shared and value is not None else value
            for value, shared in zip(self._rows[self._index], self._shared, strict=True)
        ]
        if not self._backlogs:
            return begins[self._index + 1], shown
        now = self._start + turn * self._period / 1e6
        for index, backlog in enumerate(self._backlogs):
            if backlog is not None:
                backlog.advance(now, count)
                shown[index] = backlog.at(max(now - self._lag, self._start))
        return turn + 1, shown


def figures(course: Course, needs: Needs, begin: float, end: float) -> Figures:
    """Returns the figures from `begin` to `end`."""
    parts = list(_parts(course.counts, begin, end))
    counts = [count for _, _, count in parts]
    changes = itertools.pairwise(course.counts)
    rescales = [
        Leg(time, time, before, count)
        for (_, before), (time, count) in changes
        if begin <= time < end and count != before
    ]
    return Figures(
        seconds=max(0.0, end - begin),
        replica_seconds=sum((later - time) * count for time, later, count in parts),
        above_goal=_short(course.ready, needs, needs.goal, (begin, end)),
        overloaded=_short(course.ready, needs, needs.level, (begin, end)),
        rescales=len(rescales),
        flaps=flaps(rescales),
        lowest=min(counts, default=0),
        highest=max(counts, default=0),
    )


def _parts(steps: Curve, begin: float, end: float) -> Iterator[tuple[float, float, int]]:
    """Yields begin, end and count of each part of the time in which the count stays."""
    first = max(0, bisect_right(steps, begin, key=lambda each: each[0]) - 1)
    for index in range(first, len(steps)):
        time, count = steps[index]
        if time >= end:
            return
        later = steps[index + 1][0] if index + 1 < len(steps) else end
        if min(later, end) > max(time, begin):
            yield max(time, begin), min(later, end), count


def _short(ready: Curve, needs: Needs, needed: Sequence[float | None], span: tuple[float, float]) -> float:
    """Returns the seconds of the span with fewer ready replicas than needed."""
    times, longest, seconds = needs.times, needs.longest, 0.0
    last, index = len(times) - 1, max(0, bisect_right(times, span[0]) - 1)
    for begin, end, count in _parts(ready, *span):
        while index < last and times[index + 1] <= begin:
            index += 1
        while True:
            need, time = needed[index], times[index]
            later = times[index + 1] if index < last else end
            if need is not None and need > count:
                seconds += max(0.0, min(later, end, time + longest) - max(time, begin))
            if later >= end or index == last:
                break
            index += 1
    return seconds
