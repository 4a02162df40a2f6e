"""Canaries of Argo Rollouts under a constant load: the count at which each kind of metric comes to rest.

The HPA scales `spec.replicas` of the Rollout, and sees the pods of the stable and of the canary ReplicaSet. The right
count is that of pods which carry the whole load, since the canary carries it alone once it is promoted.
"""

from collections.abc import Callable
from math import ceil
from typing import Any, NamedTuple

import pytest
from support.engine import Workload, external, object_metric, one, pod, resource, series, used

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus
from hpad.api.sample import Sample
from hpad.engine.view import Gates

STABLE = {"hpad.io/pods": "role=stable"}
KUBERNETES = Gates.replayed({"HPAConfigurableTolerance": True})
NO_DOWN_WINDOW: dict[str, Any] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
WEIGHTS = [0.05, 0.5]


class Pods(NamedTuple):
    """The numbers of pods of both ReplicaSets, and the load of one pod of each: 1 is what a pod can carry."""

    stable: int
    canaries: int
    of_stable: float
    of_canary: float


def shared(replicas: int, weight: float, load: float) -> Pods:
    """Without traffic routing all pods are the replicas, and have the same load."""
    canaries = ceil(weight * replicas)
    return Pods(replicas - canaries, canaries, load / replicas, load / replicas)


def on_top(replicas: int, weight: float, load: float) -> Pods:
    """With traffic routing the canaries come on top, and have their weight of the load."""
    canaries = ceil(weight * replicas)
    return Pods(replicas, canaries, (1 - weight) * load / replicas, weight * load / canaries)


def dynamic(replicas: int, weight: float, load: float) -> Pods:
    """With dynamicStableScale the stable pods go as the canaries come."""
    canaries, stable = ceil(weight * replicas), ceil((1 - weight) * replicas)
    return Pods(stable, canaries, (1 - weight) * load / stable, weight * load / canaries)


Mode = Callable[[int, float, float], Pods]
MODES: list[Mode] = [shared, on_top, dynamic]
CPU, MEMORY = resource("cpu", averageUtilization=50), resource("memory", averageValue="100")
LATENCY, QUEUE = object_metric("latency", value="100"), external("queue", averageValue="10")


def answer(web: Workload, metric: dict[str, Any], pods: Pods, load: float) -> Sample:
    """CPU by the load of each pod, latency by that of a replica, a queue by the whole load; memory is always 80 %."""
    loads = {"stable": pods.of_stable, "canary": pods.of_canary}
    if metric is CPU:
        return used({each.name: round(100 * loads[each.labels["role"]]) for each in web.pods or ()}, web.now)
    if metric is MEMORY:
        return used({each.name: 80_000 for each in web.pods or ()}, web.now)
    return series(round(10 * load)) if metric is QUEUE else one(round(100 * load / web.replicas))


def rests_at(metric: dict[str, Any], mode: Mode, weight: float, load: float, **fields: Any) -> set[int]:
    """Returns the counts of the last of many turns that begin with ten replicas."""
    web = Workload(metric, replicas=10, high=100, behavior=NO_DOWN_WINDOW, **fields)
    counts = []
    for _ in range(30):
        pods = mode(web.replicas, weight, load)
        numbers = {"stable": pods.stable, "canary": pods.canaries}
        web.pods = [
            pod(f"{role}-{n}", labels={"role": role}, age=10**5) for role in numbers for n in range(numbers[role])
        ]
        scale = Scale(spec=ScaleSpec(web.replicas), status=ScaleStatus(len(web.pods), "app=web"))
        web.reconcile(answer(web, metric, pods, load), after=15, scale=scale)
        counts.append(web.replicas)
    return set(counts[-10:])


@pytest.mark.parametrize("load", [8, 10, 12, 15])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("mode", MODES)
def test_a_value_needs_no_annotation(mode: Mode, weight: float, load: float) -> None:
    assert rests_at(LATENCY, mode, weight, load) == {load}


@pytest.mark.parametrize("load", [8, 10, 20])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("mode", MODES)
def test_a_queue_needs_no_annotation(mode: Mode, weight: float, load: float) -> None:
    assert rests_at(QUEUE, mode, weight, load) == {load}


@pytest.mark.parametrize("load", [8, 12, 15])
def test_kubernetes_takes_half_as_many_again_for_a_value(load: float) -> None:
    """Below the goal, too (argo-rollouts#2857)."""
    assert min(rests_at(LATENCY, on_top, 0.5, load, gates=KUBERNETES)) >= 1.5 * load


@pytest.mark.parametrize("load", [10, 12, 15])
def test_in_kubernetes_a_queue_takes_a_replica_more_and_back_without_end(load: float) -> None:
    """The count of the status becomes that of the spec, which has a canary more each time (argo-rollouts#4847)."""
    assert rests_at(QUEUE, on_top, 0.05, load, gates=KUBERNETES) == {load, load + 1}


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("mode", MODES)
def test_the_utilization_of_all_pods_is_the_whole_load(mode: Mode, weight: float) -> None:
    assert rests_at(CPU, mode, weight, 8) == {8}
    assert rests_at(CPU, mode, weight, 20) == {20}


@pytest.mark.parametrize("mode", MODES)
def test_the_utilization_of_the_stable_pods_lacks_the_load_of_the_others(mode: Mode) -> None:
    [half] = rests_at(CPU, mode, 0.5, 20, annotations=STABLE)
    assert half <= 11


def test_load_between_the_replicas_and_all_pods_is_within_the_tolerance() -> None:
    """The canaries on top carry it, so nothing changes until they go."""
    assert rests_at(CPU, on_top, 0.5, 15) == {10}
    assert rests_at(QUEUE, on_top, 0.5, 15) == {10}


def test_what_a_pod_uses_without_load_runs_away_with_canaries_on_top() -> None:
    """Each replica that is added adds half a canary, whose memory is a reason to add more."""
    assert rests_at(MEMORY, on_top, 0.5, 10) == {100}
    [few] = rests_at(MEMORY, on_top, 0.5, 10, annotations=STABLE)
    assert few < 10
