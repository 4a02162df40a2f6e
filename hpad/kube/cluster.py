"""One cluster as the rest of hpad sees it: caches of what decisions read, and the few writes."""

import asyncio
from collections.abc import Mapping, Sequence

from hpad.clock import Clock
from hpad.kube import codec, errors, paths, recorder, scale
from hpad.kube import status as hpa_status
from hpad.kube.cache import Cache, Kind
from hpad.kube.client import Client
from hpad.kube.pods import PodCache
from hpad.kube.watch import Pace
from hpad.model.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus
from hpad.model.sample import AdapterError
from hpad.model.target import Scale


def _version(hpa: HorizontalPodAutoscaler) -> str:
    return hpa.metadata.resource_version


HPA = Kind(paths.HPAS, codec.hpa, _version)


class Api:
    """Read access for adapters (`hpad.adapter.ApiReader`): errors become AdapterErrors, blamed on the cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """The body of a GET that answered 2xx; raises AdapterError with the server's own message."""
        try:
            return await self._client.request("GET", path, params=params)
        except errors.ApiError as error:
            raise AdapterError(error.message, blame="cluster") from error


class Cluster:
    """Caches of HPAs, pods and scale targets, kept by `run`; scales, status and events written.

    `namespaces` narrows everything to those named (none: all); `hpa_selector` is a label selector for HPAs alone.
    With `watch_hpas` off `hpas` stays empty (and counts as synced): the HPAs come from elsewhere.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespaces: Sequence[str] = (),
        hpa_selector: str = "",
        watch_hpas: bool = True,
        component: str = recorder.COMPONENT,
        pace: Pace | None = None,
    ) -> None:
        self.client = client
        self.clock = clock
        self.api = Api(client)
        self.recorder = recorder.Recorder(client, component=component)
        chosen = {"labelSelector": hpa_selector} if hpa_selector else {}
        self.hpas = Cache(client, HPA, namespaces=namespaces, params=chosen, pace=pace)
        self.pods = PodCache(client, namespaces=namespaces, pace=pace)
        self.targets = {
            (kind.resource.group, kind.resource.kind): Cache(client, kind, namespaces=namespaces, pace=pace)
            for kind in scale.WATCHED
        }
        self._scales = scale.Scales(client, self.targets)
        self._running: list[Cache[HorizontalPodAutoscaler] | PodCache | Cache[codec.Target]] = [
            self.pods,
            *self.targets.values(),
        ]
        if watch_hpas:
            self._running.append(self.hpas)
        else:
            self.hpas.synced.set()

    async def run(self) -> None:
        """Keep all caches and write events, for ever."""
        async with asyncio.TaskGroup() as group:
            for cache in self._running:
                group.create_task(cache.run())
            group.create_task(self.recorder.run(), name="events")

    async def ready(self) -> None:
        """Wait until every cache has synced; what holds it up meanwhile is in `troubles`.

        Kinds of targets that the server does not have, or does not let us list, hold nothing up: their scales are asked
        for one by one.
        """
        for cache in self._running:
            if cache in self.targets.values():
                await _either(cache.synced, cache.refused)
            else:
                await cache.synced.wait()

    @property
    def troubles(self) -> list[str]:
        """What cannot be followed now, a sentence each."""
        return [cache.trouble for cache in self._running if cache.trouble is not None]

    def staleness(self) -> dict[str, float]:
        """Seconds since each synced cache was last heard of, by resource (`deployments.apps`)."""
        now = self.clock.monotonic()
        return {str(cache.kind.resource): cache.staleness(now) for cache in self._running if cache.synced.is_set()}

    async def read_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale:
        """The target's scale, without a request where the target is watched; raises errors.ApiError."""
        return await self._scales.read(namespace, ref)

    async def fresh_scale(self, namespace: str, ref: CrossVersionObjectReference) -> Scale:
        """The target's scale as the server has it now (after a conflict); raises errors.ApiError."""
        return await self._scales.fresh(namespace, ref)

    async def write_scale(self, namespace: str, ref: CrossVersionObjectReference, scale: Scale) -> Scale:
        """Write the scale, in one attempt; raises errors.ApiError."""
        return await self._scales.write(namespace, ref, scale)

    async def write_status(
        self, hpa: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus
    ) -> HorizontalPodAutoscaler:
        """Write the HPA's status alone, in one attempt; raises errors.ApiError."""
        written = await hpa_status.write(self.client, hpa, status)
        if self.hpas.get(written.metadata.key) is not None:
            self.hpas.offer(written.metadata.key, written)
        return written


async def _either(one: asyncio.Event, other: asyncio.Event) -> None:
    """Wait for the first of two events."""
    waits = [asyncio.ensure_future(one.wait()), asyncio.ensure_future(other.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
