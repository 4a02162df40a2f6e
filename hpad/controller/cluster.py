"""What the heartbeat needs of the world outside; `kube.cluster.Cluster` and `gather.fanout.Gatherer` have it.

Writing the target's replica count, through its scale subresource.
"""

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
    """Where HPAs come from: the API server's cache or a folder of manifests.

    `subscribe` calls back with (key, old, new); old None: it is new, new None: it is gone.
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


class World(Protocol):
    """The cluster: its reads and writes raise kube.errors.ApiError and nothing else.

    What was written is seen by the next read, whatever a watch has brought by then.
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
    async def write_scale(self, namespace: str, ref: CrossVersionObjectReference, scale: Scale) -> Scale: ...
    async def write_status(
        self, hpa: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus
    ) -> HorizontalPodAutoscaler: ...


class Metrics(Protocol):
    async def gather(
        self, hpa: Key, queries: Sequence[Query | AdapterError], *, deadline: float, asker: Asker | None
    ) -> list[Sample | AdapterError]: ...


ATTEMPTS = 5
_PAUSE_SECONDS = 0.01


async def act(world: World, clock: Clock, permit: owner.Permit, scale: Scale, replicas: int) -> settle.Outcome:
    """Write the count; where somebody else wrote in between, read again and write the same count, five times in all.

    If it was the count that they changed, ours was decided for another one (watches may lag behind by more than a
    moment): nothing is written any more, and the next reconcile decides anew.
    Any other refusal is final for this reconcile. Never raises ApiError: the outcome tells. Raises NotOurs or Edited,
    where there is no permit any more before one of the attempts: none of those before has written anything.
    """
    namespace, target = permit.hpa.metadata.namespace, permit.hpa.spec.scale_target_ref
    attempts: list[int] = []
    decided_on = scale.spec.replicas
    try:
        while True:
            try:
                with permit.writing():
                    attempts.append(replicas)
                    await world.write_scale(namespace, target, scale.with_replicas(replicas))
                return settle.Outcome(attempts=tuple(attempts), error=None)
            except errors.ApiError as error:
                if not error.conflict or len(attempts) == ATTEMPTS:
                    raise
            await clock.sleep(_PAUSE_SECONDS)
            scale = await world.fresh_scale(namespace, target)
            if scale.spec.replicas not in (decided_on, replicas):
                found = f"somebody else has set the replicas from {decided_on} to {scale.spec.replicas} meanwhile"
                return settle.Outcome(attempts=tuple(attempts), error=f"{found}; the next reconcile decides anew")
    except errors.ApiError as error:
        return settle.Outcome(attempts=tuple(attempts), error=error.message, unsure=error.passing)
