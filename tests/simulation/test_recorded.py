"""Backtests over recordings: the own spec gives the recorded curve, another one a modelled continuation."""

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.replays import scenario, step
from support.simulations import CPU, START, hpa

from hpad.api.hpa import HorizontalPodAutoscaler, to_builtins
from hpad.api.sample import AdapterError
from hpad.cli import manifest
from hpad.engine.examine import examine
from hpad.engine.spec import compiled_spec
from hpad.engine.view import Tunables
from hpad.records import replay
from hpad.records.encode import encode_head, encode_reconcile
from hpad.records.format import Scenario, decode_scenario
from hpad.settings import Settings
from hpad.simulation import load, model
from hpad.simulation.backtest import RecordedBacktest, after, known_answers
from hpad.simulation.run import simulate
from hpad.simulation.service import Service, ServiceModel

NO_WINDOW = "spec.behavior.scaleDown.stabilizationWindowSeconds=0"
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
    runs = RecordedBacktest("own", found.hpa)
    runs.add(found)
    assert runs.changed.curve == runs.recorded.curve
    assert runs.changed.outcome == runs.recorded.outcome
    assert runs.changed.modelled == 0
    assert len(runs.changed.outcome.rescales) > 5


def test_a_time_that_two_recordings_have_counts_once() -> None:
    """As of two daemons: added up, the time of the second one would run backwards first."""
    found = recorded(0)
    once, twice = RecordedBacktest("own", found.hpa), RecordedBacktest("own", found.hpa)
    once.add(found)
    twice.add(found)
    twice.add(found)
    assert (twice.recorded, twice.changed.curve) == (once.recorded, once.changed.curve)
    assert twice.changed.outcome == once.changed.outcome
    assert (once.repeated, twice.repeated) == (0, len(found.steps))


def test_every_recorded_timeline_is_reproduced_by_its_own_spec(vectors: Vectors) -> None:
    """Each up to the step that changes its spec: the backtest has one."""
    compared = 0
    for row in vectors("timeline", 7):
        steps = list(itertools.takewhile(lambda each: "spec" not in each, row["steps"]))
        found = decode_scenario(row | {"steps": steps})
        runs = RecordedBacktest("own", found.hpa)
        runs.add(found)
        curve = [(each.view.now, after(each)) for each in replay.run(found) if each.view.scale is not None]
        assert list(runs.changed.curve) == curve, row["id"]
        compared += len(curve)
    assert compared > 100


def test_another_goal_gives_the_counts_of_a_service_with_that_goal() -> None:
    """Half the goal takes twice the replicas; the load of the recording is the same, and shared by more."""
    found = recorded(3)
    other = copy.deepcopy(CPU)
    other["resource"]["target"]["averageUtilization"] = 25
    runs = RecordedBacktest("half", hpa(other, high=60))
    runs.add(found)
    real = runs.recorded.outcome
    assert runs.changed.modelled > 200
    assert runs.changed.since is not None
    assert runs.changed.outcome.replica_hours == pytest.approx(2 * real.replica_hours, rel=0.15)


def test_an_interval_counts_only_its_turns() -> None:
    found = recorded(1)
    runs = RecordedBacktest("own", found.hpa)
    runs.add(found, START + timedelta(minutes=20), START + timedelta(minutes=40))
    times = [at for at, _ in runs.changed.curve]
    assert times[0] >= START + timedelta(minutes=20)
    assert times[-1] <= START + timedelta(minutes=40)
    assert len(times) == 80


def changed(found: Scenario, *texts: str) -> HorizontalPodAutoscaler:
    """Returns the recorded HPA with these `--set`."""
    return manifest.changed(found.hpa, texts, Settings())


def counts(row: dict[str, Any], *texts: str, shared: tuple[str, ...] = ()) -> list[int]:
    """Returns the counts that the HPA with these `--set` would have left in each turn."""
    found = decode_scenario(row)
    runs = RecordedBacktest("changed", changed(found, *texts), shared)
    runs.add(found)
    return [count for _, count in runs.changed.curve]


def test_a_shared_total_falls_as_replicas_grow() -> None:
    """30 in all for 10 per replica wants 3; with 5 as the minimum, 3 of 3 replicas become 18 of 5."""
    row = scenario(*(step(15 * index, "30", replicas=3) for index in range(3)))
    found = decode_scenario(row)
    runs = RecordedBacktest("larger", changed(found, "spec.minReplicas=5"), ("queue",))
    runs.add(found)
    assert [count for _, count in runs.changed.curve] == [5, 5, 5]
    assert runs.changed.modelled == 2


def test_another_window_lets_the_count_fall_earlier() -> None:
    row = scenario(step(0, "60", 6), step(15, "30", 6), step(30, "30", 6))
    assert counts(row) == [6, 6, 6]
    assert counts(row, NO_WINDOW) == [6, 3, 3]


def test_another_spec_of_the_recording_is_replaced_as_well() -> None:
    row = scenario(step(0, "60", 3), step(15, "900", 6), step(30, "900", 6))
    row["steps"][1]["spec"] = row["hpa"]["spec"] | {"maxReplicas": 7}
    assert counts(row, "spec.maxReplicas=11") == [6, 11, 11]


def test_a_total_is_compared_with_the_simulated_count() -> None:
    row = scenario(step(0, "60", 3), step(15, "60", 6), step(30, "90", 6))
    assert counts(row, "spec.metrics[0].external.target.averageValue=20") == [3, 3, 5]


def test_answers_are_found_by_their_query_and_a_metric_that_was_not_read_is_missing_and_not_zero() -> None:
    other = {"type": "External", "external": {"metric": {"name": "other"}, "target": {"type": "Value", "value": "1"}}}
    row = scenario(step(0, answers=[{"values": [60000]}, {"values": [1000]}]), step(15, answers=[{"values": [0]}] * 2))
    row["hpa"]["spec"]["metrics"].append(other)
    found = decode_scenario(row)
    done, _ = replay.run(found)
    swapped = changed(found, "spec.metrics[0]=null")
    (query,) = [metric.query for metric in compiled_spec(swapped).metrics]
    assert known_answers(done, [query]) == [done.answers[1]]
    renamed = changed(found, "spec.metrics[0].external.metric.name=none")
    first, _ = (metric.query for metric in compiled_spec(renamed).metrics)
    (missing,) = known_answers(done, [first])
    assert isinstance(missing, AdapterError)
    assert counts(row, "spec.metrics[0].external.metric.name=none", "spec.metrics[1]=null", NO_WINDOW) == [3, 3]


def test_a_metric_that_cannot_be_queried_has_its_own_error() -> None:
    selector = "{matchExpressions: [{key: queue, operator: Like, values: [orders]}]}"
    found = decode_scenario(scenario(step(0)))
    (done,) = replay.run(found)
    refused = changed(found, f"spec.metrics[0].external.metric.selector={selector}")
    view = msgspec.structs.replace(done.view, hpa=refused)
    (answer,) = known_answers(done, examine(view).queries)
    assert isinstance(answer, AdapterError)
    assert answer.blame == "spec"


def test_a_count_that_another_client_set_is_taken_over() -> None:
    row = scenario(step(0, "60", 3), step(15, "60", 6), step(30, "60", 9), step(45, "60", 6))
    found = decode_scenario(row)
    runs = RecordedBacktest("changed", changed(found, "spec.metrics[0].external.target.averageValue=20", NO_WINDOW))
    runs.add(found)
    # Each from the count before: 3, 3, the 9 of the other client, and 3 again.
    assert [(each.before, each.after) for each in runs.changed.outcome.rescales] == [(9, 3)]


def test_a_failed_write_leaves_the_count() -> None:
    row = scenario(step(0, "60", 3, scaleUpdateErrors=["boom"]), step(15, "60", 3))
    assert counts(row, "spec.maxReplicas=5") == [3, 5]


def test_the_annotations_are_those_of_the_manifest_alone() -> None:
    down = {"answers": [{"error": "the broker is down"}]}
    row = scenario(step(0, replicas=3, **down))
    assert counts(row, 'metadata.annotations["hpad.io/fallback"]=replicas:7 after 0s') == [7]
    row["steps"][0]["terms"] = [{"fallback": "replicas:7 after 0s"}]
    assert counts(row) == [3]
    wide = {"hpad.io/tolerance-up": "0.5"}
    row = scenario(step(0, replicas=5, controls=wide), step(15, replicas=5, controls=wide))
    assert counts(row) == [6, 6]
    assert counts(row, 'metadata.annotations["hpad.io/tolerance-up"]=0.3') == [5, 5]


def test_a_fallback_is_set_by_its_field() -> None:
    down = {"answers": [{"error": "the broker is down"}]}
    row = scenario(step(0, **down), step(0, **down, time="2026-01-01T12:03:00Z"))
    assert counts(row, 'spec.metrics[0].external.fallback={"replicas": 7}') == [3, 7]


def test_the_state_runs_on_in_a_scenario_that_continues_the_one_before() -> None:
    whole = scenario(step(0, "60", 3), step(15, "60", 6), step(30, "60", 6), step(45, "60", 6))
    state = list(replay.run(decode_scenario(whole)))[1].settlement
    past = msgspec.structs.replace(state.history, recommendations=tuple(state.history.recommendations))
    later = whole | {"steps": whole["steps"][2:], "history": to_builtins(past)}
    first = decode_scenario(whole | {"steps": whole["steps"][:2]})
    runs = RecordedBacktest("lower", changed(first, "spec.maxReplicas=4"))
    for each in (first, decode_scenario(later)):
        runs.add(each)
    assert [count for _, count in runs.changed.curve] == [4, 4, 4, 4]
    assert runs.changed.modelled == 3


def test_a_scenario_of_an_earlier_time_starts_with_the_recorded_state() -> None:
    """Two HPAs of one name may both have no history."""
    row = decode_scenario(scenario(step(15, scale=None, scaleError="gone")))
    runs = RecordedBacktest("own", row.hpa)
    runs.add(row)
    assert not runs.continues(decode_scenario(scenario(step(0))))
    assert runs.continues(decode_scenario(scenario(step(30))))
