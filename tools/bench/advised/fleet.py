"""The past of many HPAs: their load, what a plain controller made of it, and the series that stood for it.

A pod lives until the count falls below its place, or until the next rollout of its Deployment.
"""

import itertools
import math
import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tools import kube_series
from tools.kube_series import Row

INTERVAL: Final = 60
"""Seconds between two samples of a series."""
PER_NAMESPACE: Final = 25
REQUEST: Final = 500
"""Millicores of a pod."""
ROLLOUT: Final = 2 * 1_440
"""Samples between two rollouts."""
_DAY: Final = 86_400
_WINDOW: Final = 5
"""Samples for which the count holds its highest recommendation."""
_OF_PODS: Final = frozenset({"kube_pod_owner", "kube_pod_container_resource_requests"})
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_USED: Final = "container_cpu_usage_seconds_total"


class Series(NamedTuple):
    """One series: its name and labels, and its values from sample `first` until before `last`.

    `column` names the values of the HPA, or is the value itself where it does not change.
    """

    name: str
    column: str
    first: int
    last: int


class Past(NamedTuple):
    """One HPA: its document, its series, and the values of their columns at each sample."""

    hpa: dict[str, Any]
    series: tuple[Series, ...]
    columns: Mapping[str, Sequence[float]]


def past(number: int, samples: int, begin: int) -> Past:
    """Returns the past of the HPA of this number since `begin`, in seconds since 1970."""
    dice = random.Random(number)
    goal = dice.choice((30, 50, 60, 70, 80))
    hpa = document(number, goal, dice.choice((1, 1, 2, 3)), dice.choice((4, 6, 10)))
    load = array("d", _load(dice, samples, begin))
    counts = _counts(load, hpa["spec"], goal)
    used = [each / count for each, count in zip(load, counts, strict=True)]
    columns = {
        "count": counts,
        "percent": array("i", (int(100 * each / REQUEST) for each in used)),
        "cores": array("d", (round(each / 1000, 3) for each in used)),
        _USED: array("d", itertools.accumulate(each / 1000 * INTERVAL for each in used)),
    }
    return Past(hpa, tuple(_series(hpa, counts)), columns)


def document(number: int, goal: int, minimum: int, maximum: int) -> dict[str, Any]:
    """Returns an HPA with a CPU utilization."""
    name = f"web-{number}"
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": goal}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": minimum,
        "maxReplicas": maximum,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    head = {"name": name, "namespace": f"team-{number // PER_NAMESPACE}"}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": head, "spec": spec}


def lines(known: Past, begin: int, first: int, last: int) -> Iterator[str]:
    """Yields the samples `first` until before `last` of each series, as lines of OpenMetrics."""
    for each in known.series:
        start, end = max(first, each.first), min(last, each.last)
        times = [str(begin + index * INTERVAL) for index in range(start, end)]
        if not times:
            continue
        values = known.columns.get(each.column)
        if values is None:
            constant = f"{each.name} {each.column} "
            yield constant + f"\n{constant}".join(times) + "\n"
        elif each.column == _USED:  # the counter of a pod begins with the pod
            base = values[each.first]
            yield "".join(f"{each.name} {v - base:.3f} {t}\n" for v, t in zip(values[start:end], times, strict=True))
        else:
            yield "".join(f"{each.name} {v} {t}\n" for v, t in zip(values[start:end], times, strict=True))


def _load(dice: random.Random, samples: int, begin: int) -> Iterator[float]:
    """Yields millicores: a wave with the period of a day, noise, and now and then a spike."""
    mean, phase, left = dice.uniform(300, 900), dice.uniform(0, _DAY), 0
    for index in range(samples):
        wave = 1 + 0.6 * math.sin(2 * math.pi * (begin + index * INTERVAL + phase) / _DAY)
        left = dice.randint(5, 20) if dice.random() < 0.001 else left - 1
        yield mean * wave * (2 if left > 0 else 1) * dice.uniform(0.95, 1.05)


def _counts(load: Sequence[float], spec: Mapping[str, Any], goal: int) -> Sequence[int]:
    wanted = (math.ceil(each / (REQUEST * goal / 100)) for each in load)
    bounded = [min(max(each, spec["minReplicas"]), spec["maxReplicas"]) for each in wanted]
    return array("i", (max(bounded[max(0, index - _WINDOW) : index + 1]) for index in range(len(bounded))))


def _series(hpa: Mapping[str, Any], counts: Sequence[int]) -> Iterator[Series]:
    moving = {"utilization": "percent", "average": "cores", "current_replicas": "count", "desired_replicas": "count"}
    current = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 1, "averageValue": 1}}}
    conditions = [{"type": each, "status": "True"} for each in ("AbleToScale", "ScalingActive")]
    status = {"currentMetrics": [current], "conditions": conditions}
    for row in kube_series.of_hpa({**hpa, "status": status}):
        key = row[1].get("metric_target_type") if "_status_target_" in row[0] else row[0].partition("_status_")[2]
        yield _named(row, moving.get(key or "", ""), 0, len(counts))
    for first in range(0, len(counts), ROLLOUT):
        for row in kube_series.of_replica_set(_replica_set(hpa, first)):
            yield _named(row, "", first, min(first + ROLLOUT, len(counts)))
    for place in range(max(counts)):
        for first, last in _lives(counts, place):
            yield from _of_pod(_pod(hpa, place, first), first, last)


def _of_pod(pod: Mapping[str, Any], first: int, last: int) -> Iterator[Series]:
    for row in kube_series.of_pod(pod):
        if row[0] in _OF_PODS:
            yield _named(row, "", first, last)
    for row in kube_series.of_containers(pod, {"app": 0.0}, {"app": 0.0}):
        if row[0] == _USED:
            yield _named(row, _USED, first, last)


def _named(row: Row, column: str, first: int, last: int) -> Series:
    name, _, value = kube_series.text([row]).strip().rpartition(" ")
    return Series(name, column or value, first, last)


def _lives(counts: Sequence[int], place: int) -> Iterator[tuple[int, int]]:
    """Yields from which sample until before which the pods of a place live."""
    first: int | None = None
    for index, count in enumerate([*counts, 0]):
        if first is not None and (count <= place or index % ROLLOUT == 0):
            yield first, index
            first = None
        if first is None and count > place:
            first = index


def _pod(hpa: Mapping[str, Any], place: int, first: int) -> dict[str, Any]:
    owner = _replica_set(hpa, first)["metadata"]
    name = f"{owner['name']}-{_suffix(first * 100 + place)}"
    own = {"name": name, "namespace": owner["namespace"], "uid": name}
    own |= {"ownerReferences": [{"kind": "ReplicaSet", "name": owner["name"]}]}
    resources = {"requests": {"cpu": f"{REQUEST}m"}}
    return {"metadata": own, "spec": {"containers": [{"name": "app", "resources": resources}]}}


def _replica_set(hpa: Mapping[str, Any], first: int) -> dict[str, Any]:
    deployment, namespace = hpa["spec"]["scaleTargetRef"]["name"], hpa["metadata"]["namespace"]
    own = {"name": f"{deployment}-{_suffix(first // ROLLOUT)}", "namespace": namespace}
    return {"metadata": {**own, "ownerReferences": [{"kind": "Deployment", "name": deployment}]}}


def _suffix(number: int) -> str:
    """Returns five characters of the alphabet of generated names (apimachinery, pkg/util/rand)."""
    letters = []
    for _ in range(5):
        number, index = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[index])
    return "".join(letters)
