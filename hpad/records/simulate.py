"""Decides recorded inputs under a changed spec, beside the decisions under the recorded one.

State, status and the replica count run on under the new decisions. Metrics, pods and the rest of each step are those
of the recording. They were measured with the recorded count: from the first turn that leaves another count, they are
no longer what this workload would have had. No value is adjusted to the simulated count, since nobody knows how the
workload would have answered, unless a model of the workload is given (`hpad.simulation.past`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, Scale, ScaleSpec
from hpad.api.sample import AdapterError, Query, Sample
from hpad.engine import annotations
from hpad.engine.examine import examine
from hpad.engine.fallback_policy import FallbackPolicy
from hpad.engine.history import History
from hpad.engine.shadow import Modelled
from hpad.engine.turn import Reconcile
from hpad.engine.view import DRY_RUN, View, yields_to
from hpad.records import replay, spec_changes
from hpad.records.format import Scenario, Step, decode_step
from hpad.records.spec_changes import Change, ChangeError

_NO_POLICY: Final = FallbackPolicy()


class NotRecorded(AdapterError):
    """The answer to a query that the recording has no answer for."""


class ComparedTurn(NamedTuple):
    """One step, decided under the recorded and under the changed spec."""

    recorded: Reconcile
    changed: Reconcile


Model = Callable[[View, Sequence[Sample | AdapterError], int], Modelled]
"""Takes the changed view with its simulated count, the recorded answers, and the count they were recorded with."""


class Simulation:
    """Simulates the scenarios of one HPA under a changed spec.

    A scenario that begins with the state in which the one before ended continues it; any other one starts with the
    recorded state and count (see `continues`).
    """

    def __init__(
        self,
        changes: Sequence[Change],
        spec: HorizontalPodAutoscalerSpec | None = None,
        model: Model | None = None,
    ) -> None:
        """`spec` replaces the recorded one, before `changes`. Without a `model`, answers stay as recorded."""
        self._changes = tuple(changes)
        self._given = spec
        self._model = model
        self._spec: tuple[HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerSpec] | None = None
        self._restart()

    def _restart(self) -> None:
        """Forgets all that was simulated."""
        self._last: Reconcile | None = None
        self._hpa: HorizontalPodAutoscaler | None = None
        self._history = History()
        self._count: int | None = None
        self._expected: int | None = None
        self._withheld: set[str] = set()

    def continues(self, scenario: Scenario) -> bool:
        """Returns whether the scenario goes on where the one before ended: later, with the same HPA and its history."""
        last = self._last
        if last is None or not scenario.steps or last.view.hpa.key != scenario.hpa.key:
            return False
        first = decode_step(scenario.steps[0], "steps[0]")
        return first.time > last.view.now and last.settlement.history == scenario.history

    def run(self, scenario: Scenario) -> Iterator[ComparedTurn]:
        """Yields the turns of a scenario. Raises RecordingError, and ChangeError for a change that does not fit."""
        if not self.continues(scenario):
            self._restart()
            self._hpa, self._history = scenario.hpa, scenario.history
        self._withheld |= _withheld_reasons(scenario.steps)
        for index, (step, recorded) in enumerate(replay.steps(scenario)):
            changed, self._last = self._turn(step, recorded, f"steps[{index}]"), recorded
            yield ComparedTurn(recorded, changed)

    def _turn(self, step: Step, recorded: Reconcile, where: str) -> Reconcile:
        if self._is_reset(step):
            self._count = None
        changed = self._decide(step, recorded, where)
        self._hpa, self._history = changed.view.hpa, changed.settlement.history
        if changed.settlement.status_changed:
            self._hpa = msgspec.structs.replace(self._hpa, status=changed.settlement.status)
        if recorded.view.scale is not None:
            self._expected, count = after(recorded), after(changed)
            self._count = None if count == self._expected else count
        return changed

    def _is_reset(self, step: Step) -> bool:
        """Returns whether the recorded count is not what the decision before left: another client has set it."""
        known = None not in (self._count, self._expected) and step.scale is not None
        return known and step.scale is not None and step.scale.spec.replicas != self._expected

    def _decide(self, step: Step, recorded: Reconcile, where: str) -> Reconcile:
        view, step = recorded.view, self._withholding(step, recorded)
        assert self._hpa is not None
        hpa = msgspec.structs.replace(self._hpa, spec=self._changed_spec(view))
        changed = msgspec.structs.replace(view, hpa=hpa, history=self._history, scale=self._scale(view.scale))
        own = spec_changes.controlled(changed.hpa, view.controls, self._changes)
        changed = msgspec.structs.replace(
            changed,
            fallback_policies=self._policies(view, changed),
            controls=own,
            tunables=view.tunables.of_hpa(own),
        )
        if self._model is None or self._count is None or view.scale is None:
            return replay.reconcile(changed, step, lambda queries: _answers(recorded, queries), where)
        made = self._model(changed, _answers(recorded, examine(changed).queries), view.scale.spec.replicas)
        changed = msgspec.structs.replace(changed, pods=made.pods)
        return replay.reconcile(changed, step, lambda queries: made.answers, where)

    def _scale(self, scale: Scale | None) -> Scale | None:
        if scale is None or self._count is None:
            return scale
        status = msgspec.structs.replace(scale.status, replicas=self._count)
        return msgspec.structs.replace(scale, spec=ScaleSpec(self._count), status=status)

    def _withholding(self, step: Step, recorded: Reconcile) -> Step:
        """Returns the step with the reason for which a new count would not have been written, if there is one."""
        if recorded.outcome is not None:
            return step
        if DRY_RUN.reason in self._withheld:
            return msgspec.structs.replace(step, withheld=DRY_RUN)
        why = yields_to(step.competitors)
        if why is not None and why.reason in self._withheld:
            return msgspec.structs.replace(step, withheld=why)
        return step

    def _changed_spec(self, view: View) -> HorizontalPodAutoscalerSpec:
        """Returns the changed form of the recorded spec, made once for each spec."""
        if self._spec is None or self._spec[0] is not view.hpa.spec:
            gates = view.tunables.gates
            try:
                hpa = view.hpa if self._given is None else msgspec.structs.replace(view.hpa, spec=self._given)
                made = spec_changes.applied(hpa, self._changes, scale_to_zero=gates.HPAScaleToZero)
            except ChangeError as error:
                raise ChangeError(f"{error} (its spec at {view.now:%Y-%m-%dT%H:%M:%SZ})") from None
            self._spec = view.hpa.spec, made.spec
        return self._spec[1]

    def _policies(self, recorded: View, changed: View) -> tuple[FallbackPolicy, ...]:
        """Returns the policy of each metric: the recorded one of an equal query, replaced by changed annotations."""
        queries = [metric.query for metric in changed.spec.metrics]
        before = [metric.query for metric in recorded.spec.metrics]
        found = recorded.fallback_policies
        if queries != before and found:
            found = tuple(found[at] if at is not None else _NO_POLICY for at in _places(queries, before))
        found = spec_changes.annotated(changed.hpa, found, self._changes)
        if changed.spec.has_fallback:
            found = annotations.with_fallbacks(found or (_NO_POLICY,) * len(queries), changed.spec.metrics)
        return found if any(each != _NO_POLICY for each in found) else ()


def after(done: Reconcile) -> int:
    """Returns the replica count after a turn."""
    written = done.outcome is not None and (done.outcome.written or done.view.shadow is not None)
    return done.decision.scale_to if written and done.decision.scale_to is not None else done.view.replicas


def _answers(recorded: Reconcile, queries: Sequence[Query | AdapterError]) -> list[Sample | AdapterError]:
    """Returns the recorded answer to each query, and an error for a query that was not recorded."""
    asked = recorded.queries
    if tuple(queries) == asked:
        return list(recorded.answers)
    why = "the recorded spec does not ask for this metric" if asked else "the metrics were not read in this turn"
    missing = NotRecorded(f"not recorded: {why}")
    return [
        recorded.answers[at] if at is not None else query if isinstance(query, AdapterError) else missing
        for query, at in zip(queries, _places(queries, asked), strict=True)
    ]


def _places(wanted: Sequence[Any], known: Sequence[Any]) -> list[int | None]:
    """Returns where each entry stands in `known`, None if it does not; equal entries in their order."""
    found: list[int | None] = []
    for index, each in enumerate(wanted):
        places = [place for place, other in enumerate(known) if other == each]
        nth = sum(1 for other in wanted[:index] if other == each)
        found.append(places[min(nth, len(places) - 1)] if places else None)
    return found


def _withheld_reasons(steps: Sequence[Any]) -> set[str]:
    """Returns why counts were withheld in a scenario: a turn that kept the count does not say it."""
    found = (step.get("withheld") for step in steps if isinstance(step, dict))
    return {str(each.get("reason")) for each in found if isinstance(each, dict)}
