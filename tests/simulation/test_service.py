"""A simulated service: the counts that the engine must reach by the formulas of Kubernetes."""

import itertools
import math
from datetime import timedelta
from typing import Any

import pytest
from support.simulations import CPU, START, counts, hpa, turns

from hpad.simulation import load, model
from hpad.simulation.service import Service, ServiceModel


def made(text: str, replicas: int = 1, metric: dict[str, Any] = CPU, **parameters: Any) -> ServiceModel:
    """A replica serves up to 100 units per second with 500 millicores, and requests as much."""
    shown = model.shows(hpa(metric), "load", {})
    return ServiceModel(Service(**parameters), load.parse(text), start=START, replicas=replicas, shown=shown, seed=3)


@pytest.mark.parametrize("rate", [10, 49, 120, 333, 700, 1500])
def test_a_constant_load_leads_to_the_count_that_the_goal_needs(rate: int) -> None:
    """At 50 % of the CPU a replica serves 50 units per second; a ratio within 10 % of the goal keeps the count."""
    last = turns(hpa(CPU), made(f"constant:{rate}"), 20)[-1]
    needed = rate / 50
    assert needed / 1.1 <= last.after <= max(1, math.ceil(needed / 0.9))
    assert last.ready == last.after


def test_growth_follows_the_policies_of_the_hpa() -> None:
    """2 pods per minute from 1 to 9: with a goal of 10 % the metric asks for more than the policy allows."""
    policy = {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}
    goal = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 10}},
    }
    found = turns(hpa(goal, high=9, behavior={"scaleUp": policy}), made("constant:350"), 10)
    assert counts(found) == [3, 5, 7, 9]
    times = [turn.done.view.now - START for turn in found if turn.after != turn.done.view.replicas]
    apart = [round((later - earlier).total_seconds()) for earlier, later in itertools.pairwise(times)]
    assert apart == [60, 60, 60]


def test_the_stabilization_window_holds_the_count_after_a_peak() -> None:
    found = turns(hpa(CPU), made("step:from=400,to=50,at=10m", replicas=8), 30)
    down = next(turn for turn in found if turn.after < turn.done.view.replicas)
    # The turn at 10m still measures the load before; five minutes later it no longer counts.
    assert timedelta(minutes=15) <= down.done.view.now - START <= timedelta(minutes=15, seconds=30)
    assert (down.done.view.replicas, found[-1].after) == (8, 1)


def test_a_starting_replica_serves_nothing_and_shows_its_startup_cpu() -> None:
    """Kubernetes leaves the CPU of starting pods out, so a startup of a minute delays the next step by a minute."""
    workload = made("constant:400", startup=60.0, cpu_startup=500.0)
    found = turns(hpa(CPU), workload, 10)
    growing = [
        round((turn.done.view.now - START).total_seconds()) for turn in found if turn.after > turn.done.view.replicas
    ]
    assert counts(found)[:3] == [2, 4, 8]
    assert all(later - earlier >= 60 for earlier, later in itertools.pairwise(growing))


def test_what_exceeds_the_capacity_is_lost() -> None:
    workload = made("constant:250", replicas=2)
    turns(hpa(CPU, high=2), workload, 10)
    lost = workload.lost
    # 39 periods of 15 s lie between the first and the last of 40 turns; 50 of 250 units per second are too many.
    assert lost == pytest.approx(50 * 39 * 15, rel=1e-3)


def test_values_are_seen_with_their_lag() -> None:
    def first_growth(lag: float) -> float:
        shown = model.shows(hpa(CPU), "load", {})
        workload = ServiceModel(
            Service(),
            load.parse("step:from=40,to=90,at=5m"),
            start=START,
            replicas=1,
            shown=shown,
            scraping=model.Scraping(interval=15.0, lag=lag),
        )
        grown = next(turn for turn in turns(hpa(CPU), workload, 10) if turn.after > turn.done.view.replicas)
        return (grown.done.view.now - START).total_seconds()

    assert first_growth(0) == pytest.approx(315, abs=0.1)
    assert first_growth(30) == pytest.approx(345, abs=0.1)


def test_noise_depends_on_the_seed_alone() -> None:
    noisy = [turns(hpa(CPU), made("sine:mean=300,amplitude=200,period=20m", noise=0.1), 60) for _ in range(2)]
    assert [turn.after for turn in noisy[0]] == [turn.after for turn in noisy[1]]
    quiet = turns(hpa(CPU), made("sine:mean=300,amplitude=200,period=20m"), 60)
    assert [turn.after for turn in quiet] != [turn.after for turn in noisy[0]]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (
            {
                "type": "Pods",
                "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "40"}},
            },
            6,  # 240 / 40
        ),
        (
            {
                "type": "Object",
                "object": {
                    "metric": {"name": "requests"},
                    "describedObject": {"kind": "Ingress", "name": "web", "apiVersion": "networking.k8s.io/v1"},
                    "target": {"type": "AverageValue", "averageValue": "80"},
                },
            },
            3,  # 240 / 80
        ),
        (
            {
                "type": "ContainerResource",
                "containerResource": {
                    "name": "cpu",
                    "container": "app",
                    "target": {"type": "AverageValue", "averageValue": "300m"},
                },
            },
            4,  # 240 units take 1200m
        ),
    ],
)
def test_every_type_of_metric_is_served(metric: dict[str, Any], expected: int) -> None:
    assert turns(hpa(metric), made("constant:240", replicas=3, metric=metric), 10)[-1].after == expected


def test_a_metric_shows_only_what_its_type_can() -> None:
    with pytest.raises(ValueError, match="the Resource metric cpu cannot show 'backlog'; it can show cpu, memory"):
        model.shows(hpa(CPU), "load", {"cpu": "backlog"})
    with pytest.raises(ValueError, match="the HPA has no metric 'rps'; it has cpu"):
        model.shows(hpa(CPU), "load", {"rps": "load"})
