"""Defaults that the server sets, compared with recorded objects of a real server."""

import pytest

from hpad.lab.cluster import defaults

PODS = "/api/v1/namespaces/fix/pods"
FROM_ELSEWHERE = ("serviceAccount", "serviceAccountName", "volumes")
"""Fields that a real server adds to pods for their service account, which the embedded cluster does not support."""


@pytest.fixture
async def client(start):
    client = await start(controllers=False, kubelet=False)
    client.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fix"}})
    return client


def authored(container):
    """Returns the fields of a recorded container that its author wrote."""
    return {name: container[name] for name in ("name", "image", "resources")}


async def test_a_deployment_has_the_recorded_defaults(client, recorded):
    real = recorded("scale/deployment_get_as_v1_deployment")["body"]
    template = real["spec"]["template"]
    containers = [authored(each) for each in template["spec"]["containers"]]
    spec = {
        "replicas": real["spec"]["replicas"],
        "selector": real["spec"]["selector"],
        "template": {"metadata": template["metadata"], "spec": {"containers": containers}},
    }
    path = "/apis/apps/v1/namespaces/fix/deployments"
    status, made = await client.ask("POST", path, {"metadata": {"name": "rv"}, "spec": spec})
    assert (status, made["spec"]) == (201, real["spec"])


async def test_a_pod_has_the_recorded_defaults(client, recorded):
    (real,) = recorded("pods/list_fieldselector_phase")["body"]["items"]
    expected = {name: value for name, value in real["spec"].items() if name not in FROM_ELSEWHERE}
    expected["containers"] = [
        {name: value for name, value in each.items() if name != "volumeMounts"} for each in expected["containers"]
    ]
    spec = {"containers": [authored(each) for each in real["spec"]["containers"]]}
    status, made = await client.ask("POST", PODS, {"metadata": {"name": "web"}, "spec": spec})
    assert (status, made["spec"]) == (201, expected)
    assert made["status"] == {"phase": "Pending", "qosClass": real["status"]["qosClass"]}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.14.2", "IfNotPresent"),
        ("registry.example:5000/team/nginx", "Always"),
        ("registry.example:5000/team/nginx:1", "IfNotPresent"),
        ("nginx@sha256:" + 64 * "a", "IfNotPresent"),
    ],
)
async def test_an_image_with_a_movable_tag_is_always_pulled(client, image, policy):
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": image}]}}
    _, made = await client.ask("POST", PODS, pod)
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}, "Burstable"),
        ({"limits": {"example.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_quality_of_service(resources, quality):
    assert defaults.quality({"containers": [{"name": "web", "resources": resources}]}) == quality


async def test_limits_set_requests_in_pods_but_not_in_templates(client, workload):
    limits = {"limits": {"cpu": "1"}}
    container = {"name": "web", "image": "web", "resources": limits}
    _, pod = await client.ask("POST", PODS, {"metadata": {"name": "web"}, "spec": {"containers": [container]}})
    assert pod["spec"]["containers"][0]["resources"] == {**limits, "requests": {"cpu": "1"}}
    deployment = workload("Deployment", "web")
    deployment["spec"]["template"]["spec"]["containers"] = [container]
    _, made = await client.ask("POST", "/apis/apps/v1/namespaces/fix/deployments", deployment)
    assert made["spec"]["template"]["spec"]["containers"][0]["resources"] == limits


async def test_string_data_of_secrets_is_stored_encoded(client):
    secret = {"metadata": {"name": "keys"}, "stringData": {"a": "b"}}
    _, made = await client.ask("POST", "/api/v1/namespaces/fix/secrets", secret)
    assert (made["type"], made["data"], "stringData" in made) == ("Opaque", {"a": "Yg=="}, False)


async def test_a_namespace_is_labelled_and_deleted_with_its_contents(client, until):
    status, made = await client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    assert (status, made["metadata"]["labels"]) == (201, {"kubernetes.io/metadata.name": "shop"})
    assert (made["spec"], made["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    assert (await client.ask("POST", "/api/v1/namespaces/shop/configmaps", {"metadata": {"name": "a"}}))[0] == 201
    status, deleted = await client.ask("DELETE", "/api/v1/namespaces/shop")
    assert (status, deleted["status"]) == (200, {"phase": "Terminating"})
    await until(lambda: client.cluster.get("namespaces", "shop") is None)
    assert client.cluster.list("configmaps", "shop") == []


@pytest.mark.parametrize(("plural", "kind"), [("services", "Service"), ("configmaps", "Status")])
async def test_deleting_some_kinds_returns_the_object(client, plural, kind):
    path = f"/api/v1/namespaces/fix/{plural}"
    await client.ask("POST", path, {"metadata": {"name": "a"}})
    status, answer = await client.ask("DELETE", f"{path}/a")
    assert (status, answer["kind"]) == (200, kind)
