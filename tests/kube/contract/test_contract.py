"""hpad's requests to an API server, and the behavior of the server on which hpad relies."""

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest
from kube.contract.conftest import serve
from support import widgets
from support.scripted_server import until

from hpad.api import selector
from hpad.api.hpa import (
    CrossVersionObjectReference,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerStatus,
    from_builtins,
    to_builtins,
)
from hpad.api.metadata import Key
from hpad.engine.conditions import Event
from hpad.kube.errors import ApiError

APPS = "/apis/apps/v1/{ns}"
HPAS = "/apis/autoscaling/v2/{ns}/horizontalpodautoscalers"
PODS = "/api/v1/{ns}/pods"
WORKLOADS = {
    "Deployment": f"{APPS}/deployments",
    "ReplicaSet": f"{APPS}/replicasets",
    "StatefulSet": f"{APPS}/statefulsets",
    "ReplicationController": "/api/v1/{ns}/replicationcontrollers",
}
CONTAINERS = [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "200m"}}}]


def pod(name, **labels):
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": CONTAINERS}}


def workload(kind, name="web", replicas=2):
    labels = {"app": name, "tier": "front"}
    chosen = labels if kind == "ReplicationController" else {"matchLabels": labels}
    template = {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS}}
    more = {"serviceName": name} if kind == "StatefulSet" else {}
    return {
        "kind": kind,
        "apiVersion": "v1" if kind == "ReplicationController" else "apps/v1",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": chosen, "template": template, **more},
    }


def hpa(name="web", **more):
    target = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    return {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
        "metadata": {"name": name, **more},
        "spec": {"scaleTargetRef": target, "maxReplicas": 10, "metrics": [metric]},
    }


def ref(kind, name="web", api_version=None):
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    return CrossVersionObjectReference(kind=kind, name=name, api_version=api_version or version)


def status(**changes):
    now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
    condition = HorizontalPodAutoscalerCondition("AbleToScale", "True", now, "SucceededRescale", "to 4")
    stored = HorizontalPodAutoscalerStatus(
        last_scale_time=now, current_replicas=2, desired_replicas=4, current_metrics=None, conditions=(condition,)
    )
    return msgspec.structs.replace(stored, **changes)


async def refused(request):
    with pytest.raises(ApiError) as caught:
        await request
    return caught.value


async def test_a_cache_has_the_objects_of_the_server(api, running):
    for number in range(20):
        await api.ask("POST", PODS, pod(f"p{number:02}", app="web" if number % 2 else "other"))
    cluster = api.cluster()
    running(cluster.run())
    await asyncio.wait_for(cluster.ready(), 60)
    assert len(cluster.pods) == 20
    await api.ask("DELETE", f"{PODS}/p01", gracePeriodSeconds="0")
    await api.ask("POST", PODS, pod("p99", app="web"))
    running_status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await api.ask("PATCH", f"{PODS}/p03/status", running_status)
    await until(lambda: (stored := cluster.pods.get(Key(api.namespace, "p03"))) and stored.phase == "Running")
    await until(lambda: len(cluster.pods) == 20 and cluster.pods.get(Key(api.namespace, "p99")))
    listed = (await api.ask("GET", PODS))["items"]
    assert {value.name for value in cluster.pods.values()} == {item["metadata"]["name"] for item in listed}
    chosen = cluster.pods.select(api.namespace, selector.parse("app in (web),app!=x"))
    assert [each.name for each in chosen] == [f"p{number:02}" for number in range(3, 20, 2)] + ["p99"]
    assert cluster.pods.get(Key(api.namespace, "p03")).ready == "True"
    assert chosen[0].containers[0].requests == {"cpu": 200}


async def test_hpas_have_the_defaults_of_the_server(api, cluster):
    made = await api.ask("POST", HPAS, hpa())
    await until(lambda: cluster.hpas.get(Key(api.namespace, "web")))
    stored = cluster.hpas.get(Key(api.namespace, "web"))
    assert stored.metadata.uid == made["metadata"]["uid"]
    assert to_builtins(stored)["spec"] == made["spec"]
    assert stored.spec.min_replicas == 1


async def test_hpas_can_be_selected_by_label(api, running):
    await api.ask("POST", HPAS, hpa("mine", labels={"by": "hpad"}))
    await api.ask("POST", HPAS, hpa("other"))
    cluster = api.cluster(hpa_selector="by=hpad")
    running(cluster.run())
    await asyncio.wait_for(cluster.ready(), 60)
    assert [each.metadata.name for each in cluster.hpas.values()] == ["mine"]


@pytest.mark.parametrize("kind", WORKLOADS)
async def test_a_scale_is_read_without_and_written_with_one_request(api, cluster, kind):
    await api.ask("POST", WORKLOADS[kind], workload(kind))
    (cache,) = (each for (_, name), each in cluster.targets.items() if name == kind)
    cluster.follow([ref(kind)])
    await until(lambda: cache.get(Key(api.namespace, "web")) and cache.synced.is_set())
    before = api.client.requests.total()
    stored = await cluster.read_scale(api.namespace, ref(kind))
    assert api.client.requests.total() == before
    assert stored == await cluster.fresh_scale(api.namespace, ref(kind))
    assert stored.spec.replicas == 2
    assert stored.status.selector == "app=web,tier=front"
    written = await cluster.write_scale(api.namespace, ref(kind), stored.with_replicas(5))
    assert written.spec.replicas == 5
    assert (await cluster.read_scale(api.namespace, ref(kind))).spec.replicas == 5
    assert api.client.requests.total() == before + 2
    assert (await api.ask("GET", f"{WORKLOADS[kind]}/web"))["spec"]["replicas"] == 5
    error = await refused(cluster.write_scale(api.namespace, ref(kind), stored.with_replicas(7)))
    assert error.conflict
    assert "please apply your changes to the latest version" in error.message
    again = await cluster.fresh_scale(api.namespace, ref(kind))
    assert (await cluster.write_scale(api.namespace, ref(kind), again.with_replicas(0))).spec.replicas == 0
    assert (await api.ask("GET", f"{WORKLOADS[kind]}/web"))["spec"]["template"]["spec"]["containers"][0]["name"] == "c"


def owners(found):
    """The managers of spec.replicas."""
    entries = found["metadata"]["managedFields"]
    return [(each["manager"], each.get("subresource", "")) for each in entries if _owns_replicas(each)]


def _owns_replicas(entry):
    return "f:replicas" in entry["fieldsV1"].get("f:spec", {})


@pytest.mark.parametrize("kind", [*WORKLOADS, "Widget"])
async def test_a_scale_of_zero_has_no_owner_and_so_has_what_is_scaled_after_it(api, kind):
    """The server leaves a zero out of the Scale, and tracks no scale of an object whose replicas nobody owns."""
    where = WORKLOADS.get(kind, "/apis/oracle.example/v1/{ns}/widgets")
    custom = {"kind": kind, "apiVersion": "oracle.example/v1", "metadata": {"name": "web"}, "spec": {"replicas": 2}}
    await api.ask("POST", where, workload(kind) if kind in WORKLOADS else custom)
    found = []
    for manager, path, replicas in [
        ("keda", "web/scale", 3),
        ("keda", "web/scale", 0),
        ("kubectl", "web/scale", 2),
        ("helm", "web", 4),
        ("keda", "web/scale", 5),
        ("kubectl", "web", 0),
        ("keda", "web/scale", 6),
    ]:
        await api.ask("PATCH", f"{where}/{path}", {"spec": {"replicas": replicas}}, fieldManager=manager)
        found.append(owners(await api.ask("GET", f"{where}/web")))
    keda = [("keda", "scale")]
    assert found == [keda, [], [], [("helm", "")], keda, [("kubectl", "")], keda]


async def test_a_scale_that_is_out_of_range(api, cluster):
    await api.ask("POST", WORKLOADS["Deployment"], workload("Deployment"))
    stored = await cluster.fresh_scale(api.namespace, ref("Deployment"))
    error = await refused(cluster.write_scale(api.namespace, ref("Deployment"), stored.with_replicas(-1)))
    assert error.status == 422
    assert error.message.endswith("spec.replicas: Invalid value: -1: must be greater than or equal to 0")


async def test_a_custom_resource_with_a_scale(api, cluster):
    widgets = "/apis/oracle.example/v1/{ns}/widgets"
    body = {"kind": "Widget", "apiVersion": "oracle.example/v1", "metadata": {"name": "w"}, "spec": {"replicas": 2}}
    await api.ask("POST", widgets, body)
    await api.ask("PATCH", f"{widgets}/w/status", {"status": {"replicas": 2, "selector": "app=w"}})
    widget = ref("Widget", "w", "oracle.example/v1")
    stored = await cluster.read_scale(api.namespace, widget)
    assert (stored.spec.replicas, stored.status.replicas, stored.status.selector) == (2, 2, "app=w")
    assert (await cluster.write_scale(api.namespace, widget, stored.with_replicas(3))).spec.replicas == 3
    assert (await refused(cluster.write_scale(api.namespace, widget, stored.with_replicas(4)))).conflict


@pytest.mark.parametrize(
    ("kind", "api_version", "message"),
    [
        ("Deployment", "apps/v1", 'deployments.apps "none" not found'),
        ("ReplicationController", "v1", 'replicationcontrollers "none" not found'),
        ("Widget", "oracle.example/v1", 'widgets.oracle.example "none" not found'),
        ("DaemonSet", "apps/v1", "the server could not find the requested resource"),
        ("Thing", "apps/v1", 'no matches for kind "Thing" in group "apps"'),
        ("Thing", "nope.example/v1", 'no matches for kind "Thing" in group "nope.example"'),
    ],
)
async def test_targets_without_a_scale_have_the_errors_of_kubernetes(api, cluster, kind, api_version, message):
    error = await refused(cluster.read_scale(api.namespace, ref(kind, "none", api_version)))
    assert (error.status, error.message) == (404, message)


async def test_a_target_without_a_namespace_is_out_of_reach(api, cluster):
    """An HPA scales objects of its own namespace only: the right to write it is no right beyond that."""
    (served,) = widgets.DEFINITION["spec"]["versions"]
    names = {"plural": "oceans", "singular": "ocean", "kind": "Ocean"}
    spec = {"group": "wide.example", "scope": "Cluster", "names": names, "versions": [served]}
    definition = {**widgets.DEFINITION, "metadata": {"name": "oceans.wide.example"}, "spec": spec}
    oceans = "/apis/wide.example/v1/oceans"
    await serve(api, definition, oceans)
    body = {"kind": "Ocean", "apiVersion": "wide.example/v1", "metadata": {"name": "o"}, "spec": {"replicas": 2}}
    await api.ask("POST", oceans, body)
    assert (await api.ask("GET", f"{oceans}/o/scale"))["spec"]["replicas"] == 2
    error = await refused(cluster.read_scale(api.namespace, ref("Ocean", "o", "wide.example/v1")))
    message = error.message.removesuffix(" (get oceans o)")  # where the answer is no Status, as that of the real server
    assert (error.status, message) == (404, "the server could not find the requested resource")


async def test_a_status_write_leaves_the_rest_alone(api, cluster):
    made = await api.ask("POST", HPAS, hpa(labels={"a": "b"}, annotations={"c": "d"}))
    await until(lambda: cluster.hpas.get(Key(api.namespace, "web")))
    stored = cluster.hpas.get(Key(api.namespace, "web"))
    written = await cluster.write_status(stored, status())
    now = await api.ask("GET", f"{HPAS}/web")
    for name in ("resourceVersion", "managedFields"):
        now["metadata"].pop(name, None)
        made["metadata"].pop(name, None)
    assert now["metadata"] == made["metadata"]
    assert now["spec"] == made["spec"]
    assert written.status == from_builtins({"status": now["status"]}).status == status()
    assert cluster.hpas.get(Key(api.namespace, "web")).status == status()


async def test_fields_of_a_status_can_be_removed(api, cluster):
    await api.ask("POST", HPAS, hpa())
    await until(lambda: cluster.hpas.get(Key(api.namespace, "web")))
    stored = await cluster.write_status(cluster.hpas.get(Key(api.namespace, "web")), status())
    bare = HorizontalPodAutoscalerStatus(desired_replicas=0)
    await cluster.write_status(stored, bare)
    assert (await api.ask("GET", f"{HPAS}/web"))["status"] == {"desiredReplicas": 0, "currentMetrics": None}


async def test_a_status_of_an_older_object_is_a_conflict(api, cluster):
    await api.ask("POST", HPAS, hpa())
    await until(lambda: cluster.hpas.get(Key(api.namespace, "web")))
    stored = cluster.hpas.get(Key(api.namespace, "web"))
    await api.ask("PATCH", f"{HPAS}/web", {"spec": {"maxReplicas": 11}})
    assert (await refused(cluster.write_status(stored, status()))).conflict
    assert (await api.ask("GET", f"{HPAS}/web"))["spec"]["maxReplicas"] == 11
    await api.ask("DELETE", f"{HPAS}/web")
    await until(lambda: cluster.hpas.get(Key(api.namespace, "web")) is None)
    assert (await refused(cluster.write_status(stored, status()))).not_found


async def test_events_are_counted_and_combined(api, cluster):
    await api.ask("POST", HPAS, hpa())
    await until(lambda: cluster.hpas.get(Key(api.namespace, "web")))
    stored = cluster.hpas.get(Key(api.namespace, "web"))
    for _ in range(3):
        cluster.event_recorder.record(stored, Event("Warning", "FailedGetScale", "boom"))
    for size in range(13, 0, -1):
        cluster.event_recorder.record(stored, Event("Normal", "SuccessfulRescale", f"New size: {size}"))
    await cluster.event_recorder.flush(60)
    events = (await api.ask("GET", "/api/v1/{ns}/events"))["items"]
    counts = {event["message"]: event["count"] for event in events}
    combined = "(combined from similar events): New size: 1"
    expected = {"boom": 3, combined: 4, **{f"New size: {size}": 1 for size in range(13, 4, -1)}}
    assert counts == expected
    for event in events:
        assert event["source"] == {"component": "horizontal-pod-autoscaler"}
        assert event["involvedObject"]["uid"] == stored.metadata.uid
        assert event["involvedObject"]["apiVersion"] == "autoscaling/v2"


async def test_a_restarted_cache_has_the_changes_made_meanwhile(api, running):
    cluster = api.cluster()
    first = running(cluster.run())
    await asyncio.wait_for(cluster.ready(), 60)
    await api.ask("POST", HPAS, hpa("stays"))
    await api.ask("POST", HPAS, hpa("goes"))
    await until(lambda: len(cluster.hpas) == 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await api.ask("DELETE", f"{HPAS}/goes")
    await api.ask("POST", HPAS, hpa("comes"))
    running(cluster.run())
    await until(lambda: {each.metadata.name for each in cluster.hpas.values()} == {"stays", "comes"})
