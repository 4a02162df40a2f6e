"""The words of outlooks; test_outlook_times.py and test_outlook_readings.py show that they are true."""

from datetime import timedelta

import pytest
from support.engine import (
    START,
    Workload,
    external,
    object_metric,
    one,
    pod,
    resource,
    series,
    used,
)
from support.outlook_cases import again
from support.outlook_texts import CPU, QUEUE, down, texts

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus
from hpad.engine.history import History, PastRecommendation, Rescale
from hpad.engine.outlook.types import Outlook, Threshold
from hpad.engine.words import span


def test_at_target_the_exact_thresholds_of_both_directions_are_named() -> None:
    web = Workload(QUEUE, replicas=5)
    web.reconcile(series(53))
    # 10 % more than 50 is within the tolerance. 41 / 10 is rounded up to 5, so 5 stay above 40.
    assert texts(web) == [
        "grows once queue is above 55 (11 per replica; now 53)",
        "shrinks once queue is at most 40 (8 per replica; now 53) for 5m",
    ]
    assert web.outlook[0] == Outlook(
        text="grows once queue is above 55 (11 per replica; now 53)",
        kind="growth",
        thresholds=(Threshold(metric="queue", relation="above", amount="55", pods=5),),
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (15, "15s"), (90, "1m30s"), (300, "5m"), (1800, "30m"), (3600, "1h"), (36000, "10h"), (3660, "1h1m")],
)
def test_a_span_has_no_zero_parts(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_thresholds_have_the_unit_of_their_target() -> None:
    web = Workload(resource("memory", averageValue="64Mi"), replicas=20, high=50)
    web.pods = [pod(f"web-{n}") for n in range(20)]
    mebi = 2**20 * 1000
    web.reconcile(used([64 * mebi] * 20))
    # 64Mi are 67,108,864 bytes, and 10 % more 73,819,750.4. With 20 pods the tolerance decides in both directions.
    assert texts(web) == [
        "grows once memory is above 70.4Mi per pod (now 64Mi)",
        "shrinks once memory is below 57.6Mi per pod (now 64Mi) for 5m",
    ]
    web = Workload(CPU, resource("cpu", averageValue="100m"), replicas=2)
    web.reconcile(used([100, 100]), used([100, 100]))
    # The shares of 100 of 200 millicores are 50 %; 110 millicores are within the tolerance of 100.
    assert texts(web) == [
        "grows once #0 is above 55% (now 50%) or #1 is above 110m per pod (now 100m)",
        "shrinks once #0 is at most 25% (now 50%) and #1 is at most 50m per pod (now 100m) for 5m",
    ]
    web = Workload(object_metric("requests", value="100"), replicas=3)
    web.reconcile(one(100))
    assert texts(web) == [
        "grows once requests is above 110 (now 100)",
        "shrinks once requests is below 66.667 (now 100) for 5m",  # two thirds, to a milli-unit
    ]


def test_a_held_scale_down_names_the_count_and_when_its_window_frees() -> None:
    web = Workload(QUEUE, replicas=5)
    web.reconcile(series(50))
    web.reconcile(series(20), after=60)
    first, growth = web.outlook
    assert first.text == "5 -> 2 once the scale-down window frees at 12:05:00Z, if queue still wants 2"
    assert (first.kind, first.at, first.replicas) == ("step", START + timedelta(seconds=300), 2)
    assert growth.text == "grows once queue is above 55 (11 per replica; now 20)"


def test_an_idle_target_at_its_maximum_is_held_by_the_window() -> None:
    web = Workload(QUEUE, replicas=20, high=20, behavior=None)
    web.reconcile(series(400))
    web.reconcile(series(10), after=60)
    assert web.outlook[0].text == "20 -> 1 once the scale-down window frees at 12:05:00Z, if queue still wants 1"
    assert again(web, series(10), after=240).desired == 20, "the entry at the end of the window counts"
    assert again(web, series(10), after=240.001).desired == 1


def test_a_later_recommendation_that_holds_a_part_makes_the_first_step_smaller() -> None:
    web = Workload(QUEUE, replicas=8)
    web.reconcile(series(80))
    web.reconcile(series(40), after=60)
    web.reconcile(series(20), after=60)
    # When the 8 of 12:00:00 leave the window, the 4 of 12:01:00 still hold.
    assert texts(web)[0] == "8 -> 4 once the scale-down window frees at 12:05:00Z, if queue still wants 2"
    web.reconcile(series(20), after=181)
    assert web.trace.replicas.desired == 4
    assert texts(web)[0] == "4 -> 2 once the scale-down window frees at 12:06:00Z, if queue still wants 2"


def test_several_metrics_shrink_together() -> None:
    web = Workload(QUEUE, external("other", averageValue="10"), replicas=5)
    web.reconcile(series(50), series(50))
    web.reconcile(series(20), series(12), after=60)
    assert texts(web)[0] == "5 -> 2 once the scale-down window frees at 12:05:00Z, if no metric wants more than 2"


def test_a_scale_up_window_holds_growth_and_delays_thresholds() -> None:
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 60}, "scaleDown": {"stabilizationWindowSeconds": 90}}
    web = Workload(QUEUE, replicas=2, behavior=behavior)
    web.reconcile(series(20))
    assert texts(web) == [
        "grows once queue is above 22 (11 per replica; now 20) for 1m",
        "shrinks once queue is at most 10 (5 per replica; now 20) for 1m30s",
    ]
    web.reconcile(series(50), after=15)
    assert texts(web)[0] == "2 -> 5 once the scale-up window frees at 12:01:00Z, if queue still wants 5"


def test_a_policy_names_the_step_that_its_budget_allows_next() -> None:
    rules = down(policies=[{"type": "Pods", "value": 2, "periodSeconds": 60}])
    web = Workload(QUEUE, replicas=8, behavior=rules)
    web.reconcile(series(80))
    web.reconcile(series(10), after=15)
    assert (web.replicas, texts(web)[0]) == (
        6,
        "6 -> 4 once the scaleDown policies allow it at 12:01:15Z, if queue still wants 1",
    )
    web = Workload(CPU, replicas=1)
    web.reconcile(used([610]))
    # One pod and four more in 15 s: 5 of the 7 that 305 % of one pod ask for.
    assert texts(web)[0] == "5 -> 7 once the scaleUp policies allow it at 12:00:15Z, if cpu still wants 7"


def test_the_last_obstacle_is_named() -> None:
    policies = [{"type": "Pods", "value": 1, "periodSeconds": 1800}]
    rules = {"scaleDown": {"stabilizationWindowSeconds": 60, "policies": policies}}
    web = Workload(QUEUE, replicas=8, behavior=rules)
    web.reconcile(series(80))
    web.reconcile(series(40), after=61)
    web.reconcile(series(20), after=15)
    # The window leaves 4, and the policy has removed its one pod of the half hour at 12:01:01.
    assert texts(web)[0] == "7 -> 6 once the scaleDown policies allow it at 12:31:01Z, if queue still wants 2"
    policies = [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    web = Workload(QUEUE, replicas=8, behavior={"scaleDown": {"policies": policies}})
    web.reconcile(series(80))
    web.reconcile(series(40), after=301)
    web.reconcile(series(20), after=15)
    # The window would keep 4 for 285 s more, but one pod may go when the minute of the policy is over.
    assert texts(web)[0] == "7 -> 6 once the scaleDown policies allow it at 12:06:01Z, if queue still wants 2"


def test_uncertain_rescales_and_recommendations_count_as_the_engine_counts_them() -> None:
    rules = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}, **down()}
    web = Workload(QUEUE, replicas=4, behavior=rules)
    ago = START - timedelta(seconds=30)
    web.history = History(scale_downs=(Rescale(ago, 2, uncertain=True),))
    web.reconcile(series(90))
    # A certain rescale from 6 would allow 8 pods; this one may not have happened, so 4 + 2 are allowed.
    assert (web.replicas, texts(web)[0]) == (
        6,
        "6 -> 8 once the scaleUp policies allow it at 12:01:00Z, if queue still wants 9",
    )
    web = Workload(QUEUE, replicas=4, behavior=None)
    web.history = History((PastRecommendation(START - timedelta(seconds=60), 8), PastRecommendation(ago, 4, True)))
    web.reconcile(series(20))
    # Without spec.behavior the 8 of 11:59:00 are applied. The uncertain 4 of 11:59:30 count as these 8 from then on.
    assert (web.replicas, texts(web)[0]) == (
        8,
        "8 -> 2 once the scale-down window frees at 12:04:30Z, if queue still wants 2",
    )


def test_the_reported_count_shares_the_total() -> None:
    web = Workload(QUEUE, replicas=5)
    web.reconcile(series(48), scale=Scale(spec=ScaleSpec(5), status=ScaleStatus(4, "app=web")))
    # 4 pods are reported: 48 / 40 is beyond the tolerance, so 5 are wanted. From 36 to 44 is within it, so 5 stay.
    assert texts(web) == [
        "grows once queue is above 50 (12.5 per replica; now 48)",
        "shrinks once queue is below 36 (9 per replica; now 48) for 5m",
    ]


def test_without_a_behavior_the_next_reconcile_goes_on() -> None:
    web = Workload(CPU, replicas=1, behavior=None)
    web.reconcile(used([610]))
    assert texts(web)[0] == "4 -> 7 with the next reconcile, if cpu still wants 7"


def test_once_the_count_has_changed_thresholds_are_those_of_the_new_pods() -> None:
    web = Workload(CPU, replicas=1)
    web.reconcile(used([300]))
    assert web.replicas == 3
    # 55 % is within the tolerance of 50 %. 33 / 50 x 3 pods are 1.98, 34 / 50 x 3 pods are 2.04, rounded up to 3.
    assert texts(web) == [
        "grows once cpu is above 55%, with all 3 pods ready",
        "shrinks once cpu is below 34% for 5m, with all 3 pods ready",
    ]
    web = Workload(CPU, replicas=1)
    web.reconcile(used([190]))
    # At 95 % two pods are wanted. 26 / 50 x 2 pods are 1.04, so both stay above 25 %.
    assert web.replicas == 2
    assert texts(web) == [
        "grows once cpu is above 55%, with both pods ready",
        "shrinks once cpu is at most 25% for 5m, with both pods ready",
    ]
    web = Workload(CPU, replicas=2, low=1, behavior=down())
    web.reconcile(used([40, 40]))
    assert (web.replicas, texts(web)[0]) == (1, "grows once cpu is above 55%, with its pod ready")


def test_a_disabled_direction_is_named() -> None:
    web = Workload(QUEUE, replicas=5, behavior={"scaleDown": {"selectPolicy": "Disabled"}})
    web.reconcile(series(50))
    assert texts(web)[1] == "cannot shrink: spec.behavior.scaleDown.selectPolicy is Disabled"
    web.reconcile(series(20), after=301)
    assert texts(web) == [
        "2 wanted by queue, but spec.behavior.scaleDown.selectPolicy is Disabled",
        "grows once queue is above 55 (11 per replica; now 20)",
    ]
    web = Workload(QUEUE, replicas=5, behavior={"scaleUp": {"selectPolicy": "Disabled"}})
    web.reconcile(series(50))
    assert texts(web)[0] == "cannot grow: spec.behavior.scaleUp.selectPolicy is Disabled"


def test_the_bounds_are_named() -> None:
    web = Workload(QUEUE, replicas=10)
    web.reconcile(series(120))
    assert texts(web) == [
        "12 wanted by queue, but maxReplicas is 10",
        "shrinks once queue is below 90 (9 per replica; now 120) for 5m",
    ]
    web.reconcile(series(100), after=15)
    assert texts(web)[0] == "cannot grow: maxReplicas is 10"
    web = Workload(QUEUE, replicas=3, low=3)
    web.reconcile(series(30))
    assert texts(web)[1] == "cannot shrink: minReplicas is 3"
    web.reconcile(series(10), after=301)
    assert texts(web)[0] == "1 wanted by queue, but minReplicas is 3"


def test_a_minimum_of_zero_without_the_gate_is_explained() -> None:
    web = Workload(QUEUE, replicas=1, low=0)
    web.reconcile(series(0))
    assert (
        texts(web)[0] == "0 wanted by queue, but minReplicas 0 counts as 1 while the feature gate HPAScaleToZero is off"
    )
