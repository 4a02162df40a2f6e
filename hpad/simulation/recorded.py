"""Backtests over a recording: its answers as they are while the count is the recorded one, else scaled to the count.

The total of a metric of pods over the counted pods is taken as the load, which the simulated replicas share evenly.
Object and External metrics are totals, unless they are said to be shared.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerSpec
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, PodSample, Sample
from hpad.engine.addresses import addresses
from hpad.engine.view import View
from hpad.recording.format import Scenario
from hpad.recording.simulate import Modelled, Simulation, after
from hpad.recording.spec_changes import Change
from hpad.simulation.backtest import Result
from hpad.simulation.outcome import FLAP, Tally

Answer = Sample | AdapterError
_COPY: Final = "~"
"""Stands between the name of a recorded pod and the number of its copy."""


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
                        tally.add(now, step.view.replicas, after(step), step.view, step.decision)
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


def evenly(view: View, answers: Sequence[Answer], recorded: int, shared: Collection[str] = ()) -> Modelled:
    """Returns pods and answers for the count of the view, from those of `recorded` replicas.

    The recorded pods stay, the first ones, or are copied, so that shares of pods that are not ready stay as they were.
    """
    count = view.replicas
    pods = _pods(view.pods, count)
    if not answers:  # nothing was asked in this turn
        return Modelled(pods, answers)
    pairs = zip(answers, addresses(view.spec.metrics), strict=True)
    return Modelled(pods, [_scaled(answer, name in shared, view.pods, pods, recorded) for answer, name in pairs])


def _pods(pods: Sequence[Pod], count: int) -> Sequence[Pod]:
    if count <= len(pods) or not pods:
        return pods[:count]
    copies = [
        msgspec.structs.replace(pods[index % len(pods)], name=_copy(pods[index % len(pods)].name, index // len(pods)))
        for index in range(len(pods), count)
    ]
    return [*pods, *copies]


def _copy(name: str, number: int) -> str:
    return f"{name}{_COPY}{number}"


def _scaled(answer: Answer, is_shared: bool, before: Sequence[Pod], now: Sequence[Pod], recorded: int) -> Answer:
    count = len(now)
    if isinstance(answer, AdapterError):
        return answer
    if isinstance(answer, PodSample):
        return _shared_among(answer, before, now)
    if not is_shared or not count:
        return answer
    if isinstance(answer, ObjectSample):
        return ObjectSample(round(answer.value * recorded / count), answer.timestamp)
    return ExternalSample(tuple(round(value * recorded / count) for value in answer.values), answer.timestamp)


def _shared_among(sample: PodSample, before: Sequence[Pod], now: Sequence[Pod]) -> PodSample:
    """Returns the values of the pods: those of the pods they are copies of, scaled so that the total stays."""
    known = {pod.name: sample.values[pod.name] for pod in before if pod.name in sample.values}
    total = sum(value.value for value in known.values())
    copied = {pod.name: known[_original(pod.name, known)] for pod in now if _original(pod.name, known) in known}
    sums = sum(value.value for value in copied.values())
    factor = total / sums if sums else 1.0
    values = {name: msgspec.structs.replace(each, value=round(each.value * factor)) for name, each in copied.items()}
    return PodSample(values, sample.timestamp)


def _original(name: str, known: Collection[str]) -> str:
    return name if name in known else name.rpartition(_COPY)[0]
