"""`hpad.io/pods`: the pods that metrics are about, as in a canary of Argo Rollouts."""

from typing import Any

import msgspec
import pytest
from support.engine import Workload, external, object_metric, one, pod, pods_metric, resource, series, used
from support.rendered import part

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus
from hpad.api.sample import PodSample
from hpad.engine import controls
from hpad.engine.trace.make import make_trace

STABLE = {"hpad.io/pods": "role=stable"}
CPU, LATENCY = resource("cpu", averageUtilization=50), object_metric("latency", value="100")
NO_DOWN_WINDOW: dict[str, Any] = {"scaleDown": {"stabilizationWindowSeconds": 0}}


def canary(*metrics: dict[str, Any], stable: int, canaries: int, replicas: int = 10, **fields: Any) -> Workload:
    """A target of that many replicas, whose selector matches the pods of both."""
    web = Workload(*metrics, replicas=replicas, high=100, behavior=NO_DOWN_WINDOW, **fields)
    labelled = [("stable", number) for number in range(stable)] + [("canary", number) for number in range(canaries)]
    web.pods = [pod(f"{role}-{number}", labels={"app": "web", "role": role}) for role, number in labelled]
    return web


def usage(web: Workload, stable: int, canaries: int) -> PodSample:
    """Millicores of each pod, which requests 200."""
    pods = web.pods or ()
    return used({each.name: stable if each.name.startswith("stable") else canaries for each in pods})


def scaled(web: Workload, *answers: Any) -> int:
    running = len(web.pods or ())
    scale = Scale(spec=ScaleSpec(web.replicas), status=ScaleStatus(running, "app=web"))
    return web.reconcile(*answers, after=15, scale=scale).desired


@pytest.mark.parametrize("canaries", [1, 5])
def test_with_traffic_routing_the_utilization_of_all_pods_is_the_whole_load(canaries: int) -> None:
    """The load of twenty pods at their goal, whoever has it; the stable ones alone lack the part of the others."""
    load, share = 20 * 100, canaries / (10 + canaries)
    each = (round(load * (1 - share) / 10), round(load * share / canaries))
    everyone = canary(CPU, stable=10, canaries=canaries)
    assert scaled(everyone, usage(everyone, *each)) in (20, 21)
    alone = canary(CPU, stable=10, canaries=canaries, annotations=STABLE)
    assert scaled(alone, usage(alone, *each)) < 20


def test_without_traffic_routing_all_pods_are_the_replicas() -> None:
    web = canary(LATENCY, CPU, stable=5, canaries=5)
    assert scaled(web, one(120), usage(web, 100, 100)) == 12


def test_each_metric_may_be_about_other_pods() -> None:
    web = canary(LATENCY, CPU, stable=10, canaries=5, annotations={"hpad.io/pods": "latency: role=stable"})
    decision = web.reconcile(one(120), usage(web, 100, 100), after=15)
    latency, cpu = decision.proposals
    assert latency.usage is not None
    assert cpu.usage is not None
    assert (latency.usage.pods, latency.replicas) == (10, 12)
    assert cpu.usage.pods == 15
    assert "but only 10 of 15 pods count (hpad.io/pods)" in str(decision)


def test_values_requests_and_readiness_of_other_pods_do_not_count() -> None:
    web = canary(CPU, pods_metric("rps", "10"), stable=10, canaries=3, annotations=STABLE)
    web.pods = [
        msgspec.structs.replace(each, ready="False", containers=()) if "canary" in each.name else each
        for each in web.pods or ()
    ]
    decision = web.reconcile(usage(web, 150, 900), used({"stable-0": 10_000, "canary-0": 90_000}), after=15)
    cpu, rps = decision.proposals
    assert (cpu.replicas, cpu.error) == (15, None)
    assert rps.usage is not None
    assert rps.usage.value == 10_000
    assert web.done is not None
    left_out = [each for each in make_trace(web.done).metrics[0].pods if each.name.startswith("canary")]
    assert {(each.group, each.why) for each in left_out} == {
        ("ignored", "its labels are not role=stable (hpad.io/pods)")
    }


def test_the_table_of_pods_says_why_the_others_do_not_count() -> None:
    """Not that they have no request, which nothing looks at."""
    web = canary(CPU, stable=1, canaries=1, annotations=STABLE)
    web.reconcile(usage(web, 150, 900), after=15)
    assert [" ".join(line.split()) for line in part(web, "Pods:")] == [
        "POD GROUP VALUE REQUEST USED WHY",
        "canary-0 ignored - - - its labels are not role=stable (hpad.io/pods)",
        "stable-0 ready 150m 200m 75%",
    ]


@pytest.mark.parametrize("metric", [CPU, LATENCY])
def test_a_selector_that_leaves_no_pod_fails_the_metric(metric: dict[str, Any]) -> None:
    web = canary(metric, stable=10, canaries=0, annotations={"hpad.io/pods": "role=blue"})
    answer = usage(web, 300, 0) if metric is CPU else one(300)
    decision = web.reconcile(answer, after=15)
    assert decision.scale_to is None
    assert "of the 10 pods of the target none has the labels role=blue (hpad.io/pods)" in str(decision)
    assert web.condition("ScalingActive").status == "False"


def test_an_average_of_the_whole_target_needs_no_pod() -> None:
    web = canary(external("q", averageValue="10"), stable=10, canaries=0, annotations={"hpad.io/pods": "role=blue"})
    assert web.reconcile(series(150), after=15).scale_to == 15


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "a label selector such as role=stable is missing"),
        ("role=(", "is not a label selector"),
        ("cpu:", "is not a label selector"),
        ("a=b; c=d", "'c=d' is for the same metrics as another part"),
        ("#0: a=b", "'#0' is an index: name the metric"),
        ("nope: a=b", "there is no metric 'nope' here; there are cpu"),
    ],
)
def test_a_wrong_text_is_named_and_all_pods_count(text: str, error: str) -> None:
    web = canary(CPU, stable=10, canaries=5, annotations={"hpad.io/pods": text})
    assert scaled(web, usage(web, 120, 120)) == 18
    condition = web.condition("HpadAnnotationsValid")
    assert condition.status == "False"
    assert error in condition.message


def test_parts_are_read_with_their_addresses() -> None:
    found = controls.parse(
        controls.PODS, "queue{a in (x,y)}: role in (stable,blue),!debug; cpu@app: tier=web; role=stable"
    )
    assert [(str(address), str(selector)) for address, selector in found.selectors] == [
        ("queue{a in (x,y)}", "!debug,role in (blue,stable)"), ("cpu@app", "tier=web"), ("None", "role=stable"),
    ]  # fmt: skip
