"""The past of HPAs from a real Prometheus."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from support import prometheus_lab
from support.past_series import PastSeries, counted

from hpad.api.hpa import HorizontalPodAutoscaler, from_builtins
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer
from hpad.simulation.advice import reading
from hpad.simulation.prometheus import QueriedPrometheus

pytestmark = pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT)

START = (int(time.time()) // 3600 - 48) * 3600
STEP = 60
TIMES = range(START, START + 3600, 30)


def hpa(name: str, target: str = "") -> HorizontalPodAutoscaler:
    """Returns an HPA in the namespace shop with a goal of 50 % CPU."""
    return from_builtins(
        {
            "metadata": {"namespace": "shop", "name": name},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target or name},
                "minReplicas": 1,
                "maxReplicas": 10,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                    }
                ],
            },
        }
    )


@pytest.fixture(scope="module")
def server() -> Iterator[QueriedPrometheus]:
    past = PastSeries()
    for name, value in (("status_current_replicas", 2), ("status_desired_replicas", 3), ("spec_max_replicas", 10)):
        past.hpa("shop", "web", name, [(at, value) for at in TIMES])
    for pod, cores in (("web-7d9f8b6c5d-x2x4z", 0.1), ("web-7d9f8b6c5d-zzzzz", 0.3), ("web-api-7d9f8b6c5d-zzzzz", 7.0)):
        of = {"namespace": "shop", "pod": pod, "container": "app"}
        past.add("container_cpu_usage_seconds_total", of, counted((at, cores) for at in TIMES))
        past.add("kube_pod_container_resource_requests", of | {"resource": "cpu"}, [(at, 0.5) for at in TIMES])
    for each in prometheus_lab.serve(past.text):
        yield QueriedPrometheus(each.url)


def test_cpu_is_the_usage_of_the_targets_pods_in_percent_of_their_requests(server: QueriedPrometheus) -> None:
    begin, end = datetime.fromtimestamp(START + 600, UTC), datetime.fromtimestamp(START + 3000, UTC)
    (past,) = reading.read(server, [hpa("web")], begin, end, STEP)
    assert len(past.load.times) == 41
    assert past.load.columns["cpu"] == pytest.approx([40.0] * 41)
    assert past.load.columns["replicas"] == [2] * 41
    assert (past.desired[0], past.maximum[0], past.minimum[0]) == (3, 10, None)
    assert past.readings["cpu"].source == "cAdvisor and the requests"
