"""Leaves namespaces out of the watch of a cache: those in which only other replicas decide.

A member of a shard group that owns whole namespaces decides nothing in the others. Each status of an HPA there is a
change all the same, three of four changes in a group of four. A field selector keeps the server from sending them.

A namespace whose changes may be missing is *missed*: no decision may use its objects. Everything is listed beside the
watch, which goes on whether the list succeeds or not:

- when this member gains a missed namespace, once the watch includes it again,
- when the page or the JSON API shows objects of a missed namespace, and the last list is older than `FRESH` seconds,
- after `LONGEST` seconds, so that deleted objects do not stay.

List and watch fit together as in `restriction`: the watch passes on changes from before the list begins; an object that
it has changed since then is not taken from the list. A namespace without objects is never left out, so its first object
is noticed.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec
import structlog

from hpad.api.metadata import Key
from hpad.kube import codec, errors, watch
from hpad.kube.paths import Resource
from hpad.kube.watch import Backoff, WatchScope

FRESH: Final = 15.0
"""Seconds for which a list is good enough to be shown: a status is written once per period."""
LONGEST: Final = 600.0
"""Seconds after which a list is too old."""
_LOOK: Final = 30.0
"""Seconds between two looks at the age of the last list."""
_LONGEST_SELECTOR: Final = 6000
"""Characters of a field selector in an address. Proxies refuse addresses of more than 8 kB."""
_TOO_LONG: Final = frozenset({400, 413, 414, 431})
"""Answers of servers and proxies that do not accept the selector, or the length of the address."""
_OTHER_REASONS: Final = frozenset({410, 429})
"""Answers that have nothing to do with the selector: the version has expired, the server is overloaded."""
_MOST_FAILURES: Final = 2
"""Failures in a row of watches whose selector is longer than any that was answered: it may be the reason."""
_SUSPECT: Final = 3600.0
"""Seconds for which watches have no selector then."""


class Store(Protocol):
    """The cache whose watch leaves namespaces out. `passed_over`: a listed object that the watch keeps up to date."""

    trouble: str | None

    def keys(self, namespace: str) -> list[Key]: ...
    def listing(self, namespace: str) -> None: ...
    def drop(self, key: Key, version: str, *, listed: bool = False) -> None: ...
    def settled(self) -> None: ...
    def passed_over(self, raw: msgspec.Raw) -> None: ...
    def list_begins_beside(self) -> None: ...
    def list_ends_beside(self, complete: Collection[str]) -> None: ...


class Reader(Protocol):
    """The reflector."""

    synced: bool

    def renew(self) -> None: ...
    def put_listed(self, raw: msgspec.Raw) -> Key | None: ...


class Exclusion:
    """The namespaces that the watch of a cache leaves out, if they have `least_left_out` objects (ReflectorOptions).

    The watch has everything until `want` is called. `run` reads the lists. `failing`: the last list failed.
    """

    def __init__(
        self, store: Store, resource: Resource, scope: WatchScope, params: Mapping[str, str], reader: Reader
    ) -> None:
        self.failing = False
        self._store = store
        self._resource = resource
        self._client = scope.client
        self._clock = scope.client.clock
        self._options = scope.options
        self._params = params
        self._reader = reader
        self._wanted: frozenset[str] | None = None
        self._left_out: frozenset[str] = frozenset()
        self._missed: set[str] = set()
        self._waiting: dict[str, float] = {}
        """The namespaces that are missed and wanted, with the monotonic time since when."""
        self._accepted = self._failures = 0
        """The length of the longest selector that was answered, and failures of longer ones since."""
        self._refused_until = -math.inf
        self._asked = False
        self._lists = 0
        """How many lists have ended, also those that failed."""
        self._listed_at = self._clock.monotonic()
        self._list: _List | None = None
        self._everything = False
        """Whether the reflector lists everything now."""
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._backoff = Backoff(self._options.initial_backoff, self._options.max_backoff)
        self._log: Any = structlog.get_logger("hpad.kube", resource=str(resource))

    def want(self, namespaces: Collection[str]) -> None:
        """Leaves out all namespaces but these from now on, if that pays."""
        self._wanted, now = frozenset(namespaces), self._clock.monotonic()
        self._waiting = {each: self._waiting.get(each, now) for each in self._missed & self._wanted}
        more = self._chosen()
        more_objects = sum(more[each] for each in more.keys() - self._left_out)
        if not self._left_out.isdisjoint(self._wanted) or more_objects >= self._options.least_left_out:
            self._reader.renew()
        self._notify()

    @property
    def missed(self) -> Collection[str]:
        """The namespaces whose changes may be missing."""
        return self._missed

    def waits(self, namespace: str) -> float | None:
        """Returns the seconds for which a wanted namespace has been waiting for a list; None if it does not."""
        since = self._waiting.get(namespace)
        return None if since is None else self._clock.monotonic() - since

    async def caught_up(self, namespaces: Collection[str]) -> None:
        """Waits until no change is missing in the namespaces, except in those that are wanted no more."""
        while not self._waiting.keys().isdisjoint(namespaces):
            await self._progress.wait()

    async def shown(self, namespaces: Collection[str], seconds: float) -> None:
        """Reads a list before objects of these namespaces (empty: all) are shown, if the last list is old.

        Waits for it for `seconds` at most, and not at all while lists fail.
        """
        concerned = not self._missed.isdisjoint(namespaces) if namespaces else bool(self._missed)
        if not concerned or self.failing or self._clock.monotonic() - self._listed_at < FRESH:
            return
        if self._list is None:
            self._asked = True
            self._wake.set()
        before = self._lists
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._lists == before:
                    await self._progress.wait()

    def selector(self) -> str:
        """Returns the field selector of the watch that begins now, "" for everything."""
        self._left_out = frozenset(self._chosen())
        self._missed |= self._left_out
        if self._list is not None:
            self._list.left_out |= self._left_out
        self._wake.set()
        return self._selector()

    def answered(self) -> None:
        """Called when the watch has received something."""
        self._accepted, self._failures = max(self._accepted, len(self._selector())), 0

    def refused(self, status: int) -> bool:
        """Notes that a watch failed without any answer. Returns whether the next watches have no selector therefore."""
        if not self._left_out or status in _OTHER_REASONS:
            return False
        self._failures += len(self._selector()) > self._accepted
        if status not in _TOO_LONG and self._failures < _MOST_FAILURES:
            return False
        self._refused_until = math.inf if status in _TOO_LONG else self._clock.monotonic() + _SUSPECT
        self._failures = 0
        return True

    def changed(self, key: Key) -> None:
        """Called before the store applies a change of an object that comes from the watch, or from a write."""
        if self._list is not None:
            self._list.touched.add(key)

    def list_begins(self) -> None:
        """Called when the reflector begins a list of everything, which ends the one beside the watch."""
        self._everything, self._list = True, None

    def list_ends(self) -> None:
        """Called when the reflector has listed everything; its watch begins there."""
        self._everything = self.failing = False  # the reflector reports its own failures
        self._missed.clear()
        self._backoff.reset()
        self._ended()

    async def run(self) -> None:
        """Lists everything whenever that is necessary, until cancelled; retries after failures."""
        while True:
            await self._necessary()
            self._asked = False
            try:
                await self._read_everything()
            except errors.ApiError as error:
                if self._list is not None:  # the reflector has not listed everything itself meanwhile
                    self._failed(error)
                    await self._clock.sleep(self._backoff.next())
                continue
            finally:
                self._list = None
            if self.failing:
                self.failing = False
                self._backoff.reset()
                self._store.settled()

    async def _necessary(self) -> None:
        """Waits until a list is necessary, and the watch includes all namespaces that are wanted."""
        while not self._is_necessary():
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._wake.wait()

    def _is_necessary(self) -> bool:
        if not self._missed or self._everything or not self._reader.synced:
            return False
        old = self._clock.monotonic() - self._listed_at >= LONGEST
        return self._asked or self.failing or old or not self._waiting.keys() <= self._left_out

    async def _read_everything(self) -> None:
        try:
            await self._read(self._options.page_size)
        except errors.ApiError as error:
            if not error.gone or self._list is None:
                raise
            await self._read(0)  # the continue token has expired: read everything at once

    async def _read(self, limit: int) -> None:
        """Lists everything beside the watch. Raises ApiError. Ends early if the reflector lists everything itself."""
        mine, version = _List(self._missed, self._left_out), ""
        self._list = mine
        self._store.listing("")
        self._store.list_begins_beside()
        path, timeout = self._resource.collection(""), self._options.list_timeout
        batches = watch.Batches()
        pages = watch.pages(self._client, path, self._params, limit, timeout)
        async with aclosing(pages):
            async for page in pages:
                version = page.metadata.resource_version
                for raw in page.items or ():
                    if self._list is not mine:
                        return
                    self._take(raw, mine)
                    if batches.ends(raw):
                        await self._clock.sleep(0)
        if self._list is mine:
            self._complete(mine, version)

    def _take(self, raw: msgspec.Raw, mine: "_List") -> None:
        key = codec.place(raw).key
        if key.namespace not in mine.missed:
            self._store.passed_over(raw)
        elif key in mine.touched or self._reader.put_listed(raw) is not None:
            mine.seen.add(key)  # an unreadable object is dropped in the end

    def _complete(self, mine: "_List", version: str) -> None:
        for key in self._store.keys(""):
            if key.namespace in mine.missed and key not in mine.seen and key not in mine.touched:
                self._store.drop(key, version, listed=True)
        complete = mine.missed - mine.left_out
        self._missed -= complete
        self._ended()
        self._store.list_ends_beside(complete)
        if not self._left_out <= {key.namespace for key in self._store.keys("")}:
            self._reader.renew()  # a namespace without objects is not left out

    def _ended(self) -> None:
        self._waiting = {each: since for each, since in self._waiting.items() if each in self._missed}
        self._listed_at = self._clock.monotonic()
        self._asked = False
        self._lists += 1
        self._notify()

    def _failed(self, error: errors.ApiError) -> None:
        if not self.failing:
            self._log.warning("namespaces that the watch leaves out cannot be listed", error=str(error))
        self.failing = True
        self._lists += 1
        self._store.trouble = f"{self._resource} that the watch leaves out: {error}"
        self._notify()

    def _notify(self) -> None:
        """Wakes all that wait for a list, and looks again whether one is necessary."""
        self._progress.set()
        self._progress = asyncio.Event()
        self._wake.set()

    def _chosen(self) -> dict[str, int]:
        """Returns the namespaces to be left out, with the numbers of their objects, the largest first.

        They are as many as fit into an address.
        """
        if self._wanted is None or self._clock.monotonic() < self._refused_until:
            return {}
        counts = Counter(key.namespace for key in self._store.keys("") if key.namespace not in self._wanted)
        chosen, length = dict[str, int](), 0
        for namespace, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
            length += len(quote(f"{_term(namespace)},", safe=""))
            if length > _LONGEST_SELECTOR:
                break
            chosen[namespace] = count
        return chosen if sum(chosen.values()) >= self._options.least_left_out else {}

    def _selector(self) -> str:
        return ",".join(map(_term, sorted(self._left_out)))


class _List:
    """A list that is being read beside the watch, and the namespaces that are missed when it begins.

    `left_out` are those that the watch has left out at any time since then, `touched` the objects that it has changed,
    and `seen` those of the list in these namespaces.
    """

    def __init__(self, missed: Collection[str], left_out: Collection[str]) -> None:
        self.missed = frozenset(missed)
        self.left_out = set(left_out)
        self.touched: set[Key] = set()
        self.seen: set[Key] = set()


def _term(namespace: str) -> str:
    return f"metadata.namespace!={namespace}"
