"""Writing scenarios and their steps."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from hpad.api import pod
from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, Scale, to_builtins
from hpad.api.pod import Pod
from hpad.api.quantity import Quantity
from hpad.api.sample import AdapterError, ObjectSample, PodSample, Query
from hpad.engine.fallback_policy import Terms
from hpad.engine.history import History
from hpad.engine.view import Competitor, Tunables, Withheld
from hpad.model.snapshot.lists import metrics_lists
from hpad.model.snapshot.scenario import Answer, Reading, Step, converted


def encode_scenario(
    name: str, hpa: HorizontalPodAutoscaler, tunables: Tunables, history: History, steps: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """A scenario as JSON-like builtins: the HPA as it was before the first step, and steps of `encode_step`."""
    gates = msgspec.structs.asdict(tunables.gates)
    value = {
        "id": name,
        "controller": {
            "tolerance": tunables.tolerance,
            "downscaleStabilizationSeconds": tunables.downscale_stabilization.total_seconds(),
            "cpuInitializationPeriodSeconds": tunables.cpu_initialization_period.total_seconds(),
            "initialReadinessDelaySeconds": tunables.initial_readiness_delay.total_seconds(),
            "featureGates": gates,
        },
        "hpa": to_builtins(hpa),
        "steps": list(steps),
    }
    if history != History():
        value["history"] = to_builtins(history)
    return value


def encode_step(
    *,
    now: datetime,
    pods: Sequence[Pod],
    queries: Sequence[Query | AdapterError],
    answers: Sequence[Answer],
    spec: HorizontalPodAutoscalerSpec | None = None,
    scale: Scale | None = None,
    scale_error: str | None = None,
    stale: bool = False,
    scale_update_errors: Sequence[str] = (),
    rivals: Sequence[str] = (),
    terms: Sequence[Terms] = (),
    terms_flaw: str | None = None,
    set_by_other: bool = False,
    competitors: Sequence[Competitor] = (),
    withheld: Withheld | None = None,
) -> dict[str, Any]:
    """A step as JSON-like builtins, from which `decode_step` reads the same again.

    `scale_update_errors` are the texts of failed writes in their order, "conflict" for a conflict. The metrics are
    written as the Kubernetes lists that would have given these answers, and as `answers` where no lists would.
    """
    value: dict[str, Any] = {"time": to_builtins(now)}
    if spec is not None:
        value["spec"] = to_builtins(spec)
    if scale is not None:
        value["scale"] = to_builtins(scale)
    if scale_error is not None:
        value["scaleError"] = scale_error
    value["pods"] = [pod.to_builtins(each, now) for each in pods]
    if terms_flaw is not None:
        value["termsFlaw"] = terms_flaw
    rest = {
        "stale": stale,
        "scaleUpdateErrors": list(scale_update_errors),
        "rivals": list(rivals),
        "terms": [_put(each) for each in terms],
        "setByOther": set_by_other,
        "competitors": to_builtins(competitors),
        "withheld": to_builtins(withheld),
    }
    value |= {name: told for name, told in rest.items() if told}
    listed = value | metrics_lists(queries, answers, {each.name: each.labels for each in pods})
    if _reads_back(listed, queries, answers):
        return listed
    return value | {"answers": [to_builtins(_reading(answer)) for answer in answers]}


def _put(terms: Terms) -> dict[str, str]:
    said: dict[str, str] = {}
    if terms.fallback is not None:
        said["fallback"] = str(terms.fallback)
    if terms.activation is not None:
        said["activation"] = str(Quantity.from_milli(terms.activation))
    return said


def _reads_back(value: Mapping[str, Any], queries: Sequence[Query | AdapterError], answers: Sequence[Answer]) -> bool:
    step: Step = converted(value, Step, "")
    return step.answer(queries) == list(answers)


def _reading(answer: Answer) -> Reading:
    if isinstance(answer, AdapterError):
        return Reading(error=answer.message, blame=answer.blame)
    if isinstance(answer, PodSample):
        return Reading(pods=dict(answer.values), timestamp=answer.timestamp)
    if isinstance(answer, ObjectSample):
        return Reading(value=answer.value, timestamp=answer.timestamp)
    return Reading(values=answer.values, timestamp=answer.timestamp)
