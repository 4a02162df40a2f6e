"""How many replicas a metric proposes: scenarios 1, 7, 8, 17, 18, 26."""

from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest
from support.engine import Workload, container, external, object_metric, one, pod, pods_metric, resource, series, used

from hpad.api.metadata import ObjectMeta
from hpad.api.pod import ContainerRequests
from hpad.api.quantity import Quantity
from hpad.api.sample import AdapterError, Query
from hpad.engine.examine import examine
from hpad.engine.view import Gates

NO_TIME: Final = timedelta(0)
UNLIMITED: Final[dict[str, Any]] = {
    "scaleUp": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 900, "periodSeconds": 15}]}
}


def requests(name: str, cpu: int) -> ContainerRequests:
    return ContainerRequests(name, {"cpu": cpu})


def web_queries(web: Workload) -> tuple[Query, ...]:
    queries = examine(web.view()).queries
    assert all(isinstance(query, Query) for query in queries)
    return tuple(query for query in queries if isinstance(query, Query))


@pytest.mark.parametrize(
    ("replicas", "value", "target", "expected"),
    [(1, 200, "100m", 2), (4, 50, "100m", 2), (3, 100, "60m", 5), (3, 109, "100m", 3), (3, 91, "100m", 3)],
)
def test_scenario_1_replicas_follow_the_ratio_of_value_and_target(
    replicas: int, value: int, target: str, expected: int
) -> None:
    """Scenario 1."""
    web = Workload(pods_metric("packets", target), replicas=replicas, downscale_stabilization=NO_TIME)
    assert web.reconcile(used([value] * replicas), after=15).desired == expected


def test_scenario_1_eighty_messages_at_a_target_of_fifteen_scale_three_to_sixteen() -> None:
    """Scenario 1."""
    web = Workload(external("queue_messages", value="15"), replicas=3, high=30, behavior=UNLIMITED)
    decision = web.reconcile(series(80))
    assert decision.scale_to == 16
    assert str(decision) == (
        "scale web from 3 to 16: external metric queue_messages above target (80 / 15 over 3 replicas)"
    )


def test_scenario_1_an_average_target_divides_the_total_by_the_replicas() -> None:
    web = Workload(external("queue_messages", averageValue="15"), replicas=3, high=30, behavior=UNLIMITED)
    decision = web.reconcile(series(50, 30))
    assert decision.scale_to == 6
    assert str(decision) == (
        "scale web from 3 to 6: external metric queue_messages above target (26.7 / 15 per replica, 80 in total)"
    )


@pytest.mark.parametrize(("percent", "expected"), [(55, 4), (56, 5), (45, 4), (44, 4)])
def test_scenario_1_the_tolerance_is_a_tenth(percent: int, expected: int) -> None:
    """Scenario 1."""
    web = Workload(resource("cpu", averageUtilization=50), replicas=4, downscale_stabilization=NO_TIME)
    assert web.reconcile(used([percent * 2] * 4), after=15).desired == expected


def test_scenario_7_the_larger_of_cpu_and_queue_wins() -> None:
    """Scenario 7."""
    web = Workload(resource("cpu", averageUtilization=50), external("queue", averageValue="10"), replicas=2, high=20)
    decision = web.reconcile(used([150, 150]), series(50))
    assert [proposal.replicas for proposal in decision.proposals] == [3, 5]
    assert decision.scale_to == 5
    assert "queue above target" in str(decision)


def test_scenario_8_pods_object_and_cpu_are_each_evaluated_and_the_largest_wins() -> None:
    """Scenario 8."""
    web = Workload(
        resource("cpu", averageUtilization=50),
        pods_metric("packets-per-second", "1k"),
        object_metric("requests-per-second", value="10k"),
        object_metric("requests-per-second", {"verb": "GET"}, value="2k"),
        replicas=3,
        high=20,
    )
    decision = web.reconcile(used([120] * 3), used([2_000_000] * 3), one(10_000), one(6_000))
    assert [proposal.replicas for proposal in decision.proposals] == [4, 6, 3, 9]
    assert decision.desired == 7, "four pods more at most in 15 s"
    assert decision.reason == "Ingress metric requests-per-second above target"


def test_scenario_8_the_query_has_the_metric_selector() -> None:
    """Scenario 8."""
    web = Workload(object_metric("requests-per-second", {"verb": "GET"}, value="2k"), replicas=3)
    (query,) = web_queries(web)
    assert (query.type, query.name, str(query.selector)) == ("Object", "requests-per-second", "verb=GET")
    assert query.object is not None
    assert query.object.name == "main-route"
    assert query.pods is None


def test_scenario_17_above_the_maximum_scales_to_it_without_queries() -> None:
    """Scenario 17."""
    web = Workload(resource("cpu", averageUtilization=50), replicas=12, high=10)
    assert web_queries(web) == ()
    decision = web.reconcile()
    assert decision.scale_to == 10
    assert web.events == [
        ("SuccessfulRescale", "New size: 10; reason: Current number of replicas above Spec.MaxReplicas")
    ]
    assert web.hpa.status.current_metrics is None


def test_scenario_17_below_the_minimum_scales_to_it_without_queries() -> None:
    """Scenario 17."""
    web = Workload(resource("cpu", averageUtilization=50), replicas=2, low=4)
    assert web.reconcile().scale_to == 4
    assert web.hpa.status.desired_replicas == 4


def test_scenario_18_a_sidecar_does_not_count() -> None:
    """Scenario 18."""
    web = Workload(container("cpu", "application", averageUtilization=60), replicas=2)
    (query,) = web_queries(web)
    assert query.container == "application"
    both = (requests("application", 100), requests("sidecar", 1000))
    web.pods = [pod("web-0", containers=both), pod("web-1", containers=both)]
    decision = web.reconcile(used([120, 120]))
    assert decision.proposals[0].current == "120%", "of the container's own request, not of the pod's"
    assert decision.desired == 4


def test_scenario_18_a_pod_without_the_container_fails_the_metric() -> None:
    """Scenario 18: without the gate, as in Kubernetes."""
    gates = Gates(HPAMissingContainerIgnored=False)
    web = Workload(container("cpu", "application", averageUtilization=60), replicas=2, gates=gates)
    web.pods = [pod("web-0", containers=(requests("application", 100),)), pod("web-1")]
    decision = web.reconcile(used({"web-0": 120}))
    assert decision.undecided
    assert "container application not found in Pod web-1" in str(decision)


@pytest.mark.parametrize(
    ("named", "text"),
    [(True, "container aplication not found in Pod web-0"), (False, "did not receive metrics for targeted pods")],
)
def test_a_container_that_no_pod_has_is_named(named: bool, text: str) -> None:
    """In Kubernetes the error is that of unready pods."""
    gates = Gates(HPAMissingContainerIgnored=named)
    web = Workload(container("cpu", "aplication", averageValue="60m"), replicas=2, gates=gates)
    web.pods = [pod(f"web-{n}", containers=(requests("application", 100),)) for n in range(2)]
    assert text in str(web.reconcile(used({})))


@pytest.mark.parametrize(
    ("of", "replicas", "percent", "desired"),
    [
        (1, 2, 120, 2),  # twice the target in one of two pods: what two pods may use
        (3, 4, 120, 6),  # 360 % in total, at 60 % per pod
        (2, 8, 120, 8),  # enough for 4 pods, but nothing shrinks while pods are above the target
        (2, 4, 30, 2),  # half the target: half of all four
        (2, 8, 48, 7),  # 80 % of the target: 6.4 of all eight, not 80 % of the two alone
        (2, 4, 60, 4),
    ],
)
@pytest.mark.parametrize("kind", ["averageUtilization", "averageValue"])
def test_pods_without_the_container_are_left_out(of: int, replicas: int, percent: int, desired: int, kind: str) -> None:
    """Scenario 18: each pod with the container requests 100m CPU for it, so one percent is one millicore."""
    target = {"averageUtilization": 60} if kind == "averageUtilization" else {"averageValue": "60m"}
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    web = Workload(container("cpu", "application", **target), replicas=replicas, behavior=behavior)
    old = [pod(f"web-{n}", containers=(requests("former", 100),)) for n in range(of, replicas)]
    web.pods = [*(pod(f"web-{n}", containers=(requests("application", 100),)) for n in range(of)), *old]
    decision = web.reconcile(used([percent] * of), after=15)
    assert decision.desired == desired
    assert web.condition("ScalingActive").status == "True"


def test_failed_pending_and_deleted_pods_count_for_no_replica() -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    web = Workload(container("cpu", "application", averageUtilization=60), replicas=4, behavior=behavior)
    running = [pod(f"web-{n}", containers=(requests("application", 100),)) for n in range(4)]
    web.pods = [*running, pod("failed", phase="Failed"), pod("pending", phase="Pending"), pod("gone", deleted=True)]
    assert web.reconcile(used([30] * 4), after=15).desired == 2


def test_scenario_26_a_milli_quantity_is_a_thousandth() -> None:
    """Scenario 26."""
    web = Workload(pods_metric("load", "10500m"), replicas=1)
    proposal = web.reconcile(used([21_000])).proposals[0]
    assert (proposal.replicas, proposal.current, proposal.metric_target) == (2, "21", "10.5")
    assert Quantity.parse("10500m") == Quantity.parse("10.5")


@pytest.mark.parametrize(("milli", "text"), [(1000, "1"), (1500, "1500m")])
def test_scenario_26_values_are_formatted_as_in_kubernetes(milli: int, text: str) -> None:
    """Scenario 26."""
    web = Workload(pods_metric("load", "1"), replicas=1)
    web.reconcile(used([milli]))
    assert web.hpa.status.current_metrics is not None
    current = web.hpa.status.current_metrics[0].pods
    assert current is not None
    assert str(current.current.average_value) == text


def test_memory_is_formatted_with_binary_units() -> None:
    web = Workload(resource("memory", averageValue="64Mi"), replicas=1)
    decision = web.reconcile(used([192 * 2**20 * 1000]))
    assert decision.proposals[0].reading == "192Mi / 64Mi"
    assert decision.desired == 3


def test_an_answer_of_the_wrong_type_is_an_error_of_the_metric() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=2)
    decision = web.reconcile(used([1, 2]))
    assert decision.scale_to is None
    assert "PodSample" in str(decision)


def test_the_number_of_answers_must_match_the_metrics() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=2)
    with pytest.raises(ValueError, match="there are 1 metrics, but 2 answers"):
        web.reconcile(series(1), AdapterError("one too many"))


def test_a_spec_is_compiled_once_for_each_hpa_and_spec() -> None:
    web = Workload(resource("cpu", averageUtilization=50), replicas=2)
    first = web.view().spec
    web.reconcile(used([100, 100]))
    assert web.view().spec is first
    other = msgspec.structs.replace(web.hpa, metadata=ObjectMeta(name="api", namespace="default"))
    assert web.view(hpa=other).spec.reference == "Deployment/default/web"
    assert web.view(hpa=other).spec.key.name == "api"
    changed = msgspec.structs.replace(web.hpa, spec=msgspec.structs.replace(web.hpa.spec, max_replicas=99))
    assert web.view(hpa=changed).spec.max_replicas == 99


@pytest.mark.parametrize("value", [10**400, 2**63])
def test_a_value_beyond_int64_counts_as_a_large_one(value: int) -> None:
    web = Workload(external("queue", value="1"), object_metric("rps", averageValue="1"), replicas=2, high=9)
    assert web.reconcile(series(value), one(value)).desired == 6
    web = Workload(pods_metric("load", "1"), replicas=2)
    assert web.reconcile(used([value, value])).desired == 6
