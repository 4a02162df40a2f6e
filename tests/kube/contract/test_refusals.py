"""Rejected requests of the kinds that hpad sends, and their messages."""

from typing import Any

import pytest
from kube.contract.conftest import Api
from kube.contract.test_contract import HPAS, WORKLOADS, hpa, workload

from hpad.kube.errors import ApiError

Json = dict[str, Any]
EVENTS = "/api/v1/{ns}/events"
CONFIG_MAPS = "/api/v1/{ns}/configmaps"
WIDGETS = "/apis/oracle.example/v1/{ns}/widgets"
METRICS = "autoscaling.alpha.kubernetes.io/metrics"
LEASES = "/apis/coordination.k8s.io/v1/{ns}/leases"


async def refusal(api: Api, method: str, path: str, body: Any = None) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        await api.ask(method, path, body)
    return caught.value.status, caught.value.message.replace(api.namespace, "NS")


def event(api: Api, name: str = "e", **changes: Any) -> Json:
    about = {"kind": "HorizontalPodAutoscaler", "namespace": api.namespace, "name": "web", "uid": "u"}
    times = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "eventTime": None}
    content = {"reason": "R", "message": "m", "type": "Warning", "count": 1, "source": {"component": "c"}}
    return {"metadata": {"name": name}, "involvedObject": about, **times, **content, **changes}


async def test_events_may_have_long_messages_and_any_name(api: Api) -> None:
    for number, changes in enumerate(({"message": "x" * 5000}, {"reason": "x" * 200}, {"type": "Odd"}, {"reason": ""})):
        await api.ask("POST", EVENTS, event(api, f"e{number}", **changes))
    assert (await api.ask("POST", EVENTS, event(api, "Any.Name")))["metadata"]["name"] == "Any.Name"
    patched = await api.ask("PATCH", f"{EVENTS}/e0", {"count": 2, "message": "y" * 5000})
    assert (patched["count"], len(patched["message"])) == (2, 5000)


async def test_an_event_has_the_namespace_of_its_object(api: Api) -> None:
    about = {"kind": "HorizontalPodAutoscaler", "namespace": "other", "name": "web"}
    message = 'Event "e" is invalid: involvedObject.namespace: Invalid value: "other": does not match event.namespace'
    assert await refusal(api, "POST", EVENTS, event(api, involvedObject=about)) == (422, message)


@pytest.mark.parametrize(
    "wrong",
    [
        {"desiredReplicas": 2**31},
        {"desiredReplicas": 1.5},
        {"desiredReplicas": -1},
        {"lastScaleTime": "yesterday"},
        {"currentMetrics": [{"type": "External", "external": {"metric": {"name": "x"}, "current": {"value": "abc"}}}]},
        {"currentMetrics": [{"type": "Resource", "resource": {"name": "x", "current": {"averageUtilization": 2**31}}}]},
    ],
)
async def test_an_invalid_status(api: Api, wrong: Json) -> None:
    await api.ask("POST", HPAS, hpa())
    status, _ = await refusal(api, "PATCH", f"{HPAS}/web/status", {"status": {"desiredReplicas": 1, **wrong}})
    assert status in (400, 422)


async def test_a_status_is_normalized(api: Api) -> None:
    await api.ask("POST", HPAS, hpa())
    odd = {"type": "made up", "status": "Maybe", "lastTransitionTime": None}
    written = {"desiredReplicas": 2**31 - 1, "currentMetrics": [], "conditions": [odd, odd]}
    time = {"lastScaleTime": "2026-01-01T00:00:00.7Z"}
    answer = await api.ask("PATCH", f"{HPAS}/web/status", {"status": {**written, **time}})
    expected = {**written, "currentMetrics": None, "lastScaleTime": "2026-01-01T00:00:00Z"}
    assert answer["status"] == expected


async def test_a_status_for_a_replaced_object(api: Api) -> None:
    first = (await api.ask("POST", HPAS, hpa()))["metadata"]
    await api.ask("DELETE", f"{HPAS}/web")
    await api.ask("POST", HPAS, hpa())
    both = {"uid": first["uid"], "resourceVersion": first["resourceVersion"]}
    body = {"metadata": both, "status": {"desiredReplicas": 1}}
    status, message = await refusal(api, "PATCH", f"{HPAS}/web/status", body)
    assert (status, "the object has been modified" in message) == (409, True)
    status, message = await refusal(api, "PATCH", f"{HPAS}/web/status", {**body, "metadata": {"uid": first["uid"]}})
    assert (status, message.endswith("field is immutable")) == (422, True)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (
            {"metadata": {"name": "web"}, "spec": {"replicas": 2**31}},
            400,
            'Scale in version "v1" cannot be handled as a Scale: json: cannot unmarshal number 2147483648 into Go '
            "struct field ScaleSpec.spec.replicas of type int32",
        ),
        (
            {"metadata": {"name": "other"}, "spec": {"replicas": 3}},
            400,
            "the name of the object (other) does not match the name on the URL (web)",
        ),
    ],
)
async def test_an_invalid_scale(api: Api, body: Json, status: int, message: str) -> None:
    await api.ask("POST", WORKLOADS["Deployment"], workload("Deployment"))
    full = {"apiVersion": "autoscaling/v1", "kind": "Scale", **body}
    assert await refusal(api, "PUT", f"{WORKLOADS['Deployment']}/web/scale", full) == (status, message)


async def test_errors_of_a_custom_kind(api: Api) -> None:
    head = {"apiVersion": "oracle.example/v1", "kind": "Widget"}
    await api.ask("POST", WIDGETS, {**head, "metadata": {"name": "bare"}, "spec": {}})
    await api.ask("POST", WIDGETS, {**head, "metadata": {"name": "w"}, "spec": {"replicas": 1}})
    absent = 'Internal error occurred: the spec replicas field ".spec.replicas" does not exist'
    assert await refusal(api, "GET", f"{WIDGETS}/bare/scale") == (500, absent)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w"}, "spec": {"replicas": -1}}
    negative = (
        'Widget.oracle.example "w" is invalid: .spec.replicas: Invalid value: -1: should be a non-negative integer'
    )
    assert await refusal(api, "PUT", f"{WIDGETS}/w/scale", scale) == (422, negative)


async def test_limits_of_a_config_map(api: Api) -> None:
    await api.ask("POST", CONFIG_MAPS, {"metadata": {"name": "h"}, "data": {"k": "x" * 2**19}})
    long = 'ConfigMap "h" is invalid: []: Too long: may not be more than 1048576 bytes'
    assert await refusal(api, "PATCH", f"{CONFIG_MAPS}/h", {"data": {"l": "x" * (2**19 + 1)}}) == (422, long)
    status, message = await refusal(api, "PATCH", f"{CONFIG_MAPS}/h", {"data": {"a b": "x", "k": None}})
    assert (status, message.startswith('ConfigMap "h" is invalid: data[a b]: Invalid value: "a b"')) == (422, True)


async def test_a_lease_update_requires_a_version(api: Api) -> None:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15}
    await api.ask("POST", LEASES, {"metadata": {"name": "l"}, "spec": spec})
    message = (
        'leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for '
        "an update"
    )
    assert await refusal(api, "PUT", f"{LEASES}/l", {"metadata": {"name": "l"}, "spec": spec}) == (422, message)


async def test_a_null_is_a_missing_field(api: Api) -> None:
    """Templates write nulls, such as a list all of whose items are commented out; in a map null is an empty text."""
    head = {"name": "nulls", "labels": {"a": None}, "annotations": {METRICS: "[]"}, "generateName": None}
    selector = {"matchLabels": None, "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", None]}]}
    queue = {"metric": {"name": "queue", "selector": selector}, "target": {"type": "Value", "value": 1}}
    body = hpa()
    await api.ask("POST", HPAS, {**body, "metadata": head, "spec": {**body["spec"], "metrics": None}})
    made = await api.ask("GET", f"{HPAS}/nulls")
    assert made["metadata"]["labels"] == {"a": ""}
    assert "annotations" not in made["metadata"]
    assert made["spec"]["metrics"][0]["resource"]["name"] == "cpu"
    external = [{"type": "External", "external": queue}]
    patched = await api.ask("PUT", f"{HPAS}/nulls", {**made, "spec": {**body["spec"], "metrics": external}})
    found = patched["spec"]["metrics"][0]["external"]["metric"]["selector"]
    assert found == {"matchExpressions": [{"key": "k", "operator": "In", "values": ["x", ""]}]}
    status, message = await refusal(api, "POST", HPAS, {"metadata": {"name": None}, "spec": None})
    first = 'HorizontalPodAutoscaler.autoscaling "" is invalid: [metadata.name: Required value: name or generateName'
    assert (status, message.startswith(first)) == (422, True), message
