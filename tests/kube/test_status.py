"""The PUT of a status: the object as it came with nothing but the status changed, and nothing of the old one left."""

import json
from datetime import UTC, datetime

import pytest
from support.scripted_server import says

from hpad.api.hpa import HorizontalPodAutoscalerStatus, from_builtins
from hpad.kube import codec, paths, status
from hpad.kube.cache import HpaCache, Kind
from hpad.kube.errors import ApiError


def raw(body):
    return json.dumps(body).encode()


def put(body, wanted):
    """What is PUT to give the recorded object another status."""
    return json.loads(status.combined(status.original(raw(body)).body, wanted))


def without(body, *names):
    return {name: value for name, value in body.items() if name not in names}


class Holder:
    """A cache of HPAs, filled by hand, and writes on top of it."""

    def __init__(self, client):
        self.client = client
        self.cache = HpaCache(client, Kind(paths.HPAS, status.decode, lambda hpa: hpa.metadata.resource_version))

    def take(self, body):
        """Offers the object to the cache; the object decoded, whether the cache stored it or not."""
        decoded = status.decode(raw(body))
        self.cache.put(decoded)
        return decoded.value

    async def write(self, held, wanted):
        return (await status.write(self.client, self.cache, held, wanted)).value


@pytest.fixture
async def holder(client):
    return Holder(client)


def path_of(body):
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    return f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}/status"


def test_nothing_but_the_status_is_changed(recorded):
    before = recorded("hpa/get_before_status")["body"]
    before["metadata"] |= {"finalizers": ["a/b"], "annotations": {"c": "ü😀"}, "fromTheFuture": [1.0, None]}
    before["spec"]["fromTheFuture"] = {"big": 12345678901234567890, "a": None}
    wanted = from_builtins({"status": recorded("hpa/get_v2_with_status")["body"]["status"]}).status
    sent = put(before, wanted)
    assert without(sent, "status", "metadata") == without(before, "status", "metadata")
    assert sent["metadata"] == without(before["metadata"], "managedFields")
    assert codec.hpa(raw(sent)).value.status == wanted


def test_an_item_of_a_list_is_told_what_it_is(recorded):
    item = recorded("hpa/list_v2")["body"]["items"][0]
    assert "kind" not in item
    sent = put(item, HorizontalPodAutoscalerStatus())
    assert (sent["apiVersion"], sent["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")


def test_nothing_of_the_old_status_is_left(recorded):
    body = recorded("hpa/get_v2_with_status")["body"]
    assert body["status"]["conditions"]
    empty = HorizontalPodAutoscalerStatus(desired_replicas=0)
    assert codec.hpa(raw(put(body, empty))).value.status == empty


def test_fields_of_a_newer_server_stay(recorded):
    body = recorded("hpa/get_v2_with_status")["body"]
    body["status"]["fromTheFuture"] = {"a": 1}
    assert put(body, HorizontalPodAutoscalerStatus())["status"]["fromTheFuture"] == {"a": 1}


@pytest.mark.parametrize("odd", [{}, {"metadata": 1}, {"metadata": {}, "status": []}])
def test_what_is_no_object_is_not_kept(odd):
    with pytest.raises(codec.UndecodableError):
        status.original(raw(odd))


def test_an_object_without_a_status_will_do():
    head = {"metadata": {"name": "web", "namespace": "a"}, "spec": {}, "status": None}
    sent = put(head, HorizontalPodAutoscalerStatus(desired_replicas=3))
    assert sent["status"]["desiredReplicas"] == 3


async def test_the_written_object_comes_back(script, client, holder, recorded):
    before, answer = recorded("hpa/get_before_status")["body"], recorded("hpa/status_put_200")["body"]
    held = holder.take(before)
    script.on("PUT", path_of(before), says(answer))
    wanted = HorizontalPodAutoscalerStatus(last_scale_time=datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert await holder.write(held, wanted) == codec.hpa(raw(answer)).value
    sent = json.loads(script.bodies[0])
    assert script.headers[0]["Content-Type"] == "application/json"
    assert sent["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert sent["metadata"]["uid"] == before["metadata"]["uid"]
    assert sent["status"]["lastScaleTime"] == "2026-01-01T00:00:01Z"


async def test_a_conflict_is_for_the_caller(script, holder, recorded):
    real, before = recorded("hpa/status_put_conflict_409"), recorded("hpa/get_before_status")["body"]
    script.on("PUT", path_of(before), says(real["body"], 409))
    with pytest.raises(ApiError) as caught:
        await holder.write(holder.take(before), HorizontalPodAutoscalerStatus())
    assert caught.value.conflict
    assert len(script.asked) == 1


async def test_an_object_that_has_changed_is_not_even_sent(script, holder, recorded):
    """Its words are those of the server that would refuse it."""
    real, old = recorded("hpa/status_put_conflict_409"), recorded("hpa/get_before_status")["body"]
    old["metadata"]["name"] = real["body"]["details"]["name"]
    held = holder.take(old)
    holder.take({**old, "metadata": {**old["metadata"], "resourceVersion": "999999"}})
    with pytest.raises(ApiError) as caught:
        await holder.write(held, HorizontalPodAutoscalerStatus())
    assert caught.value.conflict
    assert caught.value.message == real["body"]["message"]
    assert script.asked == []


async def test_what_the_cache_refused_is_not_built_on(script, holder, recorded):
    """An older version that comes late: labels set since then would be lost."""
    old = recorded("hpa/get_before_status")["body"]
    new = {**old, "metadata": {**old["metadata"], "resourceVersion": "999999", "labels": {"team": "a"}}}
    held = holder.take(new)
    holder.take(old)
    script.on("PUT", path_of(old), says(new))
    await holder.write(held, HorizontalPodAutoscalerStatus())
    assert json.loads(script.bodies[0])["metadata"]["labels"] == {"team": "a"}


async def test_an_object_that_is_gone_is_forgotten(script, holder, recorded):
    real, body = recorded("hpa/status_put_404"), recorded("hpa/get_before_status")["body"]
    body["metadata"]["name"] = real["body"]["details"]["name"]
    held = holder.take(body)
    holder.cache.drop(held.metadata.key, held.metadata.resource_version)
    with pytest.raises(ApiError) as caught:
        await holder.write(held, HorizontalPodAutoscalerStatus())
    assert caught.value.not_found
    assert caught.value.message == real["body"]["message"]
    assert script.asked == []
