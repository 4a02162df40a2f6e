"""Stabilization windows and scaling policies: scenarios 2, 3, 9, 10, 11, 12, 13."""

from typing import Any

import pytest
from support.engine import Workload, external, resource, series, used

from hpad.engine.decision import Decision


def percent(web: Workload, value: int, **fields: Any) -> Decision:
    """Reconciles 15 s later, with every pod using `value` percent of its 200m CPU."""
    return web.reconcile(used([value * 2] * web.replicas, web.now), after=15, **fields)


def test_scenario_2_php_apache_grows_with_load_and_shrinks_after_five_minutes() -> None:
    """Scenario 2."""
    web = Workload(resource("cpu", averageUtilization=50), replicas=1)
    assert percent(web, 305).scale_to == 5, "one pod and at most four more in 15 s"
    assert web.hpa.status.current_metrics is not None
    cpu = web.hpa.status.current_metrics[0].resource
    assert cpu is not None
    assert cpu.current.average_utilization == 305
    assert percent(web, 61).scale_to == 7
    quiet = [percent(web, 0).scale_to for _ in range(20)]
    assert quiet == [None] * 19 + [1], "the last recommendation of 7 applies for 300 s"
    assert str(percent(web, 0)).startswith("keep 1: ")


def test_scenario_2_without_a_behavior_one_step_goes_to_four() -> None:
    web = Workload(resource("cpu", averageUtilization=50), replicas=1, behavior=None)
    assert percent(web, 305).scale_to == 4, "twice as many, or four"


def test_scenario_3_a_large_deployment_stops_at_max_and_shrinks_after_five_quiet_minutes() -> None:
    """Scenario 3."""
    web = Workload(resource("cpu", averageUtilization=80), replicas=10, low=10, high=29)
    assert percent(web, 86).scale_to is None, "86 % of 80 % lies within the tolerance"
    while web.replicas < 29:
        assert percent(web, 160).scale_to is not None
    assert percent(web, 160).scale_to is None
    assert web.condition("ScalingLimited").reason == "TooManyReplicas"
    decisions = [percent(web, 70).scale_to for _ in range(20)]
    assert decisions == [None] * 19 + [26]


def test_scenario_3_seventy_percent_at_a_target_of_eighty_shrinks() -> None:
    """Scenario 3."""
    web = Workload(resource("cpu", averageUtilization=80), replicas=29, low=10, high=29)
    assert percent(web, 71).proposals[0].replicas == 26
    assert str(percent(web, 71)) == (
        "keep 29: cpu below target (71% / 80%); "
        "26 wanted but stabilized at 29 for 285 s more (until 12:05:15Z), since 29 was recommended 15 s ago"
    )


SCENARIO_9: dict[str, Any] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Percent", "value": 900, "periodSeconds": 300}],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 60,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 10}],
    },
}


def test_scenario_9_growth_takes_two_steps_and_shrinking_one_pod_at_a_time() -> None:
    """Scenario 9."""
    web = Workload(external("queue", averageValue="10"), replicas=1, high=20, behavior=SCENARIO_9)
    assert web.reconcile(series(130)).scale_to == 10
    assert web.events == [("SuccessfulRescale", "New size: 10; reason: external metric queue(nil) above target")]
    steps = [web.reconcile(series(130), after=15).scale_to for _ in range(20)]
    assert steps == [None] * 19 + [13], "nine of ten were added within the last 300 s"
    assert web.events == [("SuccessfulRescale", "New size: 13; reason: external metric queue(nil) above target")]

    quiet = [web.reconcile(series(0), after=15).scale_to for _ in range(4)]
    assert quiet == [None] * 3 + [12], "first a window of 60 s"
    assert web.events == [("SuccessfulRescale", "New size: 12; reason: All metrics below target")]
    assert [web.reconcile(series(0), after=15).scale_to for _ in range(12)] == [*range(11, 0, -1), None]


SCENARIO_10: dict[str, Any] = {
    "scaleUp": {"policies": []},
    "scaleDown": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 60},
            {"type": "Percent", "value": 10, "periodSeconds": 60},
        ],
    },
}


def test_scenario_10_ten_percent_a_minute_above_forty_then_four_pods() -> None:
    """Scenario 10."""
    web = Workload(external("queue", averageValue="1"), replicas=80, low=1, high=100, behavior=SCENARIO_10)
    sizes = [web.reconcile(series(10), after=60).desired for _ in range(16)]
    assert sizes[:7] == [72, 64, 57, 51, 45, 40, 36], "a tenth of the replicas, rounded up"
    assert sizes[7:] == [32, 28, 24, 20, 16, 12, 10, 10, 10]


def test_scenario_10_within_a_minute_there_is_one_step() -> None:
    """Scenario 10."""
    web = Workload(external("queue", averageValue="1"), replicas=80, low=1, high=100, behavior=SCENARIO_10)
    assert web.reconcile(series(10)).scale_to == 72
    assert [web.reconcile(series(10), after=15).scale_to for _ in range(4)] == [None, None, None, 64]
    assert web.condition("ScalingLimited").reason == "ScaleDownLimit"


SCENARIO_11: dict[str, Any] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 10}],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Min",
        "policies": [
            {"type": "Percent", "value": 5, "periodSeconds": 20},
            {"type": "Pods", "value": 5, "periodSeconds": 60},
        ],
    },
}


def test_scenario_11_the_smaller_step_down_wins() -> None:
    """Scenario 11."""
    web = Workload(external("queue", averageValue="1"), replicas=60, high=100, behavior=SCENARIO_11)
    assert web.reconcile(series(1)).scale_to == 57, "5 % of 60 are 3 pods, fewer than 5"
    assert web.reconcile(series(1), after=20).scale_to == 55, "5 pods a minute, 3 of them are gone"


def test_scenario_11_doubles_at_most_every_ten_seconds() -> None:
    """Scenario 11."""
    web = Workload(external("queue", averageValue="1"), replicas=3, high=100, behavior=SCENARIO_11)
    assert [web.reconcile(series(90), after=5).desired for _ in range(6)] == [6, 6, 12, 12, 24, 24]


def test_scenario_12_disabled_never_shrinks() -> None:
    """Scenario 12."""
    behavior = {"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}
    web = Workload(external("queue", averageValue="10"), replicas=8, behavior=behavior)
    assert all(web.reconcile(series(0), after=60).scale_to is None for _ in range(30))
    assert web.condition("ScalingLimited").reason == "ScaleDownLimit"


@pytest.mark.parametrize(("replicas", "expected"), [(1, 5), (4, 8), (6, 12)])
def test_scenario_13_by_default_four_pods_or_twice_as_many_each_15_s(replicas: int, expected: int) -> None:
    """Scenario 13."""
    web = Workload(external("queue", averageValue="1"), replicas=replicas, high=100)
    assert web.reconcile(series(90)).scale_to == expected
    assert web.reconcile(series(90), after=14).scale_to is None


def test_scenario_13_by_default_all_excess_pods_go_after_five_minutes() -> None:
    """Scenario 13."""
    web = Workload(external("queue", averageValue="1"), replicas=50, high=100)
    assert [web.reconcile(series(1), after=15).desired for _ in range(21)] == [50] * 20 + [1]


def test_a_scale_up_window_takes_the_lowest_recommendation() -> None:
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 60}}
    web = Workload(external("queue", averageValue="1"), replicas=2, high=100, behavior=behavior)
    web.reconcile(series(2))
    assert [web.reconcile(series(6), after=15).desired for _ in range(4)] == [2, 2, 2, 6]


def test_the_sentence_names_the_limit() -> None:
    web = Workload(external("queue", averageValue="1"), replicas=9, high=10)
    assert str(web.reconcile(series(40))) == (
        "scale web from 9 to 10: external metric queue above target (4.44 / 1 per replica, 40 in total); "
        "40 wanted but the maximum is 10"
    )
    assert str(web.reconcile(series(40), after=15)) == (
        "keep 10: external metric queue above target (4 / 1 per replica, 40 in total); 40 wanted but the maximum is 10"
    )
