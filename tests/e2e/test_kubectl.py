"""People's hands on the embedded cluster: real kubectls, an old one and a current one where there are two."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpad.lab.cluster import Cluster

ROOT = Path(__file__).resolve().parent.parent.parent
BESIDE = ROOT / ".cache" / "kubectl-debian" / "usr" / "bin" / "kubectl"
"""Where tests/packages.sh puts Debian's kubectl when another one is installed already."""
SECONDS = 30


def kubectls() -> list[Any]:
    """Debian's and the one on the PATH, each with a name."""
    found = {"debian": str(BESIDE)} if BESIDE.exists() else {}
    if installed := shutil.which("kubectl"):
        found["current" if found else "installed"] = installed
    missing = pytest.mark.skip(reason="no kubectl; tests/packages.sh installs Debian's as root on Debian")
    return [pytest.param(path, id=name) for name, path in found.items()] or [pytest.param("", marks=missing, id="none")]


@dataclass(frozen=True)
class Kubectl:
    """Runs one kubectl against one cluster."""

    path: str
    home: Path

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        environment = {"PATH": os.defpath, "HOME": str(self.home), "KUBECONFIG": str(self.home / "kubeconfig")}
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            self.path, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=self.home
        )

    async def run(self, *arguments: str, given: str = "") -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        process = await self.start(*arguments)
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate(given.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out.decode(), err.decode()

    async def __call__(self, line: str, *, given: str = "") -> str:
        """The output of a command line that succeeds."""
        status, out, err = await self.run(*line.split(), given=given)
        assert status == 0, f"kubectl {line}: {out}{err}"
        return out

    async def refused(self, line: str, *, given: str = "") -> str:
        """The complaint of a command line that does not succeed."""
        status, out, err = await self.run(*line.split(), given=given)
        assert status != 0, f"kubectl {line}: {out}"
        return err

    async def json(self, line: str) -> Any:
        return json.loads(await self(f"{line} -o json"))

    async def apply(self, *objects: dict[str, Any], options: str = "") -> str:
        return await self(f"apply {options} -f -", given=yaml.safe_dump_all(objects))

    async def names(self, kind: str = "pods") -> set[str]:
        return {item["metadata"]["name"] for item in (await self.json(f"get {kind}"))["items"]}


@pytest.fixture(params=kubectls())
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def kubectl(path: str, world: Any, tmp_path: Path) -> Kubectl:
    """On a cluster of pods that are ready at once; `world` is the way to it for everything else."""
    await world.cluster.kubeconfig(tmp_path / "kubeconfig")
    return Kubectl(path, tmp_path)


@pytest.fixture
async def processes(path: str, tmp_path: Path) -> AsyncIterator[Kubectl]:
    """On a cluster whose pods are processes."""
    async with Cluster(sampling_seconds=0.3) as cluster:
        await cluster.kubeconfig(tmp_path / "kubeconfig")
        yield Kubectl(path, tmp_path)


def nginx(replicas: int, image: str) -> dict[str, Any]:
    labels = {"app": "nginx"}
    container = {"name": "nginx", "image": image, "ports": [{"containerPort": 80}]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "nginx"}, "spec": body}


def recorded_text(shared: Path, name: str) -> str:
    """What a current kubectl printed of a real cluster."""
    path = shared / "fixtures" / "kubectl" / f"{name}.txt"
    if not path.exists():
        pytest.skip(f"no recording at {path}; point HPAD_SHARED at the folder that holds fixtures/")
    return path.read_text()


def rows(table: str) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in table.strip().splitlines()]


def labels_of(described: str) -> list[str]:
    """What a description says before its colons, and the headings of its tables, down to the events."""
    text = described.partition("\nEvents:")[0]
    return [
        re.split(r": |:$", line)[0].strip() if ":" in line else " ".join(line.split()) for line in text.splitlines()
    ]


def utilization(world: Any, name: str) -> int | None:
    metrics = world.status(name).get("currentMetrics") or [{}]
    return metrics[0].get("resource", {}).get("current", {}).get("averageUtilization")


async def test_an_hpa_made_by_autoscale(world, kubectl, shared):
    """The walkthrough: 305 % at one replica makes seven of it; get, describe and delete show and end it."""
    world.workload("Deployment", "php-apache", 1, cpu="200m")
    world.load("php-apache", lambda pods: 610 // pods)
    await world.hpad()
    said = await kubectl("autoscale deployment php-apache --cpu-percent=50 --min=1 --max=10")
    assert said == "horizontalpodautoscaler.autoscaling/php-apache autoscaled\n"
    await world.until(lambda: world.replicas("deployments", "php-apache") == 7)
    await world.until(lambda: utilization(world, "php-apache") == 43)
    recorded = recorded_text(shared, "get_hpa")
    header, row = rows(await kubectl("get hpa php-apache"))
    assert header == rows(recorded)[0]
    assert row[:-1] == ["php-apache", "Deployment/php-apache", "cpu: 43%/50%", "1", "10", "7"]
    old, new = [
        await kubectl.json(f"get horizontalpodautoscalers.{version}.autoscaling php-apache") for version in ("v1", "v2")
    ]
    assert old["spec"]["targetCPUUtilizationPercentage"] == 50
    assert old["status"]["currentCPUUtilizationPercentage"] == 43
    assert new["spec"]["metrics"][0]["resource"] == {
        "name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50},
    }
    assert old["metadata"]["uid"] == new["metadata"]["uid"]
    described = await kubectl("describe hpa php-apache")
    assert re.search(r"Normal +SuccessfulRescale +\S+ +horizontal-pod-autoscaler +New size: 7; reason: cpu", described)
    assert await kubectl("delete hpa php-apache") == 'horizontalpodautoscaler.autoscaling "php-apache" deleted\n'
    _, out, err = await kubectl.run("get", "hpa")
    assert (out, err) == ("", "No resources found in default namespace.\n")


async def test_describe_hpa_is_laid_out_as_recorded(world, kubectl, shared):
    """Of one in the same state as the recording's first: 50 % of 50 %, four replicas, no more than that."""
    recorded = recorded_text(shared, "describe_hpa_all").partition("\n\n\n")[0]
    world.workload("Deployment", "above", 4, cpu="200m")
    world.load("above", 100)
    world.hpa("above", maxReplicas=4, behavior=None)
    await world.hpad()
    await world.until(lambda: utilization(world, "above") == 50)
    described = await kubectl("describe hpa above")
    if "Target CPU utilization" in described:  # a kubectl that does not know autoscaling/v2 yet
        assert "Target CPU utilization:   50%\nCurrent CPU utilization:  50%\nMin replicas:" in described
        return
    found, wanted = labels_of(described), labels_of(recorded)
    assert found[: len(wanted) - 3] == wanted[:-3]
    assert [line.split()[0] for line in found[-3:]] == [line.split()[0] for line in wanted[-3:]]
    same = "  resource cpu on pods  (as a percentage of request):  50% (100m) / 50%"
    assert same in recorded
    assert same in described


@pytest.mark.parametrize("options", ["", "--server-side"], ids=["client-side", "server-side"])
async def test_a_deployment_from_apply_to_delete(kubectl, world, options):
    """nginx: two replicas, described, another image (new pods), four replicas, gone."""
    done = "serverside-applied" if options else "created"
    assert await kubectl.apply(nginx(2, "nginx:1.14.2"), options=options) == f"deployment.apps/nginx {done}\n"
    assert "successfully rolled out" in await kubectl("rollout status deployment/nginx --timeout=20s")
    described = await kubectl("describe deployment nginx")
    for line in (
        r"Replicas: +2 desired \| 2 updated \| 2 total \| 2 available \| 0 unavailable",
        r"Image: +nginx:1\.14\.2",
        r"NewReplicaSet: +nginx-\w+ \(2/2 replicas created\)",
        r"Normal +ScalingReplicaSet +\S+ +deployment-controller +Scaled up replica set nginx-\w+ from 0 to 2",
    ):
        assert re.search(line, described), f"{line} in {described}"
    first = await kubectl.names()
    done = "serverside-applied" if options else "configured"
    assert await kubectl.apply(nginx(2, "nginx:1.16.1"), options=options) == f"deployment.apps/nginx {done}\n"
    await kubectl("rollout status deployment/nginx --timeout=20s")
    await world.until(lambda: len(world.pods("nginx")) == 2)
    second = await kubectl.names()
    assert len(second) == 2
    assert not first & second
    await kubectl.apply(nginx(4, "nginx:1.16.1"), options=options)
    await kubectl("rollout status deployment/nginx --timeout=20s")
    assert len(await kubectl.names()) == 4
    assert second < await kubectl.names()
    assert await kubectl("delete deployment nginx") == 'deployment.apps "nginx" deleted\n'
    await world.until(lambda: not world.pods("nginx"))
    assert await kubectl.names("rs") == set()


async def test_what_apply_leaves_out_is_removed_and_unchanged_is_unchanged(kubectl, world):
    hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "two"}}
    metrics = [
        {"type": "Resource", "resource": {"name": name, "target": {"type": "Utilization", "averageUtilization": 50}}}
        for name in ("cpu", "memory")
    ]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "two"}
    hpa["spec"] = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5, "metrics": metrics}

    def held() -> Any:
        return world.cluster.get("horizontalpodautoscalers", "two")["spec"]

    assert "created" in await kubectl.apply(hpa)
    assert "unchanged" in await kubectl.apply(hpa)
    hpa["spec"]["maxReplicas"] = 6
    assert "configured" in await kubectl.apply(hpa)
    assert held()["maxReplicas"] == 6
    assert [metric["resource"]["name"] for metric in held()["metrics"]] == ["cpu", "memory"]
    del hpa["spec"]["minReplicas"]
    hpa["spec"]["metrics"] = metrics[1:]
    await kubectl.apply(hpa)
    assert held()["minReplicas"] == 1
    assert [metric["resource"]["name"] for metric in held()["metrics"]] == ["memory"]


async def test_a_rolling_update_under_an_hpa(world, kubectl):
    """The HPA scales the Deployment, no ReplicaSet of it, and does not run away while old and new pods overlap."""
    world.workload("Deployment", "web", 3, cpu="200m")
    world.load("web", 100)
    world.hpa("web", minReplicas=3, maxReplicas=9)
    await world.hpad()
    await world.until(lambda: utilization(world, "web") == 50)
    before = await kubectl.names()
    await kubectl("set image deployment/web app=app:2")
    assert "successfully rolled out" in await kubectl("rollout status deployment/web --timeout=20s")
    await world.periods(3)
    assert world.replicas("deployments", "web") == 3
    assert len(world.pods("web")) == 3
    assert not before & await kubectl.names()
    scaled = [write for write in world.cluster.log.writes if write.resource == "replicasets"]
    assert scaled == []
    listed = await kubectl("rollout history deployment/web")
    assert [row[0] for row in rows(listed)[2:]] == ["1", "2"]


async def test_a_stateful_pod_keeps_its_name_until_it_is_gone(processes):
    """Deleted gracefully it is Terminating; forced, its successor has the name at once."""
    stubborn = {"name": "app", "command": ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]}
    spec = {"containers": [stubborn], "terminationGracePeriodSeconds": 600}
    labels = {"app": "web"}
    body = {"replicas": 2, "selector": {"matchLabels": labels}, "serviceName": "web"}
    body["template"] = {"metadata": {"labels": labels}, "spec": spec}
    await processes.apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": body})
    await processes("rollout status statefulset/web --timeout=20s")
    first = await processes.json("get pod web-0")
    assert await processes("delete pod web-0 --wait=false") == 'pod "web-0" deleted\n'
    waiting = await processes.json("get pod web-0")
    assert waiting["metadata"]["uid"] == first["metadata"]["uid"]
    assert waiting["metadata"]["deletionGracePeriodSeconds"] == 600
    assert {row[0]: row[2] for row in rows(await processes("get pods"))[1:]} == {
        "web-0": "Terminating",
        "web-1": "Running",
    }
    assert 'pod "web-0" force deleted\n' in await processes("delete pod web-0 --grace-period=0 --force")
    await processes("rollout status statefulset/web --timeout=20s")
    successor = await processes.json("get pod web-0")
    assert successor["metadata"]["uid"] != first["metadata"]["uid"]
    described = await processes("describe statefulset web")
    assert re.search(r"Replicas: +2 desired \| 2 total", described)
    assert "create Pod web-0 in StatefulSet web successful" in described
    assert re.search(r"Controlled By: +StatefulSet/web", await processes("describe pod web-0"))
    await processes("delete statefulset web --cascade=false")
    await processes("delete pods --all --grace-period=0 --force")


async def test_usage_and_scale_of_processes(processes):
    deployment = nginx(1, "nginx")
    busy = "while :; do :; done"
    deployment["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", busy]
    await processes.apply(deployment)
    async with asyncio.timeout(15):
        while (await processes.run("top", "pods"))[0]:  # noqa: ASYNC110  # kubectl is the one to say so
            await asyncio.sleep(0.2)
    header, (name, cpu, memory) = rows(await processes("top pods"))
    assert header == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert name.startswith("nginx-")
    assert int(cpu.removesuffix("m")) > 50
    assert memory.endswith("Mi")
    assert await processes("scale deployment nginx --replicas=2") == "deployment.apps/nginx scaled\n"
    await processes("rollout status deployment/nginx --timeout=20s")
    assert len(await processes.names()) == 2
    complaint = await processes.refused("scale deployment nginx --current-replicas=5 --replicas=1")
    assert "replicas to be 5, was 2" in complaint


async def test_get_in_its_forms(kubectl, world):
    world.workload("Deployment", "web", 2)
    await kubectl("rollout status deployment/web --timeout=20s")
    header, row = rows(await kubectl("get deployment web -o wide"))
    assert header == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
    assert [*row[:4], *row[5:]] == ["web", "2/2", "2", "2", "app", "app:1", "app=web"]
    header, *_ = rows(await kubectl("get pods -o wide"))
    assert header[-5:] == ["AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert yaml.safe_load(await kubectl("get deployment web -o yaml"))["spec"]["replicas"] == 2
    raw = json.loads(await kubectl("get --raw /apis/apps/v1/namespaces/default/deployments/web"))
    assert raw["metadata"]["name"] == "web"
    header, *events = rows(await kubectl("get events"))
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


async def test_a_watch_prints_what_changes(kubectl, world):
    world.workload("Deployment", "web", 1)
    await kubectl("rollout status deployment/web --timeout=20s")
    watching = await kubectl.start("get", "deployments", "-w")
    try:
        assert watching.stdout is not None
        async with asyncio.timeout(SECONDS):
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


async def test_what_create_makes(kubectl, world):
    """Typed clients of newer kubectls send protobuf."""
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
    assert await kubectl.apply(nginx(2, "nginx:1"), options=dry) == "deployment.apps/nginx created (server dry run)\n"
    assert world.cluster.get("deployments", "nginx") is None
    await kubectl.apply(nginx(2, "nginx:1"))
    before = world.cluster.get("deployments", "nginx")
    said = await kubectl.apply(nginx(3, "nginx:1"), options=dry)
    assert said == "deployment.apps/nginx configured (server dry run)\n"
    await kubectl(f"delete deployment nginx {dry}")
    after = world.cluster.get("deployments", "nginx")
    assert after["spec"] == before["spec"]
    assert "deletionTimestamp" not in after["metadata"]


async def test_apply_conflicts_with_what_the_autoscaler_has_set(world, kubectl):
    """And goes through without the replicas, which then stay, or with --force-conflicts."""
    await kubectl.apply(nginx(2, "nginx:1"), options="--server-side")
    world.hpa("nginx", minReplicas=4)
    await world.hpad()
    await world.until(lambda: world.replicas("deployments", "nginx") == 4)
    manifest = yaml.safe_dump(nginx(2, "nginx:2"))
    complaint = await kubectl.refused("apply --server-side -f -", given=manifest)
    assert re.search(
        r'Apply failed with 1 conflict: conflict with "\S+" with subresource "scale" using apps/v1: \.spec\.replicas',
        complaint,
    )
    silent = nginx(2, "nginx:2")
    del silent["spec"]["replicas"]
    await kubectl.apply(silent, options="--server-side")
    assert world.replicas("deployments", "nginx") == 4
    await kubectl.apply(nginx(5, "nginx:2"), options="--server-side --force-conflicts")
    assert world.replicas("deployments", "nginx") == 5


async def test_logs_of_a_process(processes):
    talker = {"name": "app", "command": ["sh", "-c", "echo one; echo two; sleep 0.5; echo three; sleep 1000"]}
    spec = {"containers": [talker], "terminationGracePeriodSeconds": 1}
    await processes.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "talker"}, "spec": spec})
    following = await processes.start("logs", "-f", "talker")
    try:
        assert following.stdout is not None
        async with asyncio.timeout(SECONDS):
            assert [await following.stdout.readline() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]
    finally:
        following.kill()
        await following.communicate()
    assert await processes("logs talker --tail=2") == "two\nthree\n"
    assert "container nothing is not valid for pod talker" in await processes.refused("logs talker -c nothing")
