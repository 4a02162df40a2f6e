"""Events on the wire: the shape a real controller wrote, and never in anybody's way."""

import asyncio
import json

import msgspec
import pytest
import structlog
from support.scripted_server import failure, hangs, resets, says, until

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import ObjectMeta
from hpad.engine.conditions import Event
from hpad.kube.cluster import Cluster
from hpad.kube.codec import DecodedObject
from hpad.kube.events import EventRecorder

PATH = "/api/v1/namespaces/fix/events"
WEB = HorizontalPodAutoscaler(metadata=ObjectMeta(name="web", namespace="fix", uid="u-1", resource_version="779"))


def about(name):
    return HorizontalPodAutoscaler(metadata=ObjectMeta(name=name, namespace="fix", uid=name))


RESCALE = Event("Normal", "SuccessfulRescale", "New size: 4")


@pytest.fixture
async def recorder(client, running):
    recorder = EventRecorder(client)
    running(recorder.run())
    return recorder


def shape(value):
    return {name: shape(each) for name, each in value.items()} if isinstance(value, dict) else type(value).__name__


async def test_an_event_has_the_shape_of_the_original(script, recorder, recorded):
    script.on("POST", PATH, says({}, 201))
    recorder.record(WEB, RESCALE)
    await recorder.flush()
    (sent,) = map(json.loads, script.bodies)
    real = recorded("client_go/create_events_201_SuccessfulRescale")["request"]["body"]
    assert shape(sent) == shape(real)
    assert sent["source"] == real["source"]
    assert sent["involvedObject"] == {
        "kind": "HorizontalPodAutoscaler", "namespace": "fix", "name": "web", "uid": "u-1",
        "apiVersion": "autoscaling/v2", "resourceVersion": "779",
    }  # fmt: skip
    assert (sent["reason"], sent["message"], sent["type"]) == ("SuccessfulRescale", "New size: 4", "Normal")
    assert sent["metadata"]["name"].startswith("web.")


async def test_a_repeated_event_is_a_count(script, recorder, recorded):
    script.on("POST", PATH, says({}, 201))
    recorder.record(WEB, RESCALE)
    await recorder.flush()
    name = json.loads(script.bodies[0])["metadata"]["name"]
    script.on("PATCH", f"{PATH}/{name}", says({}))
    recorder.record(WEB, RESCALE)
    await recorder.flush()
    real = recorded("client_go/patch_events_200_count")["request"]["body"]
    assert shape(json.loads(script.bodies[1])) == shape(real)
    assert json.loads(script.bodies[1])["count"] == 2


async def test_an_event_that_has_expired_meanwhile_is_written_anew(script, recorder):
    script.on("POST", PATH, says({}, 201))
    recorder.record(WEB, RESCALE)
    recorder.record(WEB, RESCALE)
    await recorder.flush()
    assert [method for method, _, _ in script.asked] == ["POST", "PATCH", "POST"]
    assert json.loads(script.bodies[2])["count"] == 2


async def test_of_objects_that_are_gone_no_count_is_kept(script, client, clock, running):
    """They are let go of some at a time: so there are many."""
    cluster = Cluster(client, clock)
    running(cluster.event_recorder.run())
    script.on("POST", PATH, says({}, 201))
    hpas = [about(f"app-{index}") for index in range(100)]
    for version, hpa in enumerate(hpas):
        cluster.hpas.put(DecodedObject(hpa.metadata.key, str(version), hpa))
        cluster.event_recorder.record(hpa, RESCALE)
    await cluster.event_recorder.flush()
    for hpa in hpas:
        cluster.hpas.drop(hpa.metadata.key, "1000")
    script.bodies.clear()
    cluster.event_recorder.record(hpas[0], RESCALE)
    await cluster.event_recorder.flush()
    assert [json.loads(body)["count"] for body in script.bodies] == [1]


async def test_one_made_anew_under_its_name_lets_go_of_the_one_before(script, client, clock, running):
    cluster = Cluster(client, clock)
    running(cluster.event_recorder.run())
    script.on("POST", PATH, says({}, 201))
    for uid in range(100):
        hpa = HorizontalPodAutoscaler(metadata=ObjectMeta(name="web", namespace="fix", uid=str(uid)))
        cluster.hpas.put(DecodedObject(hpa.metadata.key, str(uid), hpa))
        cluster.event_recorder.record(hpa, RESCALE)
        await cluster.event_recorder.flush()
    script.bodies.clear()
    first = HorizontalPodAutoscaler(metadata=ObjectMeta(name="web", namespace="fix", uid="0"))
    cluster.event_recorder.record(first, RESCALE)
    cluster.event_recorder.record(hpa, RESCALE)
    await cluster.event_recorder.flush()
    assert [json.loads(body)["count"] for body in script.bodies[:2]] == [1, 2]


async def test_a_refused_event_is_let_go(script, recorder):
    script.on("POST", PATH, says(failure(403, "Forbidden", "no"), 403), says({}, 201))
    recorder.record(WEB, RESCALE)
    recorder.record(WEB, Event("Warning", "FailedGetScale", "boom"))
    await recorder.flush()
    assert recorder.dropped == 1
    assert [json.loads(body)["reason"] for body in script.bodies] == ["SuccessfulRescale", "FailedGetScale"]


async def test_an_event_that_no_json_can_say_is_let_go(script, recorder):
    script.on("POST", PATH, says({}, 201))
    recorder.record(WEB, Event("Warning", "FailedGetScale", "half a letter: \ud83d"))
    recorder.record(WEB, RESCALE)
    await asyncio.wait_for(recorder.flush(), 60)
    assert recorder.dropped == 1
    assert [json.loads(body)["reason"] for body in script.bodies] == ["SuccessfulRescale"]


async def test_a_server_that_does_not_answer_is_tried_again(script, recorder, clock):
    script.on("POST", PATH, resets, resets, says({}, 201))
    recorder.record(WEB, RESCALE)
    await recorder.flush()
    assert (recorder.dropped, clock.slept) == (0, [10, 10])


async def test_an_answer_is_final_whatever_it_says(script, recorder, clock):
    """As in client-go: an event that the server fails on holds up none of the others."""
    script.on("POST", PATH, says(b"busy", 503), says({}, 201))
    recorder.record(WEB, RESCALE)
    recorder.record(WEB, Event("Warning", "FailedGetScale", "boom"))
    await recorder.flush()
    assert (recorder.dropped, clock.slept) == (1, [])
    assert len(script.bodies) == 2


async def test_a_combined_event_names_no_reporting_component(script, recorder):
    script.on("POST", PATH, says({}, 201))
    for size in range(10):
        recorder.record(WEB, Event("Normal", "SuccessfulRescale", f"New size: {size}"))
    await recorder.flush()
    written = [json.loads(body) for body in script.bodies]
    assert [each["reportingComponent"] for each in written] == ["horizontal-pod-autoscaler"] * 9 + [""]
    assert written[-1]["source"] == {"component": "horizontal-pod-autoscaler"}
    assert written[-1]["message"] == "(combined from similar events): New size: 9"


async def test_nobody_waits_for_a_server_that_hangs(script, recorder):
    script.on("POST", PATH, hangs)
    recorder.record(WEB, RESCALE)
    await until(lambda: script.count(PATH) == 1)
    for size in range(1_200):
        recorder.record(WEB, Event("Normal", "SuccessfulRescale", f"New size: {size}"))
    assert recorder.dropped == 200


async def test_of_too_many_the_newest_are_dropped(script, recorder):
    """As in client-go: those that wait already keep their place."""
    answering = asyncio.Event()

    async def late(request):
        await answering.wait()
        return await says({}, 201)(request)

    script.on("POST", PATH, late)
    recorder.record(about("first"), RESCALE)
    await until(lambda: script.count(PATH) == 1)
    for number in range(1_003):
        recorder.record(about(f"h{number}"), RESCALE)
    answering.set()
    await asyncio.wait_for(recorder.flush(), 120)
    written = [json.loads(body)["involvedObject"]["name"] for body in script.bodies]
    once = list(dict.fromkeys(written))  # on a machine that was paused one may have been sent again
    assert once == ["first", *(f"h{number}" for number in range(1_000))]
    assert recorder.dropped == 3
    recorder.record(about("afterwards"), RESCALE)
    await recorder.flush()
    assert (json.loads(script.bodies[-1])["involvedObject"]["name"], recorder.dropped) == ("afterwards", 3)


async def test_that_events_are_dropped_is_said_once_in_an_outage(script, recorder):
    """While the server takes one now and then: each makes room for one, and those that come meanwhile are dropped."""
    answering = asyncio.Semaphore(0)

    async def late(request):
        await answering.acquire()
        return await says({}, 201)(request)

    script.on("POST", PATH, late)
    with structlog.testing.capture_logs() as logged:
        for number in range(1_002):
            recorder.record(about(f"h{number}"), RESCALE)
        for turn in range(50):
            taken = script.count(PATH)
            answering.release()
            await until(lambda taken=taken: script.count(PATH) > taken)
            for number in range(3):
                recorder.record(about(f"late-{turn}-{number}"), RESCALE)
        dropped = recorder.dropped
        for _ in range(2_000):
            answering.release()
        await asyncio.wait_for(recorder.flush(), 120)
    assert dropped > 100
    lines = [(line["event"], line.get("times")) for line in logged]
    assert lines == [
        ("too many events wait for the API server: new ones are dropped", None),
        ("events are taken again", dropped),
    ]


async def test_that_events_are_refused_is_said_once(script, recorder):
    script.on("POST", PATH, *[says(failure(403, "Forbidden", "no"), 403)] * 20, says({}, 201))
    with structlog.testing.capture_logs() as logged:
        for number in range(22):
            recorder.record(about(f"h{number}"), RESCALE)
        await recorder.flush()
    assert [line["event"] for line in logged] == ["event refused", "events are written again"]


async def test_that_events_are_refused_is_said_for_each_namespace(script, recorder):
    script.on("POST", PATH, *[says(failure(403, "Forbidden", "no"), 403)] * 20)
    other = PATH.replace("fix", "other")
    script.on("POST", other, *[says(failure(403, "Forbidden", "no"), 403)] * 3, says({}, 201))
    with structlog.testing.capture_logs() as logged:
        for number in range(20):
            recorder.record(about(f"h{number}"), RESCALE)
            recorder.record(msgspec.structs.replace(about(f"h{number}"), metadata=elsewhere(f"h{number}")), RESCALE)
        await recorder.flush()
    assert [(line["event"], line["namespace"]) for line in logged] == [
        ("event refused", "fix"),
        ("event refused", "other"),
        ("events are written again", "other"),
    ]


def elsewhere(name):
    return ObjectMeta(name=name, namespace="other", uid=f"other-{name}")
