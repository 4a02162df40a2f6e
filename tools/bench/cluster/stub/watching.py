"""Watches of the stub server: the changes of each resource, sent to the clients that watch it."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tools.bench.cluster.stub.http import Channel

_KEPT: Final = 20_000
"""Changes of a resource that a watch may start before."""
_BOOKMARK_SECONDS: Final = 50.0
_BATCH: Final = 64 * 1024


class Change(NamedTuple):
    version: int
    namespace: str
    line: bytes


def line(kind: bytes, document: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind, document)


class Feed:
    """The changes of one resource. `head` has its kind and apiVersion for bookmarks."""

    def __init__(self, api_version: str, kind: str) -> None:
        self._head = f'"kind":"{kind}","apiVersion":"{api_version}"'.encode()
        self._changes: deque[Change] = deque(maxlen=_KEPT)
        self._watches: set[Watch] = set()
        self._flushing = False

    def publish(self, change: Change) -> None:
        """Sends a change to all watches, together with those that follow in the same step of the event loop."""
        self._changes.append(change)
        for watch in self._watches:
            watch.add(change)
        if self._watches and not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        for watch in self._watches:
            watch.flush()

    def since(self, version: int) -> list[Change] | None:
        """Returns the changes after a version; None if some are not kept any more."""
        if self._changes.maxlen == len(self._changes) and self._changes[0].version > version + 1:
            return None
        return [change for change in self._changes if change.version > version]

    def bookmark(self, version: int, *, initial: bool = False) -> bytes:
        """Returns the line of a bookmark; an `initial` one ends a streaming list."""
        annotations = b',"annotations":{"k8s.io/initial-events-end":"true"}' if initial else b""
        document = b'{%b,"metadata":{"resourceVersion":"%d"%b}}' % (self._head, version, annotations)
        return line(b"BOOKMARK", document)

    def open(self, channel: Channel, scope: "Scope") -> "Watch":
        """Returns a watch that keeps changes from now on, for `serve`."""
        opened = Watch(channel, scope)
        channel.closed = lambda: self._watches.discard(opened)
        self._watches.add(opened)
        return opened

    async def serve(self, served: "Watch", initial: Iterable[bytes], version: int) -> None:
        """Sends the initial lines, then changes, until the time of the watch is over or the client leaves."""
        channel, loop = served.channel, asyncio.get_running_loop()
        end = loop.time() + served.seconds
        await _send(channel, initial)
        served.start()
        while not channel.gone and (rest := end - loop.time()) > 0:
            await asyncio.sleep(min(rest, _BOOKMARK_SECONDS))
            version = max(version, served.version)
            if not channel.gone:
                channel.send((self.bookmark(version),))
        self._watches.discard(served)
        if not channel.gone:
            channel.end()


class Scope(NamedTuple):
    """What a client watches for so many seconds: a namespace, or all of them ("")."""

    namespace: str
    seconds: float

    def includes(self, change: Change) -> bool:
        return self.namespace in ("", change.namespace)


class Watch:
    """One watch; its changes wait until the initial lines are sent, and until `flush`."""

    def __init__(self, channel: Channel, scope: Scope) -> None:
        self.version = 0
        self.channel = channel
        self.seconds = scope.seconds
        self._scope = scope
        self._pending: list[bytes] = []
        self._started = False

    def add(self, change: Change) -> None:
        self.version = change.version
        if self._scope.includes(change):
            self._pending.append(change.line)

    def start(self) -> None:
        self._started = True
        self.flush()

    def flush(self) -> None:
        if self._pending and self._started and not self.channel.gone:
            self.channel.send(self._pending)
            self._pending.clear()


async def _send(channel: Channel, lines: Iterable[bytes]) -> None:
    """Sends lines in larger pieces, as fast as the client takes them."""
    for batch in _batches(lines):
        await channel.drained()
        if channel.gone:
            return
        channel.send((batch,))


def _batches(lines: Iterable[bytes]) -> Iterator[bytes]:
    batch, size = [], 0
    for each in lines:
        batch.append(each)
        size += len(each)
        if size >= _BATCH:
            yield b"".join(batch)
            batch, size = [], 0
    if batch:
        yield b"".join(batch)
