"""Which settings are tried: none without cause, few with one, and within the limits that a person would set."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.advice_pasts import daily, lived, noisy, painted, spec
from support.engine import external, pods_metric, resource

from hpad.engine.view import Tunables
from hpad.simulation.advice import facts
from hpad.simulation.advice.assessment import AdviceOptions, FoundFault, HpaFault, Severity
from hpad.simulation.advice.choosing.candidates import MOST, SettingCandidate, Situation, candidates
from hpad.simulation.advice.model.load_model import LoadModel
from hpad.simulation.advice.model.rerun import rerun
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.record import record_of
from hpad.simulation.backlog import Rates

CPU = resource("cpu", averageUtilization=50)
DAY = 1441
FLAT = [2.0] * DAY


def tried(past: HpaPast, *faults: HpaFault, severity: Severity = Severity.WARNING) -> list[SettingCandidate]:
    model = LoadModel.of(past, AdviceOptions(Tunables()))
    assert model is not None
    found = [FoundFault(each, severity, "") for each in faults]
    known = facts.facts_of(past, record_of(past, Tunables()))
    return candidates(Situation.of(model, known, found, rerun(past.hpa, model)))


def words(found: Sequence[SettingCandidate]) -> list[str]:
    return [each.words for each in found]


def goal(value: int) -> dict[str, Any]:
    return resource("cpu", averageUtilization=value)


@pytest.mark.parametrize(("now", "expected"), [(40, [60, 65, 70]), (57, [65, 70]), (60, []), (70, []), (85, [])])
def test_goals_of_cpu_are_raised_to_seventy_percent_at_most(now: int, expected: list[int]) -> None:
    past = lived(spec(goal(now), low=2, high=40), noisy(daily(150, 900), 0.02), days=1)
    assert [change.after for each in tried(past) for change in each.changes] == expected


@pytest.mark.parametrize(
    "metric",
    [resource("memory", averageUtilization=40), pods_metric("busy", "30"), external("jobs", averageValue="30")],
)
def test_other_goals_are_never_raised(metric: dict[str, Any]) -> None:
    past = lived(spec(metric, low=2, high=40), noisy(daily(150, 900), 0.02), days=1)
    assert tried(past) == []


@pytest.mark.parametrize(("low", "expected"), [(10, [2]), (3, [2]), (2, []), (1, [])])
def test_the_minimum_is_not_lowered_below_two(low: int, expected: list[int]) -> None:
    past = painted(spec(goal(60), low=low, high=20), [float(low)] * DAY, {"cpu": 60 / low})
    assert [each.changes[0].after for each in tried(past)] == expected


def test_the_maximum_is_raised_to_what_the_metrics_asked_for() -> None:
    values = [110.0 if 600 <= minute < 900 else 55.0 for minute in range(DAY)]
    past = painted(spec(goal(60), low=2, high=6), [6.0] * DAY, {"cpu": values})
    found = [each for each in tried(past, HpaFault.AT_MAXIMUM) if each.changes[0].path == "spec.maxReplicas"]
    assert words(found) == ["maximum 6 -> 11", "maximum 6 -> 9", "maximum 6 -> 8"]


def test_a_fault_that_loses_nothing_calls_for_nothing() -> None:
    past = painted(spec(goal(90), low=2, high=6), FLAT, {"cpu": 85.0})
    assert tried(past, HpaFault.GOAL_HIGH, severity=Severity.NOTE) == []
    assert words(tried(past, HpaFault.GOAL_HIGH)) == [
        "cpu goal 90 -> 80 %",
        "cpu goal 90 -> 70 %",
        "cpu goal 90 -> 60 %",
    ]


def test_a_metric_that_each_pod_exceeds_is_left_alone() -> None:
    past = painted(
        spec(resource("memory", averageValue="700Mi"), low=2, high=12), [12.0] * DAY, {"memory": 900.0 * 2**20}
    )
    assert facts.facts_of(past, record_of(past, Tunables())).exceeded == ("memory",)
    assert tried(past, HpaFault.AT_MAXIMUM) == []


def test_a_slow_queue_with_known_rates_gets_fewer_messages_per_replica() -> None:
    columns = {"jobs": [800.0] * DAY, "published": 20.0, "acked": 20.0}
    past = painted(
        spec(external("jobs", averageValue="80"), low=1, high=30),
        [10.0] * DAY,
        columns,
        queues={"jobs": Rates("published", "acked", 2.0)},
    )
    found = tried(past, HpaFault.QUEUE_SLOW)
    assert words(found) == [
        "external metric jobs goal 80 -> 40 (40s -> 20s of work)",
        "external metric jobs goal 80 -> 20 (40s -> 10s of work)",
    ]
    assert found[0].changes[0].path == "spec.metrics[0].external.target.averageValue"
    assert {each.mends[0] for each in found} == {HpaFault.QUEUE_SLOW}


def test_a_backlog_without_known_rates_gets_no_longer_window() -> None:
    load = noisy(daily(150, 900), 0.3)
    queue, service = (spec(metric, low=2, high=40) for metric in (external("jobs", averageValue="30"), goal(60)))
    restless = (HpaFault.WINDOW_SHORT,)
    assert not [each for each in words(tried(lived(queue, load, days=1), *restless)) if "window" in each]
    assert [each for each in words(tried(lived(service, load, days=1), *restless)) if "window" in each]


def test_paths_are_those_of_the_spec_where_another_metric_is_left_out() -> None:
    past = painted(spec(external("jobs", averageValue="30"), goal(30), low=2, high=9), [6.0] * DAY, {"cpu": 25.0})
    assert {each.changes[0].path for each in tried(past)} == {"spec.metrics[1].resource.target.averageUtilization"}


def test_every_candidate_is_a_valid_hpa_and_there_are_few() -> None:
    rules = {
        "scaleUp": {
            "stabilizationWindowSeconds": 600,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
        },
        "scaleDown": {"stabilizationWindowSeconds": 1800},
    }
    values = [95.0 if minute % 240 < 120 else 20.0 for minute in range(DAY)]
    past = painted(spec(goal(50), low=5, high=8, behavior=rules), [6.0] * DAY, {"cpu": values})
    found = tried(past, *HpaFault)
    assert 0 < len(found) <= MOST
    for each in found:
        changed = each.applied(past.hpa)
        assert changed is not None
        assert changed.spec != past.hpa.spec
