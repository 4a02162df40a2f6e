"""HPAs: defaults, validation and conversion as recorded from Kubernetes 1.36."""

import json
from pathlib import Path

SHARED_NAMES = ("metadata", "spec", "status")


def exchanges(folder: Path, prefix: str = ""):
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob(f"{prefix}*.json"))}


async def replayed(client, exchange):
    """Creates the namespace, sends a recorded request, and returns status and body."""
    client.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fix"}})
    request = exchange["request"]
    headers = {name.replace("-", "_"): value for name, value in request["headers"].items()}
    return await client.ask(request["method"], request["path"], request["body"], **headers)


def comparable(body):
    """Returns a body without the metadata that differs between servers."""
    volatile = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
    return {**body, "metadata": {name: each for name, each in body["metadata"].items() if name not in volatile}}


async def test_created_hpas_are_answered_as_recorded(start, recordings):
    client = await start(controllers=False, kubelet=False)
    created = exchanges(recordings / "hpa", "create_v2")
    assert len(created) > 5
    for name, exchange in created.items():
        status, body = await replayed(client, exchange)
        assert status == 201, (name, body)
        assert comparable(body) == comparable(exchange["body"]), name


async def test_invalid_hpas_are_refused_as_recorded(start, recordings):
    client = await start(controllers=False, kubelet=False)
    refused = {
        name: exchange
        for name, exchange in exchanges(recordings / "invalid").items()
        if exchange["status"] == 422 and exchange["request"]["method"] == "POST"
    }
    assert len(refused) > 20
    for name, exchange in refused.items():
        assert await replayed(client, exchange) == (422, exchange["body"]), name


async def test_an_invalid_status_is_refused_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    exchange = recorded("hpa/status_put_invalid_422")
    body = exchange["request"]["body"]
    client.cluster.apply({**body, "metadata": {"name": "c-be", "namespace": "fix"}, "status": {"desiredReplicas": 0}})
    assert await replayed(client, exchange) == (422, exchange["body"])


async def test_an_undecodable_hpa_is_a_400(start, recorded):
    client = await start(controllers=False, kubelet=False)
    for name in ("400_bad_quantity", "400_wrong_type"):
        exchange = recorded(f"errors/{name}")
        status, body = await replayed(client, exchange)
        assert (status, body["reason"]) == (400, "BadRequest")
        assert body["message"].startswith('HorizontalPodAutoscaler in version "v2" cannot be handled as a ')
        assert name != "400_bad_quantity" or body["message"] == exchange["body"]["message"]


async def test_an_hpa_is_readable_in_v1_and_v2_as_recorded(start, recordings):
    client = await start(controllers=False, kubelet=False)
    created = exchanges(recordings / "hpa", "create_v")
    assert created
    for name, exchange in created.items():
        assert (await replayed(client, exchange))[0] == 201, name
    read = exchanges(recordings / "hpa", "get_v1_") | exchanges(recordings / "hpa", "get_v2_")
    assert len([name for name in read if "with_status" not in name]) > 5
    for name, exchange in read.items():
        if "with_status" not in name:
            body = await client.get(exchange["request"]["path"])
            assert comparable(body) == comparable(exchange["body"]), name


async def test_a_status_survives_conversion_to_v1(start, recorded):
    client = await start(controllers=False, kubelet=False)
    new, old = recorded("hpa/get_v2_with_status")["body"], recorded("hpa/get_v1_with_status")
    client.cluster.apply(new)
    shown = await client.get(old["request"]["path"])
    assert comparable(shown) == comparable(old["body"])
    path = old["request"]["path"].replace("/v1/", "/v2/")
    assert (await client.get(path))["status"] == new["status"]


AUTOSCALE = bytes.fromhex(
    "6b3873000a290a0e6175746f7363616c696e672f76311217486f72697a6f6e74616c506f644175746f7363616c65721259"
    "0a200a106e67696e782d6465706c6f796d656e7412001a0022002a00320038004200122f0a270a0a4465706c6f796d656e74"
    "12106e67696e782d6465706c6f796d656e741a07617070732f76311001180a20321a04180020001a002200"
)
"""The body of `kubectl autoscale deployment nginx-deployment --cpu-percent=50 --min=1 --max=10` (1.32)."""


async def test_the_protobuf_body_of_kubectl_autoscale_is_decoded(start):
    client = await start(controllers=False, kubelet=False)
    url = f"{client.cluster.url}/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    async with client.session.post(url, data=AUTOSCALE, headers=headers) as response:
        assert response.status == 201
    made = client.cluster.get("horizontalpodautoscalers", "nginx-deployment")["spec"]
    assert made == {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nginx-deployment"},
        "minReplicas": 1,
        "maxReplicas": 10,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
            }
        ],
    }
    for data, status in ((b"nonsense", 400), (AUTOSCALE[:60], 400), (AUTOSCALE.replace(b"autosc", b"automo"), 415)):
        async with client.session.post(url, data=data, headers=headers) as response:
            assert response.status == status


async def test_a_minimum_of_zero_requires_the_feature_gate(start, recorded):
    refused, taken = recorded("invalid/03_min_zero_gate_off"), recorded("scale_to_zero/create_min0_201")
    client = await start(controllers=False, kubelet=False)
    assert await replayed(client, refused) == (422, refused["body"])
    client = await start(controllers=False, kubelet=False, scale_to_zero=True)
    assert (await replayed(client, taken))[0] == 201


async def test_undecodable_v1_annotations_are_ignored(start):
    client = await start(controllers=False, kubelet=False)
    url = f"{client.cluster.url}/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    named = ("metrics", "behavior", "conditions", "current-metrics")
    for text in ("", "no JSON", "7", '{"ScaleUp": null}'):
        notes = {f"autoscaling.alpha.kubernetes.io/{name}": text for name in named}
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        body = {
            **{"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler"},
            "metadata": {"generateName": "web-", "annotations": {**notes, "team": "a"}},
            "spec": {"scaleTargetRef": ref, "maxReplicas": 3, "targetCPUUtilizationPercentage": 70},
        }
        async with client.session.post(url, json=body) as response:
            assert response.status == 201, text
            name = (await response.json())["metadata"]["name"]
        made = client.cluster.get("horizontalpodautoscalers", name)
        assert made["metadata"]["annotations"] == {"team": "a"}
        assert [metric["resource"]["target"]["averageUtilization"] for metric in made["spec"]["metrics"]] == [70]
        assert "behavior" not in made["spec"]
