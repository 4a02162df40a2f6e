"""Kinds of CustomResourceDefinitions that are created while the cluster runs."""

import pytest

from hpad.lab import autoscaler

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
AUTOSCALERS = "/apis/hpad.io/v1/namespaces/default/autoscalers"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MERGE = {"Content_Type": "application/merge-patch+json"}


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


@pytest.mark.parametrize(
    ("spec", "status", "message"),
    [
        ({"size": "2"}, {}, ".spec.size accessor error: '2' is of the type string, expected int64"),
        ({"size": 2}, {"size": 1.5}, ".status.size accessor error: 1.5 is of the type float64, expected int64"),
        (
            {"size": 2},
            {"sel": {"matchLabels": {"app": "a"}}},
            "is of the type map[string]interface {}, expected string",
        ),
    ],
)
async def test_a_scale_of_values_of_another_type_is_an_error(client, spec, status, message):
    """Source: apiextensions-apiserver, customresource/etcd.go: scaleFromCustomResource."""
    await client.ask("POST", WIDGETS, {"metadata": {"name": "a"}, "spec": spec})
    await client.ask("PATCH", f"{WIDGETS}/a/status", {"status": status}, **MERGE)
    code, body = await client.ask("GET", f"{WIDGETS}/a/scale")
    assert (code, body["reason"]) == (500, "InternalError")
    assert message in body["message"]


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


def scaler(name="web", **spec):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {"metadata": {"name": name}, "spec": {"scaleTargetRef": target, "maxReplicas": 3, **spec}}


@pytest.fixture
async def scalers(start):
    client = await start(controllers=False, kubelet=False)
    client.cluster.apply(autoscaler.definition())
    return client


async def test_unknown_fields_are_pruned_with_a_warning_or_refused(scalers):
    odd = scaler(options={"mode": "shadow", "mod": "x"}, replicas=3, behavior=None)
    parameters = {"query": "up", "deep": {"any": [None], "none": None}}
    odd["spec"]["queries"] = [{"name": "q", "source": "s", "parameters": {**parameters, "none": None}}]
    unknown = ['unknown field "spec.options.mod"', 'unknown field "spec.replicas"']
    status, body = await scalers.ask("POST", f"{AUTOSCALERS}?fieldValidation=Strict", odd)
    cannot = 'Autoscaler in version "v1" cannot be handled as a Autoscaler'
    assert (status, body["message"]) == (400, f"{cannot}: strict decoding error: {', '.join(unknown)}")
    assert (await scalers.ask("POST", AUTOSCALERS, odd))[0] == 201
    stored = (await scalers.get(f"{AUTOSCALERS}/web"))["spec"]
    queries = [{"name": "q", "source": "s", "parameters": parameters}]
    assert stored == scaler(options={"mode": "shadow"}, queries=queries)["spec"]
    patch = {"spec": {"replicas": 4, "minReplicas": 0}}
    assert (await scalers.ask("PATCH", f"{AUTOSCALERS}/web?fieldValidation=Strict", patch, **MERGE))[0] == 422
    _, patched = await scalers.ask("PATCH", f"{AUTOSCALERS}/web", patch, **MERGE)
    assert patched["spec"] == {**stored, "minReplicas": 0}


async def test_what_violates_the_schema_is_refused_in_the_words_of_a_server(scalers):
    values = {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": 0.5}}}
    query = {"name": "a", "source": "b", "parameters": {}}
    bad = scaler(minReplicas=-1, metrics=[values, {}], queries=[query, query], options={"mode": "of" * 60})
    bad["spec"]["scaleTargetRef"] |= {"kind": "a/b", "name": "", "apiVersion": "v" * 1025}
    bad["spec"]["behavior"] = {"scaleUp": {"policies": []}, "scaleDown": {"policies": [None] * 101}}
    status, body = await scalers.ask("POST", AUTOSCALERS, bad)
    assert status == 422
    within, policies = "in body should", "spec.behavior.scaleUp.policies"
    found = [f"{each['field']}: {each['message']}" for each in body["details"]["causes"]]
    assert [each for each in found if "scaleDown.policies[" not in each] == [
        f"spec.scaleTargetRef.kind: Invalid value: \"a/b\": spec.scaleTargetRef.kind {within} match '^[^/%]*$'",
        f'spec.scaleTargetRef.name: Invalid value: "": spec.scaleTargetRef.name {within} be at least 1 chars long',
        "spec.scaleTargetRef.apiVersion: Too long: may not be more than 1024 bytes",
        f"spec.minReplicas: Invalid value: -1: spec.minReplicas {within} be greater than or equal to 0",
        'spec.metrics[0].external.target.value: Invalid value: "number": spec.metrics[0].external.target.value in body '
        'must be of type integer,string: "number"',
        "spec.metrics[1].type: Required value",
        f"{policies}: Invalid value: 0: {policies} {within} have at least 1 items",
        "spec.behavior.scaleDown.policies: Too many: 101: must have at most 100 items",
        f'spec.options.mode: Unsupported value: "{"of" * 60}": supported values: "active", "shadow", "paused"',
        'spec.queries[1]: Duplicate value: {"name":"a"}',
    ]


async def test_a_status_is_pruned_and_validated(scalers):
    await scalers.ask("POST", AUTOSCALERS, scaler())
    condition = {"type": "AbleToScale", "status": "True", "lastTransitionTime": None}
    status = {"desiredReplicas": 2, "currentMetrics": None, "decision": "up", "conditions": [condition], "odd": 1}
    code, body = await scalers.ask("PATCH", f"{AUTOSCALERS}/web/status", {"status": status}, **MERGE)
    assert code == 200
    assert body["status"] == {
        "desiredReplicas": 2,
        "decision": "up",
        "conditions": [{"type": "AbleToScale", "status": "True"}],
    }
    bad = {"status": {"conditions": [{"type": "AbleToScale", "status": "yes"}]}}
    assert (await scalers.ask("PATCH", f"{AUTOSCALERS}/web/status", bad, **MERGE))[0] == 422


async def test_a_status_is_written_to_an_object_whose_spec_a_newer_schema_refuses(scalers):
    await scalers.ask("POST", AUTOSCALERS, scaler(minReplicas=3))
    narrower = autoscaler.definition()
    properties = narrower["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["minReplicas"]["maximum"] = 2
    scalers.cluster.apply(narrower)
    stored = await scalers.get(f"{AUTOSCALERS}/web")
    body = {**stored, "status": {"desiredReplicas": 3}}
    assert (await scalers.ask("PUT", f"{AUTOSCALERS}/web/status", body))[0] == 200
    del body["metadata"]["resourceVersion"]
    status, answer = await scalers.ask("PUT", f"{AUTOSCALERS}/web/status", body)
    assert (status, answer["message"].endswith("0: must be specified for an update")) == (422, True)


async def test_columns_and_descriptions_are_those_of_the_definition(scalers):
    await scalers.ask("POST", AUTOSCALERS, scaler(minReplicas=0))
    status = {"currentReplicas": 2, "desiredReplicas": 3, "targets": "cpu: 90%/60%", "decision": "2 -> 3"}
    await scalers.ask("PATCH", f"{AUTOSCALERS}/web/status", {"status": status}, **MERGE)
    _, table = await scalers.ask("GET", AUTOSCALERS, Accept=TABLE)
    names = ["Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age", "Kind", "Decision"]
    assert [each["name"] for each in table["columnDefinitions"]] == names
    assert [each["priority"] for each in table["columnDefinitions"]] == [0] * 7 + [1] * 2
    cells = table["rows"][0]["cells"]
    assert cells[:6] + cells[7:] == ["web", "web", "cpu: 90%/60%", 0, 3, 2, "Deployment", "2 -> 3"]
    assert cells[6].endswith("s")
    document = await scalers.get("/openapi/v3/apis/hpad.io/v1")
    spec = document["components"]["schemas"]["io.hpad.v1.Autoscaler"]["properties"]["spec"]
    assert spec["properties"]["maxReplicas"]["description"].startswith("The largest number")
