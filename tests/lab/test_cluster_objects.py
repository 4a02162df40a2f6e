"""Objects over HTTP, compared with the recorded answers of a Kubernetes 1.36 API server."""

import asyncio

import pytest

from hpad.lab.cluster import ApiError

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
PODS = "/api/v1/namespaces/default/pods"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def shape(value):
    """Returns names and types of a JSON value, to compare an answer with a recorded one."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items() if name != "managedFields"}
    return [shape(each) for each in value[:1]] if isinstance(value, list) else type(value).__name__


def hpa(name, **spec):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": target, "maxReplicas": 10, **spec},
    }


async def test_a_created_object_gets_its_metadata(start, workload):
    client = await start(controllers=False, kubelet=False)
    status, made = await client.ask("POST", DEPLOYMENTS, workload("Deployment", "web"))
    assert status == 201
    assert made["kind"] == "Deployment"
    assert made["spec"]["replicas"] == 1
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["namespace"] == "default"
    assert made["metadata"].keys() >= {"uid", "resourceVersion", "creationTimestamp"}
    assert await client.get(f"{DEPLOYMENTS}/web") == made


async def test_items_of_a_list_have_no_kind(start, recorded):
    client = await start(controllers=False, kubelet=False)
    await client.ask("POST", HPAS, hpa("a"))
    listed = await client.get(HPAS)
    expected = recorded("hpa/list_v2")["body"]
    assert listed["kind"] == expected["kind"] == "HorizontalPodAutoscalerList"
    assert listed["apiVersion"] == expected["apiVersion"]
    assert listed["metadata"].keys() <= expected["metadata"].keys()
    assert {"kind", "apiVersion"}.isdisjoint(listed["items"][0])
    assert {"kind", "apiVersion"}.isdisjoint(expected["items"][0])


async def test_a_missing_object_is_a_404_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    expected = recorded("hpa/get_404")
    assert await client.ask("GET", f"{HPAS}/missing") == (404, expected["body"])
    expected = recorded("discovery/404_unknown_group")
    assert await client.ask("GET", "/apis/nope.example/v1") == (404, expected["body"])
    expected = recorded("hpa/create_namespace_404")
    path = HPAS.replace("default", "nope")
    assert await client.ask("POST", path, hpa("a")) == (404, expected["body"])


async def test_an_existing_name_is_a_409_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    await client.ask("POST", HPAS, hpa("c-bd"))
    expected = recorded("hpa/create_409_already_exists")
    assert await client.ask("POST", HPAS, hpa("c-bd")) == (409, expected["body"])


async def test_a_stale_resource_version_is_a_409_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    _, old = await client.ask("POST", HPAS, hpa("c-nob"))
    _, new = await client.ask("PUT", f"{HPAS}/c-nob", {**old, "spec": {**old["spec"], "maxReplicas": 11}})
    expected = recorded("hpa/status_put_conflict_409")
    assert await client.ask("PUT", f"{HPAS}/c-nob", old) == (409, expected["body"])
    assert await client.ask("PUT", f"{HPAS}/c-nob/status", old) == (409, expected["body"])
    assert (await client.get(f"{HPAS}/c-nob"))["metadata"] == new["metadata"]


async def test_another_name_or_namespace_in_the_body_is_a_400_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    await client.ask("POST", HPAS, hpa("c-bd"))
    expected = recorded("hpa/put_name_mismatch_400")
    assert await client.ask("PUT", f"{HPAS}/c-bd", hpa("c-other")) == (400, expected["body"])
    elsewhere = hpa("a")
    elsewhere["metadata"]["namespace"] = "other"
    expected = recorded("hpa/create_namespace_mismatch_400")
    assert await client.ask("POST", HPAS, elsewhere) == (400, expected["body"])


async def test_fields_that_the_kind_does_not_have_are_dropped(start, workload):
    """Also those of newer versions of Kubernetes, which hpad reads; from a file as from a client."""
    client = await start(controllers=False, kubelet=False)
    odd = workload("Deployment", "web")
    odd["spec"]["template"]["spec"]["containers"][0] |= {"comand": ["x"], "env": [{"name": "A", "valeu": "b"}]}
    _, made = await client.ask("POST", DEPLOYMENTS, odd)
    assert made["spec"]["template"]["spec"]["containers"][0].keys() & {"comand", "env"} == {"env"}
    assert made["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "A"}]
    assert "f:comand" not in str(made["metadata"]["managedFields"])
    assert (await client.ask("POST", HPAS, hpa("a", syncPeriodSeconds=30)))[0] == 201
    client.cluster.apply(hpa("b", syncPeriodSeconds=30))
    assert {"syncPeriodSeconds" in each["spec"] for each in (await client.get(HPAS))["items"]} == {False}
    condition = {"type": "AbleToScale", "status": "True", "observedGeneration": 1}
    merge = {"Content_Type": "application/merge-patch+json"}
    _, answer = await client.ask("PATCH", f"{HPAS}/a/status", {"status": {"conditions": [condition]}}, **merge)
    assert answer["status"]["conditions"][0].keys() & {"status", "observedGeneration"} == {"status"}


async def test_a_put_leaves_the_status_and_a_status_put_leaves_the_rest(start):
    client = await start(controllers=False, kubelet=False)
    _, made = await client.ask("POST", HPAS, hpa("a"))
    made["status"] = {"currentReplicas": 2, "desiredReplicas": 5, "currentMetrics": None}
    made["spec"]["maxReplicas"] = 99
    made["metadata"]["labels"] = {"written": "too"}
    status, after = await client.ask("PUT", f"{HPAS}/a/status", made)
    assert status == 200
    assert after["status"]["desiredReplicas"] == 5
    assert after["spec"]["maxReplicas"] == 10
    assert after["metadata"]["labels"] == {"written": "too"}  # as in Kubernetes
    changed = {**after, "status": {"desiredReplicas": 1}, "spec": {**after["spec"], "maxReplicas": 7}}
    _, last = await client.ask("PUT", f"{HPAS}/a", changed)
    assert (last["spec"]["maxReplicas"], last["status"]["desiredReplicas"]) == (7, 5)


async def test_an_identical_put_writes_nothing(start):
    client = await start(controllers=False, kubelet=False)
    _, made = await client.ask("POST", HPAS, hpa("a"))
    assert await client.ask("PUT", f"{HPAS}/a", made) == (200, made)


async def test_only_a_change_of_spec_raises_the_generation(start, workload):
    client = await start(controllers=False, kubelet=False)
    await client.ask("POST", DEPLOYMENTS, workload("Deployment", "web"))
    merge = {"Content_Type": "application/merge-patch+json"}
    _, labelled = await client.ask("PATCH", f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"a": "b"}}}, **merge)
    assert labelled["metadata"]["generation"] == 1
    _, grown = await client.ask("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"replicas": 3}}, **merge)
    assert grown["metadata"]["generation"] == 2


async def test_the_three_patch_formats(start, workload):
    client = await start(controllers=False, kubelet=False)
    await client.ask("POST", DEPLOYMENTS, workload("Deployment", "web"))
    containers = {"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "two"}]}}}}
    strategic = {"Content_Type": "application/strategic-merge-patch+json"}
    _, made = await client.ask("PATCH", f"{DEPLOYMENTS}/web", containers, **strategic)
    assert made["spec"]["template"]["spec"]["containers"][0]["command"] == ["sleep", "1000"]
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == "two"
    merge = {"Content_Type": "application/merge-patch+json"}
    _, made = await client.ask("PATCH", f"{DEPLOYMENTS}/web", containers, **merge)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert (container["image"], "command" in container) == ("two", False)
    steps = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    _, made = await client.ask("PATCH", f"{DEPLOYMENTS}/web", steps, Content_Type="application/json-patch+json")
    assert made["spec"]["replicas"] == 4
    status, _ = await client.ask("PATCH", f"{DEPLOYMENTS}/web", steps, Content_Type="text/plain")
    assert status == 415


async def test_selectors_filter_lists(start, recorded):
    client = await start(controllers=False, kubelet=False)
    for name, labels in (("a", {"app": "web"}), ("b", {"app": "up", "nope": ""}), ("c", {})):
        client.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})

    async def names(query):
        return [item["metadata"]["name"] for item in (await client.get(f"{CONFIGMAPS}?{query}"))["items"]]

    assert await names("labelSelector=app%3Dweb") == ["a"]
    assert await names("labelSelector=app%20in%20(web,up),!nope") == ["a"]
    assert await names("labelSelector=app!%3Dweb") == ["b", "c"]
    assert await names("fieldSelector=metadata.name%3Dc") == ["c"]
    expected = recorded("errors/400_bad_labelselector")["body"]
    assert await client.ask("GET", f"{HPAS}?labelSelector=%3D%3D") == (400, expected)
    expected = recorded("hpa/list_fieldselector_bad_400")["body"]
    assert await client.ask("GET", f"{HPAS}?fieldSelector=spec.maxReplicas%3D3") == (400, expected)


async def test_all_pages_of_a_list_have_one_revision(start, recorded):
    client = await start(controllers=False, kubelet=False)
    for name in "abcde":
        client.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    first = await client.get(f"{CONFIGMAPS}?limit=2")
    assert first["metadata"]["remainingItemCount"] == 3
    await client.ask("DELETE", f"{CONFIGMAPS}/c")
    token = first["metadata"]["continue"]
    second = await client.get(f"{CONFIGMAPS}?limit=2&continue={token}")
    assert [item["metadata"]["name"] for item in second["items"]] == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    client.cluster.store.compact()
    status, body = await client.ask("GET", f"{CONFIGMAPS}?limit=2&continue={token}")
    expected = recorded("pods/list_continue_expired_410")["body"]
    assert (status, body["reason"], body["message"]) == (410, expected["reason"], expected["message"])
    rest = await client.get(f"{CONFIGMAPS}?continue={body['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["d", "e"]


async def test_bad_queries_are_answered_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    await client.ask("POST", HPAS, hpa("c-nob"))
    for name, path in {
        "errors/400_bad_resource_version": f"{HPAS}?resourceVersion=abc",
        "errors/400_list_bad_limit": f"{HPAS}?limit=abc",
        "pods/list_rvmatch_without_rv_422": f"{PODS}?resourceVersionMatch=Exact",
    }.items():
        expected = recorded(name)
        assert await client.ask("GET", path) == (expected["status"], expected["body"])
    expected = recorded("errors/405_method")
    assert await client.ask("POST", f"{HPAS}/c-nob", {}) == (405, expected["body"])
    expected = recorded("errors/415_media_type")
    assert await client.ask("POST", HPAS, "x", Content_Type="text/plain") == (415, expected["body"])
    status, body = await client.ask("GET", f"{HPAS}?resourceVersion=99999999")
    assert (status, shape(body)) == (504, shape(recorded("errors/504_rv_too_large")["body"]))
    assert (await client.ask("POST", HPAS, '{"apiVersion":'))[0] == 400


async def test_a_selector_that_does_not_match_the_template_is_a_422(start, workload):
    client = await start(controllers=False, kubelet=False)
    wrong = workload("Deployment", "web")
    wrong["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    status, body = await client.ask("POST", DEPLOYMENTS, wrong)
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["details"]["causes"][0]["field"] == "spec.template.metadata.labels"
    status, body = await client.ask("POST", DEPLOYMENTS, {**wrong, "metadata": {}})
    assert body["details"]["causes"][0]["field"] == "metadata.name"


async def test_a_delete_answers_as_recorded_and_deletes_the_dependents(start, workload, recorded, until):
    client = await start(auto_ready=True)
    client.cluster.apply(workload("Deployment", "web", replicas=2))
    await until(lambda: len(client.cluster.list("pods")) == 2)
    status, body = await client.ask("DELETE", f"{DEPLOYMENTS}/web")
    assert (status, shape(body)) == (200, shape(recorded("hpa/delete_200")["body"]))
    await until(lambda: not client.cluster.list("replicasets") and not client.cluster.list("pods"))


async def test_orphans_stay(start, workload, until):
    client = await start(auto_ready=True)
    client.cluster.apply(workload("Deployment", "web"))
    await until(lambda: client.cluster.list("pods"))
    await client.ask("DELETE", f"{DEPLOYMENTS}/web?propagationPolicy=Orphan")
    await asyncio.sleep(0.1)
    (replica_set,) = client.cluster.list("replicasets")
    assert replica_set["metadata"]["ownerReferences"] == []
    assert len(client.cluster.list("pods")) == 1


async def test_foreground_deletion_waits_for_the_dependents(start, workload, until):
    client = await start(auto_ready=True)
    client.cluster.apply(workload("ReplicaSet", "web", replicas=2))
    await until(lambda: len(client.cluster.list("pods")) == 2)
    _, body = await client.ask(
        "DELETE", "/apis/apps/v1/namespaces/default/replicasets/web?propagationPolicy=Foreground"
    )
    assert body["metadata"]["finalizers"] == ["foregroundDeletion"]
    await until(lambda: not client.cluster.list("pods") and not client.cluster.list("replicasets"))


async def test_deleting_a_namespace_deletes_its_contents(start, workload, until):
    client = await start(auto_ready=True)
    web = workload("Deployment", "web")
    web["metadata"]["namespace"] = "shop"
    client.cluster.apply(web)
    await until(lambda: client.cluster.list("pods", "shop"))
    await client.ask("DELETE", "/api/v1/namespaces/shop")
    await until(lambda: client.cluster.get("namespaces", "shop") is None)
    assert not client.cluster.list("pods")
    assert not client.cluster.list("deployments")


async def test_a_collection_of_pods_is_deleted_by_label(start):
    client = await start(controllers=False, kubelet=False)
    for name in "abc":
        labels = {"keep": "yes"} if name == "c" else {}
        pod = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "app"}]}}
        await client.ask("POST", PODS, pod)
    await client.ask("DELETE", f"{PODS}?labelSelector=!keep")
    assert [pod["metadata"]["name"] for pod in client.cluster.list("pods")] == ["c"]


async def test_the_request_log_has_writes_and_counts(start, workload):
    client = await start(controllers=False, kubelet=False)
    await client.ask("POST", DEPLOYMENTS, workload("Deployment", "web"), User_Agent="me/1")
    await client.ask("GET", f"{DEPLOYMENTS}/web/scale")
    await client.ask("GET", DEPLOYMENTS)
    (write,) = client.cluster.log.writes
    assert (write.verb, write.resource, write.user_agent, write.status) == ("create", "deployments", "me/1", 201)
    assert client.cluster.log.count("get", "deployments", "scale") == 1
    assert client.cluster.log.count(resource="deployments") == 3


async def test_a_limit_sets_the_request(start):
    client = await start(controllers=False, kubelet=False)
    container = {"name": "app", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "200m"}}}
    await client.ask("POST", PODS, {"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    (made,) = client.cluster.get("pods", "p")["spec"]["containers"]
    assert made["resources"]["requests"] == {"cpu": "200m", "memory": "1Gi"}


async def test_yaml_is_accepted_and_invalid_bodies_are_400s(start):
    client = await start(controllers=False, kubelet=False)
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  b: c\n"
    assert (await client.ask("POST", CONFIGMAPS, text, Content_Type="application/yaml"))[0] == 201
    assert client.cluster.get("configmaps", "a")["data"] == {"b": "c"}
    assert (await client.ask("POST", CONFIGMAPS, "a: [", Content_Type="application/yaml"))[0] == 400
    assert (await client.ask("POST", CONFIGMAPS, "[]"))[0] == 400
    assert (await client.ask("POST", CONFIGMAPS, {"metadata": 5}))[0] == 400
    assert (await client.ask("DELETE", f"{CONFIGMAPS}/a?gracePeriodSeconds=soon"))[0] == 400
    assert (await client.ask("GET", f"{CONFIGMAPS}?watch=true&timeoutSeconds=soon"))[0] == 400


async def test_an_object_of_another_kind_is_refused_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    expected = recorded("errors/400_wrong_kind")
    assert await client.ask("POST", HPAS, expected["request"]["body"]) == (400, expected["body"])


async def test_server_side_apply_creates_and_updates(start):
    client = await start(controllers=False, kubelet=False)
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  b: c\n"
    path = f"{CONFIGMAPS}/a?fieldManager=me"
    assert (await client.ask("PATCH", path, text, Content_Type="application/apply-patch+yaml"))[0] == 201
    text = text.replace("b: c", "d: e")
    assert (await client.ask("PATCH", path, text, Content_Type="application/apply-patch+yaml"))[0] == 200
    assert client.cluster.get("configmaps", "a")["data"] == {"d": "e"}


async def test_a_dry_run_stores_nothing(start):
    client = await start(controllers=False, kubelet=False)
    status, _ = await client.ask("POST", f"{HPAS}?dryRun=All", hpa("a"))
    assert status == 201
    assert client.cluster.get("horizontalpodautoscalers", "a") is None


async def test_a_manifest_of_an_unknown_kind_is_refused(start):
    client = await start(controllers=False, kubelet=False)
    with pytest.raises(ApiError, match=r'no matches for kind "Gadget" in version "example.com/v1"'):
        client.cluster.apply({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}})
