"""Recorded inputs under a changed spec: what stays, where the count differs, and what is not known."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from support import environment
from support.replays import scenario, step

from hpad.api import hpa as v2
from hpad.api.sample import AdapterError
from hpad.records import replay
from hpad.records.format import decode_scenario
from hpad.records.simulate import ComparedTurn, NotRecorded, Simulation, after
from hpad.records.spec_changes import ChangeError, parse

Vectors = Callable[..., Iterator[dict[str, Any]]]

NO_WINDOW = "spec.behavior.scaleDown.stabilizationWindowSeconds=0"


def simulated(row: dict[str, Any], *changes: str) -> list[ComparedTurn]:
    return list(Simulation([parse(each) for each in changes]).run(decode_scenario(row)))


def counts(turns: list[ComparedTurn]) -> list[tuple[int, int]]:
    """Returns the desired counts of each turn, recorded and changed."""
    return [(turn.recorded.decision.desired, turn.changed.decision.desired) for turn in turns]


def as_recorded(row: dict[str, Any]) -> list[str]:
    """Returns changes that set fields of the spec to the values that they have in all steps."""
    specs = [v2.to_builtins(decode_scenario(row).hpa.spec)]
    specs += [each["spec"] for each in row["steps"] if "spec" in each]
    same = [name for name, value in specs[0].items() if all(spec.get(name) == value for spec in specs)]
    return [f"spec.{name}={json.dumps(specs[0][name])}" for name in same]


@pytest.mark.parametrize("name", ["reconcile", "timeline"])
def test_recorded_values_give_the_recorded_decisions(vectors: Vectors, name: str) -> None:
    total = 0
    # What differs from a replay depends on the step, not on its numbers.
    for row in vectors(name, environment.every(16)):
        turns = simulated(row, *as_recorded(row))
        total += len(turns)
        for turn in turns:
            assert replay.results_of(turn.changed) == replay.results_of(turn.recorded), row["id"]
            assert turn.changed.view == turn.recorded.view
    assert total > 500


def pods(count: int, used: str) -> dict[str, Any]:
    """Returns the fields of a step: so many pods that request 500m of CPU each, and what each of them uses."""
    names = [f"web-{number}" for number in range(count)]
    labels = {"app": "web"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T10:00:00Z"}
    return {
        "pods": [
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "500m"}}}]},
                "status": {"phase": "Running", "startTime": "2026-01-01T10:00:00Z", "conditions": [ready]},
            }
            for name in names
        ],
        "podMetrics": {
            "items": [
                {
                    "metadata": {"name": name, "labels": labels},
                    "timestamp": "2026-01-01T12:00:00Z",
                    "window": "15s",
                    "containers": [{"name": "app", "usage": {"cpu": used}}],
                }
                for name in names
            ]
        },
    }


def busy(*steps: dict[str, Any], most: int) -> dict[str, Any]:
    """Returns a scenario of an HPA for 50 % of the requested CPU."""
    row = scenario(*steps)
    target = {"type": "Utilization", "averageUtilization": 50}
    row["hpa"]["spec"] |= {
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "maxReplicas": most,
    }
    return row


def test_a_higher_maximum_shows_the_growth_where_the_recording_hit_it() -> None:
    row = busy(
        step(0, replicas=2, **pods(2, "250m")),
        step(15, replicas=2, **pods(2, "500m")),
        step(30, replicas=4, **pods(4, "500m")),
        step(45, replicas=4, **pods(4, "500m")),
        most=4,
    )
    turns = simulated(row, "spec.maxReplicas=20")
    assert counts(turns) == [(2, 2), (4, 4), (4, 8), (4, 8)]


def test_recorded_pods_and_usages_are_used_as_they_are_beside_the_simulated_count() -> None:
    """The proposal is recorded pods times ratio. A ratio within the tolerance keeps the simulated count."""
    row = busy(
        step(0, replicas=4, **pods(4, "500m")),
        step(15, replicas=4, **pods(4, "375m")),
        step(30, replicas=4, **pods(4, "250m")),
        most=4,
    )
    turns = simulated(row, "spec.maxReplicas=20", NO_WINDOW)
    assert counts(turns) == [(4, 8), (4, 6), (4, 6)]
    scales = [turn.changed.view.scale for turn in turns]
    assert [scale and (scale.spec.replicas, scale.status.replicas) for scale in scales] == [(4, 4), (8, 8), (6, 6)]
    assert [len(turn.changed.view.pods) for turn in turns] == [4, 4, 4]


def test_another_window_lets_the_count_fall_earlier() -> None:
    row = scenario(step(0, "60", 6), step(15, "30", 6), step(30, "30", 6))
    turns = simulated(row, NO_WINDOW)
    assert counts(turns) == [(6, 6), (6, 3), (6, 3)]
    assert turns[1].changed.decision.desired == turns[2].changed.view.replicas == 3


def test_a_total_is_compared_with_the_simulated_count() -> None:
    row = scenario(step(0, "60", 3), step(15, "60", 6), step(30, "90", 6))
    turns = simulated(row, "spec.metrics[0].external.target.averageValue=20")
    assert counts(turns) == [(6, 3), (6, 3), (9, 5)]


def test_each_spec_of_the_recording_is_changed() -> None:
    row = scenario(step(0, "60", 3), step(15, "900", 6), step(30, "900", 6))
    row["steps"][1]["spec"] = row["hpa"]["spec"] | {"maxReplicas": 7, "minReplicas": 2}
    turns = simulated(row, "spec.maxReplicas=11")
    assert [turn.changed.view.spec.max_replicas for turn in turns] == [11, 11, 11]
    assert [turn.changed.view.spec.min_replicas for turn in turns] == [1, 2, 2]
    assert counts(turns) == [(6, 6), (7, 11), (7, 11)]


def test_a_metric_that_was_not_recorded_is_missing_and_not_zero() -> None:
    row = scenario(step(0, "60", 3), step(15, "30", 6))
    [turn, _] = simulated(row, "spec.metrics[0].external.metric.name=other", NO_WINDOW)
    assert turn.changed.answers == (NotRecorded("not recorded: the recorded spec does not ask for this metric"),)
    assert str(turn.changed.decision) == (
        "cannot decide: external metric other fails: not recorded: the recorded spec does not ask for this metric"
    )
    assert turn.changed.decision.desired == 3


def test_a_metric_that_cannot_be_queried_has_its_own_error() -> None:
    selector = "{matchExpressions: [{key: queue, operator: Like, values: [orders]}]}"
    (turn,) = simulated(scenario(step(0)), f"spec.metrics[0].external.metric.selector={selector}")
    (answer,) = turn.changed.answers
    assert isinstance(answer, AdapterError)
    assert not isinstance(answer, NotRecorded)
    assert answer.blame == "spec"


def test_answers_without_lists_are_found_by_their_query() -> None:
    other = {"type": "External", "external": {"metric": {"name": "other"}, "target": {"type": "Value", "value": "1"}}}
    row = scenario(step(0, answers=[{"values": [60000]}, {"values": [1000]}]))
    row["hpa"]["spec"]["metrics"].append(other)
    (turn,) = simulated(row, "spec.metrics[0]=null")
    assert turn.changed.answers == turn.recorded.answers[1:]


def test_equal_queries_keep_their_own_answers() -> None:
    def external(name: str) -> dict[str, Any]:
        return {"type": "External", "external": {"metric": {"name": name}, "target": {"type": "Value", "value": "1"}}}

    row = scenario(step(0, answers=[{"values": [1000]}, {"values": [2000]}, {"values": [3000]}]))
    row["hpa"]["spec"]["metrics"] = [external("queue"), external("other"), external("queue")]
    (turn,) = simulated(row, "spec.metrics[1]=null")
    assert turn.changed.answers == (turn.recorded.answers[0], turn.recorded.answers[2])


def test_metrics_that_were_not_read_in_a_turn_are_missing() -> None:
    """The recorded count was above the maximum, so the recorded turn needed no metrics."""
    (turn,) = simulated(scenario(step(0, "900", replicas=12)), "spec.maxReplicas=20")
    assert counts([turn]) == [(10, 12)]
    assert "not recorded: the metrics were not read in this turn" in str(turn.changed.decision)


def test_a_count_that_another_client_set_is_taken_over() -> None:
    row = scenario(step(0, "60", 3), step(15, "60", 6), step(30, "60", 9), step(45, "60", 6))
    turns = simulated(row, "spec.metrics[0].external.target.averageValue=20", NO_WINDOW)
    assert [turn.changed.view.replicas for turn in turns] == [3, 3, 9, 3]


def test_in_a_dry_run_nothing_is_written_and_no_count_differs() -> None:
    withheld = {"reason": "DryRun", "message": "this is a dry run"}
    row = scenario(step(0, "20", 3), step(15, "60", 3, withheld=withheld), step(30, "90", 3, withheld=withheld))
    turns = simulated(row, "spec.minReplicas=5")
    assert [turn.changed.decision.scale_to for turn in turns] == [5, 5, 5]
    assert all(turn.changed.outcome is not None and turn.changed.outcome.withheld is not None for turn in turns)
    assert all(turn.changed.view.replicas == 3 for turn in turns)


def test_a_failed_write_leaves_the_count() -> None:
    row = scenario(step(0, "60", 3, scaleUpdateErrors=["boom"]), step(15, "60", 3))
    turns = simulated(row, "spec.maxReplicas=5")
    assert [after(turn.changed) for turn in turns] == [3, 5]


def test_a_fallback_is_set_by_its_annotation() -> None:
    row = scenario(step(0, replicas=3, answers=[{"error": "the broker is down"}]))
    (turn,) = simulated(row, 'metadata.annotations["hpad.io/fallback"]=replicas:7 after 0s')
    assert counts([turn]) == [(3, 7)]
    row["steps"][0]["terms"] = [{"fallback": "replicas:7 after 0s"}]
    (turn,) = simulated(row, "metadata.annotations['hpad.io/fallback']=null")
    assert counts([turn]) == [(7, 3)]


def test_a_fallback_is_set_by_its_field() -> None:
    down = [{"error": "the broker is down"}]
    row = scenario(step(0, answers=down), step(0, answers=down, time="2026-01-01T12:03:00Z"))
    turns = simulated(row, 'spec.metrics[0].external.fallback={"replicas": 7}')
    assert counts(turns) == [(3, 3), (3, 7)]


def test_the_state_runs_on_in_a_scenario_that_continues_the_one_before() -> None:
    whole = scenario(step(0, "60", 3), step(15, "60", 6), step(30, "60", 6), step(45, "60", 6))
    state = list(replay.run(decode_scenario(whole)))[1].settlement
    past = msgspec.structs.replace(state.history, recommendations=tuple(state.history.recommendations))
    later = whole | {"steps": whole["steps"][2:], "history": v2.to_builtins(past)}
    simulation = Simulation([parse("spec.maxReplicas=4")])
    first = decode_scenario(whole | {"steps": whole["steps"][:2]})
    turns = [*simulation.run(first), *simulation.run(decode_scenario(later))]
    assert counts(turns) == [(6, 4)] * 4
    fresh = later | {"history": {}}
    assert not simulation.continues(decode_scenario(fresh))
    assert next(simulation.run(decode_scenario(fresh))).changed.view.replicas == 6


def test_a_change_that_fits_only_the_first_spec_names_the_time_of_the_other() -> None:
    row = scenario(step(0), step(15))
    row["steps"][1]["spec"] = row["hpa"]["spec"] | {"minReplicas": 6}
    with pytest.raises(ChangeError) as caught:
        simulated(row, "spec.maxReplicas=5")
    assert str(caught.value).startswith("--set spec.maxReplicas=5: the API server would refuse default/web: spec.max")
    assert str(caught.value).endswith(" (its spec at 2026-01-01T12:00:15Z)")


def test_a_scenario_of_an_earlier_time_starts_with_the_recorded_state() -> None:
    """Two HPAs of one name may both have no history."""
    row = decode_scenario(scenario(step(15, scale=None, scaleError="gone")))
    simulation = Simulation([parse("spec.maxReplicas=4")])
    list(simulation.run(row))
    assert not simulation.continues(decode_scenario(scenario(step(0))))
    assert simulation.continues(decode_scenario(scenario(step(30))))


def test_a_changed_control_replaces_the_recorded_one() -> None:
    wide = {"hpad.io/tolerance-up": "0.5"}
    row = scenario(step(0, replicas=5, controls=wide), step(15, replicas=5, controls=wide))
    name = 'metadata.annotations["hpad.io/tolerance-up"]'
    assert counts(simulated(row, f"{name}=0.1")) == [(5, 6), (5, 6)]
    assert counts(simulated(row, f"{name}=null")) == [(5, 6), (5, 6)]
    assert counts(simulated(row, f"{name}=0.3")) == [(5, 5), (5, 5)]
    with pytest.raises(ChangeError, match="'wide' is not a tolerance"):
        simulated(row, f"{name}=wide")
