"""What a reconcile needs of the cluster: protocols of its reads and writes, and the write of a replica count."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Scale
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, Asker, Query, Sample
from hpad.api.selector import Selector
from hpad.clock import Clock
from hpad.election import owner
from hpad.engine import settle
from hpad.engine.conditions import Event
from hpad.engine.view import Competitor
from hpad.kube import errors

Change = Callable[[Key, HorizontalPodAutoscaler | None, HorizontalPodAutoscaler | None], None]


class HpaSource(Protocol):
    """Where HPAs come from: the cache of the API server's HPAs, or a folder of manifests.

    `subscribe` calls back with (key, old, new). `old` is None for a new HPA, `new` is None for a deleted one.
    """

    @property
    def synced(self) -> asyncio.Event: ...
    def get(self, key: Key) -> HorizontalPodAutoscaler | None: ...
    def values(self) -> Iterable[HorizontalPodAutoscaler]: ...
    def subscribe(self, callback: Change) -> object: ...


class Pods(Protocol):
    def select(self, namespace: str, selector: Selector) -> list[Pod]: ...


class EventRecorder(Protocol):
    def record(self, hpa: HorizontalPodAutoscaler, event: Event) -> None: ...


class Cluster(Protocol):
    """The cluster: its reads and writes raise kube.errors.ApiError and nothing else.

    The next read sees what was written, whatever the watch has brought by then. Writes call `allowed` right before the
    first byte is sent, and raise what it raises.
    """

    @property
    def pods(self) -> Pods: ...
    @property
    def event_recorder(self) -> EventRecorder: ...
    def competitors(self, hpa: HorizontalPodAutoscaler) -> tuple[Competitor, ...]: ...
    def set_by_other(self, namespace: str, ref: CrossVersionObjectReference) -> bool: ...
    def peek_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale | None: ...
    async def read_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale: ...
    async def fresh_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale: ...
    async def write_scale(
        self, namespace: str, ref: CrossVersionObjectReference, scale: Scale, allowed: Callable[[], None]
    ) -> Scale: ...
    async def write_status(
        self, hpa: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus, allowed: Callable[[], None]
    ) -> HorizontalPodAutoscaler: ...


class Metrics(Protocol):
    async def gather(
        self, hpa: Key, queries: Sequence[Query | AdapterError], *, deadline: float, asker: Asker | None
    ) -> list[Sample | AdapterError]: ...


ATTEMPTS = 5
_PAUSE_SECONDS = 0.01


async def scale_target(
    cluster: Cluster, clock: Clock, permit: owner.Permit, scale: Scale, replicas: int
) -> settle.Outcome:
    """Writes the replica count; after a conflict reads the scale and writes again, up to `ATTEMPTS` times.

    If another client changed the replica count meanwhile, nothing more is written and the next reconcile decides: the
    decision was made for another count. Any other refusal is final for this reconcile. ApiErrors become part of the
    outcome. Raises NotOwned or Edited if the permit ends before an attempt; no attempt before it has written anything.
    """
    namespace, target = permit.hpa.metadata.namespace, permit.hpa.spec.scale_target_ref
    attempts: list[int] = []
    decided_on = scale.spec.replicas
    try:
        while True:
            try:
                attempts.append(replicas)
                await cluster.write_scale(namespace, target, scale.with_replicas(replicas), permit.require)
                return settle.Outcome(attempts=tuple(attempts), error=None)
            except errors.ApiError as error:
                if not error.conflict or len(attempts) == ATTEMPTS:
                    raise
            await clock.sleep(_PAUSE_SECONDS)
            scale = await cluster.fresh_scale(namespace, target)
            if scale.spec.replicas not in (decided_on, replicas):
                found = f"another client has set the replicas from {decided_on} to {scale.spec.replicas} meanwhile"
                return settle.Outcome(attempts=tuple(attempts), error=f"{found}; the next reconcile decides again")
    except errors.ApiError as error:
        return settle.Outcome(attempts=tuple(attempts), error=error.message, unsure=error.passing)
