"""Protobuf bodies of kubectl 1.32 and 1.36, and the OpenAPI document for older ones."""

import pytest

from hpad.lab.cluster import openapi

CREATED = {
    "deployments": (
        "6b3873000a150a07617070732f7631120a4465706c6f796d656e7412c0010a1f0a0377656212001a0022002a0032003800420"
        "05a0a0a036170701203776562128e010802120c0a0a0a0361707012037765621a740a1c0a0012001a0022002a003200380042"
        "005a0a0a036170701203776562125412360a0361707012056170703a311a05736c6565701a01352a00320a0a001000185022"
        "002a0042006a007200800100880100900100a201001a00320042004a0052005800600068008201008a01009a0100c20100220"
        "20a00280038001a0c0800100018002000280038001a002200"
    ),
    "configmaps": (
        "6b3873000a0f0a0276311209436f6e6669674d617012340a180a0873657474696e677312001a0022002a00320038004200120e"
        "0a06636f6c6f75721204626c756512080a0473697a6512001a002200"
    ),
    "services": (
        "6b3873000a0d0a027631120753657276696365126b0a1f0a0377656212001a0022002a003200380042005a0a0a03617070120"
        "377656212440a1e0a0738302d6874747012035443501850220a080110001a04687474702800120a0a03617070120377656"
        "21a0022084e6f6465506f72743a00420052005a00600068001a020a001a002200"
    ),
    "namespaces": (
        "6b3873000a0f0a02763112094e616d657370616365121c0a140a0473686f7012001a0022002a0032003800420012001a020a001a002200"
    ),
}
"""Bodies of `kubectl create deployment web --image=app:1 --replicas=2 --port=80 -- sleep 5`,
`configmap settings --from-literal=colour=blue --from-literal=size=`, `service nodeport web --tcp=80:http` and
`namespace shop`."""
NEWER = {
    "secrets": (
        "6b3873000a0c0a027631120653656372657412200a140a046b65797312001a0022002a0032003800420012060a0161120162"
        "1a001a002200"
    ),
    "roles": (
        "6b3873000a240a1c726261632e617574686f72697a6174696f6e2e6b38732e696f2f76311204526f6c6512270a160a067265"
        "6164657212001a0022002a00320038004200120d0a0367657412001a04706f64731a002200"
    ),
    "cronjobs": (
        "6b3873000a130a0862617463682f7631120743726f6e4a6f6212a2010a140a047469636b12001a0022002a00320038004200"
        "1287010a0b2a2f35202a202a202a202a1a002a760a140a047469636b12001a0022002a00320038004200125e325c0a100a00"
        "12001a0022002a00320038004200124812210a047469636b12056170703a312a0042006a007200800100880100900100a201"
        "001a094f6e4661696c757265320042004a0052005800600068008201008a01009a0100c201001a001a002200"
    ),
    "poddisruptionbudgets": (
        "6b3873000a200a09706f6c6963792f76311213506f6444697372757074696f6e427564676574123c0a130a0377656212001a"
        "0022002a0032003800420012190a09080110001a03353025120c0a0a0a0361707012037765621a0a08001800200028003000"
        "1a002200"
    ),
    "selfsubjectaccessreviews": (
        "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a656374416363657373"
        "526576696577123f0a100a0012001a0022002a0032003800420012210a1f0a0764656661756c7412066372656174651a0022"
        "002a04706f647332003a001a08080012001a0020001a002200"
    ),
    "horizontalpodautoscalers": (
        "6b3873000a290a0e6175746f7363616c696e672f76321217486f72697a6f6e74616c506f644175746f7363616c657212610a"
        "130a0377656212001a0022002a0032003800420012440a1a0a0a4465706c6f796d656e7412037765621a07617070732f7631"
        "1001180422220a085265736f7572636522160a03637075120f0a0b5574696c697a6174696f6e20321a04180020001a002200"
    ),
}
"""Bodies of kubectl 1.36:
`create secret generic keys --from-literal=a=b`, `create role reader --verb=get --resource=pods`,
`create cronjob tick --image=app:1 --schedule="*/5 * * * *"`, `create pdb web --selector=app=web --min-available=50%`,
`auth can-i create pods` and `autoscale deployment web --cpu=50% --min=1 --max=4`."""
PATHS = {
    "deployments": "/apis/apps/v1/namespaces/default/deployments",
    "configmaps": "/api/v1/namespaces/default/configmaps",
    "services": "/api/v1/namespaces/default/services",
    "namespaces": "/api/v1/namespaces",
    "secrets": "/api/v1/namespaces/default/secrets",
    "roles": "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
    "cronjobs": "/apis/batch/v1/namespaces/default/cronjobs",
    "poddisruptionbudgets": "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "selfsubjectaccessreviews": "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "horizontalpodautoscalers": "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
}


@pytest.fixture
def create(start):
    async def send(plural):
        client = await start(controllers=False, kubelet=False)
        headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
        url, data = client.cluster.url + PATHS[plural], bytes.fromhex({**CREATED, **NEWER}[plural])
        async with client.session.post(url, data=data, headers=headers) as response:
            assert response.status == 201
            return await response.json()

    return send


async def test_a_deployment(create):
    made = await create("deployments")
    assert (made["metadata"]["name"], made["metadata"]["labels"]) == ("web", {"app": "web"})
    assert made["spec"]["replicas"] == 2
    assert made["spec"]["selector"] == {"matchLabels": {"app": "web"}}
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container == {
        "name": "app",
        "image": "app:1",
        "command": ["sleep", "5"],
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {},
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


async def test_a_config_map(create):
    assert (await create("configmaps"))["data"] == {"colour": "blue", "size": ""}


async def test_a_service(create):
    spec = (await create("services"))["spec"]
    assert (spec["type"], spec["selector"]) == ("NodePort", {"app": "web"})
    assert spec["ports"] == [{"name": "80-http", "protocol": "TCP", "port": 80, "targetPort": "http"}]


async def test_a_namespace(create):
    assert (await create("namespaces"))["metadata"]["name"] == "shop"


async def test_the_openapi_v2_document_for_old_kubectls(start):
    client = await start(controllers=False, kubelet=False)
    url = f"{client.cluster.url}/openapi/v2"
    async with client.session.get(url, headers={"Accept": openapi.V2_ACCEPTED}) as response:
        assert "@" not in response.content_type  # it is invalid in a media type
        content = await response.read()
    assert content.startswith(b"\x0a\x032.0\x12")  # field 1, swagger: "2.0"; field 2: info
    path = b"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}"
    assert content.count(path) == 1
    patch = (await client.get("/openapi/v2"))["paths"][path.decode()]["patch"]
    assert patch["x-kubernetes-group-version-kind"]["version"] == "v2"
    assert [each["name"] for each in patch["parameters"]] == ["dryRun"]


async def test_a_secret(create):
    made = await create("secrets")
    assert (made["type"], made["data"]) == ("Opaque", {"a": "Yg=="})


async def test_a_role(create):
    assert (await create("roles"))["rules"] == [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]


async def test_a_cron_job(create):
    spec = (await create("cronjobs"))["spec"]
    assert spec["schedule"] == "*/5 * * * *"
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    assert (pod["restartPolicy"], pod["containers"][0]["image"]) == ("OnFailure", "app:1")
    assert "hostNetwork" not in pod


async def test_a_disruption_budget(create):
    spec = (await create("poddisruptionbudgets"))["spec"]
    assert spec == {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}}


async def test_an_access_review(create):
    review = await create("selfsubjectaccessreviews")
    expected = {"namespace": "default", "verb": "create", "resource": "pods"}
    assert review["spec"]["resourceAttributes"].items() >= expected.items()
    assert review["status"]["allowed"] is True


async def test_an_hpa_in_the_newer_version(create):
    spec = (await create("horizontalpodautoscalers"))["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 4)
    (metric,) = spec["metrics"]
    assert metric["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}


async def test_an_unknown_kind_and_a_truncated_body_are_rejected(start):
    client = await start(controllers=False, kubelet=False)
    raw = bytes.fromhex(NEWER["secrets"]).replace(b"Secret", b"Secres")
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    async with client.session.post(client.cluster.url + PATHS["secrets"], data=raw, headers=headers) as response:
        assert response.status == 415
    async with client.session.post(client.cluster.url + PATHS["secrets"], data=raw[:40], headers=headers) as response:
        assert response.status == 400
