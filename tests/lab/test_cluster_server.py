"""Discovery, health, metrics.k8s.io and fault injection over HTTP."""

import asyncio
import contextlib
import json
import socket

import aiohttp
import pytest

from hpad.clock import SystemClock
from hpad.lab.cluster import Cluster

METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


async def test_groups_and_their_preferred_versions(start, recorded):
    client = await start(controllers=False, kubelet=False)
    for name in ("apis_apps", "apis_autoscaling"):
        exchange = recorded(f"discovery/{name}")
        assert await client.get(exchange["request"]["path"]) == exchange["body"]
    groups = {group["name"] for group in (await client.get("/apis"))["groups"]}
    assert groups >= {"apps", "autoscaling", "coordination.k8s.io", "metrics.k8s.io"}
    assert (await client.get("/api"))["versions"] == ["v1"]
    assert (await client.get("/version"))["minor"] == "36"
    for path in ("/healthz", "/readyz", "/livez"):
        assert await client.ask("GET", path) == (200, "ok")


async def test_usage_set_by_hand_is_served_as_recorded(start, workload, recorded, until):
    client = await start(auto_ready=True)
    client.cluster.apply(workload("Deployment", "web", replicas=2))
    pods = await until(lambda: len(found := client.cluster.list("pods")) == 2 and found)
    first, second = (pod["metadata"]["name"] for pod in pods)
    real = recorded("metrics/podmetrics_get")["body"]
    client.cluster.usage.set(f"default/{first}", {"app": {"cpu": "305m", "memory": "10Mi"}})
    body = await client.get(f"{METRICS}/{first}")
    assert body.keys() == real.keys()
    assert body["metadata"].keys() == real["metadata"].keys()
    assert body["containers"] == [{"name": "app", "usage": {"cpu": "305m", "memory": "10Mi"}}]
    listed = await client.get(f"{METRICS}?labelSelector=app%3Dweb")
    assert [item["metadata"]["name"] for item in listed["items"]] == [first]
    assert await client.get(f"{METRICS}?labelSelector=app%3Dno") == recorded("metrics/podmetrics_list_empty")["body"]
    status, missing = await client.ask("GET", f"{METRICS}/{second}")
    expected = recorded("metrics/podmetrics_get_404")["body"]
    assert (status, missing.keys()) == (404, expected.keys())
    assert missing["message"] == expected["message"].replace("fix/none", f"default/{second}")
    client.cluster.usage.clear()
    assert (await client.get(METRICS))["items"] == []


@pytest.mark.parametrize("code", [401, 403, 404, 409, 410, 429, 500, 503, 504])
async def test_a_fault_answers_a_number_of_requests_with_a_status(start, code):
    client = await start(controllers=False, kubelet=False)
    rule = client.cluster.faults.add(method="GET", path="configmaps", status=code, times=2, retry_after=1)
    for _ in range(2):
        status, body = await client.ask("GET", CONFIGMAPS)
        assert (status, body["kind"], body["code"], body["details"]["retryAfterSeconds"]) == (code, "Status", code, 1)
    assert (await client.ask("GET", CONFIGMAPS))[0] == 200
    assert rule.hits == 2


async def test_faults_apply_to_matching_requests_until_cleared(start):
    client = await start(controllers=False, kubelet=False)
    client.cluster.faults.add(method="PUT|POST", path="/configmaps", status=500, times=None)
    assert (await client.ask("GET", CONFIGMAPS))[0] == 200
    for _ in range(3):
        assert (await client.ask("POST", CONFIGMAPS, {"metadata": {"name": "a"}}))[0] == 500
    client.cluster.faults.clear()
    assert (await client.ask("POST", CONFIGMAPS, {"metadata": {"name": "a"}}))[0] == 201


async def test_faults_reset_truncate_or_replace_a_response(start):
    client = await start(controllers=False, kubelet=False)
    client.cluster.faults.add(reset=True, times=None)  # the client retries an idempotent request once
    with pytest.raises(aiohttp.ClientError):
        await client.ask("GET", CONFIGMAPS)
    client.cluster.faults.clear()
    client.cluster.faults.add(truncate=True)
    with pytest.raises(aiohttp.ClientError):
        await client.ask("GET", CONFIGMAPS)
    client.cluster.faults.add(body="<html>")
    with pytest.raises(json.JSONDecodeError):
        await client.ask("GET", CONFIGMAPS)
    assert (await client.ask("GET", CONFIGMAPS))[0] == 200


class HandClock(SystemClock):
    """A clock whose sleeps end when `over` is set."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.over = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.over.wait()


async def test_a_delay_applies_to_one_request_only(start, until):
    clock = HandClock()
    client = await start(controllers=False, kubelet=False, clock=clock)
    client.cluster.faults.add(path="configmaps", delay=1.5)
    slow = asyncio.create_task(client.ask("GET", CONFIGMAPS))
    await until(lambda: clock.slept == [1.5])
    assert (await client.ask("GET", "/api/v1/namespaces/default/pods"))[0] == 200
    assert not slow.done()
    clock.over.set()
    assert (await slow)[0] == 200


async def test_a_kubeconfig_reaches_the_cluster(start, tmp_path):
    client = await start(controllers=False, kubelet=False)
    path = await client.cluster.kubeconfig(tmp_path / "config")
    config = json.loads(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == client.cluster.url
    assert client.cluster.url.startswith("http://127.0.0.1:")


async def test_the_port_can_be_chosen_and_one_in_use_is_an_error(start, unused_tcp_port):
    client = await start(controllers=False, kubelet=False, port=unused_tcp_port)
    assert client.cluster.url == f"http://127.0.0.1:{unused_tcp_port}"
    with pytest.raises(OSError, match=r"(?i)address already in use"):
        async with Cluster(port=unused_tcp_port):
            pass


async def test_leases_and_events_are_stored(start, recorded):
    client = await start(controllers=False, kubelet=False)
    for name, path in {
        "client_go/create_leases_201": "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        "client_go/create_events_201_SuccessfulRescale": "/api/v1/namespaces/fix/events",
    }.items():
        exchange = recorded(name)
        body = exchange["request"]["body"]
        client.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": path.split("/")[-2]}})
        status, made = await client.ask("POST", path, body)
        assert status == 201, made
        kept = {key: value for key, value in body.items() if key != "metadata" and value is not None}
        assert {key: made[key] for key in kept} == kept
    query = "fieldSelector=involvedObject.kind%3DHorizontalPodAutoscaler,involvedObject.name%3Dnope"
    assert (await client.get(f"/api/v1/events?{query}"))["items"] == []
    query = "fieldSelector=involvedObject.kind%3DHorizontalPodAutoscaler"
    assert len((await client.get(f"/api/v1/events?{query}"))["items"]) == 1


@pytest.mark.parametrize("rounds", range(8))
async def test_connections_accepted_during_the_close_are_closed(rounds):
    """Each connection is closed, at any stage of its acceptance; one that stays open would never be closed."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(socket.socket()) for _ in range(20)]
        async with Cluster(controllers=False, kubelet=False) as cluster:
            for each in made:
                each.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    each.connect(("127.0.0.1", int(cluster.url.rpartition(":")[2])))
            for _ in range(rounds):
                await asyncio.sleep(0)
        async with asyncio.timeout(120):
            for each in made:
                with contextlib.suppress(ConnectionResetError):
                    assert await loop.sock_recv(each, 1) == b""
