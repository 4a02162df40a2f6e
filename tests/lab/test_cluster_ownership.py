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


async def test_what_the_autoscaler_has_changed_is_a_conflict_until_forced(client, apply):
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


async def test_a_manifest_without_replicas_leaves_them_to_the_autoscaler(client, apply):
    await apply("kubectl", deployment(2))
    await scale(client, 5)
    assert (await apply("kubectl", deployment(image="web:2")))[0] == 200
    assert (await client.get(PATH))["spec"]["replicas"] == 5


async def test_who_agrees_shares_a_field_and_who_does_not_is_told_all_conflicts(client, apply):
    await apply("one", deployment(2, team="a"))
    assert (await apply("two", deployment(2, team="a")))[0] == 200
    status, body = await apply("two", deployment(2, image="web:2", team="b"))
    assert status == 409
    assert body["message"] == (
        'Apply failed with 2 conflicts: conflicts with "one":\n'
        '- .spec.template.spec.containers[name="web"].image\n- .metadata.labels.team'
    )


async def test_what_is_no_longer_applied_is_removed_unless_somebody_else_wants_it(client, apply):
    await apply("one", deployment(sidecar=True, team="a", tier="x"))
    label = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"tier": "x"}}}
    assert (await apply("two", label))[0] == 200
    assert (await apply("one", deployment()))[0] == 200
    held = await client.get(PATH)
    assert held["metadata"]["labels"] == {"tier": "x"}
    assert [each["name"] for each in held["spec"]["template"]["spec"]["containers"]] == ["web"]
    assert (await apply("two", {**label, "metadata": {"name": "web"}}))[0] == 200
    assert not (await client.get(PATH))["metadata"].get("labels")


async def test_an_update_by_somebody_else_is_a_conflict_and_a_new_object_starts_without_owners(client, apply):
    await client.ask("POST", PATH.rpartition("/")[0] + "?fieldManager=hand", deployment(2))
    status, body = await apply("kubectl", deployment(4))
    assert status == 409
    assert 'conflict with "hand" using apps/v1: .spec.replicas' in body["message"]
    await client.ask("DELETE", PATH)
    assert (await apply("kubectl", deployment(4)))[0] == 201


async def test_a_rehearsed_apply_makes_nobody_an_owner(client, apply):
    await apply("one", deployment(2))
    assert (await apply("two", deployment(3), path=PATH))[0] == 409
    query = "?fieldManager=two&force=true&dryRun=All"
    status, body = await client.ask(
        "PATCH", PATH + query, json.dumps(deployment(3)), Content_Type="application/apply-patch+yaml"
    )
    assert (status, body["spec"]["replicas"]) == (200, 3)
    assert (await apply("one", deployment(4)))[0] == 200
