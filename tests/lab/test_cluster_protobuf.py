"""What kubectl 1.32 sends and older ones ask for in protobuf."""

import pytest

from hpad.lab.cluster import openapi_v2

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
"""By `kubectl create deployment web --image=app:1 --replicas=2 --port=80 -- sleep 5`,
`configmap settings --from-literal=colour=blue --from-literal=size=`, `service nodeport web --tcp=80:http` and
`namespace shop`."""
PATHS = {
    "deployments": "/apis/apps/v1/namespaces/default/deployments",
    "configmaps": "/api/v1/namespaces/default/configmaps",
    "services": "/api/v1/namespaces/default/services",
    "namespaces": "/api/v1/namespaces",
}


@pytest.fixture
def create(start):
    async def send(plural):
        client = await start(controllers=False, kubelet=False)
        headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
        url, data = client.cluster.url + PATHS[plural], bytes.fromhex(CREATED[plural])
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
    }


async def test_a_config_map(create):
    assert (await create("configmaps"))["data"] == {"colour": "blue", "size": ""}


async def test_a_service(create):
    spec = (await create("services"))["spec"]
    assert (spec["type"], spec["selector"]) == ("NodePort", {"app": "web"})
    assert spec["ports"] == [{"name": "80-http", "protocol": "TCP", "port": 80, "targetPort": "http"}]


async def test_a_namespace(create):
    assert (await create("namespaces"))["metadata"]["name"] == "shop"


async def test_the_openapi_document_that_old_kubectls_want(start):
    client = await start(controllers=False, kubelet=False)
    url = f"{client.cluster.url}/openapi/v2"
    async with client.session.get(url, headers={"Accept": openapi_v2.ASKED}) as response:
        assert "@" not in response.content_type  # which would be no media type
        content = await response.read()
    assert content.startswith(b"\x0a\x032.0\x12")  # field 1, swagger: "2.0"; field 2: info
    path = b"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}"
    assert content.count(path) == 1
    told = (await client.get("/openapi/v2"))["paths"][path.decode()]["patch"]
    assert told["x-kubernetes-group-version-kind"]["version"] == "v2"
    assert [each["name"] for each in told["parameters"]] == ["dryRun"]
