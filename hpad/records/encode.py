"""Writes reconciles as scenarios and steps, in the format that `format` reads and `hpad replay` takes."""

from typing import Any, Final

import msgspec

from hpad.api.hpa import AUTOSCALER, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, to_builtins
from hpad.api.metadata import ObjectMeta
from hpad.api.quantity import Quantity
from hpad.api.sample import AdapterError, Answer, ObjectSample, PodSample
from hpad.engine.fallback_policy import FallbackPolicy
from hpad.engine.history import History
from hpad.engine.settle import Outcome, Settlement
from hpad.engine.turn import Reconcile
from hpad.engine.view import STALE, TOO_LARGE, Tunables
from hpad.records.format import CONFLICT, Controller, FallbackText, Reading, Scenario, Step, encode_step

_MAX_STEPS: Final = 5760
"""Steps of one scenario: a day with the default sync period. Replaying one step needs all earlier ones of its line."""
LINE_END: Final = b"]}\n"


class Progress(msgspec.Struct):
    """The last scenario of an HPA: its number of steps, and the HPA, history and tunables after the last step.

    `steps` is 0 if there is no scenario that can be continued.
    """

    steps: int = 0
    uid: str = ""
    spec: HorizontalPodAutoscalerSpec | None = None
    generation: int = 0
    history: History | None = None
    tunables: Tunables | None = None

    def continued_by(self, done: Reconcile) -> bool:
        """Returns whether the reconcile follows from the last step; if not, another scenario begins."""
        view = done.view
        follows = view.history == self.history and view.tunables == self.tunables
        return self.steps not in (0, _MAX_STEPS) and follows and view.hpa.metadata.uid == self.uid

    def step(self, done: Reconcile) -> bytes:
        """Returns the JSON of the next step of this scenario."""
        hpa, begun = done.view.hpa, self.steps > 0
        generation = _generation(hpa) if begun and _generation(hpa) != self.generation else 0
        new_spec = begun and hpa.spec != self.spec
        return msgspec.json.encode(encode_reconcile(done, new_spec=new_spec, generation=generation))

    def add(self, done: Reconcile) -> None:
        """Counts the reconcile as the next step."""
        self.steps += 1
        self.uid, self.spec = done.view.hpa.metadata.uid, done.view.hpa.spec
        self.generation = _generation(done.view.hpa)
        self.history, self.tunables = done.settlement.history, done.view.tunables


def _generation(hpa: HorizontalPodAutoscaler) -> int:
    """Returns the generation, which the status of an Autoscaler reports; 0 for an HPA."""
    return hpa.metadata.generation if hpa.kind == AUTOSCALER else 0


def encode_start(done: Reconcile, name: str) -> bytes:
    """Returns the begin of a line, up to the first step of the scenario."""
    return msgspec.json.encode(encode_head(done, name))[:-1] + b',"steps":['


def encode_alone(done: Reconcile) -> bytes:
    """Returns the line of a scenario of this reconcile alone, without its results."""
    return encode_start(done, "") + msgspec.json.encode(_inputs(done, new_spec=False)) + LINE_END


def encode_head(done: Reconcile, name: str) -> dict[str, Any]:
    """Returns a scenario without steps as JSON-like builtins: the HPA and its history before this reconcile.

    Of the HPA's metadata only name, namespace, the generation of an Autoscaler and the time that
    `hpad.io/initial-delay` counts from are written, because labels and annotations may be confidential.
    """
    view, tunables = done.view, done.view.tunables
    whole = view.hpa.metadata
    generation = _generation(view.hpa)
    metadata = ObjectMeta(
        name=whole.name,
        namespace=whole.namespace,
        generation=generation,
        creation_timestamp=None if view.controls.initial_delay is None else whole.creation_timestamp,
    )
    scenario = Scenario(
        id=name,
        controller=Controller(
            tolerance=tunables.tolerance,
            downscale_stabilization_seconds=tunables.downscale_stabilization.total_seconds(),
            cpu_initialization_period_seconds=tunables.cpu_initialization_period.total_seconds(),
            initial_readiness_delay_seconds=tunables.initial_readiness_delay.total_seconds(),
            feature_gates=msgspec.structs.asdict(tunables.gates),
        ),
        hpa=msgspec.structs.replace(view.hpa, metadata=metadata),
        history=msgspec.structs.replace(view.history, recommendations=tuple(view.history.recommendations)),
    )
    value: dict[str, Any] = to_builtins(scenario)
    return value


def encode_reconcile(done: Reconcile, *, new_spec: bool, generation: int = 0) -> dict[str, Any]:
    """Returns one step as JSON-like builtins: the inputs, and the results under `expect`.

    The spec is included if it is new, and the `generation` of an Autoscaler (0: it is that of the step before).
    """
    expected = results(done.decision.scale_to, done.outcome, done.settlement)
    return _inputs(done, new_spec=new_spec, generation=generation) | {"expect": expected}


def _inputs(done: Reconcile, *, new_spec: bool, generation: int = 0) -> dict[str, Any]:
    view, outcome = done.view, done.outcome
    step = Step(
        time=view.now,
        spec=view.hpa.spec if new_spec else None,
        generation=generation,
        scale=view.scale,
        scale_error=None if view.scale_error is None else view.scale_error.message,
        stale=view.scale_error is not None and view.scale_error.reason == STALE,
        too_large=view.scale_error is not None and view.scale_error.reason == TOO_LARGE,
        scale_update_errors=_update_errors(outcome),
        recorded_overlapping_hpas=tuple(view.overlapping_hpas) or None,
        fallback_texts=tuple(map(_fallback_text, view.fallback_policies)),
        annotation_error=view.annotation_error,
        annotation_reason=view.annotation_reason,
        control_texts=dict(view.controls.texts),
        set_by_other=view.set_by_other,
        zero_by=view.zero_by,
        competitors=tuple(view.competitors),
        values_held=view.values_held,
        withheld=None if outcome is None else outcome.withheld,
        unsure=outcome is not None and outcome.unsure,
        timing=done.timing,
        shadow=view.shadow,
        answers=tuple(map(_reading, done.answers)) or None,
        work=None if done.work is None else tuple(map(_reading, done.work)),
        shares=done.shares,
        pods=tuple(view.pods),
    )
    return encode_step(step)


def results(scale_to: int | None, outcome: Outcome | None, settlement: Settlement) -> dict[str, Any]:
    """Returns the results of a reconcile, as `hpad replay` prints them and a recording holds them under `expect`."""
    written = outcome is not None and outcome.written
    return {
        "scaleTo": scale_to if written else None,
        "scaleUpdateAttempts": [] if outcome is None else list(outcome.attempts),
        "statusUpdate": to_builtins(settlement.status) if settlement.status_changed else None,
        "events": [[event.type, event.reason, event.message] for event in settlement.events],
        "error": settlement.error,
        "action": settlement.action,
        "errorLabel": settlement.error_label,
        "metricComputations": [list(labels) for labels in settlement.metric_computations],
    }


def _update_errors(outcome: Outcome | None) -> tuple[str, ...]:
    """Returns the texts of failed writes in their order: every attempt but the last met a conflict."""
    if outcome is None or outcome.withheld is not None:
        return ()
    conflicts = (CONFLICT,) * max(len(outcome.attempts) - 1, 0)
    return conflicts if outcome.error is None else (*conflicts, outcome.error)


def _fallback_text(policy: FallbackPolicy) -> FallbackText:
    return FallbackText(
        fallback=None if policy.fallback is None else str(policy.fallback),
        activation=None if policy.activation is None else str(Quantity.from_milli(policy.activation)),
    )


def _reading(answer: Answer) -> Reading:
    if isinstance(answer, AdapterError):
        return Reading(error=answer.message, blame=answer.blame)
    if isinstance(answer, PodSample):
        return Reading(pods=dict(answer.values), timestamp=answer.timestamp, most_busy=answer.most_busy)
    if isinstance(answer, ObjectSample):
        return Reading(value=answer.value, timestamp=answer.timestamp)
    return Reading(values=answer.values, timestamp=answer.timestamp, note=answer.note)
