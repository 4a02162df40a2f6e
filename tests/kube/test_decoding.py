"""Decoding of pods, HPAs and targets, with recorded objects of a real API server."""

import json
from datetime import UTC, datetime

import msgspec
import pytest

from hpad.api import pod_json
from hpad.api.hpa import API_VERSION, KIND, HorizontalPodAutoscaler, to_builtins
from hpad.api.metadata import Key
from hpad.api.pod import COST_BEFORE, COST_SET, DELETION_COST, ContainerRequests, DeletionCost
from hpad.api.wire import UNDECODABLE
from hpad.kube import hpas, pods, scale, watch


def pod(**changes):
    value = {
        "metadata": {"name": "a", "namespace": "n", "resourceVersion": "7", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "200m"}}}]},
        "status": {"phase": "Running"},
    }
    for path, change in changes.items():
        *parents, last = path.split("__")
        place = value
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = change
    return json.dumps(value).encode()


def test_recorded_pods_are_read(recorded):
    body = recorded("scenario/pod_running")["body"]
    decoded = pods.pod(json.dumps(body).encode())
    ready = next(each for each in body["status"]["conditions"] if each["type"] == "Ready")
    assert decoded.key == Key(body["metadata"]["namespace"], body["metadata"]["name"])
    assert decoded.version == body["metadata"]["resourceVersion"]
    assert decoded.value.labels == body["metadata"]["labels"]
    assert decoded.value.phase == body["status"]["phase"] == "Running"
    assert decoded.value.ready == ready["status"]
    assert decoded.value.ready_since == datetime.fromisoformat(ready["lastTransitionTime"])
    assert [each.name for each in decoded.value.containers] == [each["name"] for each in body["spec"]["containers"]]


@pytest.mark.parametrize("name", ["list_labelselector", "list_limit2", "list_limit2_page2", "list_empty"])
def test_recorded_pages_are_read(recorded, name):
    body = recorded(f"pods/{name}")["body"]
    page = watch.page(json.dumps(body).encode())
    assert page.metadata.continue_ == body["metadata"].get("continue", "")
    assert page.metadata.resource_version == body["metadata"]["resourceVersion"]
    assert [pods.pod(raw).key.name for raw in page.items] == [each["metadata"]["name"] for each in body["items"]]


def test_a_pod_keeps_the_fields_that_decisions_read():
    decoded = pods.pod(
        pod(
            metadata__deletionTimestamp="2026-01-01T00:00:00Z",
            status__startTime="2026-01-01T00:00:05Z",
            status__conditions=[{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:09Z"}],
            spec__initContainers=[
                {"name": "once", "resources": {"requests": {"cpu": "9"}}},
                {
                    "name": "side",
                    "restartPolicy": "Always",
                    "resources": {"requests": {"cpu": "0.5", "memory": "64Mi"}},
                },
            ],
        )
    ).value
    assert decoded.deleted
    assert decoded.start_time == datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert (decoded.ready, decoded.ready_since) == ("False", datetime(2026, 1, 1, 0, 0, 9, tzinfo=UTC))
    assert decoded.containers == (
        ContainerRequests("c", {"cpu": 200}),
        ContainerRequests("side", {"cpu": 500, "memory": 64 * 2**20 * 1000}),
    )
    assert decoded.pod_requests is None


def test_the_readiness_of_a_pod_without_the_condition_is_unknown():
    decoded = pods.pod(pod()).value
    assert decoded.ready is None
    assert decoded.ready_since is None
    assert not decoded.deleted


def test_pod_level_requests_are_read():
    decoded = pods.pod(pod(spec__resources={"requests": {"cpu": "1"}})).value
    assert decoded.pod_requests == {"cpu": 1000}
    assert pods.pod(pod(spec__resources={"limits": {"cpu": "1"}})).value.pod_requests is None


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": f"c{n}", "resources": {"requests": {"cpu": "10m"}}} for n in range(1001)]},
        {"containers": [{"name": "c", "resources": {"requests": {f"example.com/r{n}": "1" for n in range(3000)}}}]},
        {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "resources": {"requests": {f"example.com/r{n}": "1" for n in range(3000)}},
        },
    ],
)
def test_a_pod_with_too_many_containers_is_one_without_requests(spec):
    """To read 10,000 of them twice held up the event loop for a quarter of a second."""
    read = pods.pod(json.dumps({"metadata": {"name": "p", "namespace": "evil"}, "spec": spec}).encode()).value
    assert [each.requests for each in read.containers] == [{}]
    assert read.containers[0].name == "(more than 1,000, or too long requests)"
    assert read.pod_requests is None


def test_equal_requests_are_one_object():
    one, two = pods.pod(pod()).value, pods.pod(pod(metadata__name="b")).value
    assert one.containers is two.containers
    assert one.namespace is two.namespace


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"<html>", pod()[:-3], pod(metadata__name=7)])
def test_bytes_that_are_no_pod_are_refused(body):
    with pytest.raises(UNDECODABLE):
        pods.pod(body)


def test_an_error_does_not_quote_the_object():
    with pytest.raises(UNDECODABLE) as caught:
        pods.pod(b'{"metadata":{"name":["s3cret"]}}')
    assert "s3cret" not in str(caught.value)


def test_recorded_hpas_keep_every_field(recorded):
    items = recorded("hpa/list_v2")["body"]["items"]
    assert len(items) > 5
    for item in items:
        decoded = hpas.hpa(json.dumps(item).encode())
        assert decoded.key == Key(item["metadata"]["namespace"], item["metadata"]["name"])
        assert decoded.version == item["metadata"]["resourceVersion"]
        assert to_builtins(decoded.value)["spec"] == item["spec"]
        assert to_builtins(decoded.value)["status"] == item["status"]


def test_an_hpa_with_a_broken_quantity_is_refused():
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Value", "value": "12x"}}}
    with pytest.raises(UNDECODABLE, match="quantit"):
        hpas.hpa(json.dumps({"metadata": {"name": "a"}, "spec": {"metrics": [metric]}}).encode())


def test_a_watched_deployment_has_the_scale_the_server_answers(recorded):
    watched = recorded("scale/deployment_get_as_v1_deployment")["body"]
    expected = recorded("scale/deployment_get")["body"]
    made = msgspec.to_builtins(scale.target(json.dumps(watched).encode()).value.scale)
    expected["metadata"]["resourceVersion"] = watched["metadata"]["resourceVersion"]
    assert made["metadata"] == expected["metadata"]
    assert made["status"] == expected["status"]
    assert made["spec"]["replicas"] == watched["spec"]["replicas"]
    assert (made["kind"], made["apiVersion"]) == (expected["kind"], expected["apiVersion"])


def test_a_selector_has_the_text_of_the_scale_subresource():
    selector = {
        "matchLabels": {"z": "1", "app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["b", "a"]},
            {"key": "x", "operator": "Exists"},
        ],
    }
    decoded = scale.target(json.dumps({"metadata": {"name": "a"}, "spec": {"selector": selector}}).encode()).value
    assert decoded.selector == "app=web,tier in (a,b),x,z=1"
    assert decoded.replicas == 1
    assert decoded.status_replicas == 0


def test_the_selector_of_a_replication_controller_is_a_map():
    body = {"metadata": {"name": "a"}, "spec": {"replicas": 0, "selector": {"b": "2", "a": "1"}}}
    decoded = scale.replication_controller(json.dumps(body).encode()).value
    assert (decoded.selector, decoded.replicas) == ("a=1,b=2", 0)


def test_hpas_share_what_they_have_in_common() -> None:
    def decoded(name: str, amount: str) -> HorizontalPodAutoscaler:
        target = {"type": "AverageValue", "averageValue": amount}
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": target}}],
        }
        metadata = {"name": name, "namespace": "shop"}
        document = {"kind": KIND, "apiVersion": API_VERSION, "metadata": metadata, "spec": spec}
        return hpas.hpa(msgspec.json.encode(document)).value

    one, other, unlike = decoded("web", "1Ki"), decoded("api", "1Ki"), decoded("web", "1024")
    assert one.spec.metrics is other.spec.metrics
    assert one.kind is other.kind
    assert one.metadata.namespace is other.metadata.namespace
    assert one.spec.metrics is not unlike.spec.metrics, "an equal amount, but shown in another form"
    assert other.spec.scale_target_ref.name == "api"


@pytest.mark.parametrize(
    ("text", "address"),
    [("10.1.2.3", "10.1.2.3"), ("fd00::12", "fd00::12"), ("", ""), ("10.1.2", ""), ("::1\0", ""), ("127.0.0.1 ", "")],
)
def test_the_address_of_a_pod_is_kept_as_a_number(text, address):
    assert pods.pod(pod(status__podIP=text)).value.address_text == address


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, None),
        ({"other": "1"}, None),
        ({"deletion-cost": "1"}, None),
        ({DELETION_COST: "-5"}, DeletionCost("-5")),
        ({DELETION_COST: "-5", COST_SET: "-5 x"}, DeletionCost("-5", "-5 x")),
        ({DELETION_COST: "-5", COST_SET: "-5 x", COST_BEFORE: "7"}, DeletionCost("-5", "-5 x", "7")),
        ({COST_SET: "-5 x"}, DeletionCost(None, "-5 x")),
    ],
)
def test_the_deletion_cost_of_a_pod(annotations, expected):
    decoded = pods.pod(pod(metadata__annotations=annotations)).value
    assert decoded.deletion_cost == expected
    again, _ = pod_json.decode(msgspec.json.encode(pod_json.to_builtins(decoded, datetime.now(UTC))))
    assert again.deletion_cost == expected


@pytest.mark.parametrize("annotations", [None, 7, {DELETION_COST: 7}, {DELETION_COST: None}])
def test_annotations_of_a_pod_that_are_no_texts_are_no_annotations_or_make_it_unreadable(annotations):
    try:
        assert pods.pod(pod(metadata__annotations=annotations)).value.deletion_cost is None
    except UNDECODABLE:
        assert annotations is not None
