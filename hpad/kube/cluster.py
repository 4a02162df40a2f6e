"""The cluster as the controller sees it: caches of HPAs, pods and targets; writes of scales, statuses and events."""

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from hpad.api import duration
from hpad.api.hpa import (
    AUTOSCALER,
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
    Scale,
)
from hpad.api.metadata import AUTOSCALER_KEY, Key
from hpad.api.pod import Pod, set_by_hpad
from hpad.api.sample import AdapterError
from hpad.engine.view import Competitor
from hpad.kube import errors, events, hpas, owners, paths, pods, scale
from hpad.kube.cache import Cache, HpaCache, WatchedKinds
from hpad.kube.client import JSON_PATCH, MERGE_PATCH, Allowed, Client
from hpad.kube.competitors import UNKNOWN, Competitors, OtherHpas, target_key
from hpad.kube.pods import PodCache
from hpad.kube.reflector import ReflectorOptions, WatchScope


class ApiReads:
    """Read access for adapters (`hpad.adapter.ApiReader`); errors become AdapterErrors."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """Returns the body of a 2xx answer to a GET. Raises AdapterError with the server's message."""
        try:
            return await self._client.request("GET", path, params=params)
        except errors.ApiError as error:
            # The spec names a metric or object that does not exist; without the whole API the cluster is to blame.
            in_spec = error.not_found and error.message and not error.no_resource
            raise AdapterError(error.message, "spec" if in_spec else "cluster", lasting=not error.passing) from error


class Watching(NamedTuple):
    """What a Cluster watches, and for how long it trusts that.

    `namespaces` limits all caches (empty: all namespaces); `hpa_selector` is a label selector for HPAs and Autoscalers.
    Without `hpas` and `autoscalers` the HPAs come from files; with both, the kind Autoscaler may be missing. With
    `others` the HPAs that other controllers own are watched as well, for `competitors`.
    `alone`: no other hpad replica writes. Reads fail if the watch of pods or HPAs has received nothing for
    `max_staleness` seconds. `options` are the timeouts and backoffs of lists and watches.
    """

    namespaces: Sequence[str] = ()
    hpa_selector: str = ""
    hpas: bool = True
    autoscalers: bool = False
    others: bool = False
    alone: bool = True
    max_staleness: float = math.inf
    options: ReflectorOptions = ReflectorOptions()


EVERYTHING: Final = Watching()


class Cluster:
    """Caches of HPAs, pods and scale targets, kept up to date by `run`; writes of scales, statuses and events.

    `kinds` has the HPAs and Autoscalers; where they come from files, it stays empty. A kind of target is watched once
    an HPA refers to it. `bug` is called whenever a subscriber of the HPAs raises.
    """

    def __init__(
        self, client: Client, watching: Watching = EVERYTHING, *, bug: Callable[[], None] | None = None
    ) -> None:
        selector = watching.hpa_selector
        self.client = client
        self.clock = client.clock
        self.api = ApiReads(client)
        self.event_recorder = events.EventRecorder(client)
        scope = WatchScope(client, watching.namespaces, watching.options)
        self._others = OtherHpas(scope, selector if watching.hpas else None) if watching.others else None
        self._competitors = Competitors(self.clock, self._others, alone=watching.alone)
        cache = functools.partial(
            HpaCache,
            scope,
            params={"labelSelector": selector} if selector else None,
            bug=bug,
            status_written_by=self._competitors.status_written_by,
        )
        self.hpas = cache(form=hpas.HPA)
        self.autoscalers = cache(form=hpas.AUTOSCALER, optional=watching.hpas)
        caches = {"": self.hpas} if watching.hpas else {}
        caches |= {AUTOSCALER_KEY: self.autoscalers} if watching.autoscalers else {}
        self.kinds = WatchedKinds(caches)
        self.kinds.subscribe(self.hpa_changed)
        self.pods = PodCache(scope)
        self.targets = {(kind.resource.group, kind.resource.kind): Cache(scope, kind) for kind in scale.WATCHED}
        self._competitors.watch(self.targets)
        self._scales = scale.Scales(client, self.targets, watching.max_staleness)
        self._owners = owners.PodOwners(self.targets, self.follow, self.clock, watching.max_staleness)
        self._max_staleness = watching.max_staleness
        self._namespaces = tuple(watching.namespaces)
        self._running: list[Cache[Any] | PodCache] = [self.pods, *self.kinds]
        self._optional: list[Cache[Any]] = [self.autoscalers, *self.targets.values()]  # may be refused by the server
        self._group: asyncio.TaskGroup | None = None
        if self._others is not None:
            self._running.append(self._others.cache)
            self._optional.append(self._others.cache)

    async def run(self) -> None:
        """Keeps all caches up to date and writes events until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self._running:
                group.create_task(cache.run())
            group.create_task(self.event_recorder.run(), name="events")
            self._group = group

    def follow(self, references: Iterable[CrossVersionObjectReference]) -> None:
        """Watches the kinds of these targets from now on, if they are built-in kinds."""
        for ref in references:
            cache = self.targets.get(scale.watched(ref))
            if cache is not None and cache not in self._running:
                self._running.append(cache)
                if self._group is not None:
                    self._group.create_task(cache.run())

    async def ready(self) -> None:
        """Waits until every cache that the known HPAs need has synced; `troubles` names the missing ones.

        Kinds of targets that the server does not have, or forbids to list, are not waited for: their scales are read
        by single requests.
        """
        await self.kinds.wait_synced()
        self.follow([hpa.spec.scale_target_ref for hpa in self.kinds.values()])
        for cache in self._running:
            await (cache.answered if cache in self._optional else cache.synced).wait()

    @property
    def troubles(self) -> list[str]:
        """One sentence for each cache that cannot be kept up to date now."""
        others = None if self._others is None else self._others.cache
        return [
            f"{UNKNOWN}: {cache.trouble}" if cache is others else cache.trouble
            for cache in self._running
            if cache.trouble is not None
        ]

    def competitors(self, hpa: HorizontalPodAutoscaler) -> tuple[Competitor, ...]:
        """Returns the known other writers of the HPA's target and status."""
        return self._competitors.of(hpa)

    def replicas_set_by(self, namespace: str, ref: CrossVersionObjectReference) -> str:
        """Returns the client that set the target's replicas last (`managed_fields`), "" if unknown."""
        return self._scales.owner(namespace, ref)

    def staleness(self) -> dict[str, float]:
        """Returns the seconds since each synced cache last received data, by resource such as `deployments.apps`."""
        now = self.clock.monotonic()
        return {str(cache.kind.resource): cache.staleness(now) for cache in self._running if cache.synced.is_set()}

    async def read_scale(self, namespace: str, ref: CrossVersionObjectReference, kind: str = "") -> Scale:
        """Returns the target's scale, without a request if the target is watched.

        `kind` is that in the key of the HPA. Raises ApiError, also if the pods and the HPAs of that kind, which a
        decision needs, are too old or not watched.
        """
        self._require_watched(namespace)
        self.follow((ref,))
        self._require_fresh(namespace, kind)
        scale = await self._scales.read(namespace, ref)
        self._competitors.read(target_key(namespace, ref), scale)
        return scale

    def peek_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale | None:
        """Returns the target's scale if the target is watched and known."""
        self.follow((ref,))
        return self._scales.peek(namespace, ref)

    async def pod_template(self, namespace: str, ref: CrossVersionObjectReference) -> Pod | None:
        """Returns a pod of the target's template, by a request; None if the target has none. Raises ApiError."""
        return await self._scales.template(namespace, ref)

    async def owned(self, ref: CrossVersionObjectReference, scale: Scale, pods: Iterable[Pod]) -> owners.Owned:
        """Returns those of the pods that belong to the target. Raises ApiError where that is not known of a pod."""
        return await self._owners.owned(ref, str(scale.metadata.get("uid", "")), pods)

    async def fresh_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale:
        """Returns the target's scale as the server has it now, for use after a conflict. Raises ApiError."""
        return await self._scales.fresh(namespace, ref)

    async def write_scale(
        self, namespace: str, ref: CrossVersionObjectReference, scale: Scale, allowed: Allowed | None = None
    ) -> Scale:
        """Writes the scale in one attempt. Raises ApiError, and the exceptions of `allowed` before it is sent."""
        target = target_key(namespace, ref)
        self._competitors.writing(target)
        written = await self._scales.write(namespace, ref, scale, allowed)
        self._competitors.written(target, written)
        return written

    async def set_deletion_cost(self, pod: Pod, cost: int, allowed: Allowed | None = None) -> None:
        """Sets and marks the deletion cost of a pod in one attempt. Raises as `write_scale` does."""
        body = pods.cost_patch(set_by_hpad(pod.deletion_cost, cost, self.clock.now()))
        await self._patch(pod, body, MERGE_PATCH, allowed)

    async def remove_deletion_cost(self, pod: Pod, allowed: Allowed | None = None) -> None:
        """Restores the user's cost of a marked pod in one attempt.

        Raises as `write_scale` does; ApiError with status 422 if the pod has another cost or mark meanwhile.
        """
        if pod.deletion_cost is not None:
            await self._patch(pod, pods.cost_removal(pod.deletion_cost), JSON_PATCH, allowed)

    async def _patch(self, pod: Pod, body: bytes, content_type: str, allowed: Allowed | None) -> None:
        path = paths.PODS.object(Key(pod.namespace, pod.name))
        await self.client.request("PATCH", path, body=body, content_type=content_type, allowed=allowed)

    def write_status(
        self, hpa: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus, allowed: Allowed | None = None
    ) -> Awaitable[HorizontalPodAutoscaler]:
        """Writes the HPA's status alone in one attempt. Raises ApiError, and the exceptions of `allowed`."""
        cache = self.autoscalers if hpa.kind == AUTOSCALER else self.hpas
        return cache.write_status(hpa, status, allowed)

    def hpa_changed(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        """Forgets a deleted HPA, or the former target of an edited one. The callback for changes of HPAs."""
        if old is None:
            return
        if (
            new is None
            or new.metadata.uid != old.metadata.uid
            or new.spec.scale_target_ref != old.spec.scale_target_ref
        ):
            self._competitors.release(old)

    def _require_watched(self, namespace: str) -> None:
        """Refuses HPAs from files in namespaces that are not watched: their targets would seem to have no pods."""
        if self._namespaces and namespace not in self._namespaces:
            watched = ", ".join(self._namespaces)
            message = f'hpad does not watch the namespace "{namespace}": its setting `namespaces` names {watched}'
            raise errors.ApiError(0, "NotWatched", message)

    def _require_fresh(self, namespace: str, kind: str) -> None:
        now = self.clock.monotonic()
        own = self.autoscalers if kind else self.hpas
        for cache in (self.pods, own) if own in self._running else (self.pods,):
            if cache.staleness(now, namespace) > self._max_staleness:
                limit = duration.write(timedelta(seconds=self._max_staleness))
                message = f"the watch of {cache.kind.resource} has received nothing for more than {limit}: too long to"
                message += " decide"
                raise errors.ApiError(0, errors.STALE, message)
