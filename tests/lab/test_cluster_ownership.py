"""Server-side apply by several managers: conflicts, force, and fields that are no longer applied."""

import json

import pytest

PATH = "/apis/apps/v1/namespaces/default/deployments/web"


def deployment(replicas=None, image="web:1", sidecar=False, **labels):
    selector = {"app": "web"}
    containers = [{"name": "web", "image": image}, *([{"name": "sidecar", "image": "sidecar:1"}] if sidecar else [])]
    template = {"metadata": {"labels": selector}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": selector}, "template": template}
    if replicas is not None:
        spec["replicas"] = replicas
    metadata = {"name": "web", **({"labels": labels} if labels else {})}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@pytest.fixture
async def client(start):
    return await start(auto_ready=True)


@pytest.fixture
def apply(client):
    async def send(manager, obj, *, force=False, path=PATH):
        query = f"?fieldManager={manager}" + ("&force=true" if force else "")
        return await client.ask("PATCH", path + query, json.dumps(obj), Content_Type="application/apply-patch+yaml")

    return send


async def scale(client, replicas, manager="autoscaler"):
    body = {"spec": {"replicas": replicas}}
    agent = {"User-Agent": f"{manager}/1.0", "Content-Type": "application/merge-patch+json"}
    status, _ = await client.ask("PATCH", f"{PATH}/scale", body, **agent)
    assert status == 200


async def test_a_field_changed_by_the_autoscaler_is_a_conflict_until_forced(client, apply):
    assert (await apply("kubectl", deployment(2)))[0] == 201
    assert (await apply("kubectl", deployment(2)))[0] == 200
    await scale(client, 5)
    status, body = await apply("kubectl", deployment(2))
    assert (status, body["reason"]) == (409, "Conflict")
    conflict = 'conflict with "autoscaler" with subresource "scale" using apps/v1'
    assert body["message"] == f"Apply failed with 1 conflict: {conflict}: .spec.replicas"
    assert body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": conflict, "field": ".spec.replicas"}
    ]
    assert (await client.get(PATH))["spec"]["replicas"] == 5
    assert (await apply("kubectl", deployment(2), force=True))[0] == 200
    assert (await apply("kubectl", deployment(3)))[0] == 200
    assert (await client.get(PATH))["spec"]["replicas"] == 3


async def test_applying_without_replicas_keeps_those_of_the_autoscaler(client, apply):
    await apply("kubectl", deployment(2))
    await scale(client, 5)
    assert (await apply("kubectl", deployment(image="web:2")))[0] == 200
    assert (await client.get(PATH))["spec"]["replicas"] == 5


async def test_equal_values_share_a_field_and_different_ones_report_all_conflicts(client, apply):
    await apply("one", deployment(2, team="a"))
    assert (await apply("two", deployment(2, team="a")))[0] == 200
    status, body = await apply("two", deployment(2, image="web:2", team="b"))
    assert status == 409
    assert body["message"] == (
        'Apply failed with 2 conflicts: conflicts with "one":\n'
        '- .metadata.labels.team\n- .spec.template.spec.containers[name="web"].image'
    )


async def test_an_abandoned_field_is_removed_unless_another_manager_applies_it(client, apply):
    await apply("one", deployment(sidecar=True, team="a", tier="x"))
    label = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"tier": "x"}}}
    assert (await apply("two", label))[0] == 200
    assert (await apply("one", deployment()))[0] == 200
    managed = await client.get(PATH)
    assert managed["metadata"]["labels"] == {"tier": "x"}
    assert [each["name"] for each in managed["spec"]["template"]["spec"]["containers"]] == ["web"]
    assert (await apply("two", {**label, "metadata": {"name": "web"}}))[0] == 200
    assert not (await client.get(PATH))["metadata"].get("labels")


async def test_an_update_by_another_manager_is_a_conflict_and_recreation_resets_managers(client, apply):
    await client.ask("POST", PATH.rpartition("/")[0] + "?fieldManager=hand", deployment(2))
    status, body = await apply("kubectl", deployment(4))
    assert status == 409
    assert 'conflict with "hand" using apps/v1: .spec.replicas' in body["message"]
    await client.ask("DELETE", PATH)
    assert (await apply("kubectl", deployment(4)))[0] == 201


async def test_a_dry_run_of_apply_changes_no_managers(client, apply):
    await apply("one", deployment(2))
    assert (await apply("two", deployment(3), path=PATH))[0] == 409
    query = "?fieldManager=two&force=true&dryRun=All"
    status, body = await client.ask(
        "PATCH", PATH + query, json.dumps(deployment(3)), Content_Type="application/apply-patch+yaml"
    )
    assert (status, body["spec"]["replicas"]) == (200, 3)
    assert (await apply("one", deployment(4)))[0] == 200


def managers(obj):
    """Maps name, operation and subresource of each manager to its fields."""
    entries = obj["metadata"].get("managedFields", [])
    return {(each["manager"], each["operation"], each.get("subresource", "")): each["fieldsV1"] for each in entries}


async def test_defaults_belong_to_the_creator_and_replicas_to_the_autoscaler(client):
    await client.ask("POST", PATH.rpartition("/")[0], deployment(2), User_Agent="creator/1")
    await scale(client, 5)
    managed = managers(await client.get(PATH))
    spec = managed["creator", "Update", ""]["f:spec"]
    assert "f:replicas" not in spec
    assert spec["f:strategy"]["f:rollingUpdate"] == {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}
    container = spec["f:template"]["f:spec"]["f:containers"]['k:{"name":"web"}']
    assert {".", "f:image", "f:imagePullPolicy", "f:name"} <= container.keys()
    assert managed["autoscaler", "Update", "scale"] == {"f:spec": {"f:replicas": {}}}


async def test_writing_the_same_value_changes_no_manager(client):
    await client.ask("POST", PATH.rpartition("/")[0], deployment(2), User_Agent="creator/1")
    before = await client.get(PATH)
    patch = {"spec": {"replicas": before["spec"]["replicas"]}}
    headers = {"Content_Type": "application/merge-patch+json", "User_Agent": "other/1"}
    assert (await client.ask("PATCH", PATH, patch, **headers))[0] == 200
    assert "other" not in {name for name, *_ in managers(await client.get(PATH))}


async def test_a_client_may_rename_the_manager_of_its_fields(client, apply):
    """kubectl does this when it migrates from client-side to server-side apply."""
    await client.ask("POST", PATH.rpartition("/")[0], deployment(2), User_Agent="before/1")
    (entry,) = [each for each in (await client.get(PATH))["metadata"]["managedFields"] if each["manager"] == "before"]
    moved = [{**entry, "manager": "kubectl", "operation": "Apply"}]
    steps = [{"op": "replace", "path": "/metadata/managedFields", "value": moved}]
    assert (await client.ask("PATCH", PATH, steps, Content_Type="application/json-patch+json"))[0] == 200
    assert (await apply("kubectl", deployment(3)))[0] == 200
    managed = managers(await client.get(PATH))
    assert ("before", "Update", "") not in managed
    assert managed["kubectl", "Apply", ""]["f:spec"]["f:replicas"] == {}


async def test_managed_fields_can_be_reset(client):
    await client.ask("POST", PATH.rpartition("/")[0], deployment(2), User_Agent="creator/1")
    steps = [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]
    await client.ask("PATCH", PATH, steps, Content_Type="application/json-patch+json", User_Agent="other/1")
    assert ("creator", "Update", "") not in managers(await client.get(PATH))


async def test_an_untracked_object_stays_untracked_until_its_first_apply(client, apply):
    """An object created before Kubernetes tracked managers is such an object."""
    await client.ask("POST", PATH.rpartition("/")[0], deployment(2), User_Agent="creator/1")
    forget = [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]
    await client.ask("PATCH", PATH, forget, Content_Type="application/json-patch+json")
    merge = {"Content_Type": "application/merge-patch+json", "User_Agent": "later/1"}
    await client.ask("PATCH", PATH, {"metadata": {"annotations": {"a": "b"}}}, **merge)
    assert ("later", "Update", "") not in managers(await client.get(PATH))
    status, refused = await apply("kubectl", deployment(3))
    assert (status, refused["details"]["causes"][0]["message"]) == (
        409,
        'conflict with "before-first-apply" using apps/v1',
    )
    assert (await apply("kubectl", deployment(3), force=True))[0] == 200
    assert "f:annotations" in managers(await client.get(PATH))["before-first-apply", "Update", ""]["f:metadata"]


async def test_the_oldest_update_managers_are_merged(client):
    await client.ask("POST", PATH.rpartition("/")[0], deployment(2), User_Agent="creator/1")
    for number in range(12):
        patch = {"metadata": {"annotations": {f"example.com/{number}": "x"}}}
        agent = {"Content_Type": "application/merge-patch+json", "User_Agent": f"writer-{number}/1"}
        assert (await client.ask("PATCH", PATH, patch, **agent))[0] == 200
    managed = managers(await client.get(PATH))
    updates = [each for each in managed if each[1] == "Update"]
    assert len(updates) == 10
    assert ("ancient-changes", "Update", "") in managed


async def test_a_change_in_one_version_takes_the_field_from_managers_of_another_version(start):
    client = await start(controllers=False, kubelet=False)
    path = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 60}
    await client.ask("POST", path.format("v1"), {"metadata": {"name": "web"}, "spec": spec}, User_Agent="older/1")
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    patch = {"spec": {"metrics": [{"type": "Resource", "resource": cpu}]}}
    headers = {"Content_Type": "application/merge-patch+json", "User_Agent": "newer/1"}
    assert (await client.ask("PATCH", f"{path.format('v2')}/web", patch, **headers))[0] == 200
    managed = managers(await client.get(f"{path.format('v1')}/web"))
    assert managed["newer", "Update", ""] == {"f:spec": {"f:metrics": {}}}
    assert "f:targetCPUUtilizationPercentage" not in managed["older", "Update", ""]["f:spec"]
