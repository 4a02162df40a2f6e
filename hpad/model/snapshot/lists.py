"""The Kubernetes metrics lists that would have given certain answers."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from hpad.api import metrics
from hpad.api.hpa import to_builtins
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
from hpad.model.snapshot.scenario import Answer


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
    """Labels for a pod that nobody listed, such that the selector takes it (where that can be had by equality)."""
    terms = () if pods is None else pods.requirements
    return {term.key: term.values[0] for term in terms if term.operator in (Operator.IN, Operator.EQUALS)}


def _text(milli: int) -> str:
    return str(Quantity.from_milli(milli))
