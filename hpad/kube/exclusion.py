"""Leaves namespaces out of the watch of a cache: those in which only other replicas decide.

A member of a shard group that owns whole namespaces decides nothing in the others. Each status of an HPA there is a
change all the same, three of four changes in a group of four. A field selector keeps the server from sending them.

A list always has everything, so the cache knows each object as of the last list at least. A namespace whose changes may
be missing since then is *missed*: no decision may use its objects. A new list is read

- when a missed namespace is wanted,
- when somebody looks at the objects, and the last list is older than `FRESH` seconds,
- when the server ends the watch, after some minutes, so that deleted objects do not stay.

The watch goes on where the list ends, with another selector. A namespace without objects is never left out, so its
first object is noticed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final
from urllib.parse import quote

from hpad.api.metadata import Key
from hpad.clock import Clock

FRESH: Final = 15.0
"""Seconds for which a list is good enough to be shown: a status is written once per period."""
LEAST: Final = 100
"""Objects of other replicas from which on it pays to leave namespaces out."""
_LONGEST: Final = 6000
"""Characters of a field selector in an address. Proxies refuse addresses of more than 8 kB."""
_TOO_LONG: Final = frozenset({400, 414, 431})
"""Answers of servers and proxies that do not accept the selector, or the length of the address."""


class Exclusion:
    """The namespaces that the watch of a cache leaves out; none until `want` is called.

    `keys` returns those of the objects that the cache has. Nothing is left out for fewer than `least` objects.
    """

    def __init__(self, clock: Clock, keys: Callable[[], Iterable[Key]], least: int = LEAST) -> None:
        self._clock = clock
        self._keys = keys
        self._least = least
        self._wanted: frozenset[str] | None = None
        self._left_out: frozenset[str] = frozenset()
        self._missed: set[str] = set()
        self._waiting: dict[str, float] = {}
        """The namespaces that are missed and wanted, with the monotonic time since when."""
        self._refused = False
        self._asked = False
        self._listed_at = clock.monotonic()
        self._listed = asyncio.Event()

    def want(self, namespaces: Collection[str]) -> bool:
        """Leaves out others than these from now on. Returns whether the watch has to begin anew for that."""
        self._wanted, now = frozenset(namespaces), self._clock.monotonic()
        self._waiting = {each: self._waiting.get(each, now) for each in self._missed & self._wanted}
        more = self._chosen()
        return bool(self._waiting) or sum(more[each] for each in more.keys() - self._left_out) >= self._least

    def ask(self, namespaces: Collection[str] = ()) -> bool:
        """Asks for a list, for somebody who looks at these namespaces, or at all.

        Returns whether one will be read, for which the watch has to begin anew.
        """
        concerned = not self._missed.isdisjoint(namespaces) if namespaces else self._missed
        if concerned and self._clock.monotonic() - self._listed_at >= FRESH:
            self._asked = True
            return True
        return False

    def misses(self, namespace: str) -> bool:
        """Returns whether changes of the namespace may be missing."""
        return namespace in self._missed

    def waits(self, namespace: str) -> float | None:
        """Returns the seconds for which a wanted namespace has been waiting for a list; None if it does not."""
        since = self._waiting.get(namespace)
        return None if since is None else self._clock.monotonic() - since

    async def listed(self) -> None:
        """Waits for the end of the next list."""
        await self._listed.wait()

    async def caught_up(self, namespaces: Collection[str]) -> None:
        """Waits until nothing is missing in any of the namespaces."""
        while not self._missed.isdisjoint(namespaces):
            await self._listed.wait()

    @property
    def misses_any(self) -> bool:
        """Whether changes of any namespace may be missing."""
        return bool(self._missed)

    @property
    def must_list(self) -> bool:
        """Whether a list has to come before the next watch."""
        return self._asked or bool(self._waiting)

    def selector(self) -> str:
        """Returns the field selector of the watch that begins now, "" for everything."""
        self._left_out = frozenset(self._chosen())
        self._missed |= self._left_out
        if self._missed:
            self._listed.clear()
        return ",".join(map(_term, sorted(self._left_out)))

    def refused(self, status: int) -> bool:
        """Notes the error of a watch. Returns whether it was refused for its selector: from now on it has none."""
        if self._left_out and status in _TOO_LONG:
            self._refused = True
            return True
        return False

    def list_begins(self) -> None:
        self._asked = False

    def list_ends(self) -> None:
        """Called when the cache has everything that the list has."""
        self._missed.clear()
        self._waiting.clear()
        self._listed_at = self._clock.monotonic()
        self._listed.set()

    def _chosen(self) -> dict[str, int]:
        """Returns the namespaces to be left out, with the numbers of their objects, the largest first.

        They are as many as fit into an address.
        """
        if self._wanted is None or self._refused:
            return {}
        counts = Counter(key.namespace for key in self._keys() if key.namespace not in self._wanted)
        chosen, length = dict[str, int](), 0
        for namespace, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
            length += len(quote(f"{_term(namespace)},", safe=""))
            if length > _LONGEST:
                break
            chosen[namespace] = count
        return chosen if sum(chosen.values()) >= self._least else {}


def _term(namespace: str) -> str:
    return f"metadata.namespace!={namespace}"
