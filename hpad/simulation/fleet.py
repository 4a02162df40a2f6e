"""The pods of a simulated workload: when they start, when they are ready, and which of them go first."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from hpad.api.pod import ContainerRequests, Pod

LABELS: Final = {"app": "simulated"}
"""The labels of the pods of every workload."""


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """The one container of each pod. Requests are in milli-units: millicores, thousandths of bytes; 0: no request."""

    name: str = "app"
    cpu: int = 0
    memory: int = 0

    @property
    def requests(self) -> ContainerRequests:
        """The requests as a pod has them."""
        amounts = {"cpu": self.cpu, "memory": self.memory}
        return ContainerRequests(self.name, {name: amount for name, amount in amounts.items() if amount})


class SimulatedReplica(msgspec.Struct, eq=False):
    """One pod; times are in seconds since the start. `ready_at` is when it begins to work."""

    pod: Pod
    ready_at: float
    is_ready: bool = False


class Fleet:
    """The replicas of a workload, the oldest first. Those of the beginning are ready for an hour already."""

    def __init__(self, count: int, start: datetime, startup: float, container: Container) -> None:
        self._start = start
        self._startup = startup
        self._containers = (container.requests,)
        self._made = 0
        self._pods: Sequence[Pod] | None = None
        self._starting: list[SimulatedReplica] = []
        self.replicas: list[SimulatedReplica] = []
        for _ in range(count):
            self._add(-3600.0 - startup)
        self.advance(0.0)

    @property
    def count(self) -> int:
        """The number of replicas, as it was written last."""
        return len(self.replicas)

    @property
    def ready(self) -> int:
        """The number of replicas that work."""
        return self.count - len(self._starting)

    def pods(self) -> Sequence[Pod]:
        """Returns the pods; the same object while none of them changes."""
        if self._pods is None:
            self._pods = tuple(replica.pod for replica in self.replicas)
        return self._pods

    def next_ready(self) -> float | None:
        """Returns when the next replica becomes ready; None if all are."""
        return min((replica.ready_at for replica in self._starting), default=None)

    def advance(self, at: float) -> list[SimulatedReplica]:
        """Returns the replicas that have become ready by now."""
        changed = [replica for replica in self._starting if replica.ready_at <= at]
        for replica in changed:
            since = self._start + timedelta(seconds=replica.ready_at)
            replica.pod = msgspec.structs.replace(replica.pod, ready="True", ready_since=since)
            replica.is_ready = True
        if changed:
            self._starting = [replica for replica in self._starting if not replica.is_ready]
            self._pods = None
        return changed

    def scale(self, count: int, at: float) -> list[SimulatedReplica]:
        """Adds or removes replicas, and returns the removed ones.

        Those that are not ready go first, then the youngest (Kubernetes, controller_utils.go: ActivePodsWithRanks).
        """
        while len(self.replicas) < count:
            self._add(at)
        going = sorted(self.replicas, key=lambda replica: (replica.is_ready, -replica.ready_at))
        removed = going[: max(0, len(self.replicas) - count)]
        if removed:
            gone = set(removed)
            self.replicas = [replica for replica in self.replicas if replica not in gone]
            self._starting = [replica for replica in self._starting if replica not in gone]
        self._pods = None
        return removed

    def _add(self, at: float) -> None:
        begun = self._start + timedelta(seconds=at)
        pod = Pod(
            name=f"simulated-{self._made}",
            labels=LABELS,
            phase="Running",
            start_time=begun,
            ready="False",
            ready_since=begun,
            containers=self._containers,
        )
        replica = SimulatedReplica(pod, at + self._startup)
        self.replicas.append(replica)
        self._starting.append(replica)
        self._made += 1
        self._pods = None
