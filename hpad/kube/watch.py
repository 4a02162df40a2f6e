"""Reads watches: bytes into lines, lines into changes. Also the timeouts and the backoff of lists and watches."""

import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from hpad.api.text import shown
from hpad.kube import errors
from hpad.kube.client import Client

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"
_ERROR = "ERROR"
_KNOWN = frozenset({ADDED, MODIFIED, DELETED, BOOKMARK})


@dataclass(frozen=True)
class ReflectorOptions:
    """Timeouts, page size and backoff of a reflector; times in seconds.

    A watch asks the server to end it after a random time between `shortest_watch` and `longest_watch`, so that many
    watches do not end together. A watch counts as dead once it is `grace` overdue, or after `longest_silence` without
    a byte: API servers send a bookmark about once a minute, so by then two are missing. Failed attempts are repeated
    after `initial_backoff`, doubled each time up to `max_backoff`, and jittered by half.
    """

    page_size: int = 500
    list_timeout: float = 60.0
    shortest_watch: float = 300.0
    longest_watch: float = 600.0
    grace: float = 30.0
    longest_silence: float = 150.0
    initial_backoff: float = 0.8
    max_backoff: float = 30.0


class Backoff:
    """Waits in seconds that double from `initial` to `longest`, each jittered by half, until `reset`.

    The first `immediate` waits are 0.
    """

    def __init__(self, initial: float, longest: float, *, immediate: int = 0) -> None:
        self._initial = initial
        self._longest = longest
        self._immediate = immediate
        self._tries = -immediate

    def reset(self) -> None:
        self._tries = -self._immediate

    def next(self) -> float:
        """The next wait."""
        tries, self._tries = self._tries, self._tries + 1
        if tries < 0:
            return 0.0
        return min(self._longest, self._initial * 2.0 ** min(tries, 32)) * random.uniform(0.5, 1.0)


class Change(msgspec.Struct, frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object, not decoded yet.

    `object` shares the memory of the line: decode it before asking for the next change.
    """

    type: str
    object: msgspec.Raw


_CHANGE = msgspec.json.Decoder(Change)


class Lines:
    """Splits chunks of bytes into lines. An unfinished last line is kept, and never returned."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that this chunk completes, of any length, without empty ones."""
        head, newline, rest = chunk.partition(b"\n")
        self._parts.append(head)
        if not newline:
            return
        first, self._parts = b"".join(self._parts), []
        lines = rest.split(b"\n")
        if lines[-1]:
            self._parts.append(lines[-1])
        for line in (first, *lines[:-1]):
            if line.strip():
                yield line


def decode(line: bytes) -> Change:
    """The change in a line. Raises ApiError: the server's own (an ERROR line), or with status 0 for any other line."""
    try:
        change = _CHANGE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.ApiError(0, "BadAnswer", f"the watch brought a line that is no change: {error}") from error
    if change.type == _ERROR:
        raise errors.from_event(bytes(change.object))
    if change.type not in _KNOWN:
        raise errors.ApiError(0, "BadAnswer", f"the watch brought a change of unknown type {shown(change.type[:32])}")
    return change


async def changes(client: Client, path: str, params: Mapping[str, str], silence: float) -> AsyncGenerator[Change, None]:
    """The changes of a collection, with bookmarks, until the server ends the watch.

    `params` say where the watch starts and how long it lasts. Raises ApiError: `gone` if the resourceVersion has
    expired (list again), otherwise if the watch failed or brought nothing for `silence` seconds (watch again). A last
    line that was cut off is dropped.
    """
    lines = Lines()
    watched = {**params, "watch": "true", "allowWatchBookmarks": "true"}
    async with aclosing(client.stream(path, watched, silence)) as chunks:
        async for chunk in chunks:
            for line in lines.feed(chunk):
                yield decode(line)
