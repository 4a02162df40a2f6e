"""Writes reconciles as scenarios and steps, in the format that `format` reads and `hpad replay` takes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from hpad.api import metrics, pod
from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, Scale, to_builtins
from hpad.api.metadata import ObjectMeta
from hpad.api.pod import Pod
from hpad.api.quantity import Quantity
from hpad.api.sample import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    RESOURCE,
    AdapterError,
    ExternalSample,
    ObjectSample,
    PodSample,
    Query,
)
from hpad.api.selector import Selector
from hpad.api.selector_syntax import Operator
from hpad.engine.fallback_policy import FallbackPolicy
from hpad.engine.history import History
from hpad.engine.settle import Outcome, Settlement
from hpad.engine.view import STALE, Competitor, Tunables, View, Withheld
from hpad.recording.format import Answer, Reading, Step, converted


def metrics_lists(
    queries: Sequence[Query | AdapterError], answers: Sequence[Answer], labels: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """podMetrics, customMetrics and externalMetrics behind the answers, as far as there can be such lists.

    `labels` are those of the pods, by name.
    """
    lists: dict[str, Any] = {}
    usages: list[tuple[Query, PodSample]] = []
    for query, answer in zip(queries, answers, strict=True):
        if isinstance(query, AdapterError):
            continue
        if query.type in (RESOURCE, CONTAINER_RESOURCE):
            if isinstance(answer, PodSample):
                usages.append((query, answer))
            else:
                lists["podMetrics"] = _failure(metrics.RESOURCE_API, answer)
        elif query.type == EXTERNAL:
            lists.setdefault("externalMetrics", {})[query.name] = _series(query, answer)
        else:
            lists.setdefault("customMetrics", {})[query.name] = _values(query, answer)
    if usages:
        lists["podMetrics"] = {"items": _usages(usages, labels)}
    return lists


def _failure(api: str, answer: Answer) -> dict[str, Any]:
    """A list that failed, or an empty one."""
    prefix = metrics.fetch_failed(api, "").message
    if isinstance(answer, AdapterError) and answer.message.startswith(prefix):
        return {"error": answer.message.removeprefix(prefix)}
    return {"items": []}


def _series(query: Query, answer: Answer) -> dict[str, Any]:
    if not isinstance(answer, ExternalSample):
        return _failure(metrics.EXTERNAL_API, answer)
    when = to_builtins(answer.timestamp)
    items = [{"metricName": query.name, "timestamp": when, "value": _text(value)} for value in answer.values]
    return {"items": items}


def _values(query: Query, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, ObjectSample):
        described = to_builtins(query.object)
        return {"items": [_custom(described, answer.timestamp, answer.value)]}
    if not isinstance(answer, PodSample):
        return _failure(metrics.CUSTOM_API, answer)
    items = []
    for name, held in answer.values.items():
        item = _custom({"kind": "Pod", "name": name, "apiVersion": "v1"}, held.timestamp, held.value)
        items.append(item | {"windowSeconds": int(held.window.total_seconds())})
    return {"items": items}


def _custom(described: Any, when: datetime, value: int) -> dict[str, Any]:
    return {"describedObject": described, "timestamp": to_builtins(when), "value": _text(value)}


def _usages(usages: Sequence[tuple[Query, PodSample]], labels: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """PodMetrics items: the containers that were asked for, and one more that uses the rest of the pod's usage."""
    items: dict[str, dict[str, Any]] = {}
    used: dict[str, dict[str, dict[str, int]]] = {}
    for query, sample in sorted(usages, key=lambda usage: usage[0].container == ""):
        selected = _labels_selected(query.pods)
        for name, held in sample.values.items():
            items[name] = {
                "metadata": {"name": name, "labels": dict(labels.get(name, selected))},
                "timestamp": to_builtins(held.timestamp),
                "window": f"{held.window.total_seconds():g}s",
            }
            containers = used.setdefault(name, {})
            others = sum(usage.setdefault(query.name, 0) for usage in containers.values()) if not query.container else 0
            containers.setdefault(query.container, {})[query.name] = held.value - others
    for name, containers in used.items():
        items[name]["containers"] = [
            {"name": container, "usage": {resource: _text(value) for resource, value in usage.items()}}
            for container, usage in containers.items()
        ]
    return list(items.values())


def _labels_selected(pods: Selector | None) -> dict[str, str]:
    """Labels that the selector matches, for a pod that was not listed; only equality terms can be met."""
    terms = () if pods is None else pods.requirements
    return {term.key: term.values[0] for term in terms if term.operator in (Operator.IN, Operator.EQUALS)}


def _text(milli: int) -> str:
    return str(Quantity.from_milli(milli))


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
    terms: Sequence[FallbackPolicy] = (),
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


def _put(terms: FallbackPolicy) -> dict[str, str]:
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


_CONFLICT = "conflict"


class RecordedReconcile(NamedTuple):
    """What one reconcile saw and did."""

    view: View
    queries: Sequence[Query | AdapterError]
    answers: Sequence[Answer]
    outcome: Outcome | None
    scale_to: int | None
    settlement: Settlement


def encode_head(done: RecordedReconcile, name: str) -> dict[str, Any]:
    """Returns the scenario without its steps: the HPA and its history before this reconcile."""
    view = done.view
    known_as = ObjectMeta(name=view.hpa.metadata.name, namespace=view.hpa.metadata.namespace)
    hpa = msgspec.structs.replace(view.hpa, metadata=known_as)
    scenario = encode_scenario(name, hpa, view.tunables, view.history, ())
    del scenario["steps"]
    return scenario


def encode_reconcile(done: RecordedReconcile, *, new_spec: bool) -> dict[str, Any]:
    """Returns one step: the inputs, and the results under `expect`. The spec is included if it is new."""
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
    return {**seen, "expect": results(done.scale_to, done.outcome, done.settlement)}


def _update_errors(outcome: Outcome | None) -> list[str]:
    if outcome is None or outcome.withheld is not None:
        return []
    conflicts = [_CONFLICT] * max(len(outcome.attempts) - 1, 0)
    return conflicts if outcome.error is None else [*conflicts, outcome.error]


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
