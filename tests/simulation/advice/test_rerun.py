"""Reruns of a past: figures of the first and last days, overload, gaps, what held the count, and what is assumed."""

import math
from typing import Any

import pytest
from support.advice_pasts import painted, spec
from support.engine import external, resource

from hpad.engine.view import Tunables
from hpad.simulation.advice.assessment import AdviceOptions
from hpad.simulation.advice.model.load_model import LoadModel, Needs
from hpad.simulation.advice.model.rerun import Course, Rerun, figures, rerun
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.backlog import Rates

DAY = 86_400.0
OPTIONS = AdviceOptions(Tunables(), startup=0, lag=0)
CPU = resource("cpu", averageUtilization=50)


def model_of(past: HpaPast) -> LoadModel:
    found = LoadModel.of(past, OPTIONS)
    assert found is not None
    return found


def run_of(past: HpaPast, **spec_fields: Any) -> Rerun:
    return rerun(past.hpa, model_of(past))


def minutes(days: float) -> int:
    return round(days * 1440) + 1


def test_figures_of_a_part_of_the_time() -> None:
    course = Course(counts=[(0, 2), (100, 5), (250, 3), (700, 4)], ready=[(0, 2), (130, 5), (250, 3)])
    needs = Needs(times=[0, 100, 200, 300], goal=[1.0, 4.0, None, 4.5], level=[0.5, 2.5, None, 3.0], longest=400)
    found = figures(course, needs, 50, 900)
    assert found.seconds == 850
    assert found.replica_seconds == 50 * 2 + 150 * 5 + 450 * 3 + 200 * 4
    assert found.above_goal == 30 + 400  # two replicas from 100 to 130, three from 300 on as long as it is known
    assert found.overloaded == 30
    assert (found.rescales, found.flaps, found.lowest, found.highest) == (3, 1, 2, 5)


@pytest.mark.parametrize(
    ("days", "first", "last"), [(7, 5, 2), (3.5, 2.5, 1), (2.5, 1.5, 1), (2, 1, 1), (1.9, 1.9, 0), (0.5, 0.5, 0)]
)
def test_the_time_is_split_at_five_sevenths_and_a_day_each(days: float, first: float, last: float) -> None:
    found = run_of(painted(spec(CPU), [2.0] * minutes(days), {"cpu": 40.0}))
    assert found.chosen.seconds == pytest.approx(first * DAY, abs=1)
    assert found.checked.seconds == pytest.approx(last * DAY, abs=1)


def test_overload_is_measured_alike_whatever_the_goal() -> None:
    """Four replicas at 95 % for two hours of a day; the maximum leaves no room."""
    values = [95.0 if 600 <= minute % 1440 < 720 else 40.0 for minute in range(minutes(2))]
    past = painted(spec(CPU, low=4, high=4), 4.0, {"cpu": values})
    model = model_of(past)
    assert model.levels == (90.0,)
    for goal in (50, 70, 95):
        found = rerun(spec(resource("cpu", averageUtilization=goal), low=4, high=4), model)
        assert found.chosen.overloaded == pytest.approx(7200, abs=60)
        assert found.chosen.above_goal == pytest.approx(7200 if goal < 86 else 0, abs=60)


def test_the_level_of_a_high_goal_and_of_other_metrics_is_the_goal_with_its_tolerance() -> None:
    metrics = resource("cpu", averageUtilization=95), resource("memory", averageUtilization=60)
    past = painted(spec(*metrics), [2.0] * 100, {"cpu": 40.0, "memory": 30.0})
    assert model_of(past).levels == (pytest.approx(104.5), pytest.approx(66))


def test_a_gap_keeps_the_count_and_is_no_overload() -> None:
    values = [None if 300 <= minute < 900 else 80.0 for minute in range(1440)]
    found = run_of(painted(spec(CPU, low=1, high=20), [5.0] * 1440, {"cpu": values}))
    assert [count for _, count in found.curve] == [5, 8, 8]
    assert found.chosen.overloaded == 0


def test_a_metric_without_values_is_left_out_and_named() -> None:
    past = painted(spec(CPU, external("jobs", averageValue="10"), high=20), [3.0] * 1440, {"cpu": 80.0})
    model = model_of(past)
    assert rerun(past.hpa, model).curve[-1][1] == math.ceil(3 * 80 / 50)
    assert any(note.startswith("jobs: has no values") for note in model.notes)


def test_without_any_value_or_count_there_is_no_model() -> None:
    assert LoadModel.of(painted(spec(CPU), [3.0] * 100), OPTIONS) is None
    assert LoadModel.of(painted(spec(CPU), [None] * 100, {"cpu": 40.0}), OPTIONS) is None


def test_the_run_begins_with_the_first_known_count() -> None:
    counts = [None] * 60 + [6.0] * 1380
    past = painted(spec(CPU, low=1, high=20), counts, {"cpu": 48.0})
    found = run_of(past)
    assert found.curve[0] == (past.load.times[60], 6)


def test_the_seconds_in_which_windows_and_policies_held_the_count() -> None:
    slow = {
        "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
        "scaleDown": {"stabilizationWindowSeconds": 600},
    }
    values = [50.0 if minute < 60 else 100.0 if minute < 120 else 25.0 for minute in range(240)]
    found = run_of(painted(spec(CPU, low=2, high=20, behavior=slow), [4.0] * 240, {"cpu": values}))
    # From 4 to 8, one a minute: the last one comes after three minutes.
    assert found.held["behavior.scaleUp.policies"] == pytest.approx(180, abs=30)
    assert found.held["behavior.scaleDown.stabilizationWindowSeconds"] == pytest.approx(600, abs=30)


def test_a_load_that_was_cut_off_at_the_maximum_is_named() -> None:
    values = [95.0 if minute < 300 else 40.0 for minute in range(1440)]
    notes = model_of(painted(spec(CPU, low=1, high=4), [4.0] * 1440, {"cpu": values})).notes
    assert notes[0] == "cpu: its total over the recorded replicas is the load, which the simulated ones share evenly"
    assert "underestimated" in notes[1]
    assert notes[1].startswith("for 5h ")
    whole = model_of(painted(spec(CPU, low=1, high=4), [4.0] * 61, {"cpu": 95.0})).notes
    assert whole[1].startswith("for 1h ")


def test_the_backlog_of_a_queue_answers_to_the_count() -> None:
    """Ten messages a second; a replica does one, so ten replicas keep up and five do not."""
    count = 600
    columns = {"jobs": 200.0, "published": 10.0, "acked": 10.0}
    queues = {"jobs": Rates("published", "acked", 1.0)}
    overloads = []
    for most in (5, 20):
        metric = external("jobs", averageValue="30")
        past = painted(spec(metric, low=1, high=most), [5.0] * count, columns, queues=queues)
        overloads.append(run_of(past).chosen.overloaded)
    assert overloads[0] > 0.9 * 60 * count
    assert overloads[1] < 0.2 * 60 * count
