"""Authentication and RBAC, with the messages of a Kubernetes 1.36 API server."""

import ssl

import aiohttp
import pytest
import trustme

from hpad.lab.cluster import Cluster, tls, users

PODS = "/api/v1/namespaces/shop/pods"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
OWN = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
JANE, ROBOT = users.named("jane", "devs"), users.service_account("shop", "robot")
LIST_PODS = {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "shop"}}


@pytest.fixture
async def client(start):
    client = await start(kubelet=False, controllers=False, authorization=True)
    client.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    return client


def token(client, user):
    return {"Authorization": f"Bearer {client.cluster.token(user)}"}


def rules(client, *granted, **named):
    """Creates a Role with these rules, bound to the user jane, the group ops and the service account robot."""
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "r", "namespace": "shop"}}
    subjects = [
        {"kind": "User", "name": "jane"},
        {"kind": "Group", "name": "ops"},
        {"kind": "ServiceAccount", "name": "robot"},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    client.cluster.apply({**head, "kind": "Role", "rules": list(granted)})
    client.cluster.apply({**head, "kind": "RoleBinding", "roleRef": role, "subjects": subjects, **named})


def rule(verbs, resources, groups=("",), **more):
    return {"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources), **more}


async def test_a_role_allows_exactly_its_rules(client):
    rules(client, rule(["list"], ["pods"]))
    assert (await client.ask("GET", PODS, **token(client, JANE)))[0] == 200
    status, body = await client.ask("GET", PODS + "?watch=1", **token(client, JANE))
    expected = 'pods is forbidden: User "jane" cannot watch resource "pods" in API group "" in the namespace "shop"'
    assert (status, body["message"], body["details"]) == (403, expected, {"kind": "pods"})
    status, body = await client.ask("GET", "/api/v1/pods", **token(client, JANE))
    assert body["message"].endswith('cannot list resource "pods" in API group "" at the cluster scope')
    status, body = await client.ask("GET", PODS + "/p/log", **token(client, JANE))
    assert body["message"].startswith('pods "p" is forbidden: User "jane" cannot get resource "pods/log"')


@pytest.mark.parametrize(
    ("granted", "requested", "allowed"),
    [
        (rule(["*"], ["*"], ["*"]), {"verb": "get", "group": "x", "resource": "y", "subresource": "z"}, True),
        (rule(["get"], ["*/scale"], ["*"]), {"verb": "get", "resource": "a", "subresource": "scale"}, True),
        (rule(["get"], ["*/scale"], ["*"]), {"verb": "get", "resource": "a"}, False),
        (rule(["get"], ["pods"]), {"verb": "get", "resource": "pods", "subresource": "log"}, False),
        (rule(["get"], ["pods"]), {"verb": "get", "resource": "pods", "group": "apps"}, False),
        (rule(["get"], ["pods"], resourceNames=["a"]), {"verb": "get", "resource": "pods", "name": "a"}, True),
        (rule(["get"], ["pods"], resourceNames=["a"]), {"verb": "get", "resource": "pods", "name": "b"}, False),
        (rule(["list"], ["pods"], resourceNames=["a"]), {"verb": "list", "resource": "pods"}, False),
    ],
)
async def test_rules_match_as_in_rbac(client, granted, requested, allowed):
    rules(client, granted)
    spec = {"user": "jane", "resourceAttributes": {**requested, "namespace": "shop"}}
    status, body = await client.ask("POST", ACCESS, {"spec": spec}, **token(client, users.ADMINISTRATOR))
    expected = {"reason": 'RBAC: allowed by RoleBinding "r/shop" of Role "r" to User "jane"'} if allowed else {}
    assert (status, body["status"]) == (201, {"allowed": allowed, **expected})
    spec["resourceAttributes"]["namespace"] = "elsewhere"
    _, body = await client.ask("POST", ACCESS, {"spec": spec}, **token(client, users.ADMINISTRATOR))
    assert body["status"] == {"allowed": False}


async def test_a_rule_with_a_name_allows_a_list_of_this_name_only(client):
    rules(client, rule(["list"], ["pods"], resourceNames=["a"]))
    assert (await client.ask("GET", PODS + "?fieldSelector=metadata.name%3Da", **token(client, JANE)))[0] == 200
    assert (await client.ask("GET", PODS, **token(client, JANE)))[0] == 403


async def test_service_accounts_and_groups_can_be_bound(client):
    rules(client, rule(["list"], ["pods"]))
    assert (await client.ask("GET", PODS, **token(client, ROBOT)))[0] == 200
    assert (await client.ask("GET", PODS, **token(client, users.named("joe", "ops"))))[0] == 200
    assert (await client.ask("GET", PODS, **token(client, users.named("joe"))))[0] == 403


async def test_a_binding_to_a_missing_role_is_named(client):
    gone = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gone"}
    rules(client, roleRef=gone)
    _, body = await client.ask("GET", PODS, **token(client, JANE))
    assert body["message"].endswith(': RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found')


async def test_the_anonymous_user_reads_health_and_version_only(client):
    for path in ("/healthz", "/readyz", "/livez", "/version"):
        assert (await client.ask("GET", path))[0] == 200
    status, body = await client.ask("GET", "/apis")
    assert (status, body["message"]) == (403, 'forbidden: User "system:anonymous" cannot get path "/apis"')
    assert (await client.ask("GET", "/version", Authorization="Bearer unknown"))[0] == 401
    assert (await client.ask("GET", "/apis", **token(client, JANE)))[0] == 200
    status, body = await client.ask("GET", "/apis/nope.example/v1/foos", **token(client, JANE))
    assert (status, body["details"]) == (403, {"group": "nope.example", "kind": "foos"})


async def test_token_reviews_and_self_subject_reviews(client):
    known = client.cluster.token(ROBOT)
    admin = token(client, users.ADMINISTRATOR)
    _, body = await client.ask("POST", TOKENS, {"spec": {"token": known}}, **admin)
    groups = ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"]
    user = {"username": "system:serviceaccount:shop:robot", "groups": groups}
    assert body["status"] == {
        "authenticated": True,
        "user": user,
        "audiences": ["https://kubernetes.default.svc"],
    }
    for spec in ({"token": "unknown"}, {"token": known, "audiences": ["another"]}):
        _, body = await client.ask("POST", TOKENS, {"spec": spec}, **admin)
        assert body["status"] == {"user": {}, "error": "invalid bearer token"}
    _, body = await client.ask("POST", TOKENS, {"spec": {}}, **admin)
    assert (body["code"], body["message"]) == (400, "token is required for TokenReview in authentication")
    _, body = await client.ask("POST", SELF_REVIEWS, {}, **token(client, ROBOT))
    assert body["status"] == {"userInfo": user}
    assert (await client.ask("POST", TOKENS, {"spec": {"token": "x"}}, **token(client, ROBOT)))[0] == 403


async def test_every_user_may_review_its_own_access(client):
    rules(client, rule(["list"], ["pods"]))
    _, body = await client.ask("POST", OWN, {"spec": LIST_PODS}, **token(client, JANE))
    assert body["status"]["allowed"] is True
    _, body = await client.ask("POST", OWN, {"spec": LIST_PODS}, **token(client, users.named("joe")))
    assert body["status"] == {"allowed": False}
    assert body["spec"] == LIST_PODS
    status, body = await client.ask("POST", OWN, {"spec": {}}, **token(client, JANE))
    assert (status, body["details"]["causes"][0]["field"]) == (422, "spec.resourceAttributes")
    path = {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
    _, body = await client.ask("POST", OWN, {"spec": path}, **token(client, JANE))
    assert body["status"] == {"allowed": False}
    assert (await client.ask("POST", OWN, {"spec": LIST_PODS}))[0] == 403


async def test_impersonation_requires_a_right(client):
    rules(client, rule(["list"], ["pods"]))
    admin = token(client, users.ADMINISTRATOR)
    assert (await client.ask("GET", PODS, Impersonate_User="jane", **admin))[0] == 200
    assert (await client.ask("GET", PODS, Impersonate_User="joe", Impersonate_Group="ops", **admin))[0] == 200
    assert (await client.ask("GET", PODS, Impersonate_User="joe", **admin))[0] == 403
    assert (await client.ask("GET", PODS, Impersonate_Group="ops", **admin))[0] == 400
    status, body = await client.ask("GET", PODS, Impersonate_User="joe", **token(client, JANE))
    expected = (
        'pods is forbidden: User "jane" cannot impersonate-on:user-info:list resource "pods" in API group "" in the'
    )
    assert (status, body["message"].startswith(expected)) == (403, True)


async def test_without_authorization_everything_is_allowed(start):
    client = await start(kubelet=False, controllers=False)
    assert (await client.ask("GET", "/api/v1/pods", Authorization="Bearer of-nobody"))[0] == 200
    _, body = await client.ask("POST", OWN, {"spec": LIST_PODS})
    assert body["status"] == {"allowed": True}


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (ROLES, {"rules": [{"resources": ["pods"], "apiGroups": [""]}]}, "rules[0].verbs: Required value: verbs must"),
        (ROLES, {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}, "rules[0].nonResourceURLs: Invalid value"),
        (ROLES, {"rules": [{"verbs": ["get"], "apiGroups": [""]}]}, "rules[0].resources: Required value: resource"),
        (BINDINGS, {"roleRef": {"kind": "X", "name": "y"}}, 'roleRef.kind: Unsupported value: "X": supported values'),
        (BINDINGS, {"roleRef": {"kind": "Role"}}, "roleRef.name: Required value"),
        (
            BINDINGS,
            {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "Bot", "name": "x"}]},
            'subjects[0].kind: Unsupported value: "Bot": supported values: "ServiceAccount", "User", "Group"',
        ),
    ],
)
async def test_invalid_roles_and_bindings_are_rejected(client, path, body, expected):
    admin = token(client, users.ADMINISTRATOR)
    status, answer = await client.ask("POST", path, {"metadata": {"name": "odd"}, **body}, **admin)
    assert (status, expected in answer["message"]) == (422, True), answer["message"]


async def test_the_role_of_a_binding_is_immutable(client):
    rules(client, rule(["list"], ["pods"]))
    body = {"roleRef": {"name": "other"}}
    kind = "application/merge-patch+json"
    status, answer = await client.ask(
        "PATCH", f"{BINDINGS}/r", body, Content_Type=kind, **token(client, users.ADMINISTRATOR)
    )
    assert (status, answer["message"].endswith("cannot change roleRef")) == (422, True)


async def test_a_client_certificate_authenticates_its_user(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    files = tls.Files(tmp_path / "server.crt", tmp_path / "server.key", tmp_path / "ca.crt")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(files.key))
    certificate.cert_chain_pems[0].write_to_path(str(files.certificate))
    trust = ssl.create_default_context(cafile=str(files.authority))
    own = authority.issue_cert(common_name="jane", organization_name="devs")
    known = ssl.create_default_context(cafile=str(files.authority))
    own.configure_cert(known)
    async with (
        Cluster(kubelet=False, controllers=False, authorization=True, tls=files) as cluster,
        aiohttp.ClientSession(trust_env=False) as session,
    ):
        async with session.post(cluster.url + SELF_REVIEWS, json={}, ssl=known) as response:
            answer = await response.json()
        assert answer["status"]["userInfo"] == {"username": "jane", "groups": ["devs", "system:authenticated"]}
        async with session.get(f"{cluster.url}/apis", ssl=trust) as response:
            assert response.status == 403
