"""Runs a spec over the past of one HPA, and says how it did on the first and on the last days."""

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.simulation import backtest
from hpad.simulation.advice.assessment import AdviceOptions, Curve, Figures
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.history import HistoryError
from hpad.simulation.outcome import SimulatedOutcome
from hpad.simulation.past import PastLoad, PastModel


class LoadModel(NamedTuple):
    """The past of one HPA as a load for any spec of it. `notes` say what is assumed."""

    past: HpaPast
    options: AdviceOptions
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, past: HpaPast, options: AdviceOptions) -> "LoadModel | None":
        """Returns the model; None if a metric has no values."""
        try:
            cls(past, options).workload(past.hpa)
        except HistoryError:
            return None
        return cls(past, options)

    def workload(self, hpa: HorizontalPodAutoscaler) -> PastModel:
        options = self.options
        return PastModel(hpa, self.past.load, PastLoad(options.startup, options.lag, queues=self.past.queues))


class Rerun(NamedTuple):
    """How a spec did: `chosen` on the first days, `checked` on the last ones.

    `held`: the seconds in which a window or policy kept the count from what the metrics asked for, by its path.
    """

    curve: Curve
    chosen: Figures
    checked: Figures
    held: Mapping[str, float] = {}


def rerun(hpa: HorizontalPodAutoscaler, model: LoadModel) -> Rerun:
    """Runs a spec over the whole past."""
    load, options = model.past.load, model.options
    period = timedelta(seconds=max(options.period, load.step))
    result = backtest.over("", hpa, model.workload(hpa), load, period, options.tunables)
    figures = _figures(result.outcome)
    return Rerun([(at.timestamp(), count) for at, count in result.curve], figures, figures)


def _figures(outcome: SimulatedOutcome) -> Figures:
    return Figures(
        seconds=outcome.seconds,
        replica_seconds=outcome.replica_seconds,
        above_goal=outcome.above_goal,
        overloaded=outcome.above_goal,
        rescales=len(outcome.rescales),
        flaps=outcome.flaps,
        lowest=outcome.lowest,
        highest=outcome.highest,
    )
