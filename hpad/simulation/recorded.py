"""Backtests over a recording: its answers as they are while the count is the recorded one, else scaled to the count.

How they are scaled is said in `hpad.engine.shadow`.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from hpad.api.hpa import HorizontalPodAutoscalerSpec
from hpad.api.sample import AdapterError, Sample
from hpad.engine.shadow import Modelled, evenly
from hpad.engine.view import View
from hpad.records.format import Scenario
from hpad.records.simulate import Simulation, after
from hpad.records.spec_changes import Change
from hpad.simulation.backtest import Result
from hpad.simulation.outcome import FLAP, Tally, wanted

Answer = Sample | AdapterError


class Runs:
    """Both curves of a recording: as recorded, and as one spec would have decided; add its scenarios in their order."""

    def __init__(
        self,
        name: str,
        changes: Sequence[Change] = (),
        spec: HorizontalPodAutoscalerSpec | None = None,
        shared: Collection[str] = (),
    ) -> None:
        self._name = name
        self._shared = shared
        self._modelled = 0
        self._since: datetime | None = None
        self._simulation = Simulation(changes, spec, self._model)
        self._recorded, self._changed = Tally(FLAP), Tally(FLAP)
        self._curves: tuple[list[tuple[datetime, int]], list[tuple[datetime, int]]] = ([], [])

    def add(self, scenario: Scenario, begin: datetime | None = None, end: datetime | None = None) -> None:
        """Decides a scenario, and counts its turns from `begin` to `end`.

        Raises RecordingError, and ChangeError for a change that does not fit.
        """
        for turn in self._simulation.run(scenario):
            now = turn.changed.view.now
            if (begin is None or begin <= now) and (end is None or now <= end):
                sides = ((turn.recorded, self._recorded, 0), (turn.changed, self._changed, 1))
                for step, tally, index in sides:
                    if step.view.scale is not None:
                        tally.add(step.view, step.decision, after(step), wanted(step.view, step.decision))
                        self._curves[index].append((now, after(step)))

    @property
    def recorded(self) -> Result:
        return Result("recorded", self._curves[0], self._recorded.outcome())

    @property
    def changed(self) -> Result:
        return Result(self._name, self._curves[1], self._changed.outcome(), self._modelled, self._since)

    def _model(self, view: View, answers: Sequence[Answer], recorded: int) -> Modelled:
        self._modelled += 1
        self._since = self._since or view.now
        return evenly(view, answers, recorded, self._shared)
