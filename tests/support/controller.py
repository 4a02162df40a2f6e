"""A controller with a cluster and metrics in memory, for tests in virtual time."""

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from support import virtual_time
from support.asked import Gathering

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
from hpad.api.pod import ContainerRequests, DeletionCost, Pod, set_by_hpad
from hpad.api.sample import AdapterError, ExternalSample, HPAIdentity, PodSample, PodValue, Query, Sample
from hpad.api.selector import Selector
from hpad.controller.controller import Controller
from hpad.controller.observe import Options
from hpad.controller.overlap import SelectorIndex
from hpad.controller.reconcile import Keepers, Reconciler
from hpad.controller.takeover import Takeover
from hpad.election.owner import ALONE, Authority
from hpad.engine import annotations as own
from hpad.engine.conditions import Event
from hpad.engine.view import Competitor, Tunables
from hpad.kube import errors
from hpad.kube.client import Allowed
from hpad.notify.notices import Notices
from hpad.records.archive import HistoryLimits
from hpad.records.history import DecisionHistory
from hpad.settings.notify import NotifySettings
from hpad.store.store import InMemory, Store
from hpad.telemetry import Telemetry


def hpa(
    name: str, *, average: int = 10, uid: str = "1", namespace: str = "default", **spec: Any
) -> HorizontalPodAutoscaler:
    """Returns an HPA of the Deployment of its name, with one External metric of its name."""
    target = {"type": "AverageValue", "averageValue": str(average)}
    body = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 1,
        "maxReplicas": 10,
        "metrics": [{"type": "External", "external": {"metric": {"name": name}, "target": target}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        **spec,
    }
    metadata = {"name": name, "namespace": namespace, "uid": uid}
    return v2.defaulted(from_builtins({"metadata": metadata, "spec": body}))


def annotated(made: HorizontalPodAutoscaler | None = None, /, **annotations: str) -> HorizontalPodAutoscaler:
    """The HPA, by default "web", with these annotations of hpad, named without their prefix."""
    made = made or hpa("web")
    prefixed = {f"{own.PREFIX}{name}": value for name, value in annotations.items()}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=prefixed))


def competing(selectors: SelectorIndex, key: Key, pods: Iterable[Pod]) -> tuple[str, ...]:
    """Returns what a whole search finds, without pauses."""
    steps = selectors.search(key, pods)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: tuple[str, ...] = done.value
            return found


class Switch(Authority):
    """It leads while `on`."""

    remaining = None

    def __init__(self, on: bool = True) -> None:
        self.on = on

    @property
    def leading(self) -> bool:
        return self.on


class Source:
    """HPAs in a dictionary, with the interface of a cache."""

    def __init__(self, *found: HorizontalPodAutoscaler) -> None:
        self.synced = asyncio.Event()
        self._found = {each.key: each for each in found}
        self._callbacks: list[Any] = []

    def get(self, key: Key) -> HorizontalPodAutoscaler | None:
        return self._found.get(key)

    def values(self) -> list[HorizontalPodAutoscaler]:
        return list(self._found.values())

    def keys(self) -> list[Key]:
        return list(self._found)

    def __contains__(self, key: Key) -> bool:
        return key in self._found

    def subscribe(self, callback: Any) -> None:
        self._callbacks.append(callback)

    def put(self, new: HorizontalPodAutoscaler, *, notify: bool = True) -> None:
        old = self._found.get(new.key)
        self._found[new.key] = new
        for callback in self._callbacks if notify else ():
            callback(new.key, old, new)

    def drop(self, name: str) -> None:
        key = Key("default", name)
        old = self._found.pop(key)
        for callback in self._callbacks:
            callback(key, old, None)


class FakeCluster:
    """Scales by name, with pods labelled app=NAME. Records writes; these raise the errors in `refusals`, in order.

    Reading the scale of an `unwatched` target takes a request each time.
    """

    def __init__(self, source: Source, clock: virtual_time.VirtualClock) -> None:
        self.source = source
        self.clock = clock
        self.scales: dict[str, int] = {}
        self.selectors: dict[str, str] = {}
        self.unwatched: set[str] = set()
        self.reads: list[str] = []
        self.set_by: dict[str, str] = {}
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
        self.costs: dict[str, DeletionCost] = {}
        self.annotated: list[str] = []
        self.annotate_seconds = 0.0
        self.annotate_refusal: errors.ApiError | None = None
        self.event_recorder = self
        self.requests: dict[str, int] = {}
        self.templates: dict[str, Pod] = {}

    @property
    def marked(self) -> set[Key]:
        return {Key("default", name) for name, cost in self.costs.items() if cost.mark is not None}

    async def set_deletion_cost(self, pod: Pod, cost: int, allowed: Callable[[], None]) -> None:
        await self._annotating(pod, allowed)
        self.costs[pod.name] = set_by_hpad(pod.deletion_cost, cost, self.clock.now())

    async def remove_deletion_cost(self, pod: Pod, allowed: Callable[[], None]) -> None:
        await self._annotating(pod, allowed)
        if pod.deletion_cost != self.costs.get(pod.name):
            raise errors.ApiError(422, "Invalid", "the server rejected our request due to an error in our request")
        self.costs.pop(pod.name, None)
        if pod.deletion_cost is not None and pod.deletion_cost.restored is not None:
            self.costs[pod.name] = DeletionCost(pod.deletion_cost.restored)

    async def _annotating(self, pod: Pod, allowed: Callable[[], None]) -> None:
        allowed()
        await asyncio.sleep(self.annotate_seconds)
        if self.annotate_refusal is not None:
            raise self.annotate_refusal
        self.annotated.append(pod.name)

    def get(self, key: Key) -> Pod | None:
        app, _, number = key.name.rpartition("-")
        return self._pod(app, int(number)) if int(number) < self.scales.get(app, 0) else None

    def select(self, namespace: str, selector: Selector) -> list[Pod]:
        selected = [name for name in self.scales if selector.matches({"app": name})]
        return [self._pod(name, number) for name in selected for number in range(self.scales[name])]

    def _pod(self, app: str, number: int) -> Pod:
        name, fields = f"{app}-{number}", {"namespace": "default", "phase": "Running", "ready": "True"}
        containers = (ContainerRequests("app", {"cpu": self.requests[app]} if app in self.requests else {}),)
        return Pod(name=name, labels={"app": app}, deletion_cost=self.costs.get(name), containers=containers, **fields)

    def record(self, hpa: HorizontalPodAutoscaler, event: Event, allowed: Allowed) -> None:
        self.events.append(event)

    def competitors(self, hpa: HorizontalPodAutoscaler) -> tuple[Competitor, ...]:
        return self.others

    def replicas_set_by(self, namespace: str, ref: CrossVersionObjectReference) -> str:
        return self.set_by.get(ref.name, "")

    def peek_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale | None:
        return None if ref.name in self.unwatched else self._scale(ref)

    async def pod_template(self, namespace: str, ref: CrossVersionObjectReference) -> Pod | None:
        return self.templates.get(ref.name)

    def _scale(self, ref: CrossVersionObjectReference) -> Scale | None:
        if ref.name not in self.scales:
            return None
        count = self.scales[ref.name]
        labels = self.selectors.get(ref.name, f"app={ref.name}")
        return Scale(metadata={"name": ref.name}, spec=ScaleSpec(count), status=ScaleStatus(count, labels))

    async def read_scale(self, namespace: str, ref: CrossVersionObjectReference, kind: str = "") -> Scale:
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
        if self.source.get(hpa.key) is not None:
            self.source.put(written)
        return written


class Metrics(Gathering):
    """External metrics by name, in whole units. A value may be an error, or an async function that returns a value."""

    def __init__(self, clock: virtual_time.VirtualClock) -> None:
        self.clock = clock
        self.values: dict[str, int | AdapterError | Callable[[], Any]] = {}
        self.asked: list[tuple[float, str]] = []
        self.identities: list[HPAIdentity | None] = []
        self.work: dict[str, int] | AdapterError = {}
        self.work_seconds = 0.0

    async def gather(
        self, queries: Sequence[Query | AdapterError], *, deadline: float, identity: HPAIdentity | None
    ) -> list[Sample | AdapterError]:
        assert identity is not None
        if all(isinstance(query, Query) and query.members is not None for query in queries):
            return await self._work(queries)
        self.asked.append((self.clock.monotonic(), identity.name))
        self.identities.append(identity)
        value = self.values.get(identity.name)
        if callable(value):
            value = await value()
        if value is None or isinstance(value, AdapterError):
            return [value or AdapterError("no such metric") for _ in queries]
        return [ExternalSample((value * 1000,), self.clock.now()) for _ in queries]

    async def _work(self, queries: Sequence[Query | AdapterError]) -> list[Sample | AdapterError]:
        await asyncio.sleep(self.work_seconds)
        if isinstance(self.work, AdapterError):
            return [self.work] * len(queries)
        now = self.clock.now()
        values = {name: PodValue(amount * 1000, now, timedelta(0)) for name, amount in self.work.items()}
        return [PodSample(values, now)] * len(queries)

    def times(self, name: str) -> list[float]:
        return [at for at, asked in self.asked if asked == name]


def keepers(clock: Any, telemetry: Telemetry, *recorders: Any, decisions: DecisionHistory | None = None) -> Keepers:
    """Returns what keeps reconciles: the recorders, a decision history, and messages to nobody."""
    history = decisions or DecisionHistory(limits=HistoryLimits(span=timedelta(0)), clock=clock)
    return Keepers(recorders, history, Notices(NotifySettings(), clock, telemetry.notify))


class Bench:
    """A controller with its fakes. Create it inside the virtual loop."""

    def __init__(
        self,
        *found: HorizontalPodAutoscaler,
        period: float = 15.0,
        workers: int = 8,
        owner: Authority = ALONE,
        telemetry: Telemetry | None = None,
        clock: virtual_time.VirtualClock | None = None,
        store: Store | None = None,
        recorder: Any = None,
        decisions: DecisionHistory | None = None,
        release: Callable[[Collection[Key]], None] = lambda _: None,
        **options: Any,
    ) -> None:
        self.clock = clock or virtual_time.VirtualClock()
        self.source = Source(*found)
        self.cluster = FakeCluster(self.source, self.clock)
        self.metrics = Metrics(self.clock)
        self.store = store or InMemory()
        self.telemetry = telemetry or Telemetry()
        span = HistoryLimits(span=timedelta(0))
        self.decisions = decisions or DecisionHistory(limits=span, clock=self.clock)
        chosen = {"tunables": Tunables(downscale_stabilization=timedelta(0)), "patience": period * 0.6, **options}
        self.reconciler = Reconciler(
            options=Options(**chosen),
            clock=self.clock,
            cluster=self.cluster,
            metrics=self.metrics,
            store=self.store,
            telemetry=self.telemetry,
            keepers=keepers(
                self.clock, self.telemetry, *(() if recorder is None else (recorder,)), decisions=self.decisions
            ),
        )
        self.controller = Controller(
            self.source,
            self.reconciler,
            self.telemetry,
            self.clock,
            period=period,
            workers=workers,
            owner=owner,
        )
        self.takeover = Takeover(self.source, self.controller, self.store, self.clock, release=release)
        for each in found:
            self.cluster.scales[each.metadata.name] = 1
            self.metrics.values[each.metadata.name] = 10

    async def advance(self, seconds: float) -> None:
        """Runs the controller for a number of seconds, then stops it."""
        self.controller.start()
        await asyncio.sleep(seconds)
        await self.controller.stop(5)
