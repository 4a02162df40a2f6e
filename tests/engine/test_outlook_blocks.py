"""The words of outlooks where pods, failing metrics, a stopped target or a failed write keep the count."""

import msgspec
from support.engine import (
    Workload,
    container,
    external,
    pod,
    pods_metric,
    resource,
    series,
    used,
)
from support.outlook_cases import again
from support.outlook_texts import CPU, DOWN, QUEUE, down, texts

from hpad.api.pod import ContainerRequests
from hpad.api.selector import SelectorError
from hpad.engine.conditions import SCALED_TO_ZERO, TRUE, Condition
from hpad.engine.outlook import outlook
from hpad.engine.settle import Outcome
from hpad.engine.view import HPA, STALE, Competitor, Gates, ScaleError, Withheld, yielded


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
    first = web.outlook[0]
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
        "5 -> 3 once cpu can be read and wants at most 3",
        "grows once queue is above 55 (11 per replica; now 30)",
    ]
    web = Workload(QUEUE, CPU, replicas=5)
    web.reconcile(series(50), used([100] * 5))
    web.reconcile(series(30), DOWN, after=60)
    assert texts(web)[0] == "5 -> 3 from 12:05:00Z on, once cpu can be read and wants at most 3"
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


def test_the_minimum_wakes_a_target_although_policies_allow_nothing() -> None:
    """From zero, policies may allow less than the minimum (horizontal.go: reconcileAutoscaler)."""
    disabled = {"scaleUp": {"selectPolicy": "Disabled"}}
    web = Workload(QUEUE, replicas=0, low=3, behavior=disabled, gates=Gates(HPAScaleToZero=True))
    status = msgspec.structs.replace(web.hpa.status, conditions=(Condition(SCALED_TO_ZERO, TRUE),))
    web.hpa = msgspec.structs.replace(web.hpa, status=status)
    web.reconcile(DOWN)
    assert texts(web) == ["stays at 0 until queue can be read"], "and not that it cannot grow"
    assert again(web, series(1), after=15).desired == 3


def test_a_stopped_target_names_what_wakes_it() -> None:
    web = Workload(QUEUE, replicas=0, low=2)
    web.reconcile()
    wake = "stays at 0 until a client sets its replicas: kubectl scale -n default --replicas={} deployment/web"
    assert texts(web) == [wake.format(2)]
    web = Workload(QUEUE, replicas=0, low=0, gates=Gates(HPAScaleToZero=True))
    web.reconcile()
    assert texts(web) == [f"{wake.format(1)}; metrics wake only a target that the HPA took to zero"]
    web = Workload(QUEUE, replicas=0, low=0)
    web.reconcile()
    assert texts(web) == [f"{wake.format(1)}; minReplicas 0 wakes it only with the feature gate HPAScaleToZero"]


def test_what_keeps_the_metrics_from_being_read_is_named() -> None:
    web = Workload(QUEUE, replicas=2)
    web.reconcile(scale=None, scale_error=ScaleError("not found"))
    assert texts(web) == ["decides again once the scale of Deployment/web can be read"]
    web.reconcile(scale=None, scale_error=ScaleError("no change for 60s", STALE))
    assert texts(web) == ["decides again once hpad's view of the cluster is up to date"]
    web.reconcile(overlapping_hpas=("other",))
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
    assert web.done is not None
    return [each.text for each in outlook(msgspec.structs.replace(web.done, outcome=outcome))]


def test_a_count_that_was_not_written_is_named() -> None:
    web = Workload(QUEUE, replicas=2)
    web.reconcile(series(40), refused="the webhook says no")
    assert texts(web) == ["2 -> 4 is tried again with the next reconcile"]
    unsure = Outcome((4,), "connection lost", unsure=True)
    assert written(web, unsure) == ["the next reconcile reads whether 4 was written, and decides again"]
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
    assert len(web.outlook[0].thresholds) == 6
    web = Workload(pods_metric("rate", "5"), replicas=8, behavior=down())
    web.reconcile(used({"web-0": 1000}))
    # 1 and seven times 5 are 90 % of the target, within the tolerance; with one more 1 they are 80 %: 0.8 x 8 = 6.4.
    assert texts(web)[0] == (
        "8 -> 7 once one of web-1, web-2, web-3 and 4 more has a value and is as busy as the others"
        " (2 with all of them)"
    )
