"""Feeding a cache so that it never lies: list, then watch, and list again when the watch cannot go on.

A list comes as a stream where the server offers that (KEP-3157), else page by page.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from hpad.api.metadata import Key
from hpad.kube import codec, errors, paths, watch
from hpad.kube.client import Client
from hpad.kube.watch import ReflectorOptions
from hpad.telemetry.episode import Episodes

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
_REFUSED = frozenset({403, 404})
_NO_PROGRESS = "RequestWatchProgress is disabled"  # answered with 500 where etcd is older than 3.4.31 or 3.5.13
_NO_STREAMING = frozenset({400, 405, 422})  # what servers answer that know no streaming lists, or have them turned off
_AT_ONCE = 64  # objects of a page that are read before others get their turn: a millisecond or two
_REFUSALS = 3  # failures of a watch to start, until a list is tried instead
_UNREADABLE = 1024  # objects that cannot be read and are told apart in the log
_ABSENCES = 2  # times in a row that nobody answered: who answers next may remember another history


@dataclass(frozen=True)
class Kind(Generic[T]):
    """What a cache holds: the resource, how its objects are read, and where a value keeps its resourceVersion.

    `version` is None for values that do not carry one; those cannot be `offer`ed to the cache. `absent` is what to say
    of a server that does not have the resource, where that is no matter of course.
    """

    resource: paths.Resource
    decode: codec.Decode[T]
    version: Callable[[T], str] | None = None
    absent: str = ""


class ReflectorStore(Protocol[T_contra]):
    """The cache that is fed."""

    trouble: str | None
    refused: asyncio.Event

    def listing(self, namespace: str) -> None: ...
    def put(self, key: Key, value: T_contra, version: str, *, listed: bool = False) -> None: ...
    def drop(self, key: Key, version: str, *, listed: bool = False) -> None: ...
    def keys(self, namespace: str) -> list[Key]: ...
    def settled(self) -> None: ...


class _Broken(Exception):
    """How a watch broke, and up to which version it had come."""

    def __init__(self, error: errors.ApiError, version: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.version = version


class Reflector(Generic[T]):
    """The list and watch of one namespace (or of all, "").

    `synced` once a list has come whole; `failing` while the server does not answer as it should; `heard` is the
    monotonic time of the last proof of life.
    """

    def __init__(
        self,
        cache: ReflectorStore[T],
        kind: Kind[T],
        client: Client,
        namespace: str,
        params: Mapping[str, str],
        options: ReflectorOptions,
    ) -> None:
        self.namespace = namespace
        self.synced = False
        self.failing = False
        self.heard = client.clock.monotonic()
        self._cache = cache
        self._client = client
        self._clock = client.clock
        self._decode = kind.decode
        self._resource = str(kind.resource)
        self._absent = kind.absent
        self._path = kind.resource.collection(namespace)
        self._params = params
        self._options = options
        self._streams = True
        self._stumbled = False
        self._refusals = self._absences = 0
        self._in_vain = 0
        self._backoff = watch.Backoff(options.initial_backoff, options.max_backoff)
        self._relisting = watch.Backoff(options.initial_backoff, options.max_backoff)
        self._log = structlog.get_logger("hpad.kube", resource=self._resource, namespace=namespace)
        cannot, can = "object cannot be read", "object can be read again"
        self._unreadable = Episodes(self._log, self._clock, cannot, can, most=_UNREADABLE)

    async def run(self) -> None:
        """List and watch; where the watch's version has expired, list again, and so on for ever."""
        while True:
            try:
                version = await self._list()
            except errors.ApiError as error:
                await self._wait(error)
                continue
            self._well()
            began = self._clock.monotonic()
            await self._follow(version)
            await self._breathe(self._clock.monotonic() - began)

    async def _breathe(self, lasted: float) -> None:
        """The list that a lost watch calls for comes at once; lists that no watch can go on from, less and less often.

        A server whose watches expire as soon as they begin would be asked for nothing but lists, without a pause.
        """
        self._in_vain = 0 if lasted >= self._options.max_backoff else self._in_vain + 1
        if self._in_vain == 0:
            self._relisting.reset()
        elif self._in_vain > 1:
            await self._clock.sleep(self._relisting.next())

    async def _follow(self, version: str) -> None:
        """Watch from `version` on, again and again, until that leads nowhere and only a list can help."""
        self._refusals = self._absences = 0
        while True:
            began, seconds = self._clock.monotonic(), self._options.watch_seconds()
            try:
                version = await self._watch(version, seconds)
            except _Broken as broken:
                version = broken.version
                if self._lost(broken.error):
                    self._log.info("the watch cannot go on, listing again", error=str(broken.error))
                    return
                await self._wait(broken.error)
                suspicious = broken.error.status == 0
            else:
                self._well()
                lasted = self.heard - began
                suspicious = lasted < seconds - 1
                await self._pause(lasted)
            if suspicious and await self._behind(version):
                self._log.info("the server has lost its memory, listing again", version=version)
                return

    async def _watch(self, version: str, seconds: int) -> str:
        """Follow one watch to its end; the last version seen. Raises _Broken, which has that too."""
        try:
            async with aclosing(
                watch.changes(self._client, self._path, self._params, version, seconds, self._options.silence(seconds))
            ) as changes:
                async for change in changes:
                    seen = self._apply(change)
                    if change.type == watch.BOOKMARK and later(version, seen):
                        raise errors.ApiError(410, "Expired", f"versions went back from {version} to {seen}")
                    version = seen or version
        except errors.ApiError as error:
            raise _Broken(error, version) from error
        return version

    def _lost(self, error: errors.ApiError) -> bool:
        """Whether to list again: the version has expired, the server keeps answering something else than a watch, or
        it was away. Restored from a backup it may have used the same versions for other things.
        """
        if error.status == 0:
            self._absences += 1
        elif error.status != 429:
            self._refusals += 1
        return error.gone or self._refusals >= _REFUSALS or self._absences >= _ABSENCES

    async def _behind(self, version: str) -> bool:
        """Whether the server knows less than we do, as after a restart: a watch from the future stays silent."""
        try:
            body = await self._client.request("GET", self._path, params={**self._params, "limit": "1"})
            return later(version, codec.page(body).metadata.resource_version)
        except errors.ApiError:
            return False  # the watch will tell

    async def _pause(self, lasted: float) -> None:
        """A watch that the server ends at once must not become a loop of requests."""
        if lasted >= self._options.initial_backoff:
            self._backoff.reset()
        else:
            await self._clock.sleep(self._backoff.next())

    async def _wait(self, error: errors.ApiError) -> None:
        said = f"{self._absent} ({error})" if error.not_found and self._absent else str(error)
        if not self.failing:
            say = self._log.warning if said == str(error) else self._log.error
            say("cannot be followed", error=said, status=error.status)
        self.failing = True
        if error.status in _REFUSED and not self.synced:
            self._cache.refused.set()
        self._cache.trouble = f"{self._resource}: {said}"
        await self._clock.sleep(max(self._backoff.next(), min(error.retry_after or 0.0, self._options.max_backoff)))

    def _well(self) -> None:
        """The server has been heard."""
        self.heard = self._clock.monotonic()
        self._refusals = self._absences = 0
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
            key = Key(gone.namespace, gone.name)
            self._cache.drop(key, gone.resource_version)
            if change.type == watch.DELETED:
                self._unreadable.forget(key)
            return gone.resource_version or None
        if change.type == watch.DELETED:
            self._cache.drop(record.key, record.version)
        else:
            self._cache.put(record.key, record.value, record.version)
        return record.version or None

    async def _list(self) -> str:
        """Read the whole collection, and let go of what is no longer in it; its resourceVersion."""
        self._cache.listing(self.namespace)
        seen, version = await self._collection()
        for key in self._cache.keys(self.namespace):
            if key not in seen:
                self._cache.drop(key, version, listed=True)
        self.synced = True
        self._cache.settled()
        return version

    async def _collection(self) -> tuple[set[Key], str]:
        """All keys, and the resourceVersion. After a stream that failed, whyever, the next attempt is by pages."""
        if self._streams and not self._stumbled:
            try:
                return await self._stream()
            except errors.ApiError as error:
                self._streams = not _offers_no_streams(error)
                self._stumbled = True
                if self._streams:
                    raise
        found = await self._in_pages()
        self._stumbled = False
        return found

    async def _in_pages(self) -> tuple[set[Key], str]:
        try:
            return await self._pages(self._options.page_size)
        except errors.ApiError as error:
            if not error.gone:
                raise
        return await self._pages(0)

    async def _stream(self) -> tuple[set[Key], str]:
        """The collection as a stream of its objects. What happens to one meanwhile comes after it, and counts as well.

        The stream ends here; all that follows is left to the watch.
        """
        seen: set[Key] = set()
        patience = self._options.list_timeout
        async with aclosing(watch.initial(self._client, self._path, self._params, int(patience), patience)) as changes:
            async for change in changes:
                self.heard = self._clock.monotonic()
                if change.type == watch.BOOKMARK:
                    meta = self._meta(change.object)
                    if meta.complete:
                        return seen, meta.resource_version
                    continue
                key = self._take(change.object, gone=change.type == watch.DELETED)
                if key is not None:
                    (seen.discard if change.type == watch.DELETED else seen.add)(key)
        raise errors.ApiError(0, "BadAnswer", "the list ended before all of it had come")

    async def _pages(self, limit: int) -> tuple[set[Key], str]:
        seen: set[Key] = set()
        params = {**self._params, **({"limit": str(limit)} if limit else {})}
        while True:
            body = await self._client.request("GET", self._path, params=params, timeout=self._options.list_timeout)
            page = codec.page(body)
            self.heard = self._clock.monotonic()  # not well yet: one page is no list
            for index, raw in enumerate(page.items or (), 1):
                key = self._take(raw)
                if key is not None:
                    seen.add(key)
                if index % _AT_ONCE == 0:
                    await self._clock.sleep(0)
            if not page.metadata.continue_:
                return seen, page.metadata.resource_version
            params["continue"] = page.metadata.continue_
            await self._clock.sleep(0)

    def _take(self, raw: msgspec.Raw, *, gone: bool = False) -> Key | None:
        """Take in (or let go of) an object of a list; None where it cannot be read."""
        record = self._record(raw)
        if record is None:
            return None
        if not gone:
            self._cache.put(record.key, record.value, record.version, listed=True)
        return record.key

    def _record(self, raw: msgspec.Raw) -> codec.DecodedObject[T] | None:
        try:
            record = self._decode(raw)
        except codec.UndecodableError as error:
            held = self._meta(raw)
            key, said = Key(held.namespace, held.name), str(error)
            self._unreadable.occurred(
                subject=key, cause=said, name=key.name, object_namespace=key.namespace, error=said
            )
            return None
        if self._unreadable:
            key = record.key
            self._unreadable.ended(subject=key, name=key.name, object_namespace=key.namespace)
        return record

    def _meta(self, raw: msgspec.Raw) -> codec.Meta:
        try:
            return codec.meta(raw)
        except codec.UndecodableError:
            return codec.Meta()


def later(one: str, other: str | None) -> bool:
    """Whether one resourceVersion comes after another; those that are no numbers never compare."""
    return other is not None and one.isdecimal() and other.isdecimal() and int(one) > int(other)


def _offers_no_streams(error: errors.ApiError) -> bool:
    """Whether this answer to a streaming list says that the server has none; lists are read by pages from then on."""
    return error.status in _NO_STREAMING or (error.status == 500 and _NO_PROGRESS in str(error))
