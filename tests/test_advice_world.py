"""The world that `hpad advise` is tried on: its pods share the load, and its series are those of kube-state-metrics."""

import random

from hpad.lab.cluster import Cluster
from tools import kube_series
from tools.advice_world import NAMESPACE, WORKLOADS, Planned, Pods, documents, resource

CURRENT = {"averageUtilization": 71, "averageValue": "125m"}
HPA = {
    "metadata": {"namespace": "shop", "name": "web", "generation": 2},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 9,
        "metrics": [resource("cpu", 60)],
    },
    "status": {
        "currentReplicas": 3,
        "desiredReplicas": 4,
        "currentMetrics": [
            {"type": "Resource", "resource": {"name": "cpu", "current": CURRENT}},
        ],
        "conditions": [{"type": "ScalingActive", "status": "True"}],
    },
}


def rows(found: object) -> dict[tuple[str, ...], float]:
    """Returns the values by the name of the series and its labels but for namespace and HPA."""
    own = ("namespace", "horizontalpodautoscaler")
    assert isinstance(found, dict)
    return {
        (name.removeprefix("kube_horizontalpodautoscaler_"), *(labels[key] for key in labels if key not in own)): value
        for name, labels, value in kube_series.of_hpa(found)
    }


def test_an_hpa_has_the_series_of_kube_state_metrics() -> None:
    found = rows(HPA)
    assert found["spec_min_replicas",] == 2
    assert found["spec_max_replicas",] == 9
    assert found["status_current_replicas",] == 3
    assert found["status_desired_replicas",] == 4
    assert found["spec_target_metric", "cpu", "utilization"] == 60
    assert found["status_target_metric", "cpu", "utilization"] == 71
    assert found["status_target_metric", "cpu", "average"] == 0.125
    assert [found["status_condition", "ScalingActive", each] for each in ("true", "false", "unknown")] == [1, 0, 0]


def test_a_metric_that_could_not_be_read_has_no_current_value() -> None:
    failed = {**HPA, "status": {"currentMetrics": [{"type": ""}]}}
    assert not [key for key in rows(failed) if key[0] == "status_target_metric"]


def test_a_pod_of_two_containers_has_a_row_for_each_and_one_for_all() -> None:
    pod = {"metadata": {"namespace": "shop", "name": "web-1", "uid": "u"}}
    text = kube_series.text(kube_series.of_containers(pod, {"app": 3.0, "sidecar": 1.0}, {"app": 20.0, "sidecar": 5.0}))
    cpu = [line for line in text.splitlines() if line.startswith("container_cpu_usage_seconds_total")]
    assert [line.rpartition(" ")[2] for line in cpu] == ["4", "3", "1"]
    assert 'container=""' in cpu[0]


async def test_ready_pods_share_the_load_up_to_their_limit() -> None:
    planned = Planned("web", ("constant:1000",), resource("cpu", 60), 2, 9, limit=400)
    async with Cluster(kubelet=False) as cluster:
        for document in documents(planned):
            cluster.apply(document)
        pods = Pods(planned, cluster, random.Random(1))
        assert pods.served(1000, 5) == 200
        assert pods.served(1000, 2) == 400
        assert pods.lost == (1000 - 2 * 400) * 5


async def test_a_queue_grows_by_what_its_workers_leave() -> None:
    planned = next(each for each in WORKLOADS if each.rate)
    async with Cluster(kubelet=False) as cluster:
        pods = Pods(planned, cluster, random.Random(1))
        pods.served(3, 1)  # 3 a second for 5 seconds, one worker with one a second
        assert (pods.published, pods.acked) == (15, 5)
        assert not pods.found()
        assert cluster.get("deployments", planned.name, NAMESPACE) is None
