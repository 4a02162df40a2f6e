"""Restricts a cache to the namespaces that this process needs, below one watch of all namespaces.

A member of a shard group that owns whole namespaces keeps no objects of the others. Its watch still delivers them; they
are dropped by their metadata, before they are decoded.

A namespace that is needed from now on is listed on its own, beside the running watch. Until then it is *lacking*: no
decision may use it, since missing pods would look like a scale-down. The list and the watch fit together because

- the watch passes on changes of the namespace from before the list begins,
- the server answers the list as of then or later, so every object that is missing in it is either unknown here or will
  be reported as deleted,
- an object that the watch has changed since the list began is not taken from the list, which may be older. If it is
  newer, the watch delivers that version as well.

A list of everything, at the start or after a watch has expired, includes the namespaces that were needed when it began.
It ends all lists of single namespaces, and none begins before it is complete.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol

import msgspec
import structlog

from hpad.api.metadata import Key
from hpad.kube import codec, errors, watch
from hpad.kube.paths import Resource
from hpad.kube.watch import Backoff, WatchScope

_AT_ONCE: Final = 8
"""The number of namespaces that are listed at the same time; fewer than the requests that a client sends at once."""


class Store(Protocol):
    """The cache that is restricted."""

    def keys(self, namespace: str) -> list[Key]: ...
    def listing(self, namespace: str) -> None: ...
    def purge(self, key: Key) -> None: ...
    def settled(self) -> None: ...

    trouble: str | None


class Reader(Protocol):
    """The reflector of a namespace, or of all namespaces ("")."""

    namespace: str
    synced: bool

    def put_listed(self, raw: msgspec.Raw) -> Key | None: ...


class Restriction:
    """The namespaces that a cache keeps. `run` lists those that `keep` adds, and removes the objects of others.

    Objects that `retains` accepts, by their bytes, are kept in any namespace. `failing`: the last list of a namespace
    failed.
    """

    def __init__(
        self,
        store: Store,
        resource: Resource,
        scope: WatchScope,
        params: Mapping[str, str],
        readers: Sequence[Reader],
        retains: Callable[[msgspec.Raw], bool] | None = None,
    ) -> None:
        self.failing = False
        self._store = store
        self._resource = resource
        self._client = scope.client
        self._options = scope.options
        self._params = params
        self._readers = readers
        self._retains = retains
        self._kept: set[str] = set()
        self._complete: set[str] = set()
        self._pending: dict[str, float] = {}
        """The kept namespaces that are not complete, with the monotonic time since when."""
        self._leaving: set[str] = set()
        """Namespaces whose objects are to be removed; none of them is listed before that is done."""
        self._everything: dict[str, set[str]] = {}
        """By namespace of a reader that lists everything: the kept namespaces that its list includes."""
        self._reading: dict[str, set[Key]] = {}
        """By namespace that is being listed: the objects that the watch has changed meanwhile."""
        self._refused: set[str] = set()
        """Namespaces whose list has failed in this round; a pause follows."""
        self._wake = asyncio.Event()
        self._backoff = Backoff(self._options.initial_backoff, self._options.max_backoff)
        self._log: Any = structlog.get_logger("hpad.kube", resource=str(resource))

    def keep(self, namespaces: Collection[str]) -> None:
        """Keeps exactly these namespaces from now on."""
        wanted, now = set(namespaces), self._client.clock.monotonic()
        gone = self._kept - wanted
        self._leaving |= gone
        self._complete -= gone
        for included in self._everything.values():
            included -= gone
        for namespace in gone:
            self._pending.pop(namespace, None)
            self._reading.pop(namespace, None)
        self._pending.update((namespace, now) for namespace in wanted - self._kept)
        self._kept = wanted
        self._wake.set()

    def lacks(self, namespace: str) -> bool:
        """Returns whether objects of the namespace may be missing."""
        return namespace not in self._complete

    def waits(self, namespace: str) -> float | None:
        """Returns the seconds for which the namespace has been waiting for its list; None if it does not."""
        since = self._pending.get(namespace)
        return None if since is None else self._client.clock.monotonic() - since

    def foreign(self, raw: msgspec.Raw) -> codec.Place | None:
        """Returns the place of an object that is not kept; None for one that is."""
        place = codec.place(raw)
        if not place.namespace or place.namespace in self._admitted(place.namespace):
            return None
        return None if self._retains is not None and self._retains(raw) else place

    def changed(self, key: Key) -> None:
        """Called before the store applies a change of an object that comes from the watch, or from a write."""
        touched = self._reading.get(key.namespace)
        if touched is not None:
            touched.add(key)

    def begins(self, reader: str) -> None:
        """Called when the reader of this namespace ("": all) begins a list of everything."""
        included = {namespace for namespace in self._kept if reader in ("", namespace)}
        self._everything[reader] = included
        self._leaving -= included  # the list itself removes what is not in it
        for namespace in included:
            self._reading.pop(namespace, None)

    def ends(self, reader: str) -> None:
        """Called when the list of everything is complete."""
        included = self._everything.pop(reader, set())
        self._complete |= included
        for namespace in included:
            self._pending.pop(namespace, None)
        self._wake.set()

    async def run(self) -> None:
        """Removes and lists namespaces until cancelled; retries after failures."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._remove()
            self._refused.clear()
            await asyncio.gather(*(self._read_pending() for _ in range(_AT_ONCE)))
            if self._refused:
                await self._client.clock.sleep(self._backoff.next())
                self._wake.set()
            elif self.failing:
                self.failing = False
                self._backoff.reset()
                self._store.settled()

    async def _remove(self) -> None:
        """Removes the objects of the namespaces that are not kept any more."""
        if not self._leaving:
            return
        for number, key in enumerate(self._store.keys(""), 1):
            if key.namespace in self._leaving:
                self._store.purge(key)
            if number % watch.BATCH == 0:
                await self._client.clock.sleep(0)
        # Again without a pause, for the objects of namespaces that have been kept and left in the meantime.
        for key in self._store.keys(""):
            if key.namespace in self._leaving:
                self._store.purge(key)
        self._leaving.clear()

    async def _read_pending(self) -> None:
        """Lists one namespace after another, each once, until too many have failed."""
        while len(self._refused) < _AT_ONCE and (namespace := self._next()) is not None:
            try:
                await self._read(namespace)
            except errors.ApiError as error:
                self._failed(namespace, error)

    def _next(self) -> str | None:
        """Returns a namespace to be listed: the one that waits longest, those that have failed after all others."""
        for namespace in self._pending:
            busy = namespace in self._reading or namespace in self._leaving or namespace in self._refused
            if not busy and self._reader(namespace) is not None:
                return namespace
        return None

    async def _read(self, namespace: str) -> None:
        """Lists a namespace. Raises ApiError. Ends early if a list of everything begins, or it is kept no longer."""
        reader, touched = self._reader(namespace), set[Key]()
        if reader is None:
            return
        self._reading[namespace] = touched
        self._store.listing(namespace)
        path, options = self._resource.collection(namespace), self._options
        batches = watch.Batches()
        pages = watch.pages(self._client, path, self._params, options.page_size, options.list_timeout)
        try:
            async with aclosing(pages):
                async for page in pages:
                    for raw in page.items or ():
                        if self._reading.get(namespace) is not touched:
                            return
                        if codec.place(raw).key not in touched:
                            reader.put_listed(raw)
                        if batches.ends(raw):
                            await self._client.clock.sleep(0)
            if self._reading.get(namespace) is touched:
                self._complete.add(namespace)
                del self._pending[namespace]
        finally:
            if self._reading.get(namespace) is touched:
                del self._reading[namespace]

    def _failed(self, namespace: str, error: errors.ApiError) -> None:
        if not self.failing:
            self._log.warning("a namespace cannot be listed", listed_namespace=namespace, error=str(error))
        self.failing = True
        self._refused.add(namespace)
        if namespace in self._pending:
            self._pending[namespace] = self._pending.pop(namespace)
        self._store.trouble = f"{self._resource} of the namespace {namespace}: {error}"

    def _admitted(self, namespace: str) -> set[str]:
        """Returns the namespaces whose objects are kept now, as far as the reader of this namespace is concerned."""
        for reader in ("", namespace):
            if reader in self._everything:
                return self._everything[reader]
        return self._kept

    def _reader(self, namespace: str) -> Reader | None:
        """Returns the reflector of the namespace, None while it has no complete list."""
        for reader in self._readers:
            if reader.namespace in ("", namespace):
                return reader if reader.synced and reader.namespace not in self._everything else None
        return None
