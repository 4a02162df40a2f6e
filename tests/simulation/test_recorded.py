"""Backtests over recordings: the own spec gives the recorded curve, another one a modelled continuation."""

import copy
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from support.replays import scenario, step
from support.simulations import CPU, START, hpa

from hpad.api.hpa import to_builtins
from hpad.engine.view import Tunables
from hpad.records import replay
from hpad.records.encode import encode_head, encode_reconcile
from hpad.records.format import Scenario, decode_scenario
from hpad.records.simulate import after
from hpad.simulation import load, model
from hpad.simulation.past import Runs
from hpad.simulation.run import simulate
from hpad.simulation.service import Service, ServiceModel

Vectors = Callable[..., Iterator[dict[str, Any]]]


def recorded(seed: int, goal: int = 50) -> Scenario:
    """Returns a recording of an hour of a service under a random load."""
    metric = copy.deepcopy(CPU)
    metric["resource"]["target"]["averageUtilization"] = goal
    found = hpa(metric, high=30)
    shown = model.shows(found, "load", {})
    text = "sine:mean=500,amplitude=450,period=17m"
    workload = ServiceModel(Service(noise=0.2), load.parse(text), start=START, replicas=2, shown=shown, seed=seed)
    run = simulate(
        found, workload, start=START, length=timedelta(hours=1), period=timedelta(seconds=15), tunables=Tunables()
    )
    value: dict[str, Any] = {}
    for done, _, _ in run:
        value = value or encode_head(done, "web") | {"steps": []}
        value["steps"].append(encode_reconcile(done, new_spec=False))
    return decode_scenario(json.loads(json.dumps(value)))


@pytest.mark.parametrize("seed", range(6))
def test_the_own_spec_gives_the_recorded_curve(seed: int) -> None:
    found = recorded(seed)
    runs = Runs("own", spec=found.hpa.spec)
    runs.add(found)
    assert runs.changed.curve == runs.recorded.curve
    assert runs.changed.outcome == runs.recorded.outcome
    assert runs.changed.modelled == 0
    assert len(runs.changed.outcome.rescales) > 5


def test_a_time_that_two_recordings_have_counts_once() -> None:
    """As of two daemons: added up, the time of the second one would run backwards first."""
    found = recorded(0)
    once, twice = Runs("own", spec=found.hpa.spec), Runs("own", spec=found.hpa.spec)
    once.add(found)
    twice.add(found)
    twice.add(found)
    assert (twice.recorded, twice.changed.curve) == (once.recorded, once.changed.curve)
    assert twice.changed.outcome == once.changed.outcome
    assert (once.repeated, twice.repeated) == (0, len(found.steps))


def test_every_recorded_timeline_is_reproduced_by_its_own_spec(vectors: Vectors) -> None:
    compared = 0
    for row in vectors("timeline", 7):
        found = decode_scenario(row)
        runs = Runs("own")
        runs.add(found)
        curve = [(each.view.now, after(each)) for each in replay.run(found) if each.view.scale is not None]
        assert list(runs.changed.curve) == curve, row["id"]
        compared += 1
    assert compared > 10


def test_another_goal_gives_the_counts_of_a_service_with_that_goal() -> None:
    """Half the goal takes twice the replicas; the load of the recording is the same, and shared by more."""
    found = recorded(3)
    other = copy.deepcopy(CPU)
    other["resource"]["target"]["averageUtilization"] = 25
    runs = Runs("half", spec=hpa(other, high=60).spec)
    runs.add(found)
    real = runs.recorded.outcome
    assert runs.changed.modelled > 200
    assert runs.changed.since is not None
    assert runs.changed.outcome.replica_hours == pytest.approx(2 * real.replica_hours, rel=0.15)


def test_an_interval_counts_only_its_turns() -> None:
    found = recorded(1)
    runs = Runs("own", spec=found.hpa.spec)
    runs.add(found, START + timedelta(minutes=20), START + timedelta(minutes=40))
    times = [at for at, _ in runs.changed.curve]
    assert times[0] >= START + timedelta(minutes=20)
    assert times[-1] <= START + timedelta(minutes=40)
    assert len(times) == 80


def test_a_shared_total_falls_as_replicas_grow() -> None:
    """30 in all for 10 per replica wants 3; with 5 as the minimum, 3 of 3 replicas become 18 of 5."""
    row = scenario(*(step(15 * index, "30", replicas=3) for index in range(3)))
    found = decode_scenario(row)
    larger = to_builtins(found.hpa.spec) | {"minReplicas": 5}
    from hpad.api.hpa import from_builtins

    spec = from_builtins({"metadata": {"name": "web"}, "spec": larger}).spec
    runs = Runs("larger", spec=spec, shared=("queue",))
    runs.add(found)
    assert [count for _, count in runs.changed.curve] == [5, 5, 5]
    assert runs.changed.modelled == 2
