"""What is advised: for HPAs with a known fault what mends it, for good ones nothing, and how candidates are chosen."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from support import advice_cast
from support.advice_cast import (
    FAULTY,
    GOOD,
    at_maximum_each_afternoon,
    below_one_pod_of_memory,
    goal_high_at_the_request,
    goal_low_by_day,
    idle_minimum_all_week,
    past_of,
    policy_slow_by_a_window,
    policy_slow_in_the_morning,
    queue_slow_by_its_age,
    requests_missing_in_a_sidecar,
    window_short_between_jobs,
    window_short_in_dips,
    window_useless_after_rare_peaks,
)
from support.advice_pasts import daily, lived, noisy, spec
from support.engine import resource

from hpad.engine.view import Tunables
from hpad.simulation.advice.assess import assess
from hpad.simulation.advice.assessment import AdviceOptions, Assessment, Figures, HpaFault
from hpad.simulation.advice.choosing import comparison
from hpad.simulation.advice.past import HpaPast

OPTIONS = AdviceOptions(Tunables())
CPU_GOAL = "spec.metrics[0].resource.target.averageUtilization"
DOWN = "spec.behavior.scaleDown.stabilizationWindowSeconds"


def assessed(past: HpaPast, **options: Any) -> Assessment:
    return assess(past, OPTIONS._replace(**options))


@pytest.mark.parametrize("make", GOOD, ids=lambda make: make.__name__)
def test_a_good_hpa_gets_no_advice(make: Callable[[], HpaPast]) -> None:
    assert advice_cast.assessed(make).advice is None


@pytest.mark.parametrize(
    ("make", "path", "after"),
    [
        (idle_minimum_all_week, "spec.minReplicas", 2),
        (goal_low_by_day, CPU_GOAL, 70),
        (goal_high_at_the_request, CPU_GOAL, 80),
        (at_maximum_each_afternoon, "spec.maxReplicas", 11),
        (window_short_in_dips, DOWN, 600),
        (window_useless_after_rare_peaks, DOWN, 300),
        (policy_slow_by_a_window, "spec.behavior.scaleUp.stabilizationWindowSeconds", 60),
    ],
)
def test_a_fault_gets_the_setting_that_mends_it(make: Callable[[], HpaPast], path: str, after: int) -> None:
    found = advice_cast.assessed(make)
    assert found.advice is not None
    assert [(each.path, each.after) for each in found.advice.changes] == [(path, after)]
    assert [each.fault for each in found.findings] == [FAULTY[make]]


def test_slow_policies_are_replaced_by_the_defaults() -> None:
    advice = advice_cast.assessed(policy_slow_in_the_morning).advice
    assert advice is not None
    (change,) = advice.changes
    assert change.path == "spec.behavior.scaleUp.policies"
    assert change.before == [{"type": "Pods", "value": 1, "periodSeconds": 600}]
    assert {each["periodSeconds"] for each in change.after} == {15}
    assert advice.after.overloaded < 0.1 * advice.before.overloaded


@pytest.mark.parametrize("make", [below_one_pod_of_memory, requests_missing_in_a_sidecar])
def test_no_count_helps_an_hpa_whose_metric_does_not_fall_or_is_not_there(make: Callable[[], HpaPast]) -> None:
    assert advice_cast.assessed(make).advice is None


@pytest.mark.parametrize("make", FAULTY, ids=lambda make: make.__name__)
def test_a_fault_has_an_advice_or_a_reason_why_not(make: Callable[[], HpaPast]) -> None:
    found = advice_cast.assessed(make)
    assert (found.advice is None) == bool(found.unadvised)


@pytest.mark.parametrize("make", GOOD, ids=lambda make: make.__name__)
def test_an_hpa_without_a_fault_needs_no_reason(make: Callable[[], HpaPast]) -> None:
    assert not advice_cast.assessed(make).unadvised


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            requests_missing_in_a_sidecar,
            "give proxy the request, or use a ContainerResource metric of a container that has one",
        ),
        (queue_slow_by_its_age, "its past does not show what other settings would do (see trust)"),
        (
            window_short_between_jobs,
            "4 changes were tried, and the best would not serve better: scale-down window 30 -> 600 s: "
            "104 % more replica-hours, where the budget is 25 %",
        ),
    ],
)
def test_the_reason_is_the_one_that_kept_it_from_being_advised(make: Callable[[], HpaPast], reason: str) -> None:
    assert advice_cast.assessed(make).unadvised == reason


def low_goal(goal: int, low: int = 2, days: float = 3) -> HpaPast:
    metric = resource("cpu", averageUtilization=goal)
    return lived(spec(metric, low=low, high=40), noisy(daily(150, 900), 0.05), days=days)


def test_a_goal_that_the_record_does_not_call_a_fault_is_named_by_the_advice() -> None:
    found = assessed(low_goal(50))
    assert found.advice is not None
    assert found.advice.text.startswith("cpu goal 50 -> 70 %: ")
    assert 0.2 < found.advice.saved <= 1 - 50 / 70
    assert f"{found.advice.saved:.0%}".replace("%", " %") + " fewer replica-hours" in found.advice.text
    assert [each.fault for each in found.findings] == [HpaFault.GOAL_LOW]
    assert found.verdict == found.advice.text


@pytest.mark.parametrize("goal", [60, 65, 70, 75])
def test_a_goal_with_some_room_stays(goal: int) -> None:
    assert assessed(low_goal(goal)).advice is None


def test_a_low_goal_with_room_for_surges_stays() -> None:
    """For three minutes each two hours the load is twice what it was."""
    quiet = noisy(daily(150, 900), 0.03)
    metric = resource("cpu", averageUtilization=50)
    past = lived(spec(metric, low=3, high=60), lambda at: quiet(at) * (1.9 if at % 7200 < 180 else 1), days=3)
    assert assessed(past).advice is None


def test_a_saving_below_the_least_is_no_advice() -> None:
    assert assessed(low_goal(50), saving=0.4).advice is None


def test_less_overload_may_cost_the_budget_and_no_more() -> None:
    past = past_of(at_maximum_each_afternoon)
    wide, narrow = assessed(past, budget=0.5), assessed(past, budget=0.1)
    assert wide.advice is not None
    assert wide.advice.changes[0].after == 14  # what the metrics asked for
    assert narrow.advice is None
    assert narrow.unadvised.endswith(" more replica-hours, where the budget is 10 %")


def test_a_higher_maximum_promises_only_what_the_metrics_asked_for() -> None:
    advice = advice_cast.assessed(at_maximum_each_afternoon).advice
    assert advice is not None
    assert advice.text.endswith(
        "; the metrics asked for up to 14, and do not show what pods at their limit could not serve"
    )


def test_what_does_not_hold_on_the_last_days_is_not_advised() -> None:
    """On the fourth day the load doubles for two minutes each quarter of an hour."""
    quiet = noisy(daily(150, 900), 0.05)
    metric = resource("cpu", averageUtilization=40)

    def load(at: float) -> float:
        return quiet(at) * (2.2 if at > 3 * 86_400 and at % 900 < 120 else 1)

    past = lived(spec(metric, low=2, high=60), load)
    assert assessed(low_goal(40)).advice is not None
    assert assessed(past).advice is None


def test_what_the_last_days_speak_against_is_the_reason() -> None:
    """On the third day the load needs the minimum of eight for two minutes each quarter of an hour."""
    metric = resource("cpu", averageUtilization=70)

    def load(at: float) -> float:
        return 500 if at > 2 * 86_400 and at % 900 < 120 else 100

    found = assessed(lived(spec(metric, low=8, high=60), load, days=3))
    assert found.advice is None
    assert found.unadvised.startswith("what served better on the first days did not on the last: minimum 8 -> 2: overl")


def test_goal_and_minimum_are_advised_together_where_both_help() -> None:
    found = assessed(low_goal(30, low=8))
    assert found.advice is not None
    assert {each.path for each in found.advice.changes} == {CPU_GOAL, "spec.minReplicas"}
    assert " and " in found.advice.text.partition(":")[0]


def test_two_days_are_split_in_halves_and_one_day_is_not_checked() -> None:
    two, one = assessed(low_goal(30, days=2)).advice, assessed(low_goal(30, days=1.5)).advice
    assert two is not None
    assert two.before.seconds == two.checked_before.seconds == 86_400
    assert one is not None
    assert one.checked_before.seconds == 0
    assert one.text.endswith("not checked on other days")
    short = assessed(low_goal(30, days=0.9))
    assert short.advice is None
    assert short.unadvised == ""  # nothing is called a fault in less than a day, either


@pytest.mark.parametrize(("flaps", "more"), [(2, False), (3, True)])
def test_two_days_less_their_last_step_allow_two_flaps(flaps: int, more: bool) -> None:
    before = Figures(
        seconds=2 * 86_400 - 60, replica_seconds=1, above_goal=0, overloaded=0, rescales=0, flaps=0, lowest=1, highest=1
    )
    assert comparison.more_flaps(before, msgspec.structs.replace(before, flaps=flaps)) == more
