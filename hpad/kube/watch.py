"""Reading a watch: lines out of chunks, changes out of lines, and one meaning for each way it can end."""

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

    def watch_seconds(self) -> int:
        """How long the next watch is to last."""
        return int(random.uniform(self.shortest_watch, self.longest_watch))

    def silence(self, seconds: int) -> float:
        """How long a watch of that many seconds may bring nothing."""
        return min(self.longest_silence, seconds + self.grace)


class Backoff:
    """Waits that double from `first` to `last`, each of them jittered, until `reset`."""

    def __init__(self, first: float, last: float) -> None:
        self._first = first
        self._last = last
        self._tries = 0

    def reset(self) -> None:
        self._tries = 0

    def next(self) -> float:
        """How long to wait now, in seconds."""
        wait = min(self._last, self._first * 2.0 ** min(self._tries, 32))
        self._tries += 1
        return wait * random.uniform(0.5, 1.0)


class Change(msgspec.Struct, frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object, not decoded yet.

    `object` lies inside the memory of the line: decode it before asking for the next.
    """

    type: str
    object: msgspec.Raw


_CHANGE = msgspec.json.Decoder(Change)


class Lines:
    """Cuts a stream of chunks at its newlines; what follows the last newline waits, and is never a line by itself."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that this chunk completes, without empty ones; they may be of any size."""
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
    """The change a line stands for. Raises ApiError: the server's own (an ERROR line), or status 0 for garbage."""
    try:
        change = _CHANGE.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.ApiError(0, "BadAnswer", f"the watch brought a line that is no change: {error}") from error
    if change.type == _ERROR:
        raise errors.from_event(bytes(change.object))
    if change.type not in _KNOWN:
        raise errors.ApiError(0, "BadAnswer", f"the watch brought a change of unknown type {shown(change.type[:32])}")
    return change


async def changes(
    client: Client, path: str, params: Mapping[str, str], version: str, seconds: int, silence: float
) -> AsyncGenerator[Change, None]:
    """Everything that happens to a collection after resourceVersion `version`, for so many seconds.

    The connection counts as dead after a silence of `silence` seconds.
    Ends by itself when the server ends the watch; a last line that was cut off is dropped. Raises ApiError: `gone`
    where the version has expired (list anew), any other where the watch failed (watch again from the last version).
    """
    asked = {**params, "resourceVersion": version, "timeoutSeconds": str(seconds)}
    async with aclosing(_read(client, path, asked, silence)) as following:
        async for change in following:
            yield change


async def initial(
    client: Client, path: str, params: Mapping[str, str], seconds: int, silence: float
) -> AsyncGenerator[Change, None]:
    """All objects of a collection as ADDED, then the bookmark that says so (see `codec.Meta.complete`), and so on.

    The streaming list of KEP-3157: as fresh as a list, without a whole page of it in anybody's memory. Servers that do
    not have it answer 400 or 422. Ends and raises as `changes` does.
    """
    streaming = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}
    async with aclosing(
        _read(client, path, {**params, **streaming, "timeoutSeconds": str(seconds)}, silence)
    ) as following:
        async for change in following:
            yield change


async def _read(client: Client, path: str, params: Mapping[str, str], silence: float) -> AsyncGenerator[Change, None]:
    asked = {**params, "watch": "true", "allowWatchBookmarks": "true"}
    lines = Lines()
    async with aclosing(client.stream(path, asked, silence)) as chunks:
        async for chunk in chunks:
            for line in lines.feed(chunk):
                yield decode(line)
