"""Objects that hpad sends, decoded and encoded by models that are generated from the OpenAPI document of Kubernetes.

A field that the API does not have would be lost.
"""

import json
from types import SimpleNamespace

import msgspec
import pytest

from hpad.api.hpa import from_builtins
from hpad.kube import events, hpas, scale


@pytest.fixture
async def through():
    """Decodes a body into a generated model, and encodes that: `through(body, "V1Scale")`."""
    from kubernetes_asyncio import client as generated  # late: its import takes a second, in each worker

    async with generated.ApiClient() as api:

        def pass_through(body, model):
            decoded = api.deserialize(SimpleNamespace(data=json.dumps(body)), model)
            return json.loads(json.dumps(api.sanitize_for_serialization(decoded)))

        yield pass_through


def without_nulls(value):
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


async def test_a_scale_passes_the_generated_model(through, recorded):
    body = recorded("scale/deployment_get_as_v1_deployment")["body"]
    decoded = scale.target(json.dumps(body).encode()).value.scale
    sent = json.loads(msgspec.json.encode(decoded))
    back = through(sent, "V1Scale")
    back["metadata"]["creationTimestamp"] = back["metadata"]["creationTimestamp"].replace("+00:00", "Z")
    assert back == sent


@pytest.mark.parametrize("name", ["get_v2_with_status", "get_v2_every_metric_type_behavior", "get_v2_behavior_full"])
async def test_a_status_passes_the_generated_model(through, recorded, name):
    body = recorded(f"hpa/{name}")["body"]
    found = hpas.hpa(json.dumps(body).encode())
    original, written = hpas.original(json.dumps(body).encode()), hpas.encode(found.value.status)
    whole = json.loads(hpas.body(original, found.version, written))
    sent = whole["status"]
    back = through(without_nulls(whole), "V2HorizontalPodAutoscaler")["status"]
    assert from_builtins({"status": back}).status == found.value.status
    assert set(back) == set(without_nulls(sent))


async def test_an_event_passes_the_generated_model(through, recorded):
    real = recorded("client_go/create_events_201_FailedGetScale")["request"]["body"]
    about = events.EventObject("HorizontalPodAutoscaler", "fix", "web", "u", "autoscaling/v2", "7")
    moment = from_builtins({"metadata": {"creationTimestamp": real["firstTimestamp"]}}).metadata.creation_timestamp
    event = events.EventAggregator().aggregate(about, "Warning", "FailedGetScale", "boom", moment)
    sent = events.created(event, "hpad")
    back = through(without_nulls(sent), "CoreV1Event")
    assert set(back) == set(without_nulls(sent))
    assert back["involvedObject"] == sent["involvedObject"]
    assert sent["firstTimestamp"] == real["firstTimestamp"]
