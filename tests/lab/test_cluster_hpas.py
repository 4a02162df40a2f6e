"""HPAs: defaulted and refused as recorded from Kubernetes 1.36."""

import json
from pathlib import Path

import pytest

SHARED_NAMES = ("metadata", "spec", "status")


def recordings(shared: Path, folder: str, prefix: str = ""):
    found = sorted((shared / "fixtures" / folder).glob(f"{prefix}*.json"))
    if not found:
        pytest.skip(f"no recordings in {shared}; point HPAD_SHARED at the folder that holds fixtures/")
    return {path.stem: json.loads(path.read_text("utf-8")) for path in found}


async def replayed(client, exchange):
    """Our answer to a recorded request; its namespace is there."""
    client.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fix"}})
    request = exchange["request"]
    headers = {name.replace("-", "_"): value for name, value in request["headers"].items()}
    return await client.ask(request["method"], request["path"], request["body"], **headers)


def comparable(body):
    """Without what differs from server to server."""
    volatile = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
    return {**body, "metadata": {name: each for name, each in body["metadata"].items() if name not in volatile}}


async def test_created_hpas_are_answered_as_recorded(start, shared):
    client = await start(controllers=False, kubelet=False)
    for name, exchange in recordings(shared, "hpa", "create_v2").items():
        status, body = await replayed(client, exchange)
        assert status == 201, (name, body)
        assert comparable(body) == comparable(exchange["body"]), name


async def test_invalid_hpas_are_refused_as_recorded(start, shared):
    client = await start(controllers=False, kubelet=False)
    for name, exchange in recordings(shared, "invalid").items():
        if exchange["status"] != 422 or exchange["request"]["method"] != "POST":
            continue
        assert await replayed(client, exchange) == (422, exchange["body"]), name


async def test_an_invalid_status_is_refused_as_recorded(start, recorded):
    client = await start(controllers=False, kubelet=False)
    exchange = recorded("hpa/status_put_invalid_422")
    body = exchange["request"]["body"]
    client.cluster.apply({**body, "metadata": {"name": "c-be", "namespace": "fix"}, "status": {"desiredReplicas": 0}})
    assert await replayed(client, exchange) == (422, exchange["body"])


async def test_what_cannot_be_decoded_is_a_400(start, recorded):
    client = await start(controllers=False, kubelet=False)
    for name in ("400_bad_quantity", "400_wrong_type"):
        exchange = recorded(f"errors/{name}")
        status, body = await replayed(client, exchange)
        assert (status, body["reason"]) == (400, "BadRequest")
        assert body["message"].startswith('HorizontalPodAutoscaler in version "v2" cannot be handled as a ')


async def test_an_object_is_one_in_v1_and_v2_as_recorded(start, shared):
    client = await start(controllers=False, kubelet=False)
    created = recordings(shared, "hpa", "create_v")
    for name, exchange in created.items():
        assert (await replayed(client, exchange))[0] == 201, name
    for name, exchange in {**recordings(shared, "hpa", "get_v1_"), **recordings(shared, "hpa", "get_v2_")}.items():
        if "with_status" not in name:
            body = await client.get(exchange["request"]["path"])
            assert comparable(body) == comparable(exchange["body"]), name


async def test_a_status_survives_the_way_through_v1(start, recorded):
    client = await start(controllers=False, kubelet=False)
    new, old = recorded("hpa/get_v2_with_status")["body"], recorded("hpa/get_v1_with_status")
    client.cluster.apply(new)
    shown = await client.get(old["request"]["path"])
    assert comparable(shown) == comparable(old["body"])
    path = old["request"]["path"].replace("/v1/", "/v2/")
    assert (await client.get(path))["status"] == new["status"]
