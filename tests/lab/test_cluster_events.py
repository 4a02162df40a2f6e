"""Events of the workload controllers, and Events in both API groups."""

import pytest

from hpad.clock import SystemClock
from hpad.lab.cluster import recorder, resources, store

NEWER = "/apis/events.k8s.io/v1/namespaces/fix/events"
CORE = "/api/v1/namespaces/fix/events"


def without_identity(event):
    """Returns an event's fields, name and namespace, without the metadata that the server sets."""
    rest = {name: value for name, value in event.items() if name != "metadata"}
    return rest, event["metadata"]["name"], event["metadata"]["namespace"]


@pytest.mark.parametrize("name", ["SuccessfulRescale_up", "FailedComputeMetricsReplicas_allbad"])
async def test_an_event_in_either_group_is_as_recorded(start, recorded, name):
    client = await start(controllers=False, kubelet=False)
    client.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fix"}})
    core, newer = recorded(f"events/core_v1_{name}")["body"], recorded(f"events/events_v1_{name}")["body"]
    assert (await client.ask("POST", CORE, core))[0] == 201
    path = f"{NEWER}/{core['metadata']['name']}"
    assert without_identity(await client.get(path)) == without_identity(newer)
    listed = await client.get(f"{NEWER}?fieldSelector=regarding.name={core['involvedObject']['name']}")
    assert (listed["kind"], listed["apiVersion"]) == ("EventList", "events.k8s.io/v1")
    assert [item["note"] for item in listed["items"]] == [newer["note"]]
    assert (await client.get(f"{NEWER}?fieldSelector=regarding.name=other"))["items"] == []
    await client.ask("DELETE", path)
    assert (await client.ask("POST", NEWER, newer))[0] == 201
    assert without_identity(await client.get(f"{CORE}/{core['metadata']['name']}")) == without_identity(core)


async def test_the_group_is_discovered(start):
    client = await start(controllers=False, kubelet=False)
    (served,) = (await client.get("/apis/events.k8s.io/v1"))["resources"]
    assert (served["name"], served["kind"], served["shortNames"]) == ("events", "Event", ["ev"])


async def test_controllers_record_events_and_count_repetitions(start, workload, until):
    client = await start(auto_ready=True)
    client.cluster.apply(workload("Deployment", "web", replicas=1))

    for replicas in (1, 2, 1, 2):
        client.cluster.apply(workload("Deployment", "web", replicas=replicas))
        await until(lambda count=replicas: client.cluster.get("deployments", "web")["status"].get("replicas") == count)
    counts = {
        event["message"].rpartition(" from ")[2]: event["count"]
        for event in client.cluster.list("events")
        if event["involvedObject"]["kind"] == "Deployment"
    }
    assert counts == {"0 to 1": 1, "1 to 2": 2, "2 to 1": 1}
    assert {
        ("ReplicaSet", "SuccessfulCreate", "Created pod: web"),
        ("ReplicaSet", "SuccessfulDelete", "Deleted pod: web"),
    } <= {
        (event["involvedObject"]["kind"], event["reason"], event["message"].partition("-")[0])
        for event in client.cluster.list("events")
    }
    (first,) = [each for each in client.cluster.list("events") if each["message"].endswith("from 0 to 1")]
    assert first["source"] == {"component": "deployment-controller"}
    assert first["reason"] == "ScalingReplicaSet"
    deployment = client.cluster.get("deployments", "web")
    assert first["involvedObject"]["uid"] == deployment["metadata"]["uid"]


def test_the_oldest_events_are_removed():
    objects = store.Store()
    events = recorder.Recorder(objects, SystemClock())
    pod = {"metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"}}
    for number in range(recorder.LIMIT + 5):
        events.record("me", (resources.PODS, pod), "Reason", f"message {number}")
    messages = {event["message"] for event in objects.objects(resources.EVENTS)}
    assert len(messages) == recorder.LIMIT
    assert f"message {recorder.LIMIT + 4}" in messages
    assert "message 4" not in messages
