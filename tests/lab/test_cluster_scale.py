"""The scale subresource of workloads and custom kinds, compared with recordings of Kubernetes 1.36."""

import pytest
from support.widgets import WIDGETS

from hpad.lab.cluster import Resource, ScalePaths

GADGETS = Resource("oracle.example", ("v1",), "gadgets", "Gadget", scale=ScalePaths(selector=None))
SCALE = "/apis/apps/v1/namespaces/default/deployments/rv/scale"


def known(body, old):
    """Returns a recorded Scale with the uid, version, time and namespace of `old`."""
    names = ("uid", "resourceVersion", "creationTimestamp", "namespace")
    return {**body, "metadata": {**body["metadata"], **{name: old["metadata"][name] for name in names}}}


async def test_a_scale_is_read_as_recorded(start, workload, recorded, until):
    client = await start(auto_ready=True)
    client.cluster.apply(workload("Deployment", "rv", replicas=2))
    await until(lambda: client.cluster.get("deployments", "rv")["status"].get("availableReplicas") == 2)
    got = await client.get(SCALE)
    assert got == known(recorded("scale/deployment_get")["body"], client.cluster.get("deployments", "rv"))


async def test_a_put_of_a_scale_changes_only_the_replicas(start, workload, recorded):
    client = await start(controllers=False, kubelet=False)
    client.cluster.apply(workload("Deployment", "rv", replicas=2))
    before = client.cluster.get("deployments", "rv")
    scale = await client.get(SCALE)
    scale["spec"]["replicas"] = 3
    status, after = await client.ask("PUT", SCALE, scale)
    assert status == recorded("scale/deployment_put_200")["status"]
    assert after["spec"] == recorded("scale/deployment_put_200")["body"]["spec"] == {"replicas": 3}
    assert after["metadata"]["resourceVersion"] > scale["metadata"]["resourceVersion"]
    now = client.cluster.get("deployments", "rv")
    assert now["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert {**now["spec"], "replicas": 2} == before["spec"]
    expected = recorded("scale/deployment_put_conflict_409")["body"]
    assert await client.ask("PUT", SCALE, scale) == (409, expected)
    scale["spec"]["replicas"] = 3
    scale["metadata"].pop("resourceVersion")
    assert await client.ask("PUT", SCALE, scale) == (200, after)


async def test_bad_scales_are_refused_as_recorded(start, workload, recorded):
    client = await start(controllers=False, kubelet=False)
    client.cluster.apply(workload("Deployment", "rv", replicas=2))
    for name in ("deployment_put_name_mismatch_400", "deployment_put_negative_422"):
        body = recorded(f"scale/{name}")["request"]["body"]
        body["metadata"].pop("namespace")
        expected = recorded(f"scale/{name}")
        assert await client.ask("PUT", SCALE, body) == (expected["status"], expected["body"])
    body = {"metadata": {"name": "rv", "uid": "00000000-0000-0000-0000-000000000000"}, "spec": {"replicas": 1}}
    status, answer = await client.ask("PUT", SCALE, body)
    text = recorded("scale/deployment_put_uid_mismatch_409")["body"]["message"].replace("/fix/", "/default/")
    uid = client.cluster.get("deployments", "rv")["metadata"]["uid"]
    assert (status, answer["message"]) == (409, f"{text.rpartition(' ')[0]} {uid}")


async def test_kinds_and_objects_without_a_scale_are_404s_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    for name in ("deployment_get_404", "daemonset_get_404", "configmap_get_404"):
        exchange = recorded(f"scale/{name}")
        assert await client.ask("GET", exchange["request"]["path"]) == (404, exchange["body"])
    exchange = recorded("scale/deployment_put_404")
    path, body = exchange["request"]["path"], exchange["request"]["body"]
    assert await client.ask("PUT", path, body) == (404, exchange["body"])


@pytest.mark.parametrize(
    ("media_type", "patch"),
    [
        ("application/merge-patch+json", {"spec": {"replicas": 3}}),
        ("application/strategic-merge-patch+json", {"spec": {"replicas": 3}}),
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/replicas", "value": 3}]),
    ],
)
async def test_a_scale_can_be_patched(start, workload, media_type, patch):
    client = await start(controllers=False, kubelet=False)
    client.cluster.apply(workload("Deployment", "rv", replicas=2))
    status, after = await client.ask("PATCH", SCALE, patch, Content_Type=media_type)
    assert (status, after["kind"], after["spec"]) == (200, "Scale", {"replicas": 3})


@pytest.mark.parametrize("kind", ["ReplicationController", "ReplicaSet", "StatefulSet"])
async def test_all_workloads_can_be_scaled(start, workload, until, kind):
    client = await start(auto_ready=True)
    client.cluster.apply(workload(kind, "w", replicas=1))
    prefix = "/api/v1" if kind == "ReplicationController" else "/apis/apps/v1"
    path = f"{prefix}/namespaces/default/{kind.lower()}s/w/scale"
    scale = await client.get(path)
    assert scale["status"]["selector"] == "app=w"
    for count in (3, 0):
        scale["spec"]["replicas"] = count
        status, scale = await client.ask("PUT", path, {**scale, "metadata": {"name": "w"}})
        assert status == 200
        await until(lambda count=count: len(client.cluster.list("pods")) == count)
    await until(lambda: client.cluster.list(f"{kind.lower()}s")[0]["status"]["replicas"] == 0)
    zero = await client.get(path)
    assert (zero["spec"], zero["status"]["replicas"]) == ({}, 0)


async def test_custom_resources_with_a_scale(start, recorded):
    client = await start(controllers=False, kubelet=False, kinds=[WIDGETS, GADGETS])
    for kind, name, selector in (("Widget", "w", "app=web-w"), ("Gadget", "g", None)):
        status = {"replicas": 2, **({"selector": selector} if selector else {})}
        body = {"metadata": {"name": name}, "spec": {"replicas": 2}}
        made = client.cluster.apply({"apiVersion": "oracle.example/v1", "kind": kind, **body})
        path = f"/apis/oracle.example/v1/namespaces/default/{kind.lower()}s/{name}"
        await client.ask("PUT", f"{path}/status", {**made, "status": status})
        real = recorded("scale/cr_get" if selector else "scale/cr_get_without_selector")["body"]
        assert await client.get(f"{path}/scale") == known(real, client.cluster.get(f"{kind.lower()}s", name))


async def test_a_selector_with_expressions_is_written_as_text(start, workload):
    client = await start(controllers=False, kubelet=False)
    web = workload("Deployment", "rv")
    web["spec"]["selector"] = {
        "matchLabels": {"app": "rv"},
        "matchExpressions": [
            {"key": "tier", "operator": "NotIn", "values": ["z", "b"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }
    client.cluster.apply(web)
    assert (await client.get(SCALE))["status"]["selector"] == "app=rv,!old,tier notin (b,z)"
