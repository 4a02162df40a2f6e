"""Commands of kubectl that read and change the embedded cluster."""

import asyncio
import json
import re
from typing import Any

import yaml
from support import kubectl_binaries

pytest_plugins = ("support.kubectl_fixtures",)


@kubectl_binaries.EACH
async def test_apply_removes_absent_fields_and_reports_unchanged_objects(kubectl, world):
    hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "two"}}
    metrics = [
        {"type": "Resource", "resource": {"name": name, "target": {"type": "Utilization", "averageUtilization": 50}}}
        for name in ("cpu", "memory")
    ]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "two"}
    hpa["spec"] = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5, "metrics": metrics}

    def stored() -> Any:
        return world.cluster.get("horizontalpodautoscalers", "two")["spec"]

    assert "created" in await kubectl.apply(hpa)
    assert "unchanged" in await kubectl.apply(hpa)
    hpa["spec"]["maxReplicas"] = 6
    assert "configured" in await kubectl.apply(hpa)
    assert stored()["maxReplicas"] == 6
    assert [metric["resource"]["name"] for metric in stored()["metrics"]] == ["cpu", "memory"]
    del hpa["spec"]["minReplicas"]
    hpa["spec"]["metrics"] = metrics[1:]
    await kubectl.apply(hpa)
    assert stored()["minReplicas"] == 1
    assert [metric["resource"]["name"] for metric in stored()["metrics"]] == ["memory"]


def _is_busy(top: str) -> bool:
    """Whether the first pod in a table of usage uses more than 50 millicores."""
    return any(int(row[1].removesuffix("m")) > 50 for row in kubectl_binaries.rows(top)[1:2])


async def test_the_node_is_listed_and_described(processes):
    header, row = kubectl_binaries.rows(await processes("get nodes"))
    assert header == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert (row[:3], row[4]) == (["local", "Ready", "control-plane"], "v1.36.2")
    await processes.apply(kubectl_binaries.nginx(1, "nginx:1.14.2"))
    await processes("rollout status deployment/nginx --timeout=100s")
    described = await processes("describe node local")
    for words in ("Kubelet Version:            v1.36.2", "InternalIP:  127.0.0.1", "KubeletReady", "nginx-"):
        assert words in described
    assert "Failed to get lease" not in described


async def test_containers_without_a_command_roll_out_and_describe_shows_their_event(processes):
    await processes.apply(kubectl_binaries.nginx(2, "nginx:1.14.2"))
    assert "successfully rolled out" in await processes("rollout status deployment/nginx --timeout=100s")
    assert [row[1:3] for row in kubectl_binaries.rows(await processes("get pods"))[1:]] == [["1/1", "Running"]] * 2
    described = await processes("describe pod -l app=nginx")
    for line in (
        r"Normal +Scheduled +\S+ +default-scheduler +Successfully assigned default/nginx-\S+ to local",
        r"Normal +Pretended +\S+ +kubelet +Container \S+ has no command: its image \"nginx:1.14.2\" is not run here",
    ):
        assert re.search(line, described), f"{line} in {described}"


async def test_describe_and_the_previous_log_show_why_a_pod_crashed(processes):
    container = {"name": "app", "image": "app", "command": ["sh", "-c", "echo before the end; exit 3"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "crash"}, "spec": {"containers": [container]}}
    await processes.apply(pod)
    status, described = "", ""
    async with asyncio.timeout(kubectl_binaries.SECONDS):
        while "CrashLoopBackOff" not in status:
            status = await processes("get pod crash")
    async with asyncio.timeout(kubectl_binaries.SECONDS):
        while "Last State:" not in described or "CrashLoopBackOff" not in described:
            described = await processes("describe pod crash")
    for line in (
        r"State: +Waiting\n +Reason: +CrashLoopBackOff",
        r"Last State: +Terminated\n +Reason: +Error\n +Exit Code: +3",
        r"Warning +BackOff +.* +kubelet +Back-off restarting failed container app in pod crash_default\(",
    ):
        assert re.search(line, described), f"{line} in {described}"
    assert await processes("logs -p crash") == "before the end\n"


async def test_usage_and_scale_of_processes(processes):
    deployment = kubectl_binaries.nginx(1, "nginx")
    busy = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.1; done"  # about a fifth of a core
    deployment["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", busy]
    await processes.apply(deployment)
    async with asyncio.timeout(kubectl_binaries.SECONDS):
        while not _is_busy((await processes.run("top", "pods"))[1]):  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.2)
    header, (name, _, memory) = kubectl_binaries.rows(await processes("top pods"))
    assert header == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert name.startswith("nginx-")
    assert memory.endswith("Mi")
    assert await processes("scale deployment nginx --replicas=2") == "deployment.apps/nginx scaled\n"
    await processes("rollout status deployment/nginx --timeout=100s")
    assert len(await processes.names()) == 2
    complaint = await processes.refused("scale deployment nginx --current-replicas=5 --replicas=1")
    assert "replicas to be 5, was 2" in complaint


@kubectl_binaries.EACH
async def test_output_formats_of_get(kubectl, world):
    world.workload("Deployment", "web", 2)
    await kubectl("rollout status deployment/web --timeout=100s")
    header, row = kubectl_binaries.rows(await kubectl("get deployment web -o wide"))
    assert header == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    assert [*row[:4], *row[5:]] == ["web", "2/2", "2", "2", "app", "app:1", "app=web"]
    header, *_ = kubectl_binaries.rows(await kubectl("get pods -o wide"))
    assert header[-5:] == ["AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert yaml.safe_load(await kubectl("get deployment web -o yaml"))["spec"]["replicas"] == 2
    raw = json.loads(await kubectl("get --raw /apis/apps/v1/namespaces/default/deployments/web"))
    assert raw["metadata"]["name"] == "web"
    header, *events = kubectl_binaries.rows(await kubectl("get events"))
    assert header == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert {(row[2], row[3].partition("/")[0]) for row in events} == {
        ("ScalingReplicaSet", "deployment"),
        ("SuccessfulCreate", "replicaset"),
    }
    newer = await kubectl.json("get events.events.k8s.io")
    assert {item["reportingController"] for item in newer["items"]} == {
        "deployment-controller",
        "replicaset-controller",
    }
    assert set((await kubectl("get all -o name")).split()) >= {"deployment.apps/web"}


async def test_a_watch_prints_changes(kubectl, world):
    world.workload("Deployment", "web", 1)
    await kubectl("rollout status deployment/web --timeout=100s")
    watching = await kubectl.start("get", "deployments", "-w")
    try:
        assert watching.stdout is not None
        async with asyncio.timeout(kubectl_binaries.SECONDS):
            assert (await watching.stdout.readline()).split()[0] == b"NAME"
            assert (await watching.stdout.readline()).split()[:2] == [b"web", b"1/1"]
            world.cluster.apply(
                {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3}}
            )
            while (await watching.stdout.readline()).split()[:2] != [b"web", b"3/3"]:
                pass
    finally:
        watching.kill()
        await watching.communicate()


@kubectl_binaries.EACH
async def test_create_commands(kubectl, world):
    """Typed clients of newer kubectls send protobuf bodies."""
    await kubectl("create deployment web --image=app:1 --replicas=2 --port=80 -- sleep 5")
    deployment = world.cluster.get("deployments", "web")
    assert deployment["spec"]["replicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["command"]) == ("app:1", ["sleep", "5"])
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    await kubectl("create configmap settings --from-literal=colour=blue --from-literal=size=")
    assert world.cluster.get("configmaps", "settings")["data"] == {"colour": "blue", "size": ""}
    await kubectl("create service clusterip web --tcp=80:http")
    service = world.cluster.get("services", "web")["spec"]
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [(80, "http")]
    await kubectl("create namespace shop")
    assert "shop" in await kubectl.names("namespaces")
    await kubectl("run once --image=app:1 --namespace=shop")
    assert world.cluster.get("pods", "once", "shop") is not None
    await kubectl("delete namespace shop")
    assert world.cluster.get("pods", "once", "shop") is None


async def test_a_dry_run_changes_nothing(kubectl, world):
    dry = "--dry-run=server"
    assert (
        await kubectl.apply(kubectl_binaries.nginx(2, "nginx:1"), options=dry)
        == "deployment.apps/nginx created (server dry run)\n"
    )
    assert world.cluster.get("deployments", "nginx") is None
    await kubectl.apply(kubectl_binaries.nginx(2, "nginx:1"))
    before = world.cluster.get("deployments", "nginx")
    output = await kubectl.apply(kubectl_binaries.nginx(3, "nginx:1"), options=dry)
    assert output == "deployment.apps/nginx configured (server dry run)\n"
    await kubectl(f"delete deployment nginx {dry}")
    after = world.cluster.get("deployments", "nginx")
    assert after["spec"] == before["spec"]
    assert "deletionTimestamp" not in after["metadata"]


async def test_logs_of_a_process(processes):
    talker = {"name": "app", "command": ["sh", "-c", "echo one; echo two; sleep 0.5; echo three; sleep 1000"]}
    spec = {"containers": [talker], "terminationGracePeriodSeconds": 1}
    await processes.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talker"}, "spec": spec})
    following = await processes.start("logs", "-f", "talker")
    try:
        assert following.stdout is not None
        async with asyncio.timeout(kubectl_binaries.SECONDS):
            assert [await following.stdout.readline() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]
    finally:
        following.kill()
        await following.communicate()
    assert await processes("logs talker --tail=2") == "two\nthree\n"
    assert "container nothing is not valid for pod talker" in await processes.refused("logs talker -c nothing")
