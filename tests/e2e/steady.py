"""A steady state, in which a fault must change nothing, and after which a doubled load takes one write."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.kube.reflector import ReflectorOptions

QUICK = ReflectorOptions(
    list_timeout=2,
    shortest_watch=4,
    longest_watch=6,
    grace=1,
    longest_silence=1.0,
    initial_backoff=0.02,
    max_backoff=0.3,
)
STEADY, LATER = 4, 8
Recovered = Callable[[float, str], None]


class Steady:
    """A target at its metric target under constant load, another HPA without any change, and the writes of both."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.counts: list[int] = []
        self.others: list[int] = []
        self._written = 0

    def prepare(self, replicas: int = STEADY) -> None:
        for name, count in (("web", replicas), ("still", 2)):
            self.world.workload("Deployment", name, count)
            self.world.hpa(name)
        self.world.load("web", lambda pods: 50 * STEADY // max(pods, 1))
        self.world.load("still", 50)
        self.world.cluster.store.subscribe(self._seen)

    async def begin(self) -> None:
        """Waits until hpad has seen all pods and both HPAs are active."""
        for name in ("web", "still"):
            await self.world.until(lambda name=name: self.world.condition(name, "ScalingActive")[0] == "True")
        await self.world.until(lambda: len(self.world.pods("web")) == STEADY == self.current("web"))
        self._written = self.scaled

    def current(self, name: str) -> int:
        return int(self.world.status(name).get("currentReplicas", -1))

    @property
    def scaled(self) -> int:
        """The number of writes of scales."""
        writes = self.world.cluster.log.writes
        return sum(write.subresource == "scale" and write.verb == "update" and write.status == 200 for write in writes)

    async def end(self, what: str, recovered: Recovered) -> None:
        """Doubles the load, and asserts that one write doubles the replicas and no other write happened."""
        assert set(self.counts) <= {STEADY}, f"{what} changed the replicas: {self.counts}"
        loop = asyncio.get_running_loop()
        started, doubled = loop.time(), SystemClock().now()
        self.world.load("web", lambda pods: 50 * LATER // max(pods, 1))
        await self.world.until(lambda: self.world.replicas("deployments", "web") == LATER)
        recovered(loop.time() - started, what)
        await self.world.until(lambda: self.decided("still") > doubled)
        await self.world.periods(2)
        self.check()
        await self.world.until(lambda: self.world.condition("web", "ScalingActive")[0] == "True")

    def check(self) -> None:
        """Asserts that one write has doubled the replicas, that there is no other write, and that no HPA is lost."""
        assert list(dict.fromkeys(self.counts)) in ([STEADY, LATER], [LATER])
        assert self.scaled == self._written + 1
        assert set(self.others) <= {2}
        assert {key.name for key in self.world.daemon.components.store.keys()} == {"still", "web"}  # noqa: SIM118  # the store is not a mapping

    def decided(self, name: str) -> datetime:
        """Returns the time of the last decision on an HPA."""
        last = self.world.daemon.components.decisions.last(Key("default", name))
        return last.view.now if last is not None else datetime.min.replace(tzinfo=SystemClock().now().tzinfo)

    def _seen(self, change: Any) -> None:
        if change.resource.plural == "deployments" and change.type == "MODIFIED":
            seen = self.counts if change.object["metadata"]["name"] == "web" else self.others
            seen.append(int(change.object["spec"]["replicas"]))
