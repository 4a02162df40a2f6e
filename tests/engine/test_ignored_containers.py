"""Containers that are left out of Resource metrics, in requests, queries and recordings."""

from typing import Any

import msgspec
import pytest
from support.engine import Workload, container, pod, resource, used

from hpad.api import metrics
from hpad.api.pod import ContainerRequests
from hpad.engine import controls
from hpad.engine.examine import Proceed, examine

IGNORE = "hpad.io/ignore-containers"
CPU = resource("cpu", averageUtilization=50)


def workload(text: str, *pods: tuple[dict[str, int | None], dict[str, int] | None], metric: Any = CPU) -> Workload:
    """A workload of pods with these CPU requests by container, and pod-level requests."""
    web = Workload(metric, replicas=len(pods), annotations={IGNORE: text}, behavior=None)
    web.pods = [
        pod(
            f"web-{index}",
            containers=tuple(
                ContainerRequests(name, {} if request is None else {"cpu": request})
                for name, request in requests.items()
            ),
            pod_requests=whole,
        )
        for index, (requests, whole) in enumerate(pods)
    ]
    return web


BOTH: tuple[dict[str, int | None], None] = ({"app": 100, "proxy": 300}, None)


def test_requests_of_ignored_containers_are_left_out() -> None:
    """100m of 100m is 100 % and doubles the pods; of 400m it would be 25 %."""
    assert workload("proxy", BOTH, BOTH).reconcile(used([100, 100])).scale_to == 4
    assert workload("absent", BOTH, BOTH).reconcile(used([400, 400])).scale_to == 4


def test_only_the_other_containers_need_a_request() -> None:
    web = workload("proxy, agent", ({"app": 100, "proxy": None, "agent": None}, None))
    assert web.reconcile(used([100])).scale_to == 2


def test_a_request_of_the_whole_pod_counts_without_those_of_the_ignored_containers() -> None:
    web = workload("proxy", ({"app": None, "proxy": 300}, {"cpu": 500}))
    assert web.reconcile(used([200])).scale_to == 2


@pytest.mark.parametrize(
    ("pods", "error"),
    [
        ([BOTH, ({"proxy": 300}, None)], "all containers of Pod web-1 are ignored: proxy"),
        ([({"app": None, "proxy": None}, {"cpu": 500})], "missing request for cpu in container proxy of Pod web-0"),
        ([({"app": None, "proxy": 500}, {"cpu": 500})], "the ignored containers request all cpu of Pod web-0"),
    ],
)
def test_what_cannot_be_left_out_is_an_error_and_the_count_stays(pods: Any, error: str) -> None:
    web = workload("proxy", *pods)
    decision = web.reconcile(used([100] * len(pods)))
    assert decision.scale_to is None
    assert error in str(decision)
    assert web.condition("ScalingActive").status == "False"


def test_an_average_value_fails_as_well_for_a_pod_of_ignored_containers_alone() -> None:
    web = workload("proxy", ({"proxy": 300}, None), metric=resource("cpu", averageValue="100m"))
    assert "all containers of Pod web-0 are ignored" in str(web.reconcile(used([100])))


def test_only_queries_of_resource_metrics_have_the_ignored_containers() -> None:
    web = Workload(CPU, container("cpu", "proxy", averageUtilization=50), replicas=1, annotations={IGNORE: "b,a,b"})
    verdict = examine(web.view())
    assert isinstance(verdict, Proceed)
    assert [getattr(query, "ignored_containers", None) for query in verdict.queries] == [("a", "b"), ()]


@pytest.mark.parametrize("text", ["", "a,,b", "a b", "A", "proxy,"])
def test_a_text_that_is_no_list_of_containers_is_an_error(text: str) -> None:
    found = controls.read({IGNORE: text})
    assert "is not the name of a container; names with commas between are needed" in dict(found.errors)[IGNORE]
    assert found.controls.ignored_containers is None


def test_a_sample_leaves_out_the_usage_of_ignored_containers() -> None:
    usage = [{"name": name, "usage": {"cpu": cpu}} for name, cpu in (("app", "100m"), ("proxy", "700m"))]
    items = [
        {"metadata": {"name": "both"}, "timestamp": "2026-01-01T12:00:00Z", "window": "30s", "containers": usage},
        {"metadata": {"name": "one"}, "timestamp": "2026-01-01T12:00:00Z", "window": "30s", "containers": usage[1:]},
    ]
    decoded = [msgspec.convert(item, metrics.PodMetrics) for item in items]
    sample = metrics.pod_sample(decoded, "cpu", ignored=("proxy",))
    assert {name: value.value for name, value in sample.values.items()} == {"both": 100}
