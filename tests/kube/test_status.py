"""The PUT of a status: the object as received, with the new status in place of the old one."""

import json
from datetime import UTC, datetime

import pytest
from support.scripted_server import says

from hpad.api.hpa import HorizontalPodAutoscalerStatus, from_builtins
from hpad.api.wire import UNDECODABLE
from hpad.kube import hpas
from hpad.kube.cache import HpaCache
from hpad.kube.errors import ApiError
from hpad.kube.reflector import WatchScope


def raw(body):
    return json.dumps(body).encode()


def put(body, new_status):
    """The body of the PUT that gives the recorded object another status."""
    version = body["metadata"].get("resourceVersion", "")
    return json.loads(hpas.body(hpas.original(raw(body)), version, hpas.encode(new_status)))


def test_an_api_server_answers_with_the_very_bytes_of_the_status_that_was_sent(recorded):
    answered = recorded("hpa/status_put_200")["body"]
    sent = hpas.encode(from_builtins(answered).status)
    assert sent == json.dumps(answered["status"], separators=(",", ":")).encode()


def without(body, *names):
    return {name: value for name, value in body.items() if name not in names}


class Holder:
    """A cache of HPAs that is filled by `take`, and writes of their statuses."""

    def __init__(self, client):
        self.client = client
        self.cache = HpaCache(WatchScope(client))

    def take(self, body):
        """Offers the object to the cache; the object decoded, whether the cache stored it or not."""
        decoded = hpas.decode(raw(body))
        self.cache.put(decoded)
        return decoded.value

    async def write(self, stored, new_status):
        return await self.cache.write_status(stored, new_status)


@pytest.fixture
async def holder(client):
    return Holder(client)


def path_of(body):
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    return f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}/status"


def test_a_write_changes_the_status_alone(recorded):
    before = recorded("hpa/get_before_status")["body"]
    before["metadata"] |= {"finalizers": ["a/b"], "annotations": {"c": "ü😀"}, "fromTheFuture": [1.0, None]}
    before["spec"]["fromTheFuture"] = {"big": 12345678901234567890, "a": None}
    new_status = from_builtins({"status": recorded("hpa/get_v2_with_status")["body"]["status"]}).status
    sent = put(before, new_status)
    assert without(sent, "status", "metadata") == without(before, "status", "metadata")
    assert sent["metadata"] == without(before["metadata"], "managedFields")
    assert hpas.hpa(raw(sent)).value.status == new_status


def test_an_item_of_a_list_gets_its_kind_and_api_version(recorded):
    item = recorded("hpa/list_v2")["body"]["items"][0]
    assert "kind" not in item
    sent = put(item, HorizontalPodAutoscalerStatus())
    assert (sent["apiVersion"], sent["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")


def test_the_old_status_is_removed(recorded):
    body = recorded("hpa/get_v2_with_status")["body"]
    assert body["status"]["conditions"]
    empty = HorizontalPodAutoscalerStatus(desired_replicas=0)
    assert hpas.hpa(raw(put(body, empty))).value.status == empty


def test_unknown_fields_of_a_newer_server_are_kept(recorded):
    body = recorded("hpa/get_v2_with_status")["body"]
    body["status"]["fromTheFuture"] = {"a": 1}
    assert put(body, HorizontalPodAutoscalerStatus())["status"]["fromTheFuture"] == {"a": 1}


@pytest.mark.parametrize("odd", [{}, {"metadata": 1}, {"metadata": {}, "status": []}])
def test_bytes_that_are_no_object_are_refused(odd):
    with pytest.raises(UNDECODABLE):
        hpas.original(raw(odd))


def test_an_object_without_a_status_is_accepted():
    head = {"metadata": {"name": "web", "namespace": "a"}, "spec": {}, "status": None}
    sent = put(head, HorizontalPodAutoscalerStatus(desired_replicas=3))
    assert sent["status"]["desiredReplicas"] == 3


async def test_a_write_returns_the_object_as_written(script, client, holder, recorded):
    before, answer = recorded("hpa/get_before_status")["body"], recorded("hpa/status_put_200")["body"]
    stored = holder.take(before)
    script.on("PUT", path_of(before), says(answer))
    new_status = HorizontalPodAutoscalerStatus(last_scale_time=datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert await holder.write(stored, new_status) == hpas.hpa(raw(answer)).value
    sent = json.loads(script.bodies[0])
    assert script.headers[0]["Content-Type"] == "application/json"
    assert sent["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert sent["metadata"]["uid"] == before["metadata"]["uid"]
    assert sent["status"]["lastScaleTime"] == "2026-01-01T00:00:01Z"


async def test_a_conflict_is_raised_after_one_attempt(script, holder, recorded):
    real, before = recorded("hpa/status_put_conflict_409"), recorded("hpa/get_before_status")["body"]
    script.on("PUT", path_of(before), says(real["body"], 409))
    with pytest.raises(ApiError) as caught:
        await holder.write(holder.take(before), HorizontalPodAutoscalerStatus())
    assert caught.value.conflict
    assert len(script.asked) == 1


async def test_no_request_is_sent_for_an_object_that_has_changed(script, holder, recorded):
    """The error has the text with which the server would refuse the write."""
    real, old = recorded("hpa/status_put_conflict_409"), recorded("hpa/get_before_status")["body"]
    old["metadata"]["name"] = real["body"]["details"]["name"]
    stored = holder.take(old)
    holder.take({**old, "metadata": {**old["metadata"], "resourceVersion": "999999"}})
    with pytest.raises(ApiError) as caught:
        await holder.write(stored, HorizontalPodAutoscalerStatus())
    assert caught.value.conflict
    assert caught.value.message == real["body"]["message"]
    assert script.asked == []


async def test_a_write_is_based_on_the_latest_version(script, holder, recorded):
    """An older version may arrive late; labels that were set since would be lost."""
    old = recorded("hpa/get_before_status")["body"]
    new = {**old, "metadata": {**old["metadata"], "resourceVersion": "999999", "labels": {"team": "a"}}}
    stored = holder.take(new)
    holder.take(old)
    script.on("PUT", path_of(old), says(new))
    await holder.write(stored, HorizontalPodAutoscalerStatus())
    assert json.loads(script.bodies[0])["metadata"]["labels"] == {"team": "a"}


async def test_no_request_is_sent_for_a_deleted_object(script, holder, recorded):
    real, body = recorded("hpa/status_put_404"), recorded("hpa/get_before_status")["body"]
    body["metadata"]["name"] = real["body"]["details"]["name"]
    stored = holder.take(body)
    holder.cache.drop(stored.key, stored.metadata.resource_version)
    with pytest.raises(ApiError) as caught:
        await holder.write(stored, HorizontalPodAutoscalerStatus())
    assert caught.value.not_found
    assert caught.value.message == real["body"]["message"]
    assert script.asked == []


async def test_the_answer_to_a_write_brings_version_and_status_and_keeps_the_rest(script, holder, recorded):
    before, answer = recorded("hpa/get_before_status")["body"], recorded("hpa/status_put_200")["body"]
    stored = holder.take(before)
    script.on("PUT", path_of(before), says(answer))
    kept = holder.cache.original(stored.key)
    done = await holder.write(stored, HorizontalPodAutoscalerStatus())
    assert done.metadata.resource_version == answer["metadata"]["resourceVersion"]
    assert done.metadata.resource_version != before["metadata"]["resourceVersion"]
    assert done == hpas.hpa(raw(answer)).value == holder.cache.get(stored.key)
    assert done.spec is stored.spec, "decoded again"
    assert holder.cache.original(stored.key) is kept


@pytest.mark.parametrize("where", ["labels", "annotations"])
async def test_what_a_webhook_changes_in_a_write_is_sent_with_the_next_one(script, holder, recorded, where):
    before, answer = recorded("hpa/get_before_status")["body"], recorded("hpa/status_put_200")["body"]
    answer["metadata"][where] = {"by": "webhook"}
    stored = holder.take(before)
    script.on("PUT", path_of(before), says(answer))
    done = await holder.write(stored, HorizontalPodAutoscalerStatus())
    assert done == hpas.hpa(raw(answer)).value
    await holder.write(done, HorizontalPodAutoscalerStatus())
    assert json.loads(script.bodies[-1])["metadata"][where] == {"by": "webhook"}
    assert json.loads(script.bodies[-1])["metadata"]["resourceVersion"] == answer["metadata"]["resourceVersion"]


async def test_a_spec_that_differs_in_the_answer_is_taken(script, holder, recorded):
    before, answer = recorded("hpa/get_before_status")["body"], recorded("hpa/status_put_200")["body"]
    answer["spec"]["maxReplicas"] += 1
    stored = holder.take(before)
    script.on("PUT", path_of(before), says(answer))
    done = await holder.write(stored, HorizontalPodAutoscalerStatus())
    assert done.spec.max_replicas == stored.spec.max_replicas + 1


@pytest.mark.parametrize("rest", [{}, {"fromTheFuture": {"a": [1, None]}}])
@pytest.mark.parametrize("kept", [{}, {"fromTheFuture": 1.5}])
def test_the_object_is_put_together_in_each_form(rest, kept):
    head = {"name": "web", "namespace": "a", "resourceVersion": 'odd"\\', "uid": "u"}
    sent = put({"metadata": head, "spec": {"maxReplicas": 3}, "status": kept, **rest}, HorizontalPodAutoscalerStatus())
    assert without(sent, "apiVersion", "kind", "status") == {"metadata": head, "spec": {"maxReplicas": 3}, **rest}
    assert sent["status"] == {"desiredReplicas": 0, "currentMetrics": None, **kept}
