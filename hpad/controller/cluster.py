"""Protocols of the cluster: the reads and writes of a reconcile."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Scale
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, HPAIdentity, Query, Sample
from hpad.api.selector import Selector
from hpad.engine.conditions import Event
from hpad.engine.view import Competitor
from hpad.kube.client import Allowed
from hpad.kube.owners import Owned

Change = Callable[[Key, HorizontalPodAutoscaler | None, HorizontalPodAutoscaler | None], None]


class HpaSource(Protocol):
    """Where HPAs come from: the cache of the API server's HPAs, or a folder of manifests.

    `subscribe` calls back with (key, old, new). `old` is None for a new HPA, `new` is None for a deleted one.
    """

    @property
    def synced(self) -> asyncio.Event: ...
    def get(self, key: Key) -> HorizontalPodAutoscaler | None: ...
    def values(self) -> Iterable[HorizontalPodAutoscaler]: ...
    def keys(self) -> Collection[Key]: ...
    def __contains__(self, key: Key) -> bool: ...
    def subscribe(self, callback: Change) -> object: ...


class KnownPods(Protocol):
    @property
    def marked(self) -> Collection[Key]: ...
    def get(self, key: Key) -> Pod | None: ...
    def select(self, namespace: str, selector: Selector) -> list[Pod]: ...


class EventSink(Protocol):
    def record(self, hpa: HorizontalPodAutoscaler, event: Event, allowed: Allowed) -> None: ...


class ClusterAccess(Protocol):
    """The cluster: its reads and writes raise kube.errors.ApiError and nothing else.

    A read after a write sees at least that write, even if the watch has not reported it yet. Writes call `allowed`
    right before the first byte is sent, and raise its exceptions.
    """

    @property
    def pods(self) -> KnownPods: ...
    @property
    def event_recorder(self) -> EventSink: ...
    def competitors(self, hpa: HorizontalPodAutoscaler) -> tuple[Competitor, ...]: ...
    def replicas_set_by(self, namespace: str, ref: CrossVersionObjectReference) -> str: ...
    def peek_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale | None: ...
    async def read_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale: ...
    async def owned(self, ref: CrossVersionObjectReference, scale: Scale, pods: Iterable[Pod]) -> Owned: ...
    async def fresh_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale: ...
    async def write_scale(
        self, namespace: str, ref: CrossVersionObjectReference, scale: Scale, allowed: Allowed
    ) -> Scale: ...
    async def set_deletion_cost(self, pod: Pod, cost: int, allowed: Allowed) -> None: ...
    async def remove_deletion_cost(self, pod: Pod, allowed: Allowed) -> None: ...
    async def write_status(
        self, hpa: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus, allowed: Allowed
    ) -> HorizontalPodAutoscaler: ...


class AskedQueries(Protocol):
    """Queries that were asked. Once they are `done`, or `wait` has returned, they have `answers`."""

    @property
    def done(self) -> bool: ...
    async def wait(self) -> None: ...
    def answers(self) -> list[Sample | AdapterError]: ...


class Metrics(Protocol):
    def announce(self, queries: Sequence[Query | AdapterError], identity: HPAIdentity) -> None: ...
    def ask(
        self,
        queries: Sequence[Query | AdapterError],
        *,
        deadline: float,
        identity: HPAIdentity | None,
        period: float | None,
    ) -> AskedQueries: ...
