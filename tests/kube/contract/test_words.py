"""Error messages and authorization are equal on both API servers, word by word."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kube.contract.conftest import Api
from kube.contract.test_contract import HPAS, WORKLOADS, hpa, workload
from kube.contract.test_refusals import refusal
from support import apiserver

from hpad.clock import SystemClock
from hpad.kube.auth import kubeconfig
from hpad.kube.client import Client
from hpad.kube.errors import ApiError
from hpad.lab import cluster as lab

# ruff: noqa: E501 - the texts of an API server are as long as they are
Json = dict[str, Any]
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
OWN = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def answer(api: Api, method: str, path: str, body: bytes, kind: str, **params: str) -> tuple[int, str]:
    """Status and message of a request with a body as it is; 200 and nothing where it is taken."""
    full = path.replace("{ns}", f"namespaces/{api.namespace}")
    try:
        await api.client.request(method, full, body=body, content_type=kind, params=params)
    except ApiError as error:
        return error.status, error.message.replace(api.namespace, "NS")
    return 200, ""


@pytest.mark.parametrize(
    ("method", "kind", "body", "expected"),
    [
        ("POST", "application/json", "{", (400, "the object provided is unrecognized (must be of type HorizontalPodAutoscaler): couldn't get version/kind; json parse error: unexpected end of JSON input ({)")),
        ("POST", "application/json", '{"spec":{"maxReplicas":"x"}}', (400, 'HorizontalPodAutoscaler in version "v2" cannot be handled as a HorizontalPodAutoscaler: json: cannot unmarshal string into Go struct field HorizontalPodAutoscalerSpec.spec.maxReplicas of type int32')),
        ("POST", "application/json", '{"metadata":{"labels":{"a":5}}}', (400, 'HorizontalPodAutoscaler in version "v2" cannot be handled as a HorizontalPodAutoscaler: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string')),
        ("PATCH", MERGE, "{", (400, "error decoding patch: unexpected end of JSON input")),
        ("PATCH", STRATEGIC, "[1]", (400, "json: cannot unmarshal array into Go value of type map[string]interface {}")),
        ("PATCH", STRATEGIC, '{"spec":{"maxReplicas":"x"}}', (422, ' "" is invalid: patch: Invalid value: "map[spec:map[maxReplicas:x]]": unrecognized type: int32')),
        ("PATCH", JSON_PATCH, '[{"op":"test","path":"/spec/maxReplicas","value":99}]', (422, "the server rejected our request due to an error in our request")),
        ("PATCH", MERGE, '{"metadata":{"resourceVersion":"abc"}}', (500, 'strconv.ParseUint: parsing "abc": invalid syntax')),
        ("PATCH", MERGE, '{"metadata":{"resourceVersion":"0"}}', (200, "")),
        ("PATCH", APPLY, "{}", (422, 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch')),
        ("PATCH", "text/plain", "{}", (415, "415: Unsupported Media Type")),
    ],
)  # fmt: skip
async def test_invalid_bodies(api: Api, method: str, kind: str, body: str, expected: tuple[int, str]) -> None:
    await api.ask("POST", HPAS, hpa())
    path = HPAS if method == "POST" else f"{HPAS}/web"
    assert await answer(api, method, path, body.encode(), kind) == expected


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"resourceVersion": "abc"}, (400, 'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax')),
        ({"watch": "1", "resourceVersion": "abc"}, (500, 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax')),
        ({"watch": "1", "sendInitialEvents": "true"}, (422, 'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan')),
        ({"sendInitialEvents": "true"}, (422, 'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list')),
        ({"limit": "1", "continue": "garbage"}, (400, "invalid continue token: continue key is not valid: invalid character '\\x81' looking for beginning of value")),
        ({"timeout": "5"}, (400, 'invalid timeout specified in the request URL - time: missing unit in duration "5"')),
    ],
)  # fmt: skip
async def test_invalid_queries(api: Api, params: dict[str, str], expected: tuple[int, str]) -> None:
    status, message = await answer(api, "GET", HPAS, b"", "", **params)
    # Go before 1.27 decodes an invalid UTF-8 byte as the character of the same number
    assert (status, message.replace("\\u0081", "\\x81")) == expected


async def test_continue_tokens_are_interchangeable(api: Api) -> None:
    """Both servers encode the same key in a token."""
    for name in ("a", "b", "c"):
        await api.ask("POST", HPAS, hpa(name=name))
    first = await api.ask("GET", HPAS, limit="1")
    assert first["metadata"]["remainingItemCount"] == 2
    second = await api.ask("GET", HPAS, limit="1", **{"continue": first["metadata"]["continue"]})
    assert [each["metadata"]["name"] for each in second["items"]] == ["b"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    whole = await api.ask("GET", HPAS, limit="1", resourceVersion="0")
    assert len(whole["items"]) == 3


async def test_a_status_write_may_change_labels_of_an_hpa_but_not_of_a_deployment(api: Api) -> None:
    await api.ask("POST", HPAS, hpa())
    await api.ask("POST", WORKLOADS["Deployment"], workload("Deployment"))
    metadata = {"labels": {"written": "too"}, "annotations": {"written": "too"}}
    for path in (f"{HPAS}/web", f"{WORKLOADS['Deployment']}/web"):
        before = (await api.ask("GET", path))["metadata"].get("labels")
        after = (await api.ask("PATCH", f"{path}/status", {"metadata": metadata}))["metadata"]
        assert after["annotations"]["written"] == "too"
        assert after.get("labels") == (metadata["labels"] if "autoscaling" in path else before)


async def test_conditions_are_merged_in_the_order_of_the_patch(api: Api) -> None:
    await api.ask("POST", HPAS, hpa())

    def condition(kind: str, reason: str) -> Json:
        return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z"}

    for reasons in ([("AbleToScale", "A"), ("ScalingActive", "B")], [("ScalingLimited", "C"), ("ScalingActive", "D")]):
        patch = {"status": {"conditions": [condition(*each) for each in reasons]}}
        path = f"{HPAS}/web/status".replace("{ns}", f"namespaces/{api.namespace}")
        raw = await api.client.request("PATCH", path, body=json.dumps(patch).encode(), content_type=STRATEGIC)
    conditions = [(each["type"], each["reason"]) for each in json.loads(raw)["status"]["conditions"]]
    assert conditions == [("ScalingLimited", "C"), ("AbleToScale", "A"), ("ScalingActive", "D")]


async def test_a_failed_precondition(api: Api) -> None:
    await api.ask("POST", HPAS, hpa())
    status, message = await refusal(api, "DELETE", f"{HPAS}/web", {"preconditions": {"uid": "abc"}})
    assert status == 409
    assert message.startswith('Operation cannot be fulfilled on HorizontalPodAutoscaler.autoscaling "web": the UID in')
    assert message.endswith("The object might have been deleted and then recreated")


async def test_bookmarks_have_an_empty_object(api: Api) -> None:
    path = HPAS.replace("{ns}", f"namespaces/{api.namespace}")
    query = {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "timeoutSeconds": "1"}
    raw = await api.client.request("GET", path, params={**query, "allowWatchBookmarks": "true"})
    (bookmark,) = [json.loads(line) for line in raw.splitlines()]
    shown = bookmark["object"]
    if "RequestWatchProgress is disabled" in shown.get("message", ""):
        pytest.skip("this server's etcd is older than 3.4.31, so there are no streaming lists")
    assert shown.pop("metadata")["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert shown == {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
        "spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0},
        "status": {"desiredReplicas": 0, "currentMetrics": None},
    }


async def test_a_user_may_review_its_own_access(api: Api) -> None:
    spec = {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"}}
    review = await api.ask("POST", OWN, {"spec": spec})
    assert (review["kind"], review["spec"], review["status"]) == ("SelfSubjectAccessReview", spec, {"allowed": True})
    status, message = await refusal(api, "POST", OWN, {"spec": {}})
    expected_message = (
        '.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of '
        "nonResourceAttributes or resourceAttributes must be specified"
    )
    assert (status, message) == (422, expected_message)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_kube_apiserver)])
async def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    """An API server with authorization, used by its administrator."""
    if request.param == "real":
        if (reason := apiserver.missing()) is not None:
            pytest.skip(reason)
        kubeconfig_path = request.getfixturevalue("real").kubeconfig
        async with Client(
            await asyncio.to_thread(kubeconfig.load_cluster_config, str(kubeconfig_path)), SystemClock()
        ) as client:
            yield await _with_namespace(client, kubeconfig_path)
    else:
        async with lab.Cluster(controllers=False, kubelet=False, authorization=True) as embedded:
            kubeconfig_path = await embedded.kubeconfig(tmp_path / "kubeconfig")
            async with Client(
                await asyncio.to_thread(kubeconfig.load_cluster_config, str(kubeconfig_path)), SystemClock()
            ) as client:
                yield await _with_namespace(client, kubeconfig_path)


async def _with_namespace(client: Client, kubeconfig_path: Path) -> Api:
    api = Api(client, kubeconfig_path)
    await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": api.namespace}})
    return api


ROLES = "/apis/rbac.authorization.k8s.io/v1/{ns}"


async def may(api: Api, subject: Json, **what: str) -> Json:
    spec = {**subject, "resourceAttributes": {"namespace": api.namespace, **what}}
    review = await api.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    text = json.dumps(review["status"]).replace(api.namespace, "NS")
    return dict(json.loads(text))


async def test_access_follows_the_roles(guarded: Api) -> None:
    api = guarded
    rules = [
        {"verbs": ["get", "update"], "apiGroups": ["*"], "resources": ["*/scale"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"]},
    ]
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    subjects = [
        {**group, "kind": "User", "name": "jane"},
        {"kind": "ServiceAccount", "name": "robot", "namespace": api.namespace},
    ]
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "r"}}
    reference = {"roleRef": {**group, "kind": "Role", "name": "r"}, "subjects": subjects}
    await api.ask("POST", f"{ROLES}/rolebindings", {**head, "kind": "RoleBinding", **reference})
    jane, robot = {"user": "jane"}, {"user": f"system:serviceaccount:{api.namespace}:robot"}
    scaling = {"verb": "update", "group": "apps", "resource": "deployments", "subresource": "scale"}
    missing = {"allowed": False, "reason": 'RBAC: role.rbac.authorization.k8s.io "r" not found'}
    async with asyncio.timeout(60):  # the real server authorizes from caches
        while await may(api, jane, **scaling) != missing:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.05)
    await api.ask("POST", f"{ROLES}/roles", {**head, "kind": "Role", "rules": rules})
    async with asyncio.timeout(60):
        while await may(api, jane, **scaling) == missing:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.05)
    by = 'RBAC: allowed by RoleBinding "r/NS" of Role "r" to '
    assert await may(api, jane, **scaling) == {"allowed": True, "reason": f'{by}User "jane"'}
    assert await may(api, robot, **scaling) == {"allowed": True, "reason": f'{by}ServiceAccount "robot/NS"'}
    refused = {"allowed": False}
    assert await may(api, {"user": "joe"}, **scaling) == refused
    assert await may(api, jane, **{**scaling, "verb": "patch"}) == refused
    assert await may(api, jane, **{**scaling, "subresource": ""}) == refused
    assert await may(api, jane, **{**scaling, "namespace": "default"}) == refused
    one = {"verb": "get", "resource": "configmaps"}
    assert (await may(api, jane, **one, name="a"))["allowed"] is True
    assert await may(api, jane, **one, name="b") == refused
    assert await may(api, jane, **one) == refused
    assert (await may(api, {"user": "x", "groups": ["system:masters"]}, **one))["allowed"] is True


async def test_an_unknown_token(guarded: Api) -> None:
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    review = await guarded.ask("POST", path, {"spec": {"token": "unknown"}})
    assert review["status"] == {"user": {}, "error": "invalid bearer token"}
    message = "token is required for TokenReview in authentication"
    assert await refusal(guarded, "POST", path, {"spec": {}}) == (400, message)


async def test_invalid_roles(guarded: Api) -> None:
    bad = {"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]}
    message = 'Role.rbac.authorization.k8s.io "r" is invalid: rules[0].verbs: Required value: verbs must contain at least one value'
    assert await refusal(guarded, "POST", f"{ROLES}/roles", bad) == (422, message)
    binding = {"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r"}}
    await guarded.ask("POST", f"{ROLES}/rolebindings", binding)
    status, message = await refusal(guarded, "PATCH", f"{ROLES}/rolebindings/b", {"roleRef": {"name": "s"}})
    assert (status, message.endswith("cannot change roleRef")) == (422, True)
