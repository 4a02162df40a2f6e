"""Runs a spec over the past of one HPA, and says how it did on the first and on the last days."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.clock import MICROSECOND
from hpad.engine.spec import compiled_spec
from hpad.simulation.advice.assessment import Curve, Figures
from hpad.simulation.advice.model.course import Course, figures
from hpad.simulation.advice.model.leap import LeapRun
from hpad.simulation.advice.model.load_model import LoadModel, reduced
from hpad.simulation.history import is_total, named
from hpad.simulation.past import PastModel
from hpad.simulation.run import BEYOND

__all__ = ["LoadModel", "Rerun", "rerun"]


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
    hpa = reduced(hpa, model.kept) if len(hpa.spec.metrics) != len(model.kept) else hpa
    workload, plan = model.workload(hpa), model.plan
    seen = None if every_turn else LoadReader(model, hpa, workload)
    left = LeapRun(hpa, workload, model.options.tunables, plan, seen).done()
    course = Course(
        counts=[(plan.at(turn).timestamp(), count) for turn, count in left.counts],
        ready=[(plan.at(turn).timestamp(), count) for turn, count in left.ready],
        end=model.load.times[-1],
    )
    needs = model.needs(hpa, workload.backlogs)
    return Rerun(
        curve=[*course.counts, (course.end, course.counts[-1][1])],
        chosen=figures(course, needs, model.load.times[0], model.split),
        checked=figures(course, needs, model.split, course.end),
        held=left.held,
        turns=left.turns,
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
