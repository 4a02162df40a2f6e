"""Discovery, versions and OpenAPI, compared with the recorded answers of a real server of the same version."""

import dataclasses
import json

import aiohttp
import pytest
from lab.fixtures import exchanges, states

from hpad.lab.cluster import Cluster

TRINKETS = dataclasses.replace(states.WIDGETS, plural="trinkets", kind="Trinket")
WITHOUT_CUSTOM_KINDS = ("discovery/aggregated_api", "discovery/aggregated_apis", "discovery/apis")
FROM_OTHER_SERVERS = {
    "discovery/apis_custom_metrics_v1beta2": "the list of another API server",
    "discovery/apis_external_metrics_v1beta1": "the list of another API server",
    "discovery/openapi_v3_autoscaling_v2": "compared below, without descriptions",
    "discovery/openapi_v3_index": "compared below: the hashes differ",
}
METRICS = ("metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta2", "external.metrics.k8s.io/v1beta1")


def service(group_version: str, available: bool) -> exchanges.Json:
    """Returns a recorded APIService, changed to another group."""
    name = "available" if available else "unavailable"
    recorded = exchanges.read(f"metrics/apiservice_{name}").answer
    group, _, version = group_version.partition("/")
    spec = {**recorded["spec"], "group": group, "version": version}
    return {**recorded, "metadata": {"name": f"{version}.{group}"}, "spec": spec}


async def answered(cluster: Cluster, path: str, accept: str):
    """Returns status code, headers and body of a GET."""
    async with (
        aiohttp.ClientSession(trust_env=False) as session,
        session.get(cluster.url + path, headers={"Accept": accept}) as response,
    ):
        text = await response.text()
        return response.status, response.headers, json.loads(text) if "json" in response.content_type else text


@pytest.mark.parametrize("exchange", exchanges.of("discovery", without=FROM_OTHER_SERVERS))
async def test_discovery_is_as_recorded(exchange):
    kinds = [] if exchange.name in WITHOUT_CUSTOM_KINDS else [*states.KINDS, TRINKETS]
    async with Cluster(kubelet=False, controllers=False, kinds=kinds) as cluster:
        for each in METRICS:
            cluster.apply(service(each, available="stale" not in exchange.name))
        status, headers, answer = await answered(cluster, exchange.path, exchange.headers["Accept"])
    assert (status, headers["Content-Type"]) == (exchange.status, exchange.answer_headers["content-type"])
    assert comparable(exchange.name, answer) == comparable(exchange.name, exchange.answer)


def comparable(name, answer):
    """Returns an answer without the server's address and without the order of groups of equal priority."""
    if name == "discovery/api":
        return {**answer, "serverAddressByClientCIDRs": []}
    if name == "discovery/apis":
        first, last = answer["groups"][:-3], answer["groups"][-3:]
        return {**answer, "groups": [*first, *sorted(last, key=lambda group: group["name"])]}
    return answer


async def test_an_unavailable_metrics_api_answers_as_recorded():
    exchange = exchanges.read("metrics/podmetrics_503_apiservice_unavailable")
    async with Cluster(kubelet=False, controllers=False) as cluster:
        cluster.apply(service("metrics.k8s.io/v1beta1", available=False))
        status, headers, answer = await answered(cluster, exchange.path, "application/json")
        assert (status, answer) == (exchange.status, exchange.answer)
        assert headers["Content-Type"] == exchange.answer_headers["content-type"]
        cluster.apply(service("metrics.k8s.io/v1beta1", available=True))
        assert (await answered(cluster, exchange.path, "application/json"))[0] == 200


async def test_an_aggregated_api_without_a_server_answers_as_recorded():
    exchange = exchanges.read("metrics/podmetrics_503_server_down")
    async with Cluster(kubelet=False, controllers=False) as cluster:
        cluster.apply(service("other.example/v1", available=True))
        status, _, answer = await answered(cluster, "/apis/other.example/v1/things", "application/json")
    assert status == exchange.status
    assert answer.partition("tcp")[0] == exchange.answer.partition("tcp")[0]


@pytest.fixture
async def client(start):
    return await start(controllers=False, kubelet=False, kinds=states.KINDS)


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        ("/apis/apps/v9", "application/json"),
        ("/apis/apps/v9/deployments", "application/json"),
        ("/api/v2", "application/json"),
        ("/apis/nope.example/v1", "text/plain"),
        ("/apis/oracle.example/v9", "text/plain"),
        ("/apis/metrics.k8s.io/v1", "text/plain"),
        ("/nope", "text/plain"),
    ],
)
async def test_unknown_groups_and_versions_are_404s(client, path, content_type):
    """The server of a group also answers for its unknown versions, with JSON for built-in groups."""
    async with client.session.get(client.cluster.url + path) as response:
        assert (response.status, response.content_type) == (404, content_type)


async def test_the_root_lists_paths(client):
    paths = (await client.get("/"))["paths"]
    assert {"/api/v1", "/apis/autoscaling/v2", "/apis/oracle.example", "/version"} <= set(paths)


async def test_the_openapi_index_has_a_document_for_each_served_version(client):
    recorded = exchanges.read("discovery/openapi_v3_index").answer["paths"]
    paths = json.loads(await client.get("/openapi/v3"))["paths"]
    versions = {path for path in recorded if path.count("/") == (1 if path.startswith("api/") else 2)}
    assert paths.keys() >= versions - {"openid/v1/jwks"}
    assert len(versions) > 10
    for path, document in paths.items():
        assert document["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=")
        assert (await client.get(document["serverRelativeURL"]))["openapi"] == "3.0.0"


def undescribed(value):
    """Returns a schema without descriptions, and with sorted `required`."""
    if isinstance(value, list):
        return [undescribed(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: each for name, each in value.items() if not (name == "description" and isinstance(each, str))}
    if isinstance(kept.get("required"), list):
        kept["required"] = sorted(kept["required"])
    return {name: undescribed(each) for name, each in kept.items()}


async def test_the_openapi_types_of_hpas_are_as_recorded_without_descriptions(client):
    exchange = exchanges.read("discovery/openapi_v3_autoscaling_v2")
    ours = (await client.get(exchange.path))["components"]["schemas"]
    theirs = exchange.answer["components"]["schemas"]
    assert theirs.keys() == ours.keys()
    assert len(ours) > 20
    for name, schema in ours.items():
        if not name.endswith((".DeleteOptions", ".WatchEvent")):  # a real server lists them as kinds of every group
            assert undescribed(schema) == undescribed(theirs[name]), name


async def test_every_openapi_reference_resolves(client):
    checked = 0
    for path in json.loads(await client.get("/openapi/v3"))["paths"]:
        text = json.dumps(document := await client.get(f"/openapi/v3/{path}"))
        references = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
        assert references <= document["components"]["schemas"].keys(), path
        checked += len(references)
    assert checked > 100


async def test_a_custom_kind_is_in_openapi_as_an_object_of_any_content(client):
    document = await client.get("/openapi/v3/apis/oracle.example/v1")
    kind = {"group": "oracle.example", "version": "v1", "kind": "Widget"}
    schema = document["components"]["schemas"]["example.oracle.v1.Widget"]
    assert schema["x-kubernetes-group-version-kind"] == [kind]
    assert schema["x-kubernetes-preserve-unknown-fields"] is True
    item = document["paths"]["/apis/oracle.example/v1/namespaces/{namespace}/widgets/{name}"]
    assert "fieldValidation" in {each["name"] for each in item["patch"]["parameters"]}


async def test_every_listed_kind_can_be_created_patched_watched_and_deleted(client):
    """The verbs in discovery work."""
    checked = 0
    for group in (await client.get("/apis"))["groups"] + [{"preferredVersion": {"groupVersion": "v1"}}]:
        version = group["preferredVersion"]["groupVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for kind in (await client.get(root))["resources"]:
            if "/" in kind["name"] or "create" not in kind["verbs"] or "get" not in kind["verbs"]:
                continue
            await check_verbs(client, root, kind)
            checked += 1
    assert checked > 60


SPECIFIED = {
    "HorizontalPodAutoscaler": {
        "maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    },
    "Pod": {"containers": [{"name": "app", "image": "app"}]},
}
TEMPLATED = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController")


async def check_verbs(client, root, kind):
    path = f"{root}/namespaces/default/{kind['name']}" if kind["namespaced"] else f"{root}/{kind['name']}"
    body = {"metadata": {"name": "sample"}, "spec": SPECIFIED.get(kind["kind"], {})}
    if kind["kind"] in TEMPLATED:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": SPECIFIED["Pod"]}
        selector = {"a": "b"} if kind["kind"] == "ReplicationController" else {"matchLabels": {"a": "b"}}
        body["spec"] = {"selector": selector, "template": template}
    if kind["kind"] == "Event":
        body = {"metadata": body["metadata"], "involvedObject": {"namespace": "default"}}
    if kind["kind"].endswith("RoleBinding"):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
        body = {"metadata": body["metadata"], "roleRef": role}
    if not body.get("spec", True):
        del body["spec"]
    status, made = await client.ask("POST", path, body)
    assert (status, made["kind"]) == (201, kind["kind"]), made
    patch = {"metadata": {"labels": {"seen": "yes"}}}
    status, patched = await client.ask("PATCH", f"{path}/sample", patch, Content_Type="application/merge-patch+json")
    assert (status, patched["metadata"]["labels"]["seen"]) == (200, "yes"), patched
    assert (await client.ask("PUT", f"{path}/sample", patched))[0] == 200
    assert "sample" in [each["metadata"]["name"] for each in (await client.get(path))["items"]]
    revision = made["metadata"]["resourceVersion"]
    (event,) = await client.watch(f"{path}?watch=true&resourceVersion={revision}", 1)
    assert event["type"] == "MODIFIED"
    assert (await client.ask("DELETE", f"{path}/sample"))[0] == 200
