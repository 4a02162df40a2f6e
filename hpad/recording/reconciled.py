"""A reconcile as JSON-like builtins, in the scenario format that `hpad replay` reads (`model.snapshot`)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from hpad.api.hpa import to_builtins
from hpad.api.metadata import ObjectMeta
from hpad.api.sample import AdapterError, Query, Sample
from hpad.engine import settle
from hpad.engine.view import STALE, View
from hpad.recording.encode import encode_scenario, encode_step

_CONFLICT = "conflict"


class Reconciled(NamedTuple):
    """What one reconcile saw and did."""

    view: View
    queries: Sequence[Query | AdapterError]
    answers: Sequence[Sample | AdapterError]
    outcome: settle.Outcome | None
    scale_to: int | None
    settlement: settle.Settlement


def head(done: Reconciled, name: str) -> dict[str, Any]:
    """The scenario without its steps: what the HPA was, and what was remembered of it, before this reconcile."""
    view = done.view
    known_as = ObjectMeta(name=view.hpa.metadata.name, namespace=view.hpa.metadata.namespace)
    hpa = msgspec.structs.replace(view.hpa, metadata=known_as)
    scenario = encode_scenario(name, hpa, view.tunables, view.history, ())
    del scenario["steps"]
    return scenario


def step(done: Reconciled, *, new_spec: bool) -> dict[str, Any]:
    """One step: what was seen, and under `expect` what came of it. The spec is written where it is new."""
    view = done.view
    seen = encode_step(
        now=view.now,
        pods=view.pods,
        queries=done.queries,
        answers=done.answers,
        spec=view.hpa.spec if new_spec else None,
        scale=view.scale,
        scale_error=None if view.scale_error is None else view.scale_error.message,
        stale=view.scale_error is not None and view.scale_error.reason == STALE,
        scale_update_errors=_update_errors(done.outcome),
        rivals=view.competing_hpas,
        terms=view.fallback_policies,
        terms_flaw=view.fallback_error,
        set_by_other=view.set_by_other,
        competitors=view.competitors,
        withheld=None if done.outcome is None else done.outcome.withheld,
    )
    return {**seen, "expect": _expected(done)}


def _update_errors(outcome: settle.Outcome | None) -> list[str]:
    if outcome is None or outcome.withheld is not None:
        return []
    conflicts = [_CONFLICT] * max(len(outcome.attempts) - 1, 0)
    return conflicts if outcome.error is None else [*conflicts, outcome.error]


def _expected(done: Reconciled) -> dict[str, Any]:
    settlement, outcome = done.settlement, done.outcome
    written = outcome is not None and outcome.written
    return {
        "scaleTo": done.scale_to if written else None,
        "scaleUpdateAttempts": list(outcome.attempts) if outcome is not None else [],
        "statusUpdate": to_builtins(settlement.status) if settlement.status_changed else None,
        "events": [[event.type, event.reason, event.message] for event in settlement.events],
        "error": settlement.error,
        "action": settlement.action,
        "errorLabel": settlement.error_label,
        "metricComputations": [list(labels) for labels in settlement.metric_computations],
    }
