"""What pods use, and how metrics.k8s.io tells it: measured from process trees, or set by a test."""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hpad import clock as clocks
from hpad.lab.cluster import errors, paths, pods, procfs, reads, strategy
from hpad.lab.cluster.resources import NODE_METRICS, POD_METRICS, PODS, Object
from hpad.lab.cluster.store import Store, key_of

Containers = Mapping[str, Mapping[str, str]]
"""Container name to resource name to quantity: {"app": {"cpu": "305m", "memory": "10Mi"}}."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Usage of a pod's containers over `window` seconds that ended at `time`."""

    time: datetime
    window: float
    containers: Containers


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    cpu: float


class Usage:
    """Samples every `interval` seconds; a pod has no metrics before its first full window, as in metrics-server."""

    def __init__(
        self,
        clock: clocks.Clock,
        interval: float,
        roots: Callable[[], dict[int, tuple[str, str, str]]] = dict,
        pretended: Callable[[], list[tuple[str, str, str]]] = list,
    ) -> None:
        self._clock = clock
        self._interval = interval
        self._roots = roots
        self._pretended = pretended
        self._samples: dict[Hashable, _Sample] = {}
        self._measured: dict[str, Reading] = {}
        self._given: dict[str, Reading | Containers] = {}

    def set(self, pod: str, containers: Containers, *, time: datetime | None = None, window: float = 0) -> None:
        """Answer this for `"namespace/name"` from now on; without `time` every answer is of the moment."""
        self._given[pod] = Reading(time, window or self._interval, containers) if time else containers

    def clear(self, pod: str | None = None) -> None:
        """Forget what was set for one pod, or for all."""
        if pod is None:
            self._given.clear()
        else:
            self._given.pop(pod, None)

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            await self.sample()
            await self._clock.sleep(self._interval)

    async def sample(self) -> None:
        """Read /proc once; CPU is the difference to the sample before."""
        processes, pretended = self._roots(), self._pretended()
        found: dict[Hashable, tuple[float, int]] = {names: (0.0, 0) for names in pretended}  # no process uses nothing
        if processes:
            found.update((await asyncio.to_thread(procfs.usage, list(processes))).items())
        roots: dict[Hashable, tuple[str, str, str]] = {names: names for names in pretended}
        roots.update(processes.items())
        at, now = self._clock.monotonic(), self._clock.now()
        measured: dict[str, dict[str, Mapping[str, str]]] = {}
        windows: dict[str, float] = {}
        incomplete: set[str] = set()
        for root, (namespace, pod, container) in roots.items():
            key = f"{namespace}/{pod}"
            before = self._samples.get(root)
            if root not in found or before is None or at <= before.at:
                incomplete.add(key)
                continue
            cpu, rss = found[root]
            windows[key] = at - before.at
            cores = max(0.0, cpu - before.cpu) / windows[key]
            usage = {"cpu": f"{round(cores * 1e9)}n", "memory": f"{rss // 1024}Ki"}
            measured.setdefault(key, {})[container] = usage
        self._samples = {root: _Sample(at, cpu) for root, (cpu, _) in found.items()}
        self._measured = {
            key: Reading(now, windows[key], used) for key, used in measured.items() if key not in incomplete
        }

    def reading(self, pod: str, born: datetime | None = None) -> Reading | None:
        """What is known of `"namespace/name"`; None for nothing yet, which is not zero.

        With `born`, what was measured before it belongs to an earlier pod of that name and is not told.
        """
        given = self._given.get(pod)
        if given is not None:
            return given if isinstance(given, Reading) else Reading(self._clock.now(), self._interval, given)
        found = self._measured.get(pod)
        if found is None or born is None:
            return found
        return found if found.time - timedelta(seconds=found.window) >= born else None

    def answer(self, store: Store, address: paths.Address, query: reads.Query) -> Object:
        """PodMetrics or PodMetricsList; raises ApiError 400, or 404 for a pod without metrics. No node has any."""
        if address.resource == NODE_METRICS:
            return _of_nodes(address)
        if not address.name:
            wanted = reads.predicate(paths.Address(PODS, "v1", address.namespace, "", ""), query)
            shown = (self._item(each) for each in store.objects(PODS, address.namespace) if wanted(each))
            items = [item for item in shown if item]
            head = {"kind": "PodMetricsList", "apiVersion": POD_METRICS.api_version}
            return {**head, "metadata": {}, "items": items}
        found = store.find(PODS, address.namespace or "", address.name)
        item = self._item(found) if found else None
        if item is None:
            message = f'podmetrics.metrics.k8s.io "{address.namespace}/{address.name}" not found'
            raise errors.ApiError(404, "NotFound", message)
        return {"kind": "PodMetrics", "apiVersion": POD_METRICS.api_version, **item}

    def _item(self, pod: Object) -> Object | None:
        reading = self.reading("/".join(key_of(pod)), pods.parsed(pod["metadata"]["creationTimestamp"]))
        if reading is None:
            return None
        held, time = pod["metadata"], strategy.timestamp(reading.time)
        metadata = {"name": held["name"], "namespace": held["namespace"], "creationTimestamp": time}
        if held.get("labels"):
            metadata["labels"] = held["labels"]
        return {
            "metadata": metadata,
            "timestamp": time,
            "window": f"{round(reading.window, 3):g}s",
            "containers": [{"name": name, "usage": dict(used)} for name, used in reading.containers.items()],
        }


def _of_nodes(address: paths.Address) -> Object:
    if address.name:
        raise errors.ApiError(404, "NotFound", f'nodemetrics.metrics.k8s.io "{address.name}" not found')
    return {"kind": "NodeMetricsList", "apiVersion": NODE_METRICS.api_version, "metadata": {}, "items": []}
