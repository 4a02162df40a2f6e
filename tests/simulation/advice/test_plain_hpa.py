"""The plain HPA of the seeds against the examples of the documentation of Kubernetes.

https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/
"""

from typing import Any

import pytest
from support.advice_seeds import average, cpu, hpa
from support.plain_hpa import Controller, Reading, Spec
from support.plain_world import levels


def controller(bounds: tuple[int, int], **behavior: Any) -> Controller:
    """Returns one for pods that request one core, with a goal of a tenth of it."""
    return Controller(Spec.of(hpa("shop/web", bounds, cpu(10), **behavior), {"cpu": 1.0}))


@pytest.mark.parametrize(
    ("used", "expected"),
    [(0.2, 8), (0.05, 2), (0.108, 4), (0.092, 4), (0.112, 5), (0.087, 4)],
    ids=["twice", "half", "within tolerance", "within tolerance below", "rounded up", "rounded up below"],
)
def test_algorithm(used: float, expected: int) -> None:
    """The count times the ratio, rounded up, but for a ratio within 0.1 of 1."""
    without_window = controller((1, 100), scaleDown={"stabilizationWindowSeconds": 0})
    assert without_window.decide(0, 4, [Reading(used, 4)]) == expected


def test_pods_that_are_not_ready_count_as_idle_when_scaling_up() -> None:
    assert controller((1, 100)).decide(0, 8, [Reading(0.2, 4, 4)]) == 8
    assert controller((1, 100)).decide(0, 8, [Reading(0.4, 4, 4)]) == 16


def test_policies_of_the_documentation() -> None:
    """From 80 replicas 10 % go at first, 8, and once there are 40 or less, 4 in a minute."""
    policies = [{"type": kind, "value": value, "periodSeconds": 60} for kind, value in (("Pods", 4), ("Percent", 10))]
    down = controller((1, 100), scaleDown={"stabilizationWindowSeconds": 0, "policies": policies})
    count, seen = 80, []
    for minute in range(12):
        count = down.decide(60 * minute, count, [Reading(0.1 * 10 / count, count)])
        seen.append(count)
    assert seen == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16]


def test_scale_downs_wait_for_the_largest_recommendation_of_their_window() -> None:
    plain, counts = controller((1, 100)), []
    for turn in range(25):
        now = 15 * turn
        counts.append(plain.decide(now, counts[-1] if counts else 8, [Reading(0.05 if turn else 0.1, 8)]))
    assert counts[:20] == [8] * 20
    assert counts[20] == 4


def test_growth_without_behavior_is_at_most_twofold_or_to_four() -> None:
    assert controller((1, 100)).decide(0, 1, [Reading(9.0, 1)]) == 4
    assert controller((1, 100)).decide(0, 3, [Reading(9.0, 3)]) == 6


def test_a_metric_that_fails_keeps_the_count() -> None:
    spec = Spec.of(hpa("mail/a", (1, 9), cpu(10), average("External", "depth", 10)), {"cpu": 1.0})
    assert Controller(spec).decide(0, 5, [Reading(0.01, 5), Reading(None, 0)]) == 5
    assert Controller(spec).decide(0, 5, [Reading(0.2, 5), Reading(None, 0)]) == 9
    assert levels(spec) == pytest.approx([0.11, 11])
