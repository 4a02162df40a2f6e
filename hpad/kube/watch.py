"""Reads lists in pages, and watches: splits bytes into lines and decodes changes. Also their timeouts and backoff."""

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import msgspec

from hpad.kube import codec, errors
from hpad.kube.client import Client

TOGETHER: Final = 0.1
"""Seconds from the arrival of changes to their reading: those that arrive meanwhile are read together, and answers to
own writes are read before the changes that they cause."""
BATCH: Final = 64
"""Objects that are handled before other tasks run: one or two milliseconds."""
_BATCH_BYTES: Final = 1 << 19
_OBJECT: Final = _BATCH_BYTES // BATCH
"""What an object counts beside its bytes: 64 small objects make a batch, and one of a megabyte does."""
ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"


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


class WatchChange(msgspec.Struct, frozen=True):
    """One line of a watch, with the object not decoded yet; the object of an ERROR is a Status.

    `object` shares the memory of the line, and keeps all of it while it exists.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class Heading(msgspec.Struct, frozen=True, gc=False):
    """The parts of a line that tell whether the rest of it need be read."""

    type: str
    object: codec.Placed


_CHANGE = msgspec.json.Decoder(WatchChange)
_HEADING = msgspec.json.Decoder(Heading)


class Lines:
    """Splits chunks of bytes into lines. An unfinished last line is kept, and never returned."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the lines that this chunk completes, of any length, without empty ones."""
        if b"\n" not in chunk:  # a line of many chunks is searched once, not again with each chunk
            self._rest += chunk
            return []
        *lines, rest = (bytes(self._rest) + chunk if self._rest else chunk).split(b"\n")
        self._rest = bytearray(rest)
        return [line for line in lines if line.strip()]


class Batches:
    """Tells after which objects other tasks are to run: authors choose how large an object is."""

    def __init__(self) -> None:
        self._left = _BATCH_BYTES

    def ends(self, raw: bytes | msgspec.Raw) -> bool:
        """Counts an object that was handled; returns whether the batch ends with it."""
        self._left -= _OBJECT + len(raw)
        if self._left > 0:
            return False
        self._left = _BATCH_BYTES
        return True


def decode(line: bytes) -> WatchChange:
    """Decodes a line. Raises ApiError: the server's error in an ERROR line, or status 0 for a line that is no change.

    The error is `gone` if the version where the watch started has expired: list again.
    """
    change = errors.decoded(_CHANGE, line, "the watch received a line that is no change")
    if change.type == "ERROR":
        raise errors.from_event(bytes(change.object))
    return change


def heading(line: bytes) -> Heading | None:
    """Decodes the heading of a line; None for a line that is no change."""
    try:
        return _HEADING.decode(line)
    except errors.UNREADABLE:
        return None


async def pages(
    client: Client, path: str, params: Mapping[str, str], limit: int, timeout: float
) -> AsyncGenerator[codec.ListPage, None]:
    """Yields the pages of a list, of `limit` objects each (0: all at once). Raises ApiError.

    The error is `gone` if the list took so long that the server has forgotten the version of the first page.
    """
    asked = {**params, **({"limit": str(limit)} if limit else {})}
    while True:
        page = codec.page(await client.request("GET", path, params=asked, timeout=timeout))
        yield page
        if not page.metadata.continue_:
            return
        asked["continue"] = page.metadata.continue_


async def lines(
    client: Client, path: str, params: Mapping[str, str], silence: float, together: float = 0.0
) -> AsyncGenerator[list[bytes], None]:
    """Yields the lines of a watch of a collection, with bookmarks, as they arrive, until the server ends the watch.

    `params` name the version where the watch starts and its duration; lines are read `together` seconds after they have
    arrived. Raises ApiError if the watch failed or received nothing for `silence` seconds (watch again). An error that
    the server sends in a line is raised by `decode`. An incomplete last line is dropped.
    """
    splitter = Lines()
    watch_params = {**params, "watch": "true", "allowWatchBookmarks": "true"}
    async with aclosing(client.stream(path, watch_params, silence, together)) as chunks:
        async for chunk in chunks:
            if found := splitter.feed(chunk):
                yield found
