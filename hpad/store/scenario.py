"""A reconcile as JSON-like builtins, in the scenario format that `hpad replay` reads.

Samples are written as the metrics lists that would give them. What the format cannot say is lost: two metrics of one
name that differ in their selector become one, and a source's error is read back as if a metrics API had given it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from hpad.engine import examine, settle
from hpad.model import hpa as hpas
from hpad.model.pod import Pod
from hpad.model.sample import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    RESOURCE,
    AdapterError,
    ExternalSample,
    ObjectSample,
    PodSample,
    PodValue,
    Query,
    Sample,
)
from hpad.model.tunables import Tunables

_REST = "rest-of-the-pod"
_NONE_RETURNED = "no metrics returned from"
_FETCHING = ("resource", "custom", "external")


class Reconciled(NamedTuple):
    """What one reconcile saw and did."""

    view: examine.View
    answers: Sequence[Sample | AdapterError]
    outcome: settle.Outcome | None
    scale_to: int | None
    settlement: settle.Settlement


def head(done: Reconciled, name: str) -> dict[str, Any]:
    """The scenario without its steps, starting from what the HPA was before this reconcile."""
    view = done.view
    hpa = hpas.to_builtins(view.hpa)
    hpa["metadata"] = {"name": view.hpa.metadata.name, "namespace": view.hpa.metadata.namespace}
    selector = view.scale.status.selector if view.scale is not None else ""
    rivals = {"otherHpaSelectors": dict.fromkeys(view.rivals, selector)} if view.rivals else {}
    return {"id": name, "controller": _controller(view.tunables), "hpa": hpa, **rivals}


def step(done: Reconciled, *, new_spec: bool) -> dict[str, Any]:
    """One step: what was seen, and under `expect` what came of it. The spec is written where it is new."""
    view = done.view
    scale = {"scaleError": view.scale_error} if view.scale is None else {"scale": msgspec.to_builtins(view.scale)}
    return {
        "time": _time(view.now),
        **({"spec": hpas.to_builtins(view.hpa.spec)} if new_spec else {}),
        **scale,
        "scaleUpdateErrors": _update_errors(done.outcome),
        "pods": [_pod(pod, view.now) for pod in view.pods],
        **_metrics(view, done.answers),
        "expect": _expected(done),
    }


def _controller(tunables: Tunables) -> dict[str, Any]:
    return {
        "tolerance": tunables.tolerance,
        "downscaleStabilizationSeconds": tunables.downscale_stabilization.total_seconds(),
        "cpuInitializationPeriodSeconds": tunables.cpu_initialization_period.total_seconds(),
        "initialReadinessDelaySeconds": tunables.initial_readiness_delay.total_seconds(),
        "featureGates": msgspec.to_builtins(tunables.gates),
    }


def _update_errors(outcome: settle.Outcome | None) -> list[str]:
    if outcome is None:
        return []
    conflicts = ["conflict"] * max(len(outcome.attempts) - 1, 0)
    return conflicts if outcome.error is None else [*conflicts, outcome.error]


def _expected(done: Reconciled) -> dict[str, Any]:
    settlement, outcome = done.settlement, done.outcome
    written = outcome is not None and outcome.error is None
    return {
        "scaleTo": done.scale_to if written else None,
        "scaleUpdateAttempts": list(outcome.attempts) if outcome is not None else [],
        "statusUpdate": hpas.to_builtins(settlement.status) if settlement.status_changed else None,
        "events": [[event.type, event.reason, event.message] for event in settlement.events],
        "error": settlement.error,
        "action": settlement.action,
        "errorLabel": settlement.error_label,
        "metricComputations": [list(labels) for labels in settlement.metric_computations],
    }


def _pod(pod: Pod, now: datetime) -> dict[str, Any]:
    conditions = []
    if pod.ready is not None:
        since = {"lastTransitionTime": _time(pod.ready_since)} if pod.ready_since is not None else {}
        conditions.append({"type": "Ready", "status": pod.ready, **since})
    containers = [
        {"name": container.name, "resources": {"requests": _quantities(container.requests)}}
        for container in pod.containers
    ]
    requests = {} if pod.pod_requests is None else {"resources": {"requests": _quantities(pod.pod_requests)}}
    return {
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "labels": dict(pod.labels),
            **({"deletionTimestamp": _time(now)} if pod.deleted else {}),
        },
        "spec": {"containers": containers, **requests},
        "status": {
            "phase": pod.phase,
            "conditions": conditions,
            **({"startTime": _time(pod.start_time)} if pod.start_time is not None else {}),
        },
    }


def _metrics(view: examine.View, answers: Sequence[Sample | AdapterError]) -> dict[str, Any]:
    """`podMetrics`, `customMetrics` and `externalMetrics`, as far as the answers say anything about them."""
    queries = _queries(view) if answers else ()
    asked = [(query, answer) for query, answer in zip(queries, answers, strict=False) if isinstance(query, Query)]
    custom: dict[str, Any] = {}
    external: dict[str, Any] = {}
    for query, answer in asked:
        if query.type == EXTERNAL:
            external[query.name] = _external(query, answer)
        elif query.type not in (RESOURCE, CONTAINER_RESOURCE):
            custom[query.name] = _custom(query, answer)
    resources = [(query, answer) for query, answer in asked if query.type in (RESOURCE, CONTAINER_RESOURCE)]
    return {
        **({"podMetrics": _pod_metrics(resources)} if resources else {}),
        **({"customMetrics": custom} if custom else {}),
        **({"externalMetrics": external} if external else {}),
    }


def _queries(view: examine.View) -> tuple[Query | AdapterError, ...]:
    verdict = examine.examine(view)
    return verdict.queries if isinstance(verdict, examine.Proceed) else ()


def _external(query: Query, answer: Sample | AdapterError) -> dict[str, Any]:
    if not isinstance(answer, ExternalSample):
        return _failed(answer)
    at = _time(answer.timestamp)
    return {"items": [{"metricName": query.name, "timestamp": at, "value": f"{value}m"} for value in answer.values]}


def _custom(query: Query, answer: Sample | AdapterError) -> dict[str, Any]:
    if isinstance(answer, ObjectSample) and query.object is not None:
        described = {"kind": query.object.kind, "namespace": query.namespace, "name": query.object.name}
        return {"items": [_value(described, answer.value, answer.timestamp)]}
    if not isinstance(answer, PodSample):
        return _failed(answer)
    return {
        "items": [
            {
                **_value({"kind": "Pod", "namespace": query.namespace, "name": name}, value.value, value.timestamp),
                "windowSeconds": int(value.window.total_seconds()),
            }
            for name, value in answer.values.items()
        ]
    }


def _value(described: dict[str, str], value: int, timestamp: datetime) -> dict[str, Any]:
    return {"describedObject": described, "timestamp": _time(timestamp), "value": f"{value}m"}


def _failed(answer: Sample | AdapterError) -> dict[str, Any]:
    """The error without what the reader puts before it; a list without items is how "none returned" came about."""
    message = answer.message if isinstance(answer, AdapterError) else "the sample is of another type"
    if message.startswith(_NONE_RETURNED):
        return {"items": []}
    for api in _FETCHING:
        message = message.removeprefix(f"unable to fetch metrics from {api} metrics API: ")
    return {"error": message}


def _pod_metrics(asked: Sequence[tuple[Query, Sample | AdapterError]]) -> dict[str, Any]:
    """One list that gives every one of these answers: named containers as asked for, and the rest of each pod."""
    samples = [(query, answer) for query, answer in asked if isinstance(answer, PodSample)]
    if not samples:
        return _failed(asked[0][1])
    totals: dict[str, dict[str, PodValue]] = defaultdict(dict)
    parts: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    stamps: dict[str, PodValue] = {}
    for query, answer in samples:
        for name, value in answer.values.items():
            stamps[name] = value
            if query.type == RESOURCE:
                totals[name][query.name] = value
            else:
                parts[name][query.container][query.name] = value.value
    return {"items": [_pod_item(samples[0][0].namespace, name, stamps, totals[name], parts[name]) for name in stamps]}


def _pod_item(
    namespace: str,
    name: str,
    stamps: Mapping[str, PodValue],
    totals: Mapping[str, PodValue],
    parts: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    """A pod counts for a resource only if all its containers report it, hence the zeros."""
    named = {container: {**dict.fromkeys(totals, 0), **usage} for container, usage in parts.items()}
    rest = {
        resource: total.value - sum(usage[resource] for usage in named.values()) for resource, total in totals.items()
    }
    containers = {**named, **({_REST: rest} if rest else {})}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "timestamp": _time(stamps[name].timestamp),
        "window": f"{stamps[name].window.total_seconds():g}s",
        "containers": [{"name": container, "usage": _quantities(usage)} for container, usage in containers.items()],
    }


def _quantities(milli: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{value}m" for name, value in milli.items()}


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
