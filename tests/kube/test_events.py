"""Events: the fields that kube-controller-manager writes, failed writes, and a full queue."""

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
from hpad.kube.events import EventRecorder
from hpad.kube.watch import DecodedObject

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
    await recorder.flush(60)
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
    await recorder.flush(60)
    name = json.loads(script.bodies[0])["metadata"]["name"]
    script.on("PATCH", f"{PATH}/{name}", says({}))
    recorder.record(WEB, RESCALE)
    await recorder.flush(60)
    real = recorded("client_go/patch_events_200_count")["request"]["body"]
    assert shape(json.loads(script.bodies[1])) == shape(real)
    assert json.loads(script.bodies[1])["count"] == 2


async def test_a_repeated_event_that_has_expired_is_created_again(script, recorder):
    script.on("POST", PATH, says({}, 201))
    recorder.record(WEB, RESCALE)
    recorder.record(WEB, RESCALE)
    await recorder.flush(60)
    assert [method for method, _, _ in script.asked] == ["POST", "PATCH", "POST"]
    assert json.loads(script.bodies[2])["count"] == 2


async def test_the_counts_of_an_object_that_was_created_again_start_at_one(script, client, clock, running):
    cluster = Cluster(client)
    running(cluster.event_recorder.run())
    script.on("POST", PATH, says({}, 201))
    for uid in ("first", "second"):
        hpa = HorizontalPodAutoscaler(metadata=ObjectMeta(name="web", namespace="fix", uid=uid))
        cluster.hpas.put(DecodedObject(hpa.key, uid, hpa))
        cluster.event_recorder.record(hpa, RESCALE)
        await cluster.event_recorder.flush(60)
    assert [json.loads(body)["count"] for body in script.bodies] == [1, 1]


async def test_a_refused_event_is_dropped(script, recorder):
    script.on("POST", PATH, says(failure(403, "Forbidden", "no"), 403), says({}, 201))
    recorder.record(WEB, RESCALE)
    recorder.record(WEB, Event("Warning", "FailedGetScale", "boom"))
    await recorder.flush(60)
    assert recorder.dropped == 1
    assert [json.loads(body)["reason"] for body in script.bodies] == ["SuccessfulRescale", "FailedGetScale"]


async def test_an_event_that_json_cannot_express_is_dropped(script, recorder):
    script.on("POST", PATH, says({}, 201))
    recorder.record(WEB, Event("Warning", "FailedGetScale", "half a letter: \ud83d"))
    recorder.record(WEB, RESCALE)
    await asyncio.wait_for(recorder.flush(60), 60)
    assert recorder.dropped == 1
    assert [json.loads(body)["reason"] for body in script.bodies] == ["SuccessfulRescale"]


async def test_an_event_is_sent_again_if_the_server_does_not_answer(script, recorder, clock):
    script.on("POST", PATH, resets, resets, says({}, 201))
    recorder.record(WEB, RESCALE)
    await recorder.flush(60)
    assert (recorder.dropped, clock.slept) == (0, [10, 10])


async def test_an_event_is_not_sent_again_after_any_answer(script, recorder, clock):
    """As in client-go, so that one event cannot delay the others."""
    script.on("POST", PATH, says(b"busy", 503), says({}, 201))
    recorder.record(WEB, RESCALE)
    recorder.record(WEB, Event("Warning", "FailedGetScale", "boom"))
    await recorder.flush(60)
    assert (recorder.dropped, clock.slept) == (1, [])
    assert len(script.bodies) == 2


async def test_a_combined_event_names_no_reporting_component(script, recorder):
    script.on("POST", PATH, says({}, 201))
    for size in range(10):
        recorder.record(WEB, Event("Normal", "SuccessfulRescale", f"New size: {size}"))
    await recorder.flush(60)
    written = [json.loads(body) for body in script.bodies]
    assert [each["reportingComponent"] for each in written] == ["horizontal-pod-autoscaler"] * 9 + [""]
    assert written[-1]["source"] == {"component": "horizontal-pod-autoscaler"}
    assert written[-1]["message"] == "(combined from similar events): New size: 9"


def explained(size, detail, *, reason="cpu above target"):
    return Event("Normal", "SuccessfulRescale", f"New size: {size}; reason: {reason}", detail)


async def test_equal_rescales_are_counted_whatever_their_details(script, recorder):
    """Kubernetes counts them as one event. That event gets the newest detail."""
    script.on("POST", PATH, says({}, 201))
    recorder.record(WEB, explained(4, "from 3: cpu above target (61% / 50%)"))
    await recorder.flush(60)
    name = json.loads(script.bodies[0])["metadata"]["name"]
    script.on("PATCH", f"{PATH}/{name}", says({}))
    recorder.record(WEB, explained(4, "from 2: cpu above target (99% / 50%)"))
    recorder.record(WEB, explained(4, ""))
    await recorder.flush(60)
    created, second, third = map(json.loads, script.bodies)
    text = "New size: 4; reason: cpu above target"
    assert (created["message"], created["count"]) == (f"{text}; from 3: cpu above target (61% / 50%)", 1)
    assert (second["message"], second["count"]) == (f"{text}; from 2: cpu above target (99% / 50%)", 2)
    assert (third["message"], third["count"]) == (text, 3)


async def test_details_do_not_make_events_similar_or_different(script, recorder):
    """Ten messages of Kubernetes are combined from the tenth on, as without details; nine are not."""
    for size in range(9):
        for turn in range(2):
            recorder.record(WEB, explained(size, f"from {turn}: cpu above target ({size}{turn}% / 50%)"))
    recorder.record(WEB, explained(9, "from 8: cpu above target (90% / 50%)"))
    script.on("POST", PATH, says({}, 201))
    await recorder.flush(60)
    requests = zip(script.asked, script.bodies, strict=True)
    created = [json.loads(body) for (method, _, _), body in requests if method == "POST"]
    assert len({each["metadata"]["name"] for each in created}) == 10
    combined = [each["message"] for each in created if each["message"].startswith("(combined from similar events): ")]
    last = "New size: 9; reason: cpu above target; from 8: cpu above target (90% / 50%)"
    assert combined == [f"(combined from similar events): {last}"]


async def test_a_combined_event_with_its_detail_fits_into_the_limit(script, recorder):
    script.on("POST", PATH, says({}, 201))
    for size in range(10):
        recorder.record(WEB, explained(size, "word " * 400))
    await recorder.flush(60)
    lengths = [len(json.loads(body)["message"].encode()) for body in script.bodies]
    assert max(lengths) <= 1024
    assert min(lengths) > 1015


async def test_recording_does_not_wait_for_a_server_that_does_not_answer(script, recorder):
    script.on("POST", PATH, hangs)
    recorder.record(WEB, RESCALE)
    await until(lambda: script.count(PATH) == 1)
    for size in range(1_200):
        recorder.record(WEB, Event("Normal", "SuccessfulRescale", f"New size: {size}"))
    assert recorder.dropped == 200


async def test_the_newest_events_are_dropped_if_the_queue_is_full(script, recorder):
    """As in client-go: events in the queue keep their place."""
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
    await asyncio.wait_for(recorder.flush(60), 120)
    written = [json.loads(body)["involvedObject"]["name"] for body in script.bodies]
    once = list(dict.fromkeys(written))  # one may have been sent again if the machine was paused
    assert once == ["first", *(f"h{number}" for number in range(1_000))]
    assert recorder.dropped == 3
    recorder.record(about("afterwards"), RESCALE)
    await recorder.flush(60)
    assert (json.loads(script.bodies[-1])["involvedObject"]["name"], recorder.dropped) == ("afterwards", 3)


async def test_a_full_queue_is_logged_once_in_an_outage(script, recorder):
    """The server accepts one event at a time: each makes room for one, and further events are dropped."""
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
        await asyncio.wait_for(recorder.flush(60), 120)
    assert dropped > 100
    lines = [(line["event"], line.get("times")) for line in logged]
    assert lines == [
        ("too many events wait for the API server: new ones are dropped", None),
        ("new events are accepted again", dropped),
    ]


async def test_refused_events_are_logged_once(script, recorder):
    script.on("POST", PATH, *[says(failure(403, "Forbidden", "no"), 403)] * 20, says({}, 201))
    with structlog.testing.capture_logs() as logged:
        for number in range(22):
            recorder.record(about(f"h{number}"), RESCALE)
        await recorder.flush(60)
    assert [line["event"] for line in logged] == ["event refused", "events are written again"]


async def test_refused_events_are_logged_for_each_namespace(script, recorder):
    script.on("POST", PATH, *[says(failure(403, "Forbidden", "no"), 403)] * 20)
    other = PATH.replace("fix", "other")
    script.on("POST", other, *[says(failure(403, "Forbidden", "no"), 403)] * 3, says({}, 201))
    with structlog.testing.capture_logs() as logged:
        for number in range(20):
            recorder.record(about(f"h{number}"), RESCALE)
            recorder.record(msgspec.structs.replace(about(f"h{number}"), metadata=elsewhere(f"h{number}")), RESCALE)
        await recorder.flush(60)
    assert [(line["event"], line["namespace"]) for line in logged] == [
        ("event refused", "fix"),
        ("event refused", "other"),
        ("events are written again", "other"),
    ]


async def test_events_of_a_namespace_that_is_being_deleted_are_dropped_without_a_word(script, recorder):
    """The answer of the admission plugin NamespaceLifecycle, to be expected for each namespace that comes and goes."""
    message = "is forbidden: unable to create new content in namespace fix because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": "namespace fix is being terminated",
        "field": "metadata.namespace",
    }
    refusal = failure(403, "Forbidden", message) | {"details": {"name": "web.1", "kind": "events", "causes": [cause]}}
    script.on("POST", PATH, says(refusal, 403))
    with structlog.testing.capture_logs() as logged:
        recorder.record(WEB, RESCALE)
        await recorder.flush(60)
    assert (recorder.dropped, logged) == (1, [])


def elsewhere(name):
    return ObjectMeta(name=name, namespace="other", uid=f"other-{name}")
