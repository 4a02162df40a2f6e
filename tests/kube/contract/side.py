"""One of two equal clusters: a real API server, whose pods are created here, since no other controller runs."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from support import apiserver, metrics_apis

from hpad.clock import SystemClock
from hpad.kube.auth.kubeconfig import load_cluster_config
from hpad.kube.client import Client
from hpad.kube.errors import ApiError

Json = dict[str, Any]
NAMESPACE = "side"
HPAS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WORKLOADS = {
    "Deployment": ("apps/v1", "deployments"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "ReplicationController": ("v1", "replicationcontrollers"),
    "Gadget": ("gadgets.example", "gadgets"),
    "Fixture": ("gadgets.example", "fixtures"),
}
_LOADING = asyncio.Lock()


class Side:
    """An API server with workloads; `statuses` and `events` return the results of an HPA controller."""

    def __init__(self, client: Client, kubeconfig: Path) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        self._pods: dict[str, Json] = {}
        self._templates: dict[tuple[str, str], tuple[Json, str]] = {}
        self._turn = asyncio.Lock()

    def pods(self) -> list[Json]:
        return list(self._pods.values())

    async def ask(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """Sends a request for JSON; raises ApiError."""
        data = None if body is None else json.dumps(body).encode()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return json.loads(await self.client.request(method, path, params=params, body=data, content_type=kind))

    async def workload(self, kind: str, name: str, replicas: int, cpu: str | None, selector: str) -> None:
        """Creates a workload with its pods, labelled app=NAME; `selector` is the status.selector of a Gadget."""
        labels = {"app": name}
        requests = {"requests": {"cpu": cpu, "memory": "64Mi"}} if cpu else {}
        template = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "app", "image": "none", "resources": requests}]},
        }
        spec: Json = {"template": template, "selector": labels if kind == "ReplicationController" else _match(labels)}
        if kind != "DaemonSet":
            spec["replicas"] = replicas
        if kind == "StatefulSet":
            spec["serviceName"] = name
        head = {"apiVersion": version_of(kind), "kind": kind, "metadata": {"name": name}}
        body = {**head, "spec": {"replicas": replicas} if kind == "Gadget" else spec}
        made = await self.ask("POST", path(kind), body)
        self._templates[kind, name] = template, selector
        if kind != "DaemonSet":
            await self._settle(kind, made)

    async def play(self) -> None:
        """Updates pods and statuses of all workloads by their specs, until cancelled."""
        while True:
            for kind in {kind for kind, _ in self._templates if kind != "DaemonSet"}:
                async with self._turn:
                    for item in (await self.ask("GET", path(kind)))["items"]:
                        await self._settle(kind, item)
            await asyncio.sleep(0.2)

    async def wake(self, kind: str, name: str, replicas: int) -> None:
        """Creates the pods of a workload at zero, then sets its replicas; it never has replicas without pods."""
        async with self._turn:
            for index in range(replicas):
                await self._start(f"{name}-{index}", self._templates[kind, name][0])
            await self.ask("PATCH", f"{path(kind)}/{name}/status", {"status": {"replicas": replicas}})
            await self.ask("PATCH", f"{path(kind)}/{name}", {"spec": {"replicas": replicas}})

    async def _settle(self, kind: str, item: Json) -> None:
        name, desired = item["metadata"]["name"], item["spec"]["replicas"]
        template, selector = self._templates[kind, name]
        current = [pod for pod in self._pods if pod.rpartition("-")[0] == name]
        for surplus in current[desired:]:
            await self.ask("DELETE", f"{PODS}/{surplus}", gracePeriodSeconds="0")
            del self._pods[surplus]
        for index in range(len(current), desired):
            await self._start(f"{name}-{index}", template)
        status = {"replicas": desired, **({"selector": selector} if kind == "Gadget" else {})}
        seen = item.get("status") or {}
        if {field: seen.get(field, 0) for field in status} != status:
            await self.ask("PATCH", f"{path(kind)}/{name}/status", {"status": status})

    async def _start(self, name: str, template: Json) -> None:
        """Creates a pod that has been ready for an hour."""
        made = {"metadata": {"name": name, **template["metadata"]}, "spec": template["spec"]}
        self._pods[name] = await self.ask("POST", PODS, made)
        before = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": before}
        status = {"phase": "Running", "startTime": before, "conditions": [ready]}
        await self.ask("PATCH", f"{PODS}/{name}/status", {"status": status})

    async def served(self, where: str) -> None:
        """Waits until a resource is served."""
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(ApiError):
                    await self.ask("GET", where)
                    return
                await asyncio.sleep(0.3)

    async def place(self, namespace: str, pod: Json) -> None:
        """Creates a pod of its own with its status, which nothing changes any more."""
        there, name = f"/api/v1/namespaces/{namespace}/pods", pod["metadata"]["name"]
        self._pods[f"{namespace}/{name}"] = await self.ask("POST", there, {**pod, "status": {}})
        await self.ask("PATCH", f"{there}/{name}/status", {"status": pod["status"]})

    async def replicas(self) -> dict[str, int]:
        """Maps each workload to its spec.replicas."""
        found = {}
        for kind in {kind for kind, _ in self._templates if kind != "DaemonSet"}:
            for item in (await self.ask("GET", path(kind)))["items"]:
                found[item["metadata"]["name"]] = item["spec"]["replicas"]
        return found

    async def statuses(self, namespace: str = NAMESPACE) -> dict[str, Json]:
        """Maps each HPA to its status without times."""
        found = {}
        for item in (await self.ask("GET", HPAS.replace(NAMESPACE, namespace)))["items"]:
            status = {name: value for name, value in item.get("status", {}).items() if name != "lastScaleTime"}
            for condition in status.get("conditions") or []:
                del condition["lastTransitionTime"]
            found[item["metadata"]["name"]] = _settled(status)
        return found

    async def events(self, namespace: str = NAMESPACE) -> dict[str, set[str]]:
        """Maps each HPA to its events as JSON, without times, counts, identities, and what hpad adds to a message."""
        found: dict[str, set[str]] = {}
        for event in (await self.ask("GET", f"/api/v1/namespaces/{namespace}/events"))["items"]:
            about = event["involvedObject"]
            rest = {key: value for key, value in event.items() if key not in ("metadata", "count", *_TIMES)}
            rest["involvedObject"] = {key: about[key] for key in sorted(about.keys() - _IDENTITY)}
            rest["message"] = _ADDED.sub("", event["message"])
            if not _TIMEOUT_TEXT.search(rest["message"]) and not _HALFWAY.search(rest["message"]):
                found.setdefault(about["name"], set()).add(json.dumps(_settled(rest), sort_keys=True))
        return found


_ADDED = re.compile(r"; from \d+: .*", re.DOTALL)
"""The reasons in full, which follow the text of Kubernetes in events of rescales."""
_TIMES = ("firstTimestamp", "lastTimestamp")
_IDENTITY = {"namespace", "uid", "resourceVersion"}
_TIMEOUT_TEXT = re.compile(r"did not answer within|may wait for metrics")
"""Messages of hpad's timeouts, which may elapse on a busy machine; Kubernetes has no such timeouts."""
_HALFWAY = re.compile(r"\((\d+) invalid out of (?!\1\))\d+\).* the metrics API is down")
"""Messages of a reconcile that read one metrics API before an outage began (or ended) and another one after it. hpad
caches answers for a third of the period, so this lasts seconds; in Kubernetes it lasts milliseconds."""


def path(kind: str) -> str:
    """Returns the path of the collection of a kind of workload."""
    version = version_of(kind)
    root = "/apis" if "/" in version else "/api"
    return f"{root}/{version}/namespaces/{NAMESPACE}/{WORKLOADS[kind][1]}"


def version_of(kind: str) -> str:
    """Returns the apiVersion of a kind of workload."""
    version = WORKLOADS[kind][0]
    return f"{version}/v1" if version.endswith(".example") else version


def _match(labels: Json) -> Json:
    return {"matchLabels": labels}


def _settled(value: Json) -> Json:
    """Sorts lists for which Kubernetes has no order, and replaces the name of an arbitrary pod."""
    text = json.dumps(value)
    text = re.sub(r"HPAs: \[([^\]]*)\]", lambda found: f"HPAs: [{' '.join(sorted(found[1].split()))}]", text)
    settled: Json = json.loads(re.sub(r"of Pod ([a-z-]+)-\d+", r"of Pod \1-N", text))
    return settled


@contextlib.asynccontextmanager
async def started(folder: Path, load: metrics_apis.Load, flags: Sequence[str] = ()) -> AsyncIterator[Side]:
    """Starts an API server with further `flags`, the metrics APIs of `load` and two custom kinds.

    The schema of Gadget allows four replicas at most; Fixture has no scale subresource.
    """
    async with contextlib.AsyncExitStack() as stack:
        running = await asyncio.to_thread(stack.enter_context, apiserver.start(folder, flags))
        async with _LOADING:
            config = await asyncio.to_thread(load_cluster_config, str(running.kubeconfig))
        client = await stack.enter_async_context(Client(config, SystemClock()))
        side = Side(client, running.kubeconfig)
        port = await stack.enter_async_context(metrics_apis.serving(load, side.pods))
        await side.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await _offer(side, port)
        yield side


async def _offer(side: Side, port: int) -> None:
    for kind in ("Gadget", "Fixture"):
        await side.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition(kind))
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port, "name": "https"}]}
    await side.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/services", {"metadata": {"name": "m"}, "spec": service})
    for group, version in metrics_apis.VERSIONS.items():
        spec = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100}
        there = {"service": {"namespace": NAMESPACE, "name": "m", "port": port}, "insecureSkipTLSVerify": True}
        body = {"metadata": {"name": f"{version}.{group}"}, "spec": {**spec, **there}}
        await side.ask("POST", "/apis/apiregistration.k8s.io/v1/apiservices", body)
    offered = [
        path("Gadget"),
        path("Fixture"),
        *(f"/apis/{group}/{version}" for group, version in metrics_apis.VERSIONS.items()),
    ]
    for each in offered:
        await side.served(each)


def _definition(kind: str) -> Json:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    anything: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    limited = {**anything, "properties": {"replicas": {"type": "integer", "maximum": 4}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": limited, "status": anything}}},
        "subresources": {
            "status": {},
            **({"scale": {**scale, "labelSelectorPath": ".status.selector"}} if kind == "Gadget" else {}),
        },
    }
    group, plural = WORKLOADS[kind]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**head, "metadata": {"name": f"{plural}.{group}"}, "spec": spec}
