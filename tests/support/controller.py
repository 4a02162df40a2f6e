"""A small world in memory, for the heartbeat under virtual time."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from support import virtual_time

from hpad.api import hpa as v2
from hpad.api.hpa import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
    Scale,
    ScaleSpec,
    ScaleStatus,
    from_builtins,
)
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, Asker, ExternalSample, Query, Sample
from hpad.api.selector import Selector
from hpad.controller.controller import Controller
from hpad.controller.handoff import Handoff
from hpad.controller.overlap import SelectorIndex
from hpad.controller.reconcile import Options, Reconciler
from hpad.election.owner import EVERYTHING, Owner
from hpad.engine.conditions import Event
from hpad.engine.view import Competitor, Tunables
from hpad.kube import errors
from hpad.store.memory import InMemory, Store
from hpad.telemetry import Telemetry


def hpa(name: str, *, goal: int = 10, uid: str = "1", **spec: Any) -> HorizontalPodAutoscaler:
    """An HPA of the Deployment of its name, by one External metric of its name."""
    target = {"type": "AverageValue", "averageValue": str(goal)}
    body = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 1,
        "maxReplicas": 10,
        "metrics": [{"type": "External", "external": {"metric": {"name": name}, "target": target}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        **spec,
    }
    metadata = {"name": name, "namespace": "default", "uid": uid}
    return v2.defaulted(from_builtins({"metadata": metadata, "spec": body}))


class Source:
    """HPAs in a dictionary, with the face of a cache."""

    def __init__(self, *found: HorizontalPodAutoscaler) -> None:
        self.synced = asyncio.Event()
        self._found = {each.metadata.key: each for each in found}
        self._callbacks: list[Any] = []

    def get(self, key: Key) -> HorizontalPodAutoscaler | None:
        return self._found.get(key)

    def values(self) -> list[HorizontalPodAutoscaler]:
        return list(self._found.values())

    def subscribe(self, callback: Any) -> None:
        self._callbacks.append(callback)

    def put(self, new: HorizontalPodAutoscaler) -> None:
        old = self._found.get(new.metadata.key)
        self._found[new.metadata.key] = new
        for callback in self._callbacks:
            callback(new.metadata.key, old, new)

    def drop(self, name: str) -> None:
        key = Key("default", name)
        old = self._found.pop(key)
        for callback in self._callbacks:
            callback(key, old, None)


class FakeCluster:
    """Scales by name; pods labelled app=name; writes are kept, and answer what `refusals` say, in order.

    Targets that are `unwatched` cost a request each time they are looked at.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.scales: dict[str, int] = {}
        self.selectors: dict[str, str] = {}
        self.unwatched: set[str] = set()
        self.reads: list[str] = []
        self.set_by_hand: set[str] = set()
        self.writes: list[int] = []
        self.write_seconds = 0.0
        self.read_seconds: Iterator[float] = itertools.repeat(0.0)
        self.fresh_reads = 0
        self.refusals: list[errors.ApiError] = []
        self.status_refusals: list[errors.ApiError] = []
        self.read_error: errors.ApiError | None = None
        self.events: list[Event] = []
        self.others: tuple[Competitor, ...] = ()
        self.statuses: list[HorizontalPodAutoscalerStatus] = []
        self.pods = self
        self.event_recorder = self

    def select(self, namespace: str, selector: Selector) -> list[Pod]:
        pods = [
            Pod(name=f"{name}-{n}", namespace=namespace, labels={"app": name}, phase="Running", ready="True")
            for name, count in self.scales.items()
            for n in range(count)
        ]
        return [pod for pod in pods if selector.matches(pod.labels)]

    def record(self, hpa: HorizontalPodAutoscaler, event: Event) -> None:
        self.events.append(event)

    def competitors(self, hpa: HorizontalPodAutoscaler) -> tuple[Competitor, ...]:
        return self.others

    def set_by_other(self, namespace: str, ref: CrossVersionObjectReference) -> bool:
        return ref.name in self.set_by_hand

    def peek_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale | None:
        return None if ref.name in self.unwatched else self._scale(ref)

    def _scale(self, ref: CrossVersionObjectReference) -> Scale | None:
        if ref.name not in self.scales:
            return None
        count = self.scales[ref.name]
        labels = self.selectors.get(ref.name, f"app={ref.name}")
        return Scale(metadata={"name": ref.name}, spec=ScaleSpec(count), status=ScaleStatus(count, labels))

    async def read_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale:
        self.reads.append(ref.name)
        await asyncio.sleep(next(self.read_seconds))
        found = self._scale(ref)
        if found is None:
            raise errors.ApiError(404, "NotFound", f'deployments.apps "{ref.name}" not found')
        return found

    async def fresh_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale:
        self.fresh_reads += 1
        if self.read_error is not None:
            raise self.read_error
        return await self.read_scale(namespace, ref)

    async def write_scale(
        self, namespace: str, ref: CrossVersionObjectReference, scale: Scale, allowed: Callable[[], None]
    ) -> Scale:
        allowed()
        await asyncio.sleep(self.write_seconds)
        self.writes.append(scale.spec.replicas)
        if self.refusals:
            raise self.refusals.pop(0)
        self.scales[ref.name] = scale.spec.replicas
        return scale

    async def write_status(
        self, hpa: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus, allowed: Callable[[], None]
    ) -> HorizontalPodAutoscaler:
        allowed()
        if self.status_refusals:
            raise self.status_refusals.pop(0)
        self.statuses.append(status)
        written = msgspec.structs.replace(hpa, status=status)
        if self.source.get(hpa.metadata.key) is not None:
            self.source.put(written)
        return written


class Metrics:
    """External metrics by name, in whole units; what is missing or an error fails, a function may do as it likes."""

    def __init__(self, clock: virtual_time.VirtualClock) -> None:
        self.clock = clock
        self.values: dict[str, int | AdapterError | Callable[[], Any]] = {}
        self.asked: list[tuple[float, str]] = []
        self.askers: list[Asker | None] = []

    async def gather(
        self, hpa: Key, queries: Sequence[Query | AdapterError], *, deadline: float, asker: Asker | None
    ) -> list[Sample | AdapterError]:
        self.asked.append((self.clock.monotonic(), hpa.name))
        self.askers.append(asker)
        value = self.values.get(hpa.name)
        if callable(value):
            value = await value()
        if value is None or isinstance(value, AdapterError):
            return [value or AdapterError("no such metric") for _ in queries]
        return [ExternalSample((value * 1000,), self.clock.now()) for _ in queries]

    def times(self, name: str) -> list[float]:
        return [at for at, asked in self.asked if asked == name]


class Bench:
    """A controller on a small world. Make it inside the virtual loop."""

    def __init__(
        self,
        *found: HorizontalPodAutoscaler,
        period: float = 15.0,
        workers: int = 8,
        owner: Owner = EVERYTHING,
        cooldown: float = 0.0,
        lease: float = 0.0,
        telemetry: Telemetry | None = None,
        clock: virtual_time.VirtualClock | None = None,
        store: Store | None = None,
        **options: Any,
    ) -> None:
        self.clock = clock or virtual_time.VirtualClock()
        self.source = Source(*found)
        self.cluster = FakeCluster(self.source)
        self.metrics = Metrics(self.clock)
        self.store = store or InMemory()
        self.selectors = SelectorIndex()
        self.telemetry = telemetry or Telemetry()
        told = {"tunables": Tunables(downscale_stabilization=timedelta(0)), "patience": period * 0.6, **options}
        self.reconciler = Reconciler(
            options=Options(**told),
            clock=self.clock,
            cluster=self.cluster,
            metrics=self.metrics,
            store=self.store,
            selectors=self.selectors,
            telemetry=self.telemetry,
            owner=owner,
        )
        self.controller = Controller(
            self.source, self.reconciler, self.telemetry, self.clock, period=period, workers=workers, owner=owner
        )
        self.handoff = Handoff(
            self.source, self.controller, self.store, self.telemetry, self.clock, cooldown=cooldown, lease=lease
        )
        for each in found:
            self.cluster.scales[each.metadata.name] = 1
            self.metrics.values[each.metadata.name] = 10

    async def advance(self, seconds: float) -> None:
        """Run the controller that long, then stop it."""
        self.controller.start()
        await asyncio.sleep(seconds)
        await self.controller.stop(5)
