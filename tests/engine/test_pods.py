"""Readiness of pods, and failures that prevent a decision: scenarios 4, 14, 15, 16."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.engine import START, Workload, external, pod, pods_metric, resource, series, used

from hpad.api.pod import ContainerRequests, effective_requests
from hpad.api.sample import AdapterError
from hpad.engine.view import Gates

LAST_DATE = datetime.max.replace(tzinfo=UTC)
CPU = resource("cpu", averageUtilization=50)


def busy(*pods: Any, replicas: int | None = None, **fields: Any) -> Workload:
    """A workload with a target of 50 % of 200m CPU, and exactly these pods."""
    web = Workload(CPU, replicas=len(pods) if replicas is None else replicas, **fields)
    web.pods = pods
    return web


def test_scenario_4_a_container_without_a_request_stops_scaling_and_is_named() -> None:
    """Scenario 4."""
    sidecar = (ContainerRequests("app", {"cpu": 200}), ContainerRequests("sidecar", {}))
    web = busy(pod("web-0"), pod("web-1", containers=sidecar))
    decision = web.reconcile(used([400, 400]))
    assert decision.scale_to is None
    condition = web.condition("ScalingActive")
    assert (condition.status, condition.reason) == ("False", "FailedGetResourceMetric")
    assert condition.message.endswith("missing request for cpu in container sidecar of Pod web-1")
    assert [reason for reason, _ in web.events] == ["FailedGetResourceMetric", "FailedComputeMetricsReplicas"]


@pytest.mark.parametrize(("messages", "desired"), [(50, 5), (1, 3)])
def test_scenario_14_with_a_failed_metric_the_target_may_grow_but_not_shrink(messages: int, desired: int) -> None:
    """Scenario 14."""
    web = Workload(CPU, external("queue", averageValue="10"), replicas=3)
    decision = web.reconcile(AdapterError("broker down"), series(messages), after=3600)
    assert decision.desired == desired
    assert web.events[0] == (
        "FailedGetResourceMetric",
        "failed to get cpu utilization: unable to get metrics for resource cpu: broker down",
    )
    assert web.condition("ScalingActive").status == ("True" if desired > 3 else "False")


def test_scenario_14_with_all_metrics_failing_the_count_stays_and_conditions_give_the_reason() -> None:
    """Scenario 14."""
    web = Workload(external("queue", {"queue": "tasks"}, averageValue="10"), replicas=3)
    web.reconcile(series(30))
    decision = web.reconcile(AdapterError("http://rabbit:15672 answered 401"), after=15)
    assert str(decision) == (
        "cannot decide: external metric queue(queue=tasks) fails: http://rabbit:15672 answered 401"
    )
    assert web.replicas == 3
    assert web.condition("ScalingActive").message == (
        "the HPA was unable to compute the replica count: unable to get external metric default/queue/"
        "&LabelSelector{MatchLabels:map[string]string{queue: tasks,},MatchExpressions:[]LabelSelectorRequirement{},}: "
        "http://rabbit:15672 answered 401"
    )
    assert web.settled is not None
    assert web.settled.error_label == "internal"


def test_scenario_15_pods_being_deleted_or_failed_are_ignored() -> None:
    """Scenario 15."""
    web = busy(pod("web-0"), pod("web-1"), pod("web-2", deleted=True), pod("web-3", phase="Failed"), replicas=2)
    assert web.reconcile(used([200, 200, 0, 0])).desired == 4, "100 % of 50 % on two pods that count"


def test_scenario_15_a_missing_pod_counts_as_the_target_when_shrinking() -> None:
    """Scenario 15."""
    web = busy(*(pod(f"web-{n}") for n in range(4)), replicas=4, downscale_stabilization=timedelta(0))
    decision = web.reconcile(used([20, 20, 20]), after=15)
    assert decision.desired == 3, "10 % three times and 100 % of the target once: 65 % of the target on four pods"
    usage = decision.proposals[0].usage
    assert usage is not None
    assert (usage.percent, usage.missing) == (10, 1)


def test_scenario_15_a_missing_pod_counts_as_zero_when_growing() -> None:
    """Scenario 15."""
    web = busy(*(pod(f"web-{n}") for n in range(4)), replicas=4)
    assert web.reconcile(used([160, 160, 160])).desired == 5, "80 % three times and 0 % once: 60 % of 50 % on four"


@pytest.mark.parametrize(
    ("answered", "reading"),
    [
        (
            2,
            "above target (60% / 50%, 30% counting 2 pods without a value as idle): "
            "nothing changes, since those pods could reverse the scale direction",
        ),
        (3, "above target (60% / 50%, 45% counting 1 pod without a value as idle), which is within the tolerance"),
    ],
)
def test_scenario_15_assumed_values_never_reverse_the_direction(answered: int, reading: str) -> None:
    """60 % on the pods with a value is 30 % or 45 % over all four."""
    web = busy(*(pod(f"web-{n}") for n in range(4)), replicas=4)
    decision = web.reconcile(used([120] * answered))
    assert decision.scale_to is None
    assert str(decision) == f"keep 4: cpu {reading}"


@pytest.mark.parametrize(
    ("late", "why"),
    [
        ({"phase": "Pending"}, "pending"),
        ({"ready": None}, "no Ready condition"),
        ({"start_time": None}, "not started"),
        ({"age": 60, "ready": "False"}, "not ready within the CPU initialization period"),
        ({"age": 60, "ready_since": START - timedelta(seconds=20)}, "the sample's window began before it was ready"),
        ({"age": 900, "ready": "False"}, "never ready, long after the period"),
        ({"start_time": LAST_DATE, "ready": "False"}, "not ready, and started at the largest date"),
        ({"age": 60, "ready_since": LAST_DATE}, "ready from the largest date on"),
    ],
)
def test_scenario_15_a_pod_that_is_not_yet_ready_counts_as_zero_when_growing(late: dict[str, Any], why: str) -> None:
    """Scenario 15."""
    web = busy(pod("web-0"), pod("web-1", **late))
    decision = web.reconcile(used([190, 2000]))
    assert decision.scale_to is None, f"95 % on one and 0 % on one ({why}) are 47 %"
    usage = decision.proposals[0].usage
    assert usage is not None
    assert (usage.percent, usage.unready) == (95, 1)


@pytest.mark.parametrize(
    "was_ready",
    [
        {"age": 60, "ready_since": START - timedelta(seconds=30)},
        {"age": 900, "ready": "False", "ready_since": START - timedelta(seconds=600)},
        {"age": 900, "ready": "Unknown"},
        {"age": 900, "ready": "False", "ready_since": LAST_DATE},
    ],
)
def test_scenario_15_a_pod_that_was_ready_once_counts(was_ready: dict[str, Any]) -> None:
    web = busy(pod("web-0"), pod("web-1", **was_ready))
    assert web.reconcile(used([200, 200])).desired == 4


def test_scenario_15_readiness_matters_only_for_cpu() -> None:
    web = Workload(pods_metric("packets", "100m"), replicas=2)
    web.pods = [pod("web-0"), pod("web-1", ready="False", age=10)]
    assert web.reconcile(used([200, 200])).desired == 4


def test_scenario_15_unready_pods_alone_fail_the_metric() -> None:
    web = busy(pod("web-0", phase="Pending"))
    assert "did not receive metrics for targeted pods (pods might be unready)" in str(web.reconcile(used([10])))


def test_scenario_16_a_target_set_to_zero_stays_until_its_count_is_set_again() -> None:
    """Scenario 16."""
    web = Workload(CPU, replicas=0)
    decision = web.reconcile()
    assert str(decision) == "keep 0: scaling is disabled while the target is set to zero replicas"
    condition = web.condition("ScalingActive")
    assert (condition.status, condition.reason) == ("False", "ScalingDisabled")
    assert web.settled is not None
    assert (web.settled.error, web.settled.events) == (None, ())
    web.replicas = 2
    assert web.reconcile(used([200, 200]), after=15).scale_to == 4
    assert web.condition("ScalingActive").status == "True"


@pytest.mark.parametrize(("ignored", "desired"), [(True, 1), (False, 2)])
def test_succeeded_pods_do_not_prevent_a_scale_down_with_the_gate(ignored: bool, desired: int) -> None:
    done = [pod(f"job-{n}", phase="Succeeded") for n in range(3)]
    gates = Gates(HPASucceededPodsIgnored=ignored)
    web = Workload(pods_metric("packets", "100m"), replicas=2, gates=gates, downscale_stabilization=timedelta(0))
    web.pods = [pod("web-0"), pod("web-1"), *done]
    assert web.reconcile(used([40, 40]), after=15).desired == desired


def test_pod_level_requests_take_precedence_over_those_of_containers() -> None:
    web = busy(pod("web-0", pod_requests={"cpu": 1000}))
    assert web.reconcile(used([250])).proposals[0].current == "25%"
    web.pods = [pod("web-0", pod_requests={"memory": 1000})]
    assert "missing pod-level request for cpu in Pod web-0" in str(web.reconcile(used([250]), after=15))


def test_resources_without_a_pod_level_request_are_summed_over_containers() -> None:
    app, sidecar, setup = {"cpu": 100, "memory": 5}, {"cpu": 50}, {"cpu": 400}
    own = {"memory": 7, "example.com/gpu": 1}
    assert effective_requests(own, [app], [(True, sidecar)]) == {"cpu": 150, "memory": 7}
    assert effective_requests(own, [app], [(True, sidecar), (False, setup)]) == {"cpu": 450, "memory": 7}
    assert effective_requests({"example.com/gpu": 1}, [app], []) is None
    assert effective_requests(None, [app], []) is None
