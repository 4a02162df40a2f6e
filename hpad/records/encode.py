"""Writes reconciles as scenarios and steps, in the format that `format` reads and `hpad replay` takes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from hpad.api import metrics, pod
from hpad.api.hpa import HorizontalPodAutoscalerSpec, to_builtins
from hpad.api.metadata import ObjectMeta
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
from hpad.engine.turn import Reconcile
from hpad.engine.view import STALE, Tunables
from hpad.records.format import (
    CONFLICT,
    Answer,
    Controller,
    FallbackText,
    Reading,
    Scenario,
    Step,
    converted,
)

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
    history: History | None = None
    tunables: Tunables | None = None

    def continued_by(self, done: Reconcile) -> bool:
        """Returns whether the reconcile follows from the last step; if not, another scenario begins."""
        view = done.view
        follows = view.history == self.history and view.tunables == self.tunables
        return self.steps not in (0, _MAX_STEPS) and follows and view.hpa.metadata.uid == self.uid

    def step(self, done: Reconcile) -> bytes:
        """Returns the JSON of the next step of this scenario."""
        new_spec = self.steps > 0 and done.view.hpa.spec != self.spec
        return msgspec.json.encode(encode_reconcile(done, new_spec=new_spec))

    def add(self, done: Reconcile) -> None:
        """Counts the reconcile as the next step."""
        self.steps += 1
        self.uid, self.spec = done.view.hpa.metadata.uid, done.view.hpa.spec
        self.history, self.tunables = done.settlement.history, done.view.tunables


def encode_start(done: Reconcile, name: str) -> bytes:
    """Returns the begin of a line, up to the first step of the scenario."""
    return msgspec.json.encode(encode_head(done, name))[:-1] + b',"steps":['


def encode_head(done: Reconcile, name: str) -> dict[str, Any]:
    """Returns a scenario without steps as JSON-like builtins: the HPA and its history before this reconcile.

    Of the HPA's metadata only name and namespace are written, because annotations may be confidential.
    """
    view, tunables = done.view, done.view.tunables
    metadata = ObjectMeta(name=view.hpa.metadata.name, namespace=view.hpa.metadata.namespace)
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


def encode_reconcile(done: Reconcile, *, new_spec: bool) -> dict[str, Any]:
    """Returns one step as JSON-like builtins: the inputs, and the results under `expect`.

    The spec is included if it is new. The metrics are written as the Kubernetes lists that would have given these
    answers, and as `answers` if no lists would.
    """
    view, outcome = done.view, done.outcome
    step = Step(
        time=view.now,
        spec=view.hpa.spec if new_spec else None,
        scale=view.scale,
        scale_error=None if view.scale_error is None else view.scale_error.message,
        stale=view.scale_error is not None and view.scale_error.reason == STALE,
        scale_update_errors=_update_errors(outcome),
        recorded_competing_hpas=tuple(view.competing_hpas) or None,
        fallback_texts=tuple(map(_fallback_text, view.fallback_policies)),
        annotation_error=view.annotation_error,
        annotation_reason=view.annotation_reason,
        control_texts=dict(view.controls.texts),
        set_by_other=view.set_by_other,
        zero_by=view.zero_by,
        competitors=tuple(view.competitors),
        values_held=view.values_held,
        withheld=None if outcome is None else outcome.withheld,
        shadow=view.shadow,
        work=None if done.work is None else tuple(map(_reading, done.work)),
    )
    return {
        **to_builtins(step),
        "pods": [pod.to_builtins(each, view.now) for each in view.pods],
        **_encode_answers(done),
        "expect": results(done.decision.scale_to, outcome, done.settlement),
    }


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
        activation=None if policy.activation is None else _text(policy.activation),
    )


def _encode_answers(done: Reconcile) -> dict[str, Any]:
    lists = metrics_lists(done.queries, done.answers, {each.name: each.labels for each in done.view.pods})
    # Lists cannot express every answer, for example two External metrics of one name with different selectors.
    read_back = converted({"time": to_builtins(done.view.now), **lists}, Step, "")
    if read_back.answer(done.queries) == list(done.answers):
        return lists
    return {"answers": [to_builtins(_reading(answer)) for answer in done.answers]}


def _reading(answer: Answer) -> Reading:
    if isinstance(answer, AdapterError):
        return Reading(error=answer.message, blame=answer.blame)
    if isinstance(answer, PodSample):
        return Reading(pods=dict(answer.values), timestamp=answer.timestamp)
    if isinstance(answer, ObjectSample):
        return Reading(value=answer.value, timestamp=answer.timestamp)
    return Reading(values=answer.values, timestamp=answer.timestamp, note=answer.note)


def metrics_lists(
    queries: Sequence[Query | AdapterError], answers: Sequence[Answer], labels: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """Returns podMetrics, customMetrics and externalMetrics that lead to the answers, as far as such lists can.

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
                lists["podMetrics"] = _failed_list(metrics.RESOURCE_API, answer)
        elif query.type == EXTERNAL:
            lists.setdefault("externalMetrics", {})[query.name] = _external_list(query, answer)
        else:
            lists.setdefault("customMetrics", {})[query.name] = _custom_list(query, answer)
    if usages:
        lists["podMetrics"] = {"items": _usage_items(usages, labels)}
    return lists


def _failed_list(api: str, answer: Answer) -> dict[str, Any]:
    """Returns a list with the error of a failed request, or an empty list for any other answer."""
    # The format holds the API server's text without the prefix that the reader adds to it.
    prefix = metrics.fetch_failed(api, "").message
    if isinstance(answer, AdapterError) and answer.message.startswith(prefix):
        return {"error": answer.message.removeprefix(prefix)}
    return {"items": []}


def _external_list(query: Query, answer: Answer) -> dict[str, Any]:
    if not isinstance(answer, ExternalSample):
        return _failed_list(metrics.EXTERNAL_API, answer)
    when = to_builtins(answer.timestamp)
    items = [{"metricName": query.name, "timestamp": when, "value": _text(value)} for value in answer.values]
    return {"items": items}


def _custom_list(query: Query, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, ObjectSample):
        return {"items": [_custom_item(to_builtins(query.object), answer.timestamp, answer.value)]}
    if not isinstance(answer, PodSample):
        return _failed_list(metrics.CUSTOM_API, answer)
    items = []
    for name, value in answer.values.items():
        item = _custom_item({"kind": "Pod", "name": name, "apiVersion": "v1"}, value.timestamp, value.value)
        items.append(item | {"windowSeconds": int(value.window.total_seconds())})
    return {"items": items}


def _custom_item(described: Any, when: datetime, value: int) -> dict[str, Any]:
    return {"describedObject": described, "timestamp": to_builtins(when), "value": _text(value)}


def _usage_items(
    usages: Sequence[tuple[Query, PodSample]], labels: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Returns PodMetrics items: the queried containers, and one named "" with the rest of the pod's usage."""
    items: dict[str, dict[str, Any]] = {}
    used: dict[str, dict[str, dict[str, int]]] = {}
    # Queries for whole pods come last: only then the usage of the named containers can be subtracted.
    for query, sample in sorted(usages, key=lambda usage: usage[0].container == ""):
        selected = _labels_selected(query.pods)
        for name, value in sample.values.items():
            items[name] = {
                "metadata": {"name": name, "labels": dict(labels.get(name, selected))},
                "timestamp": to_builtins(value.timestamp),
                "window": f"{value.window.total_seconds():g}s",
            }
            containers = used.setdefault(name, {})
            others = 0 if query.container else _of_others(query, containers)
            containers.setdefault(query.container, {})[query.name] = value.value - others
    for name, containers in used.items():
        items[name]["containers"] = [
            {"name": container, "usage": {resource: _text(milli) for resource, milli in usage.items()}}
            for container, usage in containers.items()
        ]
    return list(items.values())


def _of_others(query: Query, containers: Mapping[str, dict[str, int]]) -> int:
    """Returns the usage of the named containers that is part of the usage of the whole pod."""
    named = [usage for name, usage in containers.items() if name not in query.ignored_containers]
    return sum(usage.setdefault(query.name, 0) for usage in named)


def _labels_selected(pods: Selector | None) -> dict[str, str]:
    """Returns labels that the selector matches, for a pod that was not listed; only equality terms can be met."""
    requirements = () if pods is None else pods.requirements
    return {term.key: term.values[0] for term in requirements if term.operator in (Operator.IN, Operator.EQUALS)}


def _text(milli: int) -> str:
    return str(Quantity.from_milli(milli))
