"""States, events and logs of pods; containers that are simulated because they have no command."""

import asyncio

import pytest

pytestmark = pytest.mark.cluster

SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"
PODS = "/api/v1/namespaces/default/pods"


def pod(name, command, **spec):
    container = {"name": "app", "command": command, **spec.pop("container", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def phase(cluster, name):
    return (cluster.get("pods", name) or {"status": {}})["status"].get("phase")


def warnings(cluster, name):
    """Returns (reason, message) of each warning of the kubelet about the pod."""
    return {
        (event["reason"], event["message"])
        for event in events(cluster, name)
        if (event["type"], event["source"]["component"]) == ("Warning", "kubelet")
    }


def normal_events(cluster, name):
    """Returns (reason, message) of each normal event about the pod."""
    return {(each["reason"], each["message"]) for each in events(cluster, name) if each["type"] == "Normal"}


def events(cluster, name):
    uid = cluster.get("pods", name)["metadata"]["uid"]
    return [event for event in cluster.list("events") if event["involvedObject"]["uid"] == uid]


def is_ready(cluster, name):
    conditions = (cluster.get("pods", name) or {"status": {}})["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def test_a_failed_container_is_restarted_and_counted(start, until):
    client = await start()
    client.cluster.apply(pod("p", ["sh", "-c", "test -e again && exec sleep 1000; touch again; exit 1"]))
    (status,) = await until(
        lambda: [
            status
            for status in client.cluster.get("pods", "p")["status"].get("containerStatuses", [])
            if status["restartCount"] == 1 and is_ready(client.cluster, "p")
        ]
    )
    assert status["lastState"]["terminated"]["exitCode"] == 1
    pod_of_event = f"p_default({client.cluster.get('pods', 'p')['metadata']['uid']})"
    assert warnings(client.cluster, "p") == {
        ("BackOff", f"Back-off restarting failed container app in pod {pod_of_event}")
    }


async def test_a_container_without_a_command_is_simulated_with_an_event(start, until):
    client = await start(sampling_seconds=0.2)
    probe = {"httpGet": {"port": 1}, "periodSeconds": 0.1}  # nothing answers there
    client.cluster.apply(pod("p", [], container={"image": "nginx:1.14.2", "readinessProbe": probe}))
    await until(lambda: is_ready(client.cluster, "p"))
    assert phase(client.cluster, "p") == "Running"
    assert client.cluster.pids() == {}
    (message,) = [text for reason, text in normal_events(client.cluster, "p") if reason == "Pretended"]
    assert "container app" in message.lower()
    assert "nginx:1.14.2" in message
    assert "command" in message
    assert warnings(client.cluster, "p") == set()
    items = await until(lambda: client.cluster.usage.reading("default/p"))
    assert items.containers == {"app": {"cpu": "0n", "memory": "0Ki"}}
    await client.ask("DELETE", f"{PODS}/p")
    await until(lambda: client.cluster.get("pods", "p") is None)


async def test_a_command_runs_beside_a_simulated_container(start, until):
    client = await start()
    both = pod("p", ["sleep", "1000"])
    both["spec"]["containers"].append({"name": "side", "image": "proxy"})
    client.cluster.apply(both)
    await until(lambda: is_ready(client.cluster, "p"))
    assert list(client.cluster.pids()) == ["default/p/app"]


async def test_a_simulated_deployment_is_scaled_without_processes(start, workload, until):
    client = await start()
    web = workload("Deployment", "web", replicas=2)
    web["spec"]["template"]["spec"]["containers"] = [{"name": "nginx", "image": "nginx:1.14.2"}]
    client.cluster.apply(web)

    async def ready(count):
        await until(
            lambda: (
                (client.cluster.get("deployments", "web")["status"] or {}).get("readyReplicas") == count
                and len(client.cluster.list("pods")) == count
            )
        )

    await ready(2)
    for count in (4, 1):
        body = {"metadata": {"name": "web"}, "spec": {"replicas": count}}
        assert (await client.ask("PUT", SCALE, body))[0] == 200
        await ready(count)
    assert client.cluster.pids() == {}


async def test_a_missing_program_is_named_in_state_and_event(start, until):
    client = await start()
    client.cluster.apply(pod("p", ["/no/such/program"]))
    ended = await until(
        lambda: (
            client.cluster.get("pods", "p")["status"]
            .get("containerStatuses", [{"lastState": {}}])[0]["lastState"]
            .get("terminated")
        )
    )
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert ended["message"] == 'exec: "/no/such/program": no such file or directory'
    assert ("Failed", f"Error: {ended['message']}") in warnings(client.cluster, "p")
    assert {reason for reason, _ in warnings(client.cluster, "p")} == {"Failed", "BackOff"}


async def test_a_pod_with_a_missing_program_and_no_restarts_fails(start, until):
    client = await start()
    client.cluster.apply(pod("p", ["/no/such/program"], restartPolicy="Never"))
    await until(lambda: phase(client.cluster, "p") == "Failed")
    (status,) = client.cluster.get("pods", "p")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["reason"] == "StartError"


async def test_a_failed_probe_records_its_reason(start, until, unused_tcp_port):
    client = await start()
    script = "echo the cache is cold; exit 1"
    probes = {
        "tcp": ({"tcpSocket": {"port": unused_tcp_port}}, "connection refused"),
        "http": ({"httpGet": {"port": unused_tcp_port}}, "connection refused"),
        "exec": ({"exec": {"command": ["sh", "-c", script]}}, "the cache is cold"),
        "silent": ({"exec": {"command": ["false"]}}, "the command exits with 1"),
        "none": ({"exec": {"command": ["/no/such/probe"]}}, "no such file or directory"),
    }
    for name, (probe, _) in probes.items():
        client.cluster.apply(
            pod(name, ["sleep", "1000"], container={"readinessProbe": {**probe, "periodSeconds": 0.1}})
        )
    for name, (_, reason) in probes.items():
        event = ("Unhealthy", f"Readiness probe failed: {reason}")
        await until(lambda name=name, event=event: event in warnings(client.cluster, name))


async def test_the_start_of_a_pod_is_recorded_in_events(start, until):
    client = await start()
    client.cluster.apply(pod("p", ["sleep", "1000"]))
    await until(lambda: is_ready(client.cluster, "p"))
    assert normal_events(client.cluster, "p") == {
        ("Scheduled", "Successfully assigned default/p to local"),
        ("Created", "Created container: app"),
        ("Started", "Started container app"),
    }


async def test_the_previous_log_is_that_of_the_previous_run(start, until):
    client = await start()
    script = 'echo >> n; n=$(wc -l < n); echo "life $n"; test $n = 3 && exec sleep 1000; exit 1'
    log = f"{PODS}/p/log"
    client.cluster.apply(pod("p", ["sh", "-c", script]))

    def restarts():
        (status,) = client.cluster.get("pods", "p")["status"].get("containerStatuses") or [{"restartCount": 0}]
        return status["restartCount"], status

    await until(lambda: restarts()[0] == 2 and "running" in restarts()[1]["state"])

    async def is_written():
        return (await client.ask("GET", log))[1] == "life 3\n"

    async with asyncio.timeout(60):
        while not await is_written():  # noqa: ASYNC110  # a process writes it
            await asyncio.sleep(0.02)
    assert await client.ask("GET", f"{log}?previous=true") == (200, "life 2\n")


async def test_before_a_restart_the_last_run_is_also_the_previous_one(start, until):
    client = await start()
    client.cluster.apply(pod("p", ["sh", "-c", "echo only; exit 1"]))

    def waits():
        (status,) = client.cluster.get("pods", "p")["status"].get("containerStatuses") or [{"state": {}}]
        return status["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"

    await until(waits)
    assert await client.ask("GET", f"{PODS}/p/log") == (200, "only\n")
    assert await client.ask("GET", f"{PODS}/p/log?previous=true") == (200, "only\n")


async def test_without_a_previous_run_there_is_no_previous_log(start, until):
    client = await start()
    client.cluster.apply(pod("p", ["sleep", "1000"]))
    await until(lambda: is_ready(client.cluster, "p"))
    status, body = await client.ask("GET", f"{PODS}/p/log?previous=true")
    assert (status, body["message"]) == (400, 'previous terminated container "app" in pod "p" not found')


async def test_following_a_log_ends_with_the_container(start, until):
    client = await start()
    client.cluster.apply(pod("p", ["sh", "-c", "echo one; until test -e go; do sleep 0.05; done; echo two; exit 1"]))
    (directory,) = await until(lambda: [*client.cluster.directory.glob("default_p_*")])
    await until(lambda: is_ready(client.cluster, "p"))
    following = asyncio.create_task(client.ask("GET", f"{PODS}/p/log?follow=true"))
    (directory / "go").touch()
    async with asyncio.timeout(60):
        assert await following == (200, "one\ntwo\n")
