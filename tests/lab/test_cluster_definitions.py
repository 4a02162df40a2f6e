"""Kinds of CustomResourceDefinitions that are created while the cluster runs."""

import pytest

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


def definition(**version):
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.sel"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    subresources = {"status": {}, "scale": scale}
    versions = [
        {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": subresources} | version
    ]
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**head, "metadata": {"name": "widgets.example.com"}, "spec": spec}


@pytest.fixture
async def client(start, until):
    client = await start(controllers=False, kubelet=False)
    assert (await client.ask("GET", WIDGETS))[0] == 404
    assert (await client.ask("POST", CRDS, definition()))[0] == 201
    await until(lambda: "status" in client.cluster.get("customresourcedefinitions", "widgets.example.com"))
    return client


async def test_the_kind_is_served_and_discovered(client):
    listed = {each["name"]: each for each in (await client.get("/apis/example.com/v1"))["resources"]}
    assert listed.keys() == {"widgets", "widgets/status", "widgets/scale"}
    assert listed["widgets"]["shortNames"] == ["wd"]
    live = await client.get(f"{CRDS}/widgets.example.com")
    assert {each["type"]: each["status"] for each in live["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert live["status"]["storedVersions"] == ["v1"]


async def test_objects_are_scaled_by_the_paths_of_the_definition(client):
    widget = {"metadata": {"name": "a"}, "spec": {"size": 2, "anything": [1]}}
    assert (await client.ask("POST", WIDGETS, widget))[0] == 201
    patch = {"status": {"size": 1, "sel": "app=a"}}
    headers = {"Content_Type": "application/merge-patch+json"}
    assert (await client.ask("PATCH", f"{WIDGETS}/a/status", patch, **headers))[0] == 200
    scale = await client.get(f"{WIDGETS}/a/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "app=a"})
    assert (await client.ask("PATCH", f"{WIDGETS}/a/scale", {"spec": {"replicas": 5}}, **headers))[0] == 200
    assert (await client.get(f"{WIDGETS}/a"))["spec"]["size"] == 5


async def test_objects_stay_while_no_version_is_served(client):
    await client.ask("POST", WIDGETS, {"metadata": {"name": "a"}})
    assert (await client.ask("PUT", f"{CRDS}/widgets.example.com", definition(served=False)))[0] == 200
    assert (await client.ask("GET", WIDGETS))[0] == 404
    assert (await client.ask("PUT", f"{CRDS}/widgets.example.com", definition(subresources={})))[0] == 200
    assert [each["metadata"]["name"] for each in (await client.get(WIDGETS))["items"]] == ["a"]


async def test_a_deleted_definition_takes_its_objects_along(client, until):
    await client.ask("POST", WIDGETS, {"metadata": {"name": "a"}})
    assert (await client.ask("DELETE", f"{CRDS}/widgets.example.com"))[0] == 200
    assert (await client.ask("GET", WIDGETS))[0] == 404
    await client.ask("POST", CRDS, definition())
    assert (await client.get(WIDGETS))["items"] == []
