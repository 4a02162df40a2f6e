"""Watch caches that never lie: list, then watch, and list again when the watch cannot go on."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import structlog

from hpad.kube import codec, errors, paths, watch
from hpad.kube.client import Client
from hpad.kube.watch import Pace
from hpad.model.key import Key

T = TypeVar("T")
_REFUSALS = 3  # failures of a watch to start, until a list is tried instead
Callback = Callable[[Key, T | None, T | None], None]
"""Told of each change: key, the value before (None: new), the value after (None: gone). Must neither raise nor wait."""


@dataclass(frozen=True)
class Kind(Generic[T]):
    """What a cache holds: the resource, how its objects are read, and where a value keeps its resourceVersion.

    `version` is None for values that do not carry one; those cannot be `offer`ed to the cache.
    """

    resource: paths.Resource
    decode: codec.Decode[T]
    version: Callable[[T], str] | None = None


class Cache(Generic[T]):
    """All objects of one resource, in all namespaces or in those named, kept up to date by `run`.

    `params` (a label selector, say) go with every list and watch. An object that cannot be read is left out and
    reported, and spoils none of the others. `trouble` is the text of the last failure, None once all is well again.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        *,
        namespaces: Sequence[str] = (),
        params: Mapping[str, str] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self.trouble: str | None = None
        self._values: dict[Key, T] = {}
        self._callbacks: list[Callback[T]] = []
        self._offered: set[Key] = set()
        self._feeds = [_Feed(self, client, each, params or {}, pace or Pace()) for each in namespaces or ("",)]

    def get(self, key: Key) -> T | None:
        return self._values.get(key)

    def values(self) -> Collection[T]:
        """A live view of all objects: copy it before waiting for anything."""
        return self._values.values()

    def __len__(self) -> int:
        return len(self._values)

    def covers(self, namespace: str) -> bool:
        """Whether the objects of that namespace are all here."""
        return self.synced.is_set() and any(feed.namespace in {"", namespace} for feed in self._feeds)

    def subscribe(self, callback: Callback[T]) -> None:
        """Call back at every change from now on."""
        self._callbacks.append(callback)

    def staleness(self, now: float) -> float:
        """Seconds (of the monotonic clock) since the least lively part of the cache was last heard of."""
        return max(now - feed.heard for feed in self._feeds)

    def offer(self, key: Key, value: T) -> None:
        """Take in an object that was read or written past the watch, where it is newer than the one held."""
        if self.kind.version is not None:
            self._offered.add(key)
            self.put(key, value, self.kind.version(value))

    async def run(self) -> None:
        """Keep up, for ever; failures are waited out."""
        async with asyncio.TaskGroup() as group:
            for feed in self._feeds:
                group.create_task(feed.run(), name=f"{self.kind.resource} {feed.namespace}".strip())

    def listing(self, namespace: str) -> None:
        """A list begins: what was offered until now, it is sure to know."""
        self._offered.difference_update(self.keys(namespace))

    def put(self, key: Key, value: T, version: str, *, listed: bool = False) -> None:
        """Take in an object, unless the one held is as new; a list is believed even where versions went backwards."""
        old = self._values.get(key)
        trusted = listed and key not in self._offered
        if old is None or not self._as_new(old, value, version, trusted):
            self._values[key] = value
            self._tell(key, old, value)

    def drop(self, key: Key, version: str, *, listed: bool = False) -> None:
        """Let go of an object that was gone at `version`, unless the one held came later."""
        old = self._values.get(key)
        trusted = listed and key not in self._offered
        if old is not None and (trusted or not self._later(old, version)):
            del self._values[key]
            self._offered.discard(key)
            self._tell(key, old, None)

    def settled(self) -> None:
        """One feed has all it needs: the cache is synced when every feed has."""
        if all(feed.synced for feed in self._feeds):
            self.synced.set()
        if not any(feed.failing for feed in self._feeds):
            self.trouble = None

    def keys(self, namespace: str) -> list[Key]:
        """The keys held of one namespace, or ("") of all."""
        return [key for key in self._values if not namespace or key.namespace == namespace]

    def _as_new(self, held: T, value: T, version: str, trusted: bool) -> bool:
        if self.kind.version is None:
            return held == value
        return self.kind.version(held) == version or (not trusted and self._later(held, version))

    def _later(self, held: T, version: str) -> bool:
        """Whether the value held was written after `version`; resourceVersions that are no numbers never compare."""
        mine = self.kind.version(held) if self.kind.version is not None else ""
        return mine.isdecimal() and version.isdecimal() and int(mine) > int(version)

    def _tell(self, key: Key, old: T | None, new: T | None) -> None:
        for callback in self._callbacks:
            callback(key, old, new)


class _Feed(Generic[T]):
    """The list and watch of one namespace (or of all, "")."""

    def __init__(self, cache: Cache[T], client: Client, namespace: str, params: Mapping[str, str], pace: Pace) -> None:
        self.namespace = namespace
        self.synced = False
        self.failing = False
        self.heard = client.clock.monotonic()
        self._cache = cache
        self._client = client
        self._clock = client.clock
        self._path = cache.kind.resource.collection(namespace)
        self._params = params
        self._pace = pace
        self._refusals = 0
        self._backoff = watch.Backoff(pace.first, pace.last)
        self._log = structlog.get_logger("hpad.kube").bind(resource=str(cache.kind.resource), namespace=namespace)

    async def run(self) -> None:
        """List and watch; where the watch's version has expired, list again, and so on for ever."""
        while True:
            try:
                version = await self._list()
            except errors.ApiError as error:
                await self._wait(error)
                continue
            self._well()
            await self._follow(version)

    async def _follow(self, version: str) -> None:
        """Watch from `version` on, again and again, until that leads nowhere and only a list can help."""
        self._refusals = 0
        while True:
            began = self._clock.monotonic()
            try:
                async with aclosing(
                    watch.changes(self._client, self._path, self._params, version, self._pace)
                ) as changes:
                    async for change in changes:
                        version = self._apply(change) or version
            except errors.ApiError as error:
                if self._lost(error):
                    self._log.info("the watch cannot go on, listing again", error=str(error))
                    return
                await self._wait(error)
            else:
                self._well()
                await self._pause(self.heard - began)

    def _lost(self, error: errors.ApiError) -> bool:
        """Whether to list again: the version has expired, or the server keeps answering something else than a watch."""
        if error.status not in {0, 429}:
            self._refusals += 1
        return error.gone or self._refusals >= _REFUSALS

    async def _pause(self, lasted: float) -> None:
        """A watch that the server ends at once must not become a loop of requests."""
        if lasted >= self._pace.first:
            self._backoff.reset()
        else:
            await self._clock.sleep(self._backoff.next())

    async def _wait(self, error: errors.ApiError) -> None:
        if not self.failing:
            self._log.warning("cannot be followed", error=str(error), status=error.status)
        self.failing = True
        self._cache.trouble = f"{self._cache.kind.resource}: {error}"
        await self._clock.sleep(max(self._backoff.next(), min(error.retry_after or 0.0, self._pace.last)))

    def _well(self) -> None:
        """The server has been heard."""
        self.heard = self._clock.monotonic()
        self._refusals = 0
        if self.failing:
            self.failing = False
            self._backoff.reset()
            self._cache.settled()
            self._log.info("followed again")

    def _apply(self, change: watch.Change) -> str | None:
        """Take in one change; its resourceVersion, None where it could not be read at all."""
        self._well()
        if change.type == watch.BOOKMARK:
            return self._meta(change.object).resource_version or None
        record = self._record(change.object)
        if record is None:
            gone = self._meta(change.object)
            self._cache.drop(Key(gone.namespace, gone.name), gone.resource_version)
            return gone.resource_version or None
        if change.type == watch.DELETED:
            self._cache.drop(record.key, record.version)
        else:
            self._cache.put(record.key, record.value, record.version)
        return record.version or None

    async def _list(self) -> str:
        """Read the whole collection, page by page, and let go of what is no longer in it; its resourceVersion."""
        self._cache.listing(self.namespace)
        try:
            seen, version = await self._pages(self._pace.page)
        except errors.ApiError as error:
            if not error.gone:
                raise
            seen, version = await self._pages(0)
        for key in self._cache.keys(self.namespace):
            if key not in seen:
                self._cache.drop(key, version, listed=True)
        self.synced = True
        self._cache.settled()
        return version

    async def _pages(self, limit: int) -> tuple[set[Key], str]:
        seen: set[Key] = set()
        params = {**self._params, **({"limit": str(limit)} if limit else {})}
        while True:
            body = await self._client.request("GET", self._path, params=params, timeout=self._pace.list_timeout)
            page = codec.page(body)
            self.heard = self._clock.monotonic()  # not well yet: one page is no list
            for raw in page.items or ():
                record = self._record(raw)
                if record is not None:
                    seen.add(record.key)
                    self._cache.put(record.key, record.value, record.version, listed=True)
            if not page.metadata.continue_:
                return seen, page.metadata.resource_version
            params["continue"] = page.metadata.continue_
            await self._clock.sleep(0)

    def _record(self, raw: msgspec.Raw) -> codec.Record[T] | None:
        try:
            return self._cache.kind.decode(raw)
        except codec.UndecodableError as error:
            held = self._meta(raw)
            self._log.warning(
                "object cannot be read", name=held.name, object_namespace=held.namespace, error=str(error)
            )
            return None

    def _meta(self, raw: msgspec.Raw) -> codec.Meta:
        try:
            return codec.meta(raw)
        except codec.UndecodableError:
            return codec.Meta()
