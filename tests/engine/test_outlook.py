"""The words of each outlook. That they are true is shown by test_outlook_properties.py."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.engine import (
    START,
    Workload,
    container,
    external,
    object_metric,
    one,
    pod,
    pods_metric,
    resource,
    series,
    used,
)

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus
from hpad.api.pod import ContainerRequests
from hpad.api.sample import AdapterError
from hpad.api.selector import SelectorError
from hpad.engine.history import History, PastRecommendation, Rescale
from hpad.engine.outlook import outlook
from hpad.engine.outlook.types import Outlook, Threshold
from hpad.engine.outlook.words import span
from hpad.engine.settle import Outcome
from hpad.engine.trace.evidence import make_trace
from hpad.engine.view import DRY_RUN, HPA, STALE, Competitor, Gates, ScaleError, Withheld, yielded

DOWN = AdapterError("no answer")
QUEUE = external("queue", averageValue="10")
CPU = resource("cpu", averageUtilization=50)


def texts(web: Workload) -> list[str]:
    return [each.text for each in outlook(web.trace)]


def down(**rules: Any) -> dict[str, Any]:
    return {"scaleDown": {"stabilizationWindowSeconds": 0, **rules}}


def test_at_target_the_exact_thresholds_of_both_directions_are_named() -> None:
    web = Workload(QUEUE, replicas=5)
    web.reconcile(series(53))
    # 10 % more than 50 is within the tolerance. 41 / 10 is rounded up to 5, so 5 stay above 40.
    assert texts(web) == [
        "grows once queue is above 55 (11 per replica; now 53)",
        "shrinks once queue is at most 40 (8 per replica; now 53) for 5m",
    ]
    assert outlook(web.trace)[0] == Outlook(
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
    first, growth = outlook(web.trace)
    assert first.text == "5 -> 2 once the scale-down window frees at 12:05:00Z, if queue still wants 2"
    assert (first.kind, first.at, first.replicas) == ("step", START + timedelta(seconds=300), 2)
    assert growth.text == "grows once queue is above 55 (11 per replica; now 20)"


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
    # 4 pods are reported: 48 / 40 is beyond the tolerance, so 5 are wanted. Up to 44 is within it, so 4 would stay.
    assert texts(web) == [
        "grows once queue is above 50 (12.5 per replica; now 48)",
        "shrinks once queue is at most 44 (11 per replica; now 48) for 5m",
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
        "grows once cpu is above 55% with all 3 pods ready",
        "shrinks once cpu is below 34% with all 3 pods ready for 5m",
    ]


def test_a_disabled_direction_is_named() -> None:
    web = Workload(QUEUE, replicas=5, behavior={"scaleDown": {"selectPolicy": "Disabled"}})
    web.reconcile(series(50))
    assert texts(web)[1] == "cannot shrink: spec.behavior.scaleDown is Disabled"
    web.reconcile(series(20), after=301)
    assert texts(web) == [
        "2 wanted by queue, but spec.behavior.scaleDown is Disabled",
        "grows once queue is above 55 (11 per replica; now 20)",
    ]
    web = Workload(QUEUE, replicas=5, behavior={"scaleUp": {"selectPolicy": "Disabled"}})
    web.reconcile(series(50))
    assert texts(web)[0] == "cannot grow: spec.behavior.scaleUp is Disabled"


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


def test_unready_pods_that_keep_the_count_are_named() -> None:
    web = Workload(CPU, replicas=5)
    ready = [pod(f"web-{n}") for n in range(2)]
    web.pods = [*ready, *(pod(f"web-{n}", ready="False") for n in (2, 3, 4))]
    web.reconcile(used([150] * 5))
    # 75 % of 2 pods are 30 % of all 5. With 3 of them it is 45 %: in the tolerance; with 4, 60 %: 1.2 x 5 = 6 pods.
    # With all 5 the 75 % are 1.5 x 5 = 7.5, so 8 pods.
    assert texts(web)[0] == (
        "5 -> 6 once 2 of web-2, web-3 and web-4 are ready and as busy as the others (8 with all of them)"
    )
    first = outlook(web.trace)[0]
    assert (first.kind, first.needed, first.pods, first.replicas) == ("pods", 2, ("web-2", "web-3", "web-4"), 6)


def test_pods_without_a_value_that_keep_the_count_are_named() -> None:
    web = Workload(CPU, replicas=3, behavior=down())
    web.reconcile(used({"web-0": 20}))
    # 10 % and two pods counted as 100 % are 70 %: no change. With one value more it is 40 %: 0.8 x 3 pods, still 3.
    # With all values it is 10 %: 0.2 x 3 pods.
    assert texts(web)[0] == "3 -> 1 once web-1 and web-2 have values and are as busy as the others"
    assert texts(web)[2] == "cannot shrink while web-1 and web-2 have no values for cpu"
    web = Workload(CPU, replicas=2)
    web.reconcile(used({"web-0": 160}))
    assert texts(web)[0] == "2 -> 4 once web-1 has a value and is as busy as the others"


def test_pods_without_the_container_and_a_mixture_are_named() -> None:
    web = Workload(container("cpu", "app", averageUtilization=50), replicas=2)
    web.pods = [pod("web-0"), pod("web-1", containers=(ContainerRequests("side", {"cpu": 200}),))]
    web.reconcile(used({"web-0": 160}))
    assert texts(web)[:2] == [
        "2 -> 4 once web-1 has the container and is as busy as the others",
        "grows once cpu is above 110% (now 80%)",  # web-1 counts as idle: over both pods that is 55 %
    ]
    web = Workload(CPU, replicas=3)
    web.pods = [pod("web-0"), pod("web-1"), pod("web-2", phase="Pending")]
    web.reconcile(used({"web-0": 200}))
    # 100 % of one pod are 33 % of three; two pods at 100 % are 67 % of three: 1.33 x 3 = 4; three are 2 x 3 = 6.
    assert (
        texts(web)[0] == "3 -> 4 once one of web-1 and web-2 counts and is as busy as the others (6 with all of them)"
    )


def test_pods_make_the_count_grow_although_another_metric_fails() -> None:
    web = Workload(CPU, QUEUE, replicas=2)
    web.reconcile(used({"web-0": 160}), DOWN)
    assert texts(web)[0] == "2 -> 4 once web-1 has a value and is as busy as the others"


def test_metrics_that_wait_for_the_same_pods_claim_no_count() -> None:
    web = Workload(CPU, resource("memory", averageValue="1k"), replicas=2)
    web.pods = [pod("web-0"), pod("web-1", phase="Pending")]
    web.reconcile(used({"web-0": 160}), used({"web-0": 1_500_000}))
    assert texts(web)[:2] == [
        "grows once web-1 is ready and as busy as the others",
        "grows once web-1 is ready and as busy as the others",
    ]


def test_a_failing_metric_blocks_a_scale_down() -> None:
    web = Workload(QUEUE, CPU, replicas=5, behavior=down())
    web.reconcile(series(30), DOWN)
    # 30 in total ask for 3; the recommendation of a failed reconcile is not kept, so no window holds.
    assert texts(web) == [
        "5 -> 3 once cpu can be read and wants no more",
        "grows once queue is above 55 (11 per replica; now 30)",
    ]
    web = Workload(QUEUE, CPU, replicas=5)
    web.reconcile(series(50), used([100] * 5))
    web.reconcile(series(30), DOWN, after=60)
    assert texts(web)[0] == "5 -> 3 from 12:05:00Z on, once cpu can be read and wants no more"
    web.reconcile(series(50), DOWN, after=15)
    assert texts(web) == [
        "grows once queue is above 55 (11 per replica; now 50)",
        "cannot shrink while cpu cannot be read",
    ]


def test_all_metrics_fail() -> None:
    web = Workload(QUEUE, external("other", averageValue="1"), replicas=5)
    web.reconcile(DOWN, DOWN)
    assert texts(web) == ["stays at 5 until queue and other can be read"]
    web = Workload(CPU, replicas=2)
    web.pods = [pod("web-0"), pod("web-1", cpu=None)]
    web.reconcile(used([100, 100]))
    assert texts(web) == ["stays at 2 until cpu can be measured"]


def test_a_fallback_in_force_and_one_to_begin() -> None:
    web = Workload(QUEUE, replicas=5, annotations={"hpad.io/fallback": "replicas:7 after 60s"})
    web.reconcile(series(50))
    web.reconcile(DOWN, after=15)
    assert texts(web) == [
        "stays at 5 until queue can be read",
        "queue is counted as 7 replicas from 12:01:15Z on, unless it can be read: 5 -> 7",
    ]
    web.reconcile(DOWN, after=60)
    assert texts(web) == [
        "queue counts as 7 replicas until it can be read",
        "cannot shrink while the fallback of queue is in force",
    ]
    web = Workload(QUEUE, replicas=5, annotations={"hpad.io/fallback": "last-good:10m"})
    web.reconcile(series(50))
    web.reconcile(DOWN, after=15)
    assert texts(web)[0] == "queue counts as 5 replicas until it can be read, or 12:10:00Z"
    metrics = (QUEUE, external("other", averageValue="10"))
    web = Workload(*metrics, replicas=5, annotations={"hpad.io/fallback": "other=ignore after 15s"})
    web.reconcile(series(50), DOWN)
    assert texts(web)[0] == "other is left out from 12:00:15Z on, unless it can be read"
    web.reconcile(series(50), DOWN, after=15)
    assert texts(web) == [
        "other is left out until it can be read",
        "grows once queue is above 55 (11 per replica; now 50)",
        "shrinks once queue is at most 40 (8 per replica; now 50) for 5m",
    ]


def test_an_activation_threshold_decides_over_zero() -> None:
    gates = Gates(HPAScaleToZero=True)
    web = Workload(
        QUEUE, replicas=1, low=0, gates=gates, annotations={"hpad.io/activation": "queue=5"}, behavior=down()
    )
    web.reconcile(series(8))
    assert texts(web)[1] == "shrinks once queue is at most 5 (now 8)"
    web.reconcile(series(3), after=15)
    assert (web.replicas, texts(web)) == (0, ["grows once queue is above 5 (now 3)"])
    web.reconcile(series(4), after=15)
    assert texts(web) == ["grows once queue is above 5 (now 4)"]
    annotations = {"hpad.io/activation": "queue=25"}
    web = Workload(QUEUE, replicas=1, low=0, gates=gates, annotations=annotations, behavior=down())
    web.reconcile(series(26))
    assert texts(web)[1] == "shrinks once queue is at most 25 (8.33 per replica; now 26)"
    annotations = {"hpad.io/activation": "total=35"}
    web = Workload(
        external("total", value="30"), replicas=1, low=0, gates=gates, annotations=annotations, behavior=down()
    )
    web.reconcile(series(40))
    assert texts(web)[1] == "shrinks once total is at most 35 (now 40)"


def test_a_stopped_target_names_what_wakes_it() -> None:
    web = Workload(QUEUE, replicas=0, low=2)
    web.reconcile()
    wake = "stays at 0 until a client sets its replicas: kubectl scale -n default --replicas={} deployment/web"
    assert texts(web) == [wake.format(2)]
    web = Workload(QUEUE, replicas=0, low=0, gates=Gates(HPAScaleToZero=True))
    web.reconcile()
    assert texts(web) == [f"{wake.format(1)}; metrics wake only a target that this HPA itself took to zero"]
    web = Workload(QUEUE, replicas=0, low=0)
    web.reconcile()
    assert texts(web) == [f"{wake.format(1)}; minReplicas 0 wakes it only with the feature gate HPAScaleToZero"]


def test_what_keeps_the_metrics_from_being_read_is_named() -> None:
    web = Workload(QUEUE, replicas=2)
    web.reconcile(scale=None, scale_error=ScaleError("not found"))
    assert texts(web) == ["decides again once the scale of Deployment/web can be read"]
    web.reconcile(scale=None, scale_error=ScaleError("no change for 60s", STALE))
    assert texts(web) == ["decides again once hpad's view of the cluster is up to date"]
    web.reconcile(competing_hpas=("other",))
    assert texts(web) == ["decides again once no other HPA selects the pods of Deployment/web"]
    web.selector = ""
    web.reconcile()
    assert texts(web) == ["decides again once the scale of Deployment/web has a valid selector"]
    web.selector = "a in"
    assert isinstance(web.view().scale and web.view().scale.status.parsed_selector, SelectorError)
    web.reconcile()
    assert texts(web) == ["decides again once the scale of Deployment/web has a valid selector"]


def test_a_count_outside_its_bounds_and_an_hpa_without_metrics() -> None:
    web = Workload(QUEUE, replicas=12)
    web.reconcile()
    assert texts(web) == ["the metrics decide with the next reconcile, between 1 and 10"]
    web = Workload(replicas=3)
    web.reconcile()
    assert texts(web) == ["decides once spec.metrics has a metric"]


def written(web: Workload, outcome: Outcome) -> list[str]:
    assert web.evidence is not None
    return [each.text for each in outlook(make_trace(web.evidence._replace(outcome=outcome)))]


def test_a_count_that_was_not_written_is_named() -> None:
    web = Workload(QUEUE, replicas=2)
    web.reconcile(series(40), refused="the webhook says no")
    assert texts(web) == ["2 -> 4 is tried again with the next reconcile"]
    unsure = Outcome((4,), "connection lost", unsure=True)
    assert written(web, unsure) == ["the next reconcile reads whether 4 was written, and decides again"]
    assert written(web, Outcome((4,), withheld=DRY_RUN)) == ["stays at 2: in a dry run hpad writes nothing"]
    other: Withheld = yielded(Competitor(HPA, "default/other"))
    assert written(web, Outcome((4,), withheld=other)) == [
        "stays at 2 while the other HPA scales the target: delete it, or set competing_hpas: write"
    ]


def test_many_metrics_and_pods_are_counted() -> None:
    web = Workload(*(external(f"queue-{n}", averageValue="10") for n in range(6)), replicas=1)
    web.reconcile(*[series(10)] * 6)
    assert texts(web)[0] == (
        "grows once queue-0 is above 11 (now 10) or queue-1 is above 11 (now 10) or queue-2 is above 11 (now 10)"
        " or 3 more metrics cross theirs"
    )
    assert len(outlook(web.trace)[0].thresholds) == 6
    web = Workload(pods_metric("rate", "5"), replicas=8, behavior=down())
    web.reconcile(used({"web-0": 1000}))
    # 1 and seven times 5 are 90 % of the target, within the tolerance; with one more 1 they are 80 %: 0.8 x 8 = 6.4.
    assert texts(web)[0] == (
        "8 -> 7 once one of web-1, web-2, web-3 and 4 more has a value and is as busy as the others"
        " (2 with all of them)"
    )


def test_pods_left_out_of_a_long_list_make_no_claims() -> None:
    web = Workload(CPU, replicas=2)
    web.reconcile(used([100, 100]))
    metric = msgspec.structs.replace(web.trace.metrics[0], pods=(), pods_omitted=2)
    assert outlook(msgspec.structs.replace(web.trace, metrics=(metric,))) == ()
