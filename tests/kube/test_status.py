"""The patch of a status: nothing but the status, and nothing of the old one left over."""

import json
from datetime import UTC, datetime

import pytest
from kube.wire import says

from hpad.kube import codec, status
from hpad.kube.errors import ApiError
from hpad.model import hpa as hpas
from hpad.model.hpa import HorizontalPodAutoscalerStatus


def merged(target, patch):
    """JSON merge patch, RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def read(body):
    return codec.hpa(json.dumps(body).encode()).value


def test_the_patch_makes_the_status_and_touches_nothing_else(recorded):
    before = recorded("hpa/get_before_status")["body"]
    wanted = recorded("hpa/get_v2_with_status")["body"]["status"]
    wanted = hpas.from_builtins({"status": wanted}).status
    patch = status.patch(read(before), wanted)
    after = merged(before, patch)
    assert set(patch) == {"metadata", "status"}
    assert after["metadata"] == before["metadata"]
    assert after["spec"] == before["spec"]
    assert read(after).status == wanted


def test_what_the_new_status_leaves_out_is_reset(recorded):
    full = read(recorded("hpa/get_v2_with_status")["body"])
    assert full.status.conditions
    empty = HorizontalPodAutoscalerStatus(desired_replicas=0)
    after = merged(hpas.to_builtins(full), status.patch(full, empty))
    assert hpas.from_builtins(after).status == empty


def test_fields_of_a_newer_server_stay(recorded):
    body = recorded("hpa/get_v2_with_status")["body"]
    body["status"]["fromTheFuture"] = {"a": 1}
    held = read(body)
    after = merged(body, status.patch(held, held.status))
    assert after["status"]["fromTheFuture"] == {"a": 1}


async def test_the_written_object_comes_back(script, client, recorded):
    body = recorded("hpa/status_patch_merge_200")["body"]
    held = read(body)
    path = f"/apis/autoscaling/v2/namespaces/{held.metadata.namespace}/horizontalpodautoscalers/{held.metadata.name}"
    script.on("PATCH", f"{path}/status", says(body))
    now = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert await status.write(client, held, HorizontalPodAutoscalerStatus(last_scale_time=now)) == held
    assert script.headers[0]["Content-Type"] == "application/merge-patch+json"
    sent = json.loads(script.bodies[0])
    assert sent["metadata"] == {"resourceVersion": held.metadata.resource_version, "uid": held.metadata.uid}
    assert sent["status"]["lastScaleTime"] == "2026-01-01T00:00:01Z"
    assert sent["status"]["conditions"] is None


async def test_a_conflict_is_for_the_caller(script, client, recorded):
    real = recorded("hpa/status_patch_rv_conflict_409")
    path = real["request"]["path"]
    script.on("PATCH", path, says(real["body"], 409))
    held = read({"metadata": {"name": path.split("/")[-2], "namespace": path.split("/")[-4]}})
    with pytest.raises(ApiError) as caught:
        await status.write(client, held, HorizontalPodAutoscalerStatus())
    assert caught.value.conflict
    assert len(script.asked) == 1
