"""Pods as real local processes: started, probed, restarted, stopped, measured."""

import asyncio
import os

import pytest

from hpad.lab.cluster import Cluster

pytestmark = pytest.mark.cluster

SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"
PODS = "/api/v1/namespaces/default/pods"
STUBBORN = "trap 'until test -e go; do sleep 0.05; done; exit 0' TERM; touch up; while :; do sleep 0.05; done"
"""Creates a file `up` when it starts; after SIGTERM it ends once a file `go` exists."""
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pod(name, command, **spec):
    container = {"name": "app", "command": command, **spec.pop("container", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def phase(cluster, name):
    return (cluster.get("pods", name) or {"status": {}})["status"].get("phase")


def nanocores(metrics):
    """Returns the CPU usage of all pods, 0 before the first reading."""
    used = [each["usage"]["cpu"] for item in metrics["items"] for each in item["containers"]]
    return sum(int(cpu.removesuffix("n")) for cpu in used)


def is_ready(cluster, name):
    conditions = (cluster.get("pods", name) or {"status": {}})["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def test_a_busy_deployment_is_measured_and_scaled_and_all_processes_end(start, workload, until):
    client = await start(sampling_seconds=0.4)
    cluster = client.cluster
    busy = ["sh", "-c", "while :; do :; done & while :; do :; done"]
    web = workload("Deployment", "web", command=busy)
    web["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 2
    cluster.apply(web)
    seen = set()

    async def running(count):
        await until(lambda: len(cluster.pids()) == count and len(cluster.list("pods")) == count)
        seen.update(cluster.pids().values())

    await running(1)
    async with asyncio.timeout(240):
        while nanocores(metrics := await client.get(METRICS)) < 100_000_000:  # noqa: ASYNC110  # measured now and then
            await asyncio.sleep(0.1)
    (item,) = metrics["items"]
    assert int(item["containers"][0]["usage"]["memory"].removesuffix("Ki")) > 100
    for count in (3, 1):
        # without a resourceVersion: a status write of the controller may still change it
        body = {"metadata": {"name": "web"}, "spec": {"replicas": count}}
        assert (await client.ask("PUT", SCALE, body))[0] == 200
        await running(count)
    await until(lambda: sum(map(alive, seen)) == 1)
    assert len(seen) == 3
    await cluster.stop()
    assert not any(map(alive, seen))


async def test_a_process_outside_its_session_is_killed(start, until, tmp_path):
    client = await start(directory=tmp_path / "pods")
    mark = tmp_path / "pid"
    client.cluster.apply(pod("p", ["sh", "-c", f"setsid sh -c 'echo $$ > {mark}; exec sleep 1000' & sleep 1000"]))
    await until(lambda: mark.exists() and mark.read_text().strip())
    stray = int(mark.read_text())
    assert alive(stray)
    await client.ask("DELETE", f"{PODS}/p?gracePeriodSeconds=1")
    await until(lambda: client.cluster.get("pods", "p") is None)
    await until(lambda: not alive(stray))


async def test_a_terminating_pod_keeps_its_name_until_it_has_stopped(start, until):
    client = await start()
    client.cluster.apply(pod("p", ["sh", "-c", STUBBORN]))
    (directory,) = await until(lambda: [*client.cluster.directory.glob("default_p_*")])
    await until(lambda: (directory / "up").exists())
    status, body = await client.ask("DELETE", f"{PODS}/p")
    assert status == 200
    assert body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert "deletionTimestamp" in client.cluster.get("pods", "p")["metadata"]
    (directory / "go").touch()
    await until(lambda: client.cluster.get("pods", "p") is None)


async def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(start, until):
    client = await start()
    deaf = "trap '' TERM; touch up; while :; do sleep 0.05; done"
    client.cluster.apply(pod("p", ["sh", "-c", deaf], terminationGracePeriodSeconds=1))
    (directory,) = await until(lambda: [*client.cluster.directory.glob("default_p_*")])
    await until(lambda: (directory / "up").exists())
    (pid,) = (await until(client.cluster.pids)).values()  # the cluster learns the pid after the process has started
    await client.ask("DELETE", f"{PODS}/p")
    await until(lambda: client.cluster.get("pods", "p") is None)
    assert not alive(pid)


async def test_only_the_main_process_is_asked_to_end(start, until):
    """Its children end with it, or when it says so: those of Celery would drop the tasks they are working on."""
    client = await start()
    child = "trap 'touch asked' TERM; touch up; until test -e go; do sleep 0.05; done; touch finished"
    main = f"trap 'touch stopping; wait; exit 0' TERM; sh -c \"{child}\" & wait"
    client.cluster.apply(pod("p", ["sh", "-c", main], terminationGracePeriodSeconds=60))
    (directory,) = await until(lambda: [*client.cluster.directory.glob("default_p_*")])
    await until(lambda: (directory / "up").exists())
    await client.ask("DELETE", f"{PODS}/p")
    await until(lambda: (directory / "stopping").exists())
    (directory / "go").touch()
    await until(lambda: client.cluster.get("pods", "p") is None)
    assert (directory / "finished").exists()
    assert not (directory / "asked").exists()


@pytest.mark.parametrize("turns", range(6))
async def test_a_pod_deleted_while_starting_leaves_no_process(start, until, turns):
    client = await start()
    client.cluster.apply(pod("p", ["sleep", "1000"]))
    for _ in range(turns):
        await asyncio.sleep(0)
    client.cluster.delete("pods", "p", grace=0)
    assert client.cluster.get("pods", "p") is None
    await asyncio.sleep(0.2)
    await until(lambda: not client.cluster.pids())


async def test_forced_deletion_frees_the_name_at_once(start, until):
    client = await start()
    client.cluster.apply(pod("p", ["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]))
    (pid,) = (await until(client.cluster.pids)).values()
    await client.ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    assert client.cluster.get("pods", "p") is None
    await until(lambda: not alive(pid))


@pytest.mark.parametrize(("code", "phase_then"), [(0, "Succeeded"), (3, "Failed")])
async def test_a_pod_without_restarts_ends(start, until, code, phase_then):
    client = await start()
    client.cluster.apply(pod("p", ["sh", "-c", f"exit {code}"], restartPolicy="Never"))
    await until(lambda: phase(client.cluster, "p") == phase_then)
    (status,) = client.cluster.get("pods", "p")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == code


@pytest.mark.parametrize(("command", "policy"), [(["/no/such/program"], "Never"), (["true"], "OnFailure")])
async def test_a_pod_without_processes_can_be_deleted(start, until, command, policy):
    client = await start()
    client.cluster.apply(pod("p", command, restartPolicy=policy))
    await until(lambda: client.cluster.get("pods", "p")["status"].get("containerStatuses"))
    await asyncio.sleep(0.1)
    await client.ask("DELETE", f"{PODS}/p")
    await until(lambda: client.cluster.get("pods", "p") is None)


async def test_containers_get_the_environment_of_the_manifest(start, until):
    client = await start()
    env = [
        {"name": "COLOUR", "value": "red"},
        {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "BOTH", "value": "$(COLOUR)-$(ME)"},
    ]
    command = ["sh", "-c", 'echo "$COLOUR $ME $WHERE $BOTH $0" > out.tmp; mv out.tmp out; sleep 1000']
    client.cluster.apply(pod("p", command, container={"env": env, "args": ["$(COLOUR)!"]}))
    (out,) = await until(lambda: [*client.cluster.directory.glob("default_p_*/out")])
    assert out.read_text() == "red p default red-p red!\n"


@pytest.mark.parametrize("kind", ["exec", "httpGet", "tcpSocket"])
async def test_a_pod_is_ready_when_its_probe_passes(start, until, kind, unused_tcp_port):
    client = await start()
    server = (
        "from http.server import HTTPServer, SimpleHTTPRequestHandler; open('up', 'w').close();"
        f"HTTPServer(('127.0.0.1', {unused_tcp_port}), SimpleHTTPRequestHandler).serve_forever()"
    )
    probe = {
        "exec": {"exec": {"command": ["test", "-e", "up"]}},
        "httpGet": {"httpGet": {"path": "/", "port": unused_tcp_port}},
        "tcpSocket": {"tcpSocket": {"port": unused_tcp_port}},
    }[kind]
    command = ["sh", "-c", 'until test -e go; do sleep 0.05; done; exec python3 -c "$0"', server]
    container = {"readinessProbe": {**probe, "periodSeconds": 0.1}}
    client.cluster.apply(pod("p", command, container=container))
    await until(lambda: phase(client.cluster, "p") == "Running")
    assert not is_ready(client.cluster, "p")
    (directory,) = client.cluster.directory.glob("default_p_*")
    (directory / "go").touch()
    await until(lambda: is_ready(client.cluster, "p"))


async def test_readiness_is_lost_after_three_failures(start, until):
    client = await start()
    container = {"readinessProbe": {"exec": {"command": ["test", "!", "-e", "ill"]}, "periodSeconds": 0.1}}
    client.cluster.apply(pod("p", ["sleep", "1000"], container=container))
    await until(lambda: is_ready(client.cluster, "p"))
    (directory,) = client.cluster.directory.glob("default_p_*")
    (directory / "ill").touch()
    await until(lambda: not is_ready(client.cluster, "p"))
    assert phase(client.cluster, "p") == "Running"


async def test_a_stateful_pod_is_replaced_only_after_it_is_gone(start, workload, until):
    client = await start()
    client.cluster.apply(workload("StatefulSet", "db", command=["sh", "-c", STUBBORN]))
    first = await until(lambda: is_ready(client.cluster, "db-0") and client.cluster.get("pods", "db-0"))
    (directory,) = client.cluster.directory.glob("default_db-0_*")
    await until(lambda: (directory / "up").exists())
    await client.ask("DELETE", f"{PODS}/db-0")
    await asyncio.sleep(0.1)
    assert client.cluster.get("pods", "db-0")["metadata"]["uid"] == first["metadata"]["uid"]
    (directory / "go").touch()
    second = await until(
        lambda: (
            (found := client.cluster.get("pods", "db-0"))
            and found["metadata"]["uid"] != first["metadata"]["uid"]
            and found
        )
    )
    await client.ask("DELETE", f"{PODS}/db-0?gracePeriodSeconds=0")
    third = await until(
        lambda: (
            (found := client.cluster.get("pods", "db-0"))
            and found["metadata"]["uid"] != second["metadata"]["uid"]
            and found
        )
    )
    assert third["metadata"]["name"] == "db-0"


async def test_logs_of_containers_are_files_removed_with_the_cluster(start, until):
    client = await start()
    client.cluster.apply(pod("p", ["sh", "-c", "echo hello; echo trouble >&2; sleep 1000"]))
    await until(lambda: client.cluster.pids())
    (log,) = await until(lambda: [*client.cluster.directory.glob("default_p_*/app.log")])
    await until(lambda: log.read_text() == "hello\ntrouble\n")
    await client.cluster.stop()
    assert not log.exists()


async def test_cancelling_all_tasks_leaves_no_process(until, tmp_path):
    before = asyncio.all_tasks()
    cluster = Cluster(directory=tmp_path)
    await cluster.start()
    cluster.apply(pod("p", ["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]))
    (pid,) = (await until(cluster.pids)).values()
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await until(lambda: not alive(pid))
    await cluster.stop()


async def test_a_failed_start_leaves_no_tasks(unused_tcp_port, tmp_path):
    async with Cluster(port=unused_tcp_port):
        tasks = asyncio.all_tasks()
        with pytest.raises(OSError, match="in use"):
            await Cluster(port=unused_tcp_port, directory=tmp_path).start()
        assert asyncio.all_tasks() == tasks


async def test_a_new_pod_does_not_get_the_metrics_of_its_predecessor(start, until):
    client = await start(sampling_seconds=3600.0)
    client.cluster.apply(pod("p", ["sleep", "1000"]))
    await until(client.cluster.pids)
    for _ in range(2):
        await client.cluster.usage.sample()
    measured = client.cluster.clock.now()
    assert (await client.ask("GET", f"{METRICS}/p"))[0] == 200
    client.cluster.delete("pods", "p", grace=0)
    await until(
        lambda: client.cluster.clock.now().replace(microsecond=0) > measured
    )  # creationTimestamp has whole seconds
    client.cluster.apply(pod("p", ["sleep", "1000"]))
    assert (await client.ask("GET", f"{METRICS}/p"))[0] == 404
