"""CPU and memory usage of pods for metrics.k8s.io: measured from process trees, or set by a test."""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
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
    """Samples usage every `interval` seconds; a pod has no metrics before its first full interval.

    `roots` returns the pids of running containers, `simulated` the running containers without a process, both with
    (namespace, pod, container). `measure`, called in a thread, maps pids to CPU seconds and bytes. The second sample
    completes the first interval, as in metrics-server.
    """

    def __init__(
        self,
        clock: clocks.Clock,
        interval: float,
        roots: Callable[[], dict[int, tuple[str, str, str]]] = dict,
        simulated: Callable[[], list[tuple[str, str, str]]] = list,
        measure: Callable[[Iterable[int]], dict[int, tuple[float, int]]] = procfs.usage,
    ) -> None:
        self._clock = clock
        self._interval = interval
        self._roots = roots
        self._simulated = simulated
        self._measure = measure
        self._samples: dict[Hashable, _Sample] = {}
        self._measured: dict[str, Reading] = {}
        self._fixed: dict[str, Reading | Containers] = {}

    def set(self, pod: str, containers: Containers, *, time: datetime | None = None, window: float = 0) -> None:
        """Sets the usage of `"namespace/name"` from now on; without `time`, each answer has the current time."""
        self._fixed[pod] = Reading(time, window or self._interval, containers) if time else containers

    def clear(self, pod: str | None = None) -> None:
        """Removes the usage that was set for one pod, or for all."""
        if pod is None:
            self._fixed.clear()
        else:
            self._fixed.pop(pod, None)

    async def run(self) -> None:
        """Samples until cancelled."""
        while True:
            await self.sample()
            await self._clock.sleep(self._interval)

    async def sample(self) -> None:
        """Measures once. CPU is the difference from the previous sample."""
        processes, simulated = self._roots(), self._simulated()
        found: dict[Hashable, tuple[float, int]] = {names: (0.0, 0) for names in simulated}
        if processes:
            found.update((await asyncio.to_thread(self._measure, list(processes))).items())
        roots: dict[Hashable, tuple[str, str, str]] = {names: names for names in simulated}
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
        """Returns the usage of `"namespace/name"`, None if it is not known yet.

        With `born`, ignores a measurement that began before that time: it is of an earlier pod of this name.
        """
        fixed = self._fixed.get(pod)
        if fixed is not None:
            return fixed if isinstance(fixed, Reading) else Reading(self._clock.now(), self._interval, fixed)
        found = self._measured.get(pod)
        if found is None or born is None:
            return found
        return found if found.time - timedelta(seconds=found.window) >= born else None

    def answer(self, store: Store, address: paths.Address, query: reads.Query) -> Object:
        """Returns PodMetrics or a PodMetricsList; nodes have no metrics. Raises ApiError 400 or 404."""
        if address.resource == NODE_METRICS:
            return _of_nodes(address)
        if not address.name:
            matches = reads.predicate(paths.Address(PODS, "v1", address.namespace, "", ""), query)
            shown = (self._item(each) for each in store.objects(PODS, address.namespace) if matches(each))
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
        own, time = pod["metadata"], strategy.timestamp(reading.time)
        metadata = {"name": own["name"], "namespace": own["namespace"], "creationTimestamp": time}
        if own.get("labels"):
            metadata["labels"] = own["labels"]
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
