"""A workload under a known load, scaled by the plain HPA: pods that come and go, and what each of them used.

Steps are the turns of the controller, every 15 seconds. CPU is in cores, memory in bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.plain_hpa import PERIOD, TOLERANCE, Controller, Reading, Spec


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container: its requests (None: not set), and its share of what a pod uses."""

    name: str
    cpu: float | None
    memory: float | None = None
    share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What runs in the pods, and the load on it, one value for each step.

    `load`: cores of work, shared over the ready pods; of a queue, messages per second. `most`: cores that one pod can
    use. `starting`: cores that a pod uses until it is ready, after `startup` seconds. `memory` of a pod: bytes, and
    bytes more for each core in use. `per_worker`: messages per second and worker, of a queue. `per_core`: the value of
    a Pods metric for each core in use. `unreadable`: from and to, in seconds, where metrics that are neither CPU nor
    memory cannot be read.
    """

    load: Sequence[float]
    containers: Sequence[Container]
    most: float
    startup: int = 30
    starting: float = 0.05
    memory: tuple[float, float] = (200e6, 0.0)
    per_worker: float = 0.0
    per_core: float = 0.0
    unreadable: Sequence[tuple[int, int]] = ()
    first_replicas: int = 2

    def requests(self) -> dict[str, float]:
        """Returns what a pod requests, by resource; containers without a request count as zero."""
        return {
            "cpu": sum(each.cpu or 0.0 for each in self.containers),
            "memory": sum(each.memory or 0.0 for each in self.containers),
        }


@dataclass
class Pod:
    """A pod by its times in seconds; `ended` is None for one that is still there."""

    created: int
    ready: int
    ended: int | None = None


@dataclass
class Run:
    """What happened: lists have a value for each step."""

    before: list[int] = field(default_factory=list)
    """The count that the turn found, and the status has."""
    after: list[int] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    """What the metrics asked for, before windows, policies and bounds."""
    active: list[bool] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    """Cores that each ready pod used in the step that begins here."""
    backlog: list[float] = field(default_factory=list)
    heap: list[float] = field(default_factory=list)
    """Bytes that each pod held."""
    status: list[Sequence[Reading]] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)

    def replica_hours(self) -> float:
        """Returns the replica-hours of the whole run."""
        return sum(self.after) * PERIOD / 3600

    def seconds_above(self, levels: Sequence[float]) -> int:
        """Returns for how long a metric was above its level, given as a value per pod."""
        over = 0
        for readings in self.status:
            pairs = zip(readings, levels, strict=True)
            over += any(each.per_pod is not None and each.per_pod > level for each, level in pairs)
        return over * PERIOD


def levels(spec: Spec) -> list[float]:
    """Returns the goals with their tolerance, as values per pod."""
    return [goal.per_pod * (1 + TOLERANCE) for goal in spec.goals]


@dataclass
class _World:
    spec: Spec
    workload: Workload
    count: int
    starting: list[Pod] = field(default_factory=list)
    running: list[Pod] = field(default_factory=list)
    backlog: float = 0.0
    used: float = 0.0
    heap: float = 0.0

    def __post_init__(self) -> None:
        self.running = [Pod(-7200 - 60 * number, -7140 - 60 * number) for number in range(self.count)]
        self.heap = self.workload.memory[0]
        self.measured = self.count

    def readings(self, now: int) -> list[Reading]:
        """Returns what the metrics of the last step say."""
        return [self._reading(goal.name, goal.kind, now) for goal in self.spec.goals]

    def _reading(self, name: str, kind: str, now: int) -> Reading:
        load = self.workload
        if kind in ("Pods", "External") and any(begin <= now < end for begin, end in load.unreadable):
            return Reading(None, 0)
        if kind == "External":
            return Reading(self.backlog / self.count, self.count)
        if kind == "Pods":
            return Reading(self.used * load.per_core, self.measured, self.count - self.measured)
        if kind == "Resource" and any((each.cpu if name == "cpu" else each.memory) is None for each in load.containers):
            return Reading(None, 0)
        if name == "memory":
            return Reading(self.heap, self.measured)
        return Reading(self.used, self.measured, self.count - self.measured)

    def scale(self, now: int, count: int) -> list[Pod]:
        """Creates or deletes pods, and returns the new ones; the youngest go first."""
        made = [Pod(now, now + self.workload.startup) for _ in range(count - self.count)]
        self.starting += made
        for _ in range(self.count - count):
            (self.starting or self.running).pop().ended = now
        self.count = count
        return made

    def work(self, now: int, load: float) -> None:
        """Lets one step pass."""
        while self.starting and self.starting[0].ready <= now:
            self.running.append(self.starting.pop(0))
        workload, ready = self.workload, len(self.running)
        self.measured = ready
        if workload.per_worker:
            done = min(self.backlog + load * PERIOD, ready * workload.per_worker * PERIOD)
            self.backlog += load * PERIOD - done
            busy = done / (ready * workload.per_worker * PERIOD) if ready else 0.0
            self.used = 0.02 + busy * workload.most * 0.7
        else:
            self.used = min(load / ready, workload.most) if ready else 0.0
        base, slope = workload.memory
        self.heap += (base + slope * self.used - self.heap) * 0.05


def run(manifest: Mapping[str, Any], workload: Workload, changes: Mapping[int, Mapping[str, Any]] | None = None) -> Run:
    """Runs an HPA over the load of a workload. `changes`: manifests that replace it, by the second from which on."""
    requests = workload.requests()
    spec = Spec.of(manifest, requests)
    controller, world = Controller(spec), _World(spec, workload, workload.first_replicas)
    result = Run(pods=list(world.running))
    for step, load in enumerate(workload.load):
        now = step * PERIOD
        if changes and now in changes:
            controller.spec = world.spec = Spec.of(changes[now], requests)
        if step == 0:
            world.work(now - PERIOD, load)
        readings = world.readings(now)
        result.before.append(world.count)
        result.pods += world.scale(now, controller.decide(now, world.count, readings))
        result.after.append(world.count)
        result.wanted.append(controller.wanted)
        result.active.append(controller.active)
        result.status.append(readings)
        world.work(now, load)
        result.ready.append(len(world.running))
        result.used.append(world.used)
        result.backlog.append(world.backlog)
        result.heap.append(world.heap)
    return result
