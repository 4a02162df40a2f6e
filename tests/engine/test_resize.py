"""Pods that are resized in place, and the overhead of a RuntimeClass: which requests count."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.engine import START, Workload, resource, used

from hpad.api import pod_json
from hpad.api.pod import Pod
from hpad.engine.render import lines
from hpad.engine.trace.make import make_trace
from hpad.engine.turn import Answered, AskBudget, turn
from hpad.engine.view import Gates

Json = dict[str, Any]


def document(cpu: str, status: Json | None = None, *, init: Json | None = None, **spec: Any) -> Json:
    """A running pod whose container requests that much CPU; `status` is that of the container."""
    own: Json = {"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}], **spec}
    if init is not None:
        own["initContainers"] = [init]
    since = (START - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
    made: Json = {"phase": "Running", "startTime": since, "conditions": [ready]}
    if status is not None:
        made["containerStatuses"] = [{"name": "app", **status}]
    return {"metadata": {"name": "web-0", "namespace": "default"}, "spec": own, "status": made}


def read(given: Json) -> Pod:
    """The pod as it is read from a watch, which is the one that is read from a recording of it."""
    seen, _ = pod_json.decode(msgspec.json.encode(given))
    again, _ = pod_json.decode(msgspec.json.encode(pod_json.to_builtins(seen, START)))
    assert seen.containers == again.containers
    assert seen.pod_requests == again.pod_requests
    assert seen.other_requests == again.other_requests
    return seen


def percent(given: Json, **gates: bool) -> int | None:
    """The utilization of the pod, which uses 500m, as the HPA sees it."""
    web = Workload(resource("cpu", averageUtilization=50), replicas=1, gates=Gates(**gates))
    web.pods = [read(given)]
    usage = web.reconcile(used([500])).proposals[0].usage
    return None if usage is None else usage.percent


RESIZES = {
    "raised, not admitted yet": (document("2", {"resources": {"requests": {"cpu": "1"}}}), 50, 25),
    "raised, admitted and not applied": (
        document("2", {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}}), 50, 25,
    ),
    "lowered, not applied": (document("500m", {"resources": {"requests": {"cpu": "1"}}}), 50, 100),
    "done": (document("2", {"resources": {"requests": {"cpu": "2"}}}), 25, 25),
    "done, written in another way": (document("2", {"resources": {"requests": {"cpu": "2000m"}}}), 25, 25),
    "known by what was admitted alone": (document("2", {"allocatedResources": {"cpu": "1"}}), 50, 25),
    "of a server that says nothing": (document("2", {}), 25, 25),
    "of a pod without statuses": (document("2"), 25, 25),
    "of memory alone": (document("2", {"resources": {"requests": {"memory": "2Gi"}}}), 25, 25),
}  # fmt: skip


@pytest.mark.parametrize(("given", "applied", "of_spec"), RESIZES.values(), ids=list(RESIZES))
def test_requests_that_the_node_applies_count_with_the_gate(given: Json, applied: int, of_spec: int) -> None:
    assert percent(given) == applied
    assert percent(given, InPlacePodVerticalScaling=False) == of_spec


def test_a_pod_whose_resize_is_not_in_force_says_so_in_the_explanation() -> None:
    web = Workload(resource("cpu", averageUtilization=50), replicas=2)
    web.pods = [
        read(RESIZES["raised, not admitted yet"][0]),
        msgspec.structs.replace(read(document("2")), name="web-1"),
    ]
    web.reconcile(used([500, 1000]))
    assert web.done is not None
    first, second = make_trace(web.done).metrics[0].pods
    assert (first.request, first.why) == ("1", "a resize to 2 is not in force")
    assert (second.request, second.why) == ("2", "")


def test_a_resize_is_told_before_busier_pods() -> None:
    web = Workload(resource("cpu", averageUtilization=50), replicas=10)
    resized = read(RESIZES["raised, not admitted yet"][0])
    others = [msgspec.structs.replace(read(document("2")), name=f"web-{n}") for n in range(1, 10)]
    web.pods = [resized, *others]
    web.reconcile(used([500, *[1000] * 9]))
    assert web.done is not None
    shown = "\n".join(map(str, lines(make_trace(web.done))))
    assert "a resize to 2 is not in force" in shown


def test_what_a_resized_pod_costs_of_a_budget_is_the_larger_request() -> None:
    for given in (RESIZES["raised, not admitted yet"][0], RESIZES["lowered, not applied"][0]):
        web = Workload(resource("cpu", averageUtilization=50), replicas=1, annotations={"hpad.io/budget": "gpu"})
        web.pods = [read(given)]
        steps = turn(web.view())
        next(steps)
        asked = steps.send(Answered([used([500])]))
        assert isinstance(asked, AskBudget)
        assert asked.own.cost == max(read(given).containers[0].requests["cpu"], 1000)


def test_a_pod_whose_requests_are_in_force_takes_no_more_memory() -> None:
    status = {"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}
    assert read(document("2", status)).other_requests is None


def test_resized_pods_of_one_target_share_what_they_have_beside_the_spec() -> None:
    first, second = (read(RESIZES["done"][0] | {"metadata": {"name": n}}) for n in "ab")
    assert first.other_requests is second.other_requests is None
    first, second = (read(RESIZES["lowered, not applied"][0] | {"metadata": {"name": n}}) for n in "ab")
    assert first.other_requests is not None
    assert first.other_requests is second.other_requests


def test_a_sidecar_is_resized_too() -> None:
    sidecar = {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    given = document("1", init=sidecar)
    assert percent(given) == 25
    given["status"]["initContainerStatuses"] = [{"name": "proxy", "resources": {"requests": {"cpu": "250m"}}}]
    assert percent(given) == 40
    assert percent(given, InPlacePodVerticalScaling=False) == 25


def test_an_init_container_that_ends_does_not_count() -> None:
    given = document("1", init={"name": "setup", "resources": {"requests": {"cpu": "4"}}})
    given["status"]["initContainerStatuses"] = [{"name": "setup", "resources": {"requests": {"cpu": "2"}}}]
    assert read(given).other_requests is None
    assert percent(given) == 50
    given["spec"]["resources"] = {"requests": {"memory": "2Gi"}}
    assert percent(given) == 25
    assert percent(given, InPlacePodVerticalScaling=False) == 12


def test_pod_level_requests_are_resized_too() -> None:
    given = document("100m", resources={"requests": {"cpu": "2"}})
    given["status"]["resources"] = {"requests": {"cpu": "1"}}
    assert percent(given) == 50
    assert percent(given, InPlacePodVerticalScaling=False) == 25


@pytest.mark.parametrize(("ignored", "expected"), [(True, 50), (False, 40)])
def test_an_overhead_is_no_part_of_pod_level_requests_with_the_gate(ignored: bool, expected: int) -> None:
    given = document("100m", resources={"requests": {"cpu": "1"}}, overhead={"cpu": "250m"})
    assert percent(given, HPAPodOverheadIgnored=ignored) == expected


def test_an_overhead_never_counts_beside_requests_of_containers() -> None:
    given = document("1", overhead={"cpu": "250m"})
    assert read(given).other_requests is None
    assert percent(given, HPAPodOverheadIgnored=False) == 50


def test_no_pod_is_added_before_a_raise_is_applied_and_none_is_removed() -> None:
    """By the spec the first would halve the utilization at once, and the second double it."""
    for given in (RESIZES["raised, not admitted yet"][0], RESIZES["lowered, not applied"][0]):
        web = Workload(resource("cpu", averageUtilization=50), replicas=4, downscale_stabilization=timedelta(0))
        web.pods = [msgspec.structs.replace(read(given), name=f"web-{n}") for n in range(4)]
        assert web.reconcile(used([500] * 4)).scale_to is None
