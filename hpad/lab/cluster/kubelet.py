"""Two kubelets: one runs pods as local processes, the other only makes their objects ready; and their node.

The only node is this machine, with the fields that kubectl shows of a node.
"""

import asyncio
import os
import platform
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from hpad.lab.cluster import hosts, ownership, pods, recorder, strategy
from hpad.lab.cluster.containers import Container
from hpad.lab.cluster.resources import PODS, Object
from hpad.lab.cluster.store import Change, key_of
from hpad.lab.cluster.writes import Writer

AUTHOR = ownership.Author("kubelet")
_SCHEDULER = "default-scheduler"


@dataclass(eq=False, slots=True)
class PodRunner:
    """Runs one pod and its containers until the last process has ended."""

    writer: Writer
    pod: Object
    directory: Path
    host: hosts.Host
    events: recorder.Recorder
    containers: list[Container] = field(init=False)

    def __post_init__(self) -> None:
        self.containers = [
            Container(
                self.pod,
                spec,
                self.directory,
                self.writer.clock,
                self.report,
                self._record_normal,
                self._record_warning,
                self.host,
            )
            for spec in self.pod["spec"]["containers"]
        ]

    async def run(self) -> None:
        """Runs all containers; removes the pod's object afterwards if it is being deleted."""
        self._bind(strategy.timestamp(self.writer.clock.now()))
        async with asyncio.TaskGroup() as group:
            for container in self.containers:
                group.create_task(container.run())
        self.report()
        self._finish()

    def stop(self, grace: float) -> None:
        for container in self.containers:
            container.stop(grace)

    def _current(self) -> Object | None:
        """Returns the stored pod, None if it is gone or replaced by another one of its name."""
        found = self.writer.store.find(PODS, *key_of(self.pod))
        same = found is not None and found["metadata"]["uid"] == self.pod["metadata"]["uid"]
        return found if same else None

    def _bind(self, now: str) -> None:
        current = self._current()
        if current is not None:
            bound = {**current, "spec": {**current["spec"], "nodeName": NODE}}
            addresses = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
            bound["status"] = {**(current.get("status") or {}), "startTime": now, **addresses}
            self.pod = self.writer.store.update(PODS, bound)
            name = "/".join(key_of(self.pod))
            message = f"Successfully assigned {name} to {NODE}"
            self.events.record(_SCHEDULER, (PODS, self.pod), "Scheduled", message)
            for container in self.containers:
                container.pod = self.pod
            self.report()

    def report(self) -> None:
        """Writes the pod's status from the current states of its containers."""
        current = self._current()
        if current is None:
            return
        statuses = [container.status() for container in self.containers]
        status = {
            **(current.get("status") or {}),
            "phase": _phase(statuses),
            "conditions": conditions(current, statuses, strategy.timestamp(self.writer.clock.now())),
            "containerStatuses": statuses,
            "hostIP": "127.0.0.1",
            "hostIPs": [{"ip": "127.0.0.1"}],
        }
        self.writer.set_status(PODS, current, status)

    def _record_normal(self, reason: str, message: str) -> None:
        self.events.record(AUTHOR.name, (PODS, self.pod), reason, message)

    def _record_warning(self, reason: str, message: str) -> None:
        self.events.record(AUTHOR.name, (PODS, self.pod), reason, message, recorder.WARNING)

    def _finish(self) -> None:
        current = self._current()
        if current is not None and "deletionTimestamp" in current["metadata"]:
            self.writer.store.remove(PODS, *key_of(current))


def _grace(pod: Object) -> float:
    return float(pod["spec"].get("terminationGracePeriodSeconds", 30))


def _phase(statuses: Iterable[Object]) -> str:
    states = [(status["state"], status["restartCount"], status["lastState"]) for status in statuses]
    if all("terminated" in state for state, _, _ in states):
        failed = any(state["terminated"]["exitCode"] for state, _, _ in states)
        return "Failed" if failed else "Succeeded"
    never_ran = any("waiting" in state and not last for state, _, last in states)
    return "Pending" if never_ran else "Running"


def conditions(pod: Object, statuses: Iterable[Object], now: str) -> list[Object]:
    """Returns the four conditions that a kubelet writes; an unchanged one keeps its lastTransitionTime."""
    ready = all(status["ready"] for status in statuses)
    values = {"PodScheduled": True, "Initialized": True, "ContainersReady": ready, "Ready": ready}
    found = []
    for kind, holds in values.items():
        previous = pods.condition(pod, kind) or {}
        value = "True" if holds else "False"
        since = previous["lastTransitionTime"] if previous.get("status") == value else now
        found.append({"type": kind, "status": value, "lastProbeTime": None, "lastTransitionTime": since})
    return found


@dataclass(eq=False, slots=True)
class Kubelet:
    """Runs every pod of the store as processes under `directory`."""

    writer: Writer
    directory: Path
    host: hosts.Host
    events: recorder.Recorder
    runners: dict[str, PodRunner] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _stopping: bool = False

    def on_change(self, change: Change) -> None:
        """Handles a change; subscribe it to the store."""
        if change.resource != PODS:
            return
        metadata = change.object["metadata"]
        runner = self.runners.get(metadata["uid"])
        if runner is None:
            if change.type == "ADDED" and not self._stopping:
                asyncio.get_running_loop().call_soon(self._start, change.object)
            elif change.type == "MODIFIED" and "deletionTimestamp" in metadata:
                asyncio.get_running_loop().call_soon(_remove, self.writer, change.object)
        elif change.type == "DELETED":
            runner.stop(0)
        elif "deletionTimestamp" in metadata:
            runner.stop(metadata.get("deletionGracePeriodSeconds", 0))

    def _start(self, pod: Object) -> None:
        current = self.writer.store.find(PODS, *key_of(pod))
        uid = pod["metadata"]["uid"]
        if self._stopping or current is None or current["metadata"]["uid"] != uid:
            return
        runner = PodRunner(self.writer, current, self.folder(pod), self.host, self.events)
        self.runners[uid] = runner
        if "deletionTimestamp" in current["metadata"]:
            runner.stop(current["metadata"].get("deletionGracePeriodSeconds", 0))
        task = asyncio.create_task(self._run(uid, runner))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def folder(self, pod: Object) -> Path:
        """Returns the working directory of a pod's containers, which holds their logs (CONTAINER.log)."""
        return self.directory / "_".join((*key_of(pod), pod["metadata"]["uid"][:8]))

    async def _run(self, uid: str, runner: PodRunner) -> None:
        try:
            await runner.run()
        finally:
            del self.runners[uid]
            if self.host.is_service:
                await asyncio.to_thread(shutil.rmtree, runner.directory, ignore_errors=True)

    def roots(self) -> dict[int, tuple[str, str, str]]:
        """Maps the pid of the main process of each running container to (namespace, pod, container)."""
        return {
            container.pid: (*key_of(runner.pod), container.name)
            for runner in self.runners.values()
            for container in runner.containers
            if container.pid is not None
        }

    def simulated(self) -> list[tuple[str, str, str]]:
        """Returns (namespace, pod, container) of each running container without a process."""
        return [
            (*key_of(runner.pod), container.name)
            for runner in self.runners.values()
            for container in runner.containers
            if container.is_simulated and "running" in container.state
        ]

    def longest_grace(self) -> float:
        """Returns the seconds after which the last of the pods is killed by SIGKILL when all are stopped now."""
        return max((_grace(runner.pod) for runner in self.runners.values()), default=0.0)

    async def stop(self, grace: float | None) -> None:
        """Stops every process, by SIGKILL after `grace` seconds, or its pod's own grace; returns when none is left."""
        self._stopping = True
        for runner in list(self.runners.values()):
            runner.stop(_grace(runner.pod) if grace is None else grace)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.host.reaping.stop()


@dataclass(eq=False, slots=True)
class SimulatedKubelet:
    """Simulates pods: running and ready as soon as they exist, removed as soon as they are deleted."""

    writer: Writer

    def on_change(self, change: Change) -> None:
        """Handles a change; subscribe it to the store."""
        if change.resource != PODS or change.type == "DELETED":
            return
        loop = asyncio.get_running_loop()
        if change.type == "ADDED":
            loop.call_soon(self._start, change.object)
        elif "deletionTimestamp" in change.object["metadata"]:
            loop.call_soon(_remove, self.writer, change.object)

    def _start(self, pod: Object) -> None:
        current = self.writer.store.find(PODS, *key_of(pod))
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        now = strategy.timestamp(self.writer.clock.now())
        statuses = [
            {
                "name": spec["name"],
                "state": {"running": {"startedAt": now}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": spec.get("image", ""),
                "imageID": "",
                "started": True,
            }
            for spec in current["spec"]["containers"]
        ]
        status = {"phase": "Running", "startTime": now, "conditions": conditions(current, statuses, now)}
        status["containerStatuses"] = statuses
        spec = {**current["spec"], "nodeName": NODE}
        self.writer.store.update(PODS, {**current, "spec": spec, "status": status})


def _remove(writer: Writer, pod: Object) -> None:
    """Removes a pod without processes, unless another pod has its name by now."""
    current = writer.store.find(PODS, *key_of(pod))
    if current is not None and current["metadata"]["uid"] == pod["metadata"]["uid"]:
        writer.store.remove(PODS, *key_of(pod))


NODE: Final = "local"
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def node_manifest(version: str, now: datetime) -> Object:
    """Returns the Node, ready since `now`, with a kubelet of this version."""
    names = {"hostname": NODE, "os": "linux", "arch": _architecture()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE,
            "labels": {
                **{f"kubernetes.io/{name}": value for name, value in names.items()},
                "node-role.kubernetes.io/control-plane": "",
            },
        },
        "spec": {},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": NODE}],
            "capacity": _capacity(),
            "allocatable": _capacity(),
            "conditions": [_condition(*each, strategy.timestamp(now)) for each in _CONDITIONS],
            "nodeInfo": _info(version),
        },
    }


def node_lease() -> Object:
    """Returns the Lease of the node, which `kubectl describe node` reads."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NODE, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40},
    }


def _capacity() -> dict[str, str]:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"cpu": str(os.cpu_count() or 1), "memory": f"{pages // 1024}Ki", "pods": "110"}


def _condition(kind: str, status: str, reason: str, message: str, now: str) -> Object:
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {"type": kind, "status": status, "reason": reason, "message": message, **times}


def _info(version: str) -> dict[str, str]:
    return {
        "architecture": _architecture(),
        "bootID": "",
        "containerRuntimeVersion": f"process://{platform.python_version()}",
        "kernelVersion": platform.release(),
        "kubeProxyVersion": "",
        "kubeletVersion": version,
        "machineID": "",
        "operatingSystem": "linux",
        "osImage": platform.system(),
        "systemUUID": "",
    }


def _architecture() -> str:
    """Returns the machine's architecture by Go's name."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
