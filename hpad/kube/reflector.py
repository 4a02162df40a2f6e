"""Keeps a cache equal to a collection of the API server: lists it, watches it, and lists again when a watch expires.

A list is read as a stream if the server supports that (KEP-3157, streaming lists), else in pages.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec
import structlog

from hpad.api import wire
from hpad.api.metadata import Key
from hpad.kube import errors, paths, watch
from hpad.kube.client import Client
from hpad.telemetry.episode import Episodes

T = TypeVar("T")
_REFUSED = frozenset({403, 404})
_NO_STREAMING = frozenset({400, 405, 422})  # answers of servers that do not support streaming lists, or disable them
_STORED = frozenset({watch.ADDED, watch.MODIFIED})
_MOST_REFUSALS = 3  # refused watches in a row until a list is read
_MOST_ABSENCES = 2  # attempts without an answer in a row until a list is read
_UNREADABLE = 1024  # unreadable objects that are logged separately


@dataclass(frozen=True)
class ReflectorOptions:
    """Timeouts, page size and backoff of a reflector; times in seconds.

    The server ends a watch after a random time between `shortest_watch` and `longest_watch`, so that many watches do
    not end together. A watch counts as dead once it is `grace` overdue, or after `longest_silence` without a byte: API
    servers send a bookmark about once a minute, so two are missing. Failed attempts are repeated after
    `initial_backoff`, doubled each time up to `max_backoff`, and jittered by half.
    """

    page_size: int = 500
    list_timeout: float = 60.0
    shortest_watch: float = 300.0
    longest_watch: float = 600.0
    grace: float = 30.0
    longest_silence: float = 150.0
    initial_backoff: float = 0.8
    max_backoff: float = 30.0


class WatchScope(NamedTuple):
    """The client, namespaces (none: all) and options that all caches of a cluster share."""

    client: Client
    namespaces: Sequence[str] = ()
    options: ReflectorOptions = ReflectorOptions()


class Backoff:
    """Delays in seconds that double from `initial` to `longest`, each jittered by half, until `reset`.

    The first `immediate` delays are 0.
    """

    def __init__(self, initial: float, longest: float, *, immediate: int = 0) -> None:
        self._initial = initial
        self._longest = longest
        self._immediate = immediate
        self._tries = -immediate

    def reset(self) -> None:
        self._tries = -self._immediate

    def next(self) -> float:
        """Returns the next delay in seconds."""
        tries, self._tries = self._tries, self._tries + 1
        if tries < 0:
            return 0.0
        doubled = self._initial * 2.0 ** min(tries, 32)  # bounded: 2.0 ** 1024 raises OverflowError
        return min(self._longest, doubled) * random.uniform(0.5, 1.0)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """The objects of a cache: the resource, the decoder, and a function that returns a value's resourceVersion.

    `version` is None for values without a resourceVersion; such values cannot be passed to `Cache.offer`. `absent`
    explains a server that does not have the resource, "" if that is normal. `key_kind` is the kind in the keys of the
    objects. An `optional` resource may be refused without any trouble while none of its objects is known.
    """

    resource: paths.Resource
    decode: watch.Decode[T]
    version: Callable[[T], str] | None = None
    absent: str = ""
    key_kind: str = ""
    optional: bool = False

    def key(self, head: wire.Meta | watch.ObjectVersion) -> Key:
        """Returns the key of an object of this kind."""
        return Key(head.namespace, head.name, self.key_kind)


class ReflectorStore(Protocol[T]):
    """The cache that a reflector fills."""

    trouble: str | None
    answered: asyncio.Event

    def listing(self, namespace: str) -> None: ...
    def has(self, key: Key, version: str) -> bool: ...
    def put(self, decoded: watch.DecodedObject[T], *, listed: bool = False) -> None: ...
    def drop(self, key: Key, version: str, *, listed: bool = False) -> None: ...
    def keys(self, namespace: str) -> list[Key]: ...
    def settled(self) -> None: ...


_Step = Callable[[], Awaitable["_Step"]]
"""Lists or watches, and returns the step that comes next."""


class Reflector(Generic[T]):
    """Lists and watches one namespace, or all namespaces ("").

    `synced`: a whole list has been read. `failing`: the last request failed. `last_received`: the monotonic time in
    seconds at which the server last sent data.
    """

    def __init__(
        self,
        store: ReflectorStore[T],
        kind: Kind[T],
        scope: WatchScope,
        namespace: str,
        params: Mapping[str, str],
    ) -> None:
        client, options = scope.client, scope.options
        self.namespace = namespace
        self.synced = False
        self.failing = False
        self.last_received = client.clock.monotonic()
        self._store = store
        self._client = client
        self._clock = client.clock
        self._kind = kind
        self._path = kind.resource.collection(namespace)
        self._params = params
        self._options = options
        self._version = ""
        self._delay = 0.0
        self._listed_at = 0.0
        self._server_streams = True
        self._refusals = self._absences = 0
        self._backoff = Backoff(options.initial_backoff, options.max_backoff)
        self._relist_backoff = Backoff(options.initial_backoff, options.max_backoff, immediate=1)
        self._log = structlog.get_logger("hpad.kube", resource=str(kind.resource), namespace=namespace)
        self._unreadable = Episodes(
            self._log, self._clock, "object cannot be read", "object can be read again", most=_UNREADABLE
        )

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        step: _Step = self._stream
        while True:
            step = await step()
            delay, self._delay = self._delay, 0.0
            if delay:
                await self._clock.sleep(delay)

    async def _stream(self) -> _Step:
        """Reads a streaming list. A stream that failed is followed by a list in pages."""
        if not self._server_streams:
            return self._page
        self._store.listing(self.namespace)
        try:
            await self._read_stream()
        except errors.ApiError as error:
            self._server_streams = error.status not in _NO_STREAMING  # the same server would refuse each time
            # 500: etcd older than 3.4.31 or 3.5.13 cannot report the progress of a watch
            if error.status not in {*_NO_STREAMING, 500}:
                self._failed(error)
            return self._page
        return self._watch

    async def _page(self) -> _Step:
        self._store.listing(self.namespace)
        try:
            try:
                await self._read_pages(self._options.page_size)
            except errors.ApiError as error:
                if not error.gone:
                    raise
                await self._read_pages(0)  # the continue token has expired: read everything at once
        except errors.ApiError as error:
            self._failed(error)
            return self._page
        return self._watch

    async def _watch(self) -> _Step:
        """Watches from the last version."""
        options, began = self._options, self._clock.monotonic()
        seconds = int(random.uniform(options.shortest_watch, options.longest_watch))
        params = {**self._params, "resourceVersion": self._version, "timeoutSeconds": str(seconds)}
        try:
            await self._read_watch(params, min(options.longest_silence, seconds + options.grace))
        except errors.ApiError as error:
            return self._watch_failed(error)
        self._answered()
        lasted = self.last_received - began
        if lasted < options.initial_backoff:
            self._delay = self._backoff.next()  # against a loop of requests if the server ends each watch at once
        else:
            self._backoff.reset()
        return self._watch

    async def _read_watch(self, params: Mapping[str, str], silence: float) -> None:
        """Applies the changes of a watch until the server ends it. Raises ApiError."""
        batches = watch.Batches()
        async with aclosing(watch.lines(self._client, self._path, params, silence, watch.TOGETHER)) as received:
            async for lines in received:
                for line in lines:
                    self._apply(line)
                    if batches.ends(line):
                        await self._clock.sleep(0)  # lets other tasks run
                self._answered()

    def _watch_failed(self, error: errors.ApiError) -> _Step:
        """Relists after an expired version or repeated failures; otherwise sets a delay."""
        if error.status == 0:
            self._absences += 1
        elif error.status != 429:  # an overloaded server would be burdened more by lists
            self._refusals += 1
        if error.gone or self._refusals >= _MOST_REFUSALS or self._absences >= _MOST_ABSENCES:
            return self._relist(str(error))
        self._failed(error)
        return self._watch

    def _relist(self, reason: str) -> _Step:
        """Sets the delay until the next list: none at first, longer while watches keep failing soon after lists."""
        self._log.info("the watch cannot continue; listing again", error=reason)
        if self._clock.monotonic() - self._listed_at >= self._options.max_backoff:
            self._relist_backoff.reset()
        self._delay = self._relist_backoff.next()
        return self._stream

    def _failed(self, error: errors.ApiError) -> None:
        """Logs the first failure, reports it to the store, and sets the delay until the next request."""
        absent, refused = self._kind.absent if error.not_found else "", error.status in _REFUSED
        # A kind that is not installed, or was removed with all its objects.
        unused = self._kind.optional and refused and not self._store.keys(self.namespace)
        text = f"{absent} ({error})" if absent else str(error)
        if not self.failing:
            level = "error" if absent else "info" if unused else "warning"
            getattr(self._log, level)("list or watch failed", error=text, status=error.status)
        self.failing = True
        # The other kinds do not wait for an optional one that the server cannot list, as without its conversion.
        if not self.synced and (refused or (self._kind.optional and error.status)):
            self._store.answered.set()
        self._store.trouble = None if unused else f"{self._kind.resource}: {text}"
        self._delay = max(self._backoff.next(), min(error.retry_after or 0.0, self._options.max_backoff))

    def _answered(self) -> None:
        """Notes a good answer: a whole list, a change, or the regular end of a watch."""
        self.last_received = self._clock.monotonic()
        self._refusals = self._absences = 0
        if self.failing:
            self.failing = False
            self._backoff.reset()
            self._store.settled()
            self._log.info("list and watch work again")

    def _apply(self, line: bytes) -> None:
        """Passes a change to the store and notes its resourceVersion. Raises ApiError, also if versions went backwards.

        Most changes of HPAs are hpad's own: the answer to the write is in the store, and need not be read again.
        """
        seen = self._skipped(line) if self._kind.version is not None else ""
        if not seen:
            change = watch.decode(line)
            seen = self._bookmarked(change) if change.type == watch.BOOKMARK else self._store_change(change)
        self._version = seen or self._version

    def _bookmarked(self, bookmark: watch.WatchChange) -> str:
        """Returns the resourceVersion of a bookmark; raises ApiError if it is before the last one seen."""
        seen = watch.meta(bookmark.object).resource_version
        if later(self._version, seen):
            raise errors.ApiError(410, "Expired", f"versions went back from {self._version} to {seen}")
        return seen

    def _skipped(self, line: bytes) -> str:
        """Returns the resourceVersion of an object that need not be decoded now, "" for any other line."""
        head = watch.heading(line)
        if head is None or head.type not in _STORED:
            return ""
        key, version = self._kind.key(head.object.metadata), head.object.metadata.resource_version
        return version if version and self._store.has(key, version) else ""

    def _store_change(self, change: watch.WatchChange) -> str:
        """Returns the object's resourceVersion, "" if there is none. Drops an unreadable object from the store."""
        deleted = change.type == watch.DELETED
        decoded = self._decode(change.object)
        if decoded is None:
            meta = watch.meta(change.object)
            self._store.drop(self._kind.key(meta), meta.resource_version)
            if deleted:
                self._unreadable.forget(self._kind.key(meta))
            return meta.resource_version
        if deleted:
            self._store.drop(decoded.key, decoded.version)
        else:
            self._store.put(decoded)
        return decoded.version

    async def _read_stream(self) -> None:
        """Reads all objects as ADDED changes, up to the bookmark that ends them; applies changes in between."""
        seen: set[Key | None] = set()
        batches, timeout = watch.Batches(), self._options.list_timeout
        initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}
        params = {**self._params, **initial, "timeoutSeconds": str(int(timeout))}
        async with aclosing(watch.lines(self._client, self._path, params, timeout)) as received:
            async for lines in received:
                self.last_received = self._clock.monotonic()
                for line in lines:
                    change = watch.decode(line)
                    if change.type == watch.DELETED:
                        seen.discard(self._kind.key(watch.meta(change.object)))
                    elif change.type != watch.BOOKMARK:
                        seen.add(self._put_listed(change.object))
                    elif (meta := watch.meta(change.object)).complete:
                        self._complete(seen, meta.resource_version)
                        return
                    if batches.ends(line):
                        await self._clock.sleep(0)  # lets other tasks run
        raise errors.ApiError(0, "BadAnswer", "the list ended before it was complete")

    async def _read_pages(self, limit: int) -> None:
        seen: set[Key | None] = set()
        version = ""
        batches = watch.Batches()
        pages = watch.pages(self._client, self._path, self._params, limit, self._options.list_timeout)
        async with aclosing(pages):
            async for page in pages:
                self.last_received, version = self._clock.monotonic(), page.metadata.resource_version
                for raw in page.items or ():
                    seen.add(self._put_listed(raw))
                    if batches.ends(raw):
                        await self._clock.sleep(0)  # lets other tasks run
        self._complete(seen, version)

    def _complete(self, seen: set[Key | None], version: str) -> None:
        """Ends a list: objects that are not in it are dropped from the store."""
        for key in self._store.keys(self.namespace):
            if key not in seen:
                self._store.drop(key, version, listed=True)
        self._version, self.synced = version, True
        self._answered()
        self._store.settled()
        self._listed_at = self.last_received

    def _put_listed(self, raw: msgspec.Raw) -> Key | None:
        """Passes a listed object to the store; returns its key, None if it is unreadable."""
        decoded = self._decode(raw)
        if decoded is None:
            return None
        self._store.put(decoded, listed=True)
        return decoded.key

    def _decode(self, raw: msgspec.Raw) -> watch.DecodedObject[T] | None:
        """Returns None for an unreadable object, which is logged once for each object and cause."""
        try:
            decoded = self._kind.decode(raw)
        except wire.UNDECODABLE as error:
            key, text = self._kind.key(watch.meta(raw)), str(error)
            self._unreadable.occurred(
                subject=key, cause=text, name=key.name, object_namespace=key.namespace, error=text
            )
            return None
        if self._unreadable:
            key = decoded.key
            self._unreadable.ended(subject=key, name=key.name, object_namespace=key.namespace)
        return decoded


def later(one: str, other: str) -> bool:
    """Returns whether the resourceVersion `one` is later than `other`. False unless both are numbers.

    Source: apimachinery, util/resourceversion: CompareResourceVersion.
    """
    return one.isdecimal() and other.isdecimal() and (len(one), one) > (len(other), other)
