"""Feature gates of Kubernetes, and gates that fix a known defect, each on and off."""

from datetime import timedelta
from typing import Any

import pytest
from support.engine import Workload, external, object_metric, one, pod, pods_metric, resource, series, used

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus
from hpad.api.pod import ContainerRequests
from hpad.engine.conditions import find
from hpad.engine.view import Gates

NO_DOWN_WINDOW: dict[str, Any] = {"scaleDown": {"stabilizationWindowSeconds": 0}}


def queue(**fields: Any) -> Workload:
    defaults: dict[str, Any] = {"replicas": 3, "behavior": NO_DOWN_WINDOW}
    return Workload(external("queue", averageValue="10"), **(defaults | fields))


@pytest.mark.parametrize(("fixed", "desired"), [(True, 1), (False, 7)])
def test_a_negative_sum_counts_as_zero_with_the_gate(fixed: bool, desired: int) -> None:
    web = queue(gates=Gates(HPANegativeExternalSum=fixed))
    assert web.reconcile(series(-50, 20), after=15).desired == desired


def test_a_negative_sum_is_reported_unchanged() -> None:
    web = queue()
    assert web.reconcile(series(-50, 20), after=15).proposals[0].current == "-30"


def test_a_sum_beyond_int64_is_capped() -> None:
    web = queue()
    assert web.reconcile(series(2**53, 2**53), after=15).proposals[0].usage.value == 2**63 - 1


@pytest.mark.parametrize("fixed", [True, False])
def test_without_status_replicas_there_is_no_average(fixed: bool) -> None:
    web = Workload(
        external("queue", averageValue="10"), object_metric("rps", averageValue="10"),
        replicas=2, gates=Gates(HPAZeroStatusReplicas=fixed),
    )  # fmt: skip
    view = web.view()
    assert view.scale is not None
    started = view.scale.__class__(spec=view.scale.spec, status=view.scale.status.__class__(0, "app=web"))
    decision = web.reconcile(series(50), one(30), scale=started)
    assert decision.desired == 5, "the proposal does not depend on the average"
    assert web.hpa.status.current_metrics is not None
    first, second = web.hpa.status.current_metrics
    assert first.external is not None
    assert second.object is not None
    for current in (first.external.current, second.object.current):
        assert (current.average_value is None) == fixed


def test_scaling_to_zero_and_back_sets_scaled_to_zero() -> None:
    web = queue(low=0, gates=Gates(HPAScaleToZero=True))
    assert web.reconcile(series(0), after=15).scale_to == 0
    assert web.condition("ScaledToZero").status == "True"
    assert web.reconcile(series(0), after=15).scale_to is None
    decision = web.reconcile(series(25), after=15)
    assert decision.scale_to == 3
    assert web.condition("ScaledToZero").status == "False"


def test_a_target_set_to_zero_by_another_client_stays_there() -> None:
    web = queue(low=0, replicas=0, gates=Gates(HPAScaleToZero=True))
    assert web.reconcile().scale_to is None
    assert web.condition("ScalingActive").reason == "ScalingDisabled"


@pytest.mark.parametrize("ours", [True, False])
def test_a_target_started_and_stopped_by_another_client_stays_at_zero_with_the_gate(ours: bool) -> None:
    web = queue(low=0, gates=Gates(HPAScaleToZero=True, HPAOwnZeroOnly=ours))
    web.reconcile(series(0), after=15)
    web.replicas = 3
    assert web.reconcile(series(25), after=15).scale_to is None, "three is the proposal"
    assert web.condition("ScaledToZero").status == ("False" if ours else "True")
    web.replicas = 0
    assert web.reconcile(*([] if ours else [series(25)]), after=15).scale_to == (None if ours else 3)
    assert web.condition("ScalingActive").reason == ("ScalingDisabled" if ours else "ValidMetricFound")


def test_a_raised_minimum_starts_a_target_that_this_hpa_set_to_zero() -> None:
    web = queue(low=0, gates=Gates(HPAScaleToZero=True))
    web.reconcile(series(0), after=15)
    raised = queue(low=2, gates=Gates(HPAScaleToZero=True))
    web.hpa = raised.hpa.__class__(metadata=web.hpa.metadata, spec=raised.hpa.spec, status=web.hpa.status)
    decision = web.reconcile(series(0), after=15)
    assert decision.scale_to == 2
    assert web.events == [
        ("SuccessfulRescale", "New size: 2; reason: Current number of replicas below Spec.MinReplicas")
    ]


def test_without_the_gate_scaled_to_zero_is_removed() -> None:
    web = queue(low=0, gates=Gates(HPAScaleToZero=True))
    web.reconcile(series(0), after=15)
    web.tunables = Workload(resource("cpu", averageUtilization=1), replicas=1).tunables
    web.reconcile(after=15)
    assert find(web.hpa.status.conditions, "ScaledToZero") is None


@pytest.mark.parametrize("behavior", [NO_DOWN_WINDOW, None])
def test_without_the_gate_metrics_never_scale_below_one(behavior: dict[str, Any] | None) -> None:
    web = queue(low=0, behavior=behavior, downscale_stabilization=timedelta(0))
    web.reconcile(series(30))
    decision = web.reconcile(series(0), after=15)
    assert decision.scale_to == 1
    assert "the minimum is 1 while the feature gate HPAScaleToZero is off" in str(decision)
    limited = web.condition("ScalingLimited")
    assert (limited.status, limited.reason) == ("True", "ScaleToZeroDisabled")
    assert "HPAScaleToZero" in limited.message
    assert web.reconcile(series(0), after=15).scale_to is None
    assert web.condition("ScalingLimited").reason == "ScaleToZeroDisabled"
    assert web.reconcile(series(25), after=15).scale_to == 3
    assert web.condition("ScalingLimited").reason == "DesiredWithinRange"


def test_without_the_minimum_of_one_a_target_goes_to_zero_as_in_kubernetes() -> None:
    web = queue(low=0, gates=Gates(HPAMinimumOfOne=False))
    assert web.reconcile(series(0), after=15).scale_to == 0
    assert web.reconcile(series(25), after=15).scale_to is None
    assert web.condition("ScalingActive").reason == "ScalingDisabled"


def test_a_target_at_zero_names_the_missing_gate_unless_scaling_is_disabled() -> None:
    web = queue(low=0, replicas=0)
    decision = web.reconcile(series(25), after=15)
    assert decision.scale_to is None
    assert "HPAScaleToZero" in str(decision)
    active = web.condition("ScalingActive")
    assert (active.status, active.reason) == ("False", "ScaleToZeroDisabled")
    assert "HPAScaleToZero" in active.message
    off = queue(low=1, replicas=0)
    off.reconcile(series(25), after=15)
    assert off.condition("ScalingActive").reason == "ScalingDisabled"


@pytest.mark.parametrize(("on", "up", "down"), [(True, None, 3), (False, 5, None)])
def test_tolerances_of_the_spec_apply_only_with_their_gate(on: bool, up: int | None, down: int | None) -> None:
    behavior = {"scaleUp": {"tolerance": "500m"}, "scaleDown": {"tolerance": "50m", "stabilizationWindowSeconds": 0}}
    web = Workload(
        resource("cpu", averageUtilization=50), replicas=4, behavior=behavior, gates=Gates(HPAConfigurableTolerance=on)
    )
    assert web.reconcile(used([120] * 4), after=15).scale_to == up
    gates = Gates(HPAConfigurableTolerance=on)
    web = Workload(resource("cpu", averageUtilization=100), replicas=4, behavior=behavior, gates=gates, tolerance=0.3)
    assert web.reconcile(used([150] * 4), after=15).scale_to == down


def test_a_replayed_gate_that_is_not_named_is_off() -> None:
    gates = Gates.replayed({"HPAScaleToZero": True})
    assert gates == Gates(
        HPAScaleToZero=True,
        HPAConfigurableTolerance=False,
        HPASucceededPodsIgnored=False,
        HPANegativeExternalSum=False,
        HPAZeroStatusReplicas=False,
        HPAHugeProposals=False,
        HPASpecReplicasKept=False,
        HPASurplusPodsIgnored=False,
        HPANoReadyPodsKept=False,
        HPAOwnZeroOnly=False,
        HPATargetHistory=False,
        HPAMissingContainerIgnored=False,
        InPlacePodVerticalScaling=False,
        HPAPodOverheadIgnored=False,
        HPAMinimumOfOne=False,
    )


@pytest.mark.parametrize(("fixed", "desired"), [(True, 10), (False, 1)])
def test_a_huge_value_scales_to_the_maximum_with_the_gate(fixed: bool, desired: int) -> None:
    web = Workload(pods_metric("load", "1m"), replicas=5, behavior=NO_DOWN_WINDOW, gates=Gates(HPAHugeProposals=fixed))
    assert web.reconcile(used([10**12] * 5), after=15).desired == desired


@pytest.mark.parametrize("gate", [True, False])
def test_a_huge_total_scales_to_the_maximum_without_the_gate_if_it_is_external(gate: bool) -> None:
    """Kubernetes caps what a total of an External metric asks for, but not that of an Object metric."""
    gates, past_int32 = Gates(HPAHugeProposals=gate), 2**31
    web = Workload(external("q", averageValue="1"), replicas=5, behavior=NO_DOWN_WINDOW, gates=gates)
    assert web.reconcile(series(past_int32), after=15).desired == 10
    web = Workload(object_metric("q", averageValue="1"), replicas=5, behavior=NO_DOWN_WINDOW, gates=gates)
    assert web.reconcile(one(past_int32), after=15).desired == (10 if gate else 1)


@pytest.mark.parametrize("fixed", [True, False])
def test_a_huge_value_wakes_the_target_with_the_gate(fixed: bool) -> None:
    """In Kubernetes the ratio wraps around: a target at zero stays there, however much work waits."""
    gates = Gates(HPAScaleToZero=True, HPAHugeProposals=fixed)
    web = Workload(external("q", value="1"), replicas=1, low=0, behavior=NO_DOWN_WINDOW, gates=gates)
    assert web.reconcile(series(0), after=15).scale_to == 0
    assert web.reconcile(series(2**31), after=15).scale_to == (4 if fixed else None)


POLICIES = [{"type": "Pods", "value": 2**31 - 1}, {"type": "Percent", "value": 2**31 - 1}]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fixed", [True, False])
def test_a_huge_policy_lets_the_target_grow_with_the_gate(policy: dict[str, Any], fixed: bool) -> None:
    """In Kubernetes the count that it allows wraps around, and the target never grows (kubernetes#141397)."""
    behavior = {"scaleUp": {"policies": [policy | {"periodSeconds": 15}]}}
    gates = Gates(HPAHugeProposals=fixed)
    web = Workload(external("q", averageValue="10"), replicas=200, high=1000, behavior=behavior, gates=gates)
    assert web.reconcile(series(6000), after=15).desired == (600 if fixed else 200)


@pytest.mark.parametrize(("fixed", "desired"), [(True, 2000), (False, 1)])
def test_a_utilization_of_much_memory_is_no_negative_one_with_the_gate(fixed: bool, desired: int) -> None:
    """1000 pods use 100 GiB each, twice their request: times 100 it is beyond an int64. The default policy doubles."""
    gibibyte, gates = 1000 * 2**30, Gates(HPAHugeProposals=fixed)
    memory = resource("memory", averageUtilization=80)
    web = Workload(memory, replicas=1000, high=5000, behavior=NO_DOWN_WINDOW, gates=gates)
    requested = (ContainerRequests("app", {"memory": 50 * gibibyte}),)
    web.pods = [pod(f"web-{n}", containers=requested) for n in range(1000)]
    decision = web.reconcile(used([100 * gibibyte] * 1000), after=15)
    assert decision.desired == desired


AVERAGES = [(external("q", averageValue="10"), series), (object_metric("q", averageValue="10"), one)]


@pytest.mark.parametrize(("metric", "answer"), AVERAGES)
@pytest.mark.parametrize(("running", "total"), [(9, 97), (11, 100)])
@pytest.mark.parametrize("kept", [True, False])
def test_a_rolling_update_leaves_the_count_as_it_is_with_the_gate(
    metric: dict[str, Any], answer: Any, running: int, total: int, kept: bool
) -> None:
    """Kubernetes keeps the count of the status, which has a surplus pod, or lacks one (kubernetes#138505)."""
    web = Workload(metric, replicas=10, high=20, behavior=NO_DOWN_WINDOW, gates=Gates(HPASpecReplicasKept=kept))
    scale = Scale(spec=ScaleSpec(10), status=ScaleStatus(running, "app=web"))
    decision = web.reconcile(answer(total), after=15, scale=scale)
    assert decision.scale_to == (None if kept else running)
    assert decision.proposals[0].tolerated


def test_beyond_the_tolerance_the_share_of_each_replica_decides_in_a_rolling_update() -> None:
    web = queue(replicas=10, high=20)
    scale = Scale(spec=ScaleSpec(10), status=ScaleStatus(11, "app=web"))
    assert web.reconcile(series(130), after=15, scale=scale).scale_to == 13
    assert web.reconcile(series(60), after=15, scale=scale).scale_to == 6


VALUES = [(external("q", value="100"), series), (object_metric("q", value="100"), one)]


@pytest.mark.parametrize(("metric", "answer"), VALUES)
@pytest.mark.parametrize(("kept", "value", "desired"), [(True, 500, 5), (False, 500, 1), (True, 0, 1), (True, 20, 5)])
def test_without_a_ready_pod_a_value_says_nothing_with_the_gate(
    metric: dict[str, Any], answer: Any, kept: bool, value: int, desired: int
) -> None:
    """Kubernetes scales an overloaded target whose pods are not ready to the minimum (kubernetes#130130)."""
    web = Workload(metric, replicas=5, behavior=NO_DOWN_WINDOW, gates=Gates(HPANoReadyPodsKept=kept))
    web.pods = [pod(f"web-{n}", age=3600, ready="False") for n in range(5)]
    decision = web.reconcile(answer(value), after=15)
    assert decision.desired == desired
    assert ("none of the pods is ready: the count stays" in str(decision)) == (desired == 5)


def test_one_ready_pod_decides_again() -> None:
    web = Workload(VALUES[0][0], replicas=5, behavior=NO_DOWN_WINDOW)
    web.pods = [pod(f"web-{n}", age=3600, ready="True" if n == 0 else "False") for n in range(5)]
    assert web.reconcile(series(700), after=15).desired == 7


@pytest.mark.parametrize(("metric", "answer"), VALUES)
@pytest.mark.parametrize(
    ("ignored", "value", "desired"), [(True, 120, 12), (False, 120, 18), (True, 80, 8), (False, 80, 12)]
)
def test_ready_pods_beyond_the_replicas_do_not_count_for_a_value_with_the_gate(
    metric: dict[str, Any], answer: Any, ignored: bool, value: int, desired: int
) -> None:
    """In Kubernetes ten replicas with five pods on top grow even while the value is below its target."""
    gates = Gates(HPASurplusPodsIgnored=ignored)
    web = Workload(metric, replicas=10, high=30, behavior=NO_DOWN_WINDOW, gates=gates)
    web.pods = [pod(f"web-{n}", age=3600) for n in range(15)]
    decision = web.reconcile(answer(value), after=15)
    assert decision.desired == desired
    assert ("15 pods are ready: those beyond the 10 replicas do not count" in str(decision)) == ignored
