"""Reads the lag of groups of consumers of streams, by the stream protocol.

Each read connects, asks and closes: once per vhost and period for all HPAs. Only the leader of a stream knows all of
its messages, so it is asked: `stream_url` names one address per node, and each node says how it is named among the
nodes. A super stream is its partitions, which may have leaders on several nodes.
"""

import asyncio
import contextlib
import urllib.parse
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from hpad.adapter import AdapterError, Context
from hpad.adapter_http import Http, failure
from hpad_adapters.clearing.workers import MOST_QUEUES
from hpad_adapters.rabbitmq.broker import login
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.stream_protocol import (
    ABSENT,
    NO_RIGHT,
    REASONS,
    NodeAddress,
    StreamChunk,
    StreamConnection,
    StreamRefusedError,
)
from hpad_adapters.servers import Servers

_PORTS = {"rabbitmq-stream": 5552, "rabbitmq-stream+tls": 5551}
_SAMPLE_BYTES, _MOST_CHUNKS = 1 << 16, 32
_NEW = -2
"""The last offset of a stream that was never read; an empty one has -1."""
_BROKEN = (OSError, EOFError, ValueError)


class PartitionOffsets(msgspec.Struct, frozen=True):
    """A stream, or one partition of a super stream.

    `last`: the offset of the last message, None if there is none. `stored`: by the group, None if it has stored none.
    `unread`: messages behind it that are still there, all without one. `published`: messages since an earlier read, as
    a counter that starts again where the stream was made anew.
    """

    stream: str
    last: int | None
    stored: int | None
    unread: int = 0
    published: int = 0


StreamOffsets = Sequence[PartitionOffsets] | AdapterError
StreamGroup = tuple[str, str]
"""A stream, or super stream, and a group."""


class OffsetReader:
    """Reads streams of one broker."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._settings = settings
        self._timeout = context.within(settings.timeout_seconds)
        self._http = Http(context, settings.http_options())
        self._published = PublishedMessages()
        self._nodes = Servers(settings.stream_nodes)

    async def read(self, vhost: str, wanted: Mapping[StreamGroup, bool]) -> dict[StreamGroup, StreamOffsets]:
        """Returns the offsets of each partition, or the error of a stream; raises AdapterError if none is read.

        `wanted`: whether published messages have to be counted as well.
        """
        reading = _Reading(vhost, wanted, self._published)
        for node in self._nodes.order:
            if reading.done:
                break
            try:
                async with self._connected(node, vhost) as connection:
                    await reading.ask(connection)
            except StreamRefusedError as error:
                raise AdapterError(f"{_named(node)} refuses the user: {error}", lasting=True) from None
            except _BROKEN as error:
                hangs = isinstance(error, TimeoutError)
                why = f"did not answer within {self._timeout:g}s" if hangs else _failed(error)
                reading.errors.append(f"{_named(node)} {why}")
                self._nodes.put_last(node)
        return reading.found()

    @contextlib.asynccontextmanager
    async def _connected(self, node: str, vhost: str) -> AsyncIterator[StreamConnection]:
        user, password = await login(self._settings, self._http)
        parts = urllib.parse.urlsplit(node)
        tls = await self._http.tls() if parts.scheme.endswith("+tls") else None
        name = (self._settings.server_name or parts.hostname) if tls is not None else None
        async with asyncio.timeout(self._timeout / len(self._settings.stream_nodes)):
            port = parts.port or _PORTS[parts.scheme]
            streams = await asyncio.open_connection(parts.hostname, port, ssl=tls, server_hostname=name)
        connection = StreamConnection(*streams, self._timeout, self._settings.max_bytes)
        try:
            try:
                await connection.open(user, password, vhost)
            except StreamRefusedError:
                self._http.discard(password)  # a token that was revoked is replaced
                raise
            yield connection
        finally:
            await connection.close()


class _Reading:
    """One read of the streams of a vhost, over the connections to several nodes."""

    def __init__(self, vhost: str, wanted: Mapping[StreamGroup, bool], published: "PublishedMessages") -> None:
        self._vhost = vhost
        self._wanted = sorted(wanted)
        self._counted = {stream for (stream, _), counts in wanted.items() if counts}
        self._published = published
        self._partitions: dict[str, list[str]] | None = None
        """The partitions of each stream: itself, or those of a super stream. None before a node has told."""
        self._leaders: dict[str, NodeAddress | int] = {}
        self._read: dict[StreamGroup, PartitionOffsets | AdapterError] = {}
        """By partition and group."""
        self.errors: list[str] = []

    @property
    def done(self) -> bool:
        """Whether nothing is left that another node may know."""
        return self._partitions is not None and not self._left()

    async def ask(self, connection: StreamConnection) -> None:
        """Reads what this node knows: the streams that it leads."""
        if self._partitions is None:
            self._partitions = await self._resolved(connection)
        for partition, groups in self._left().items():
            if self._leaders[partition] == connection.address:
                await self._read_partition(connection, partition, groups)

    def _counts(self, partition: str) -> bool:
        return any(partition in (self._partitions or {}).get(stream, ()) for stream in self._counted)

    async def _resolved(self, connection: StreamConnection) -> dict[str, list[str]]:
        names = sorted({stream for stream, _ in self._wanted})
        leaders = await connection.leaders(names)
        found = {name: [name] if leaders.get(name, ABSENT) != ABSENT else [] for name in names}
        for name in (name for name in names if not found[name]):
            found[name] = await connection.partitions(name)
        inner = sorted({each for partitions in found.values() for each in partitions} - leaders.keys())
        self._leaders = leaders | (await connection.leaders(inner) if inner else {})
        return found

    def _left(self) -> Mapping[str, list[str]]:
        """Returns the groups by partition that are not read and have a leader."""
        left: dict[str, list[str]] = {}
        for stream, group in self._wanted:
            for partition in (self._partitions or {}).get(stream, ()):
                if (partition, group) not in self._read and isinstance(self._leaders.get(partition), NodeAddress):
                    left.setdefault(partition, []).append(group)
        return left

    async def _read_partition(self, connection: StreamConnection, partition: str, groups: Sequence[str]) -> None:
        try:
            # Before the last offset, so that no group seems to have stored one that is beyond it.
            stored = {group: await connection.stored(partition, group) for group in groups}
            last = await connection.last(partition)
            published = 0
            if self._counts(partition):
                published = await self._published.after(connection, self._vhost, partition, last)
            for group, offset in stored.items():
                unread = await _messages(connection, partition, offset, last) if last is not None else 0
                read = PartitionOffsets(partition, None if last is None else last.last, offset, unread, published)
                self._read[partition, group] = read
        except StreamRefusedError as error:
            refused = self._refused(partition, error)
            self._read |= dict.fromkeys(((partition, group) for group in groups), refused)

    def _refused(self, partition: str, error: StreamRefusedError) -> AdapterError:
        blame = "spec" if error.code in (ABSENT, NO_RIGHT) else "source"
        return AdapterError(f'stream "{partition}" in {self._where}: {error}', blame)

    def found(self) -> dict[StreamGroup, StreamOffsets]:
        """Returns the result; raises AdapterError if no node has answered."""
        if self._partitions is None:
            raise AdapterError("; ".join(self.errors))
        return {(stream, group): self._of(stream, group) for stream, group in self._wanted}

    def _of(self, stream: str, group: str) -> StreamOffsets:
        partitions = (self._partitions or {})[stream]
        if not partitions:
            return AdapterError(f'{self._where} has no stream and no super stream "{stream}"', "spec")
        found = [self._read.get((partition, group)) or self._unread(partition) for partition in partitions]
        error = next((each for each in found if isinstance(each, AdapterError)), None)
        return error or [each for each in found if isinstance(each, PartitionOffsets)]

    def _unread(self, partition: str) -> AdapterError:
        leader = self._leaders.get(partition, ABSENT)
        if leader == NO_RIGHT:  # from RabbitMQ 4.3 on, which also hides whether there is such a stream
            return self._refused(partition, StreamRefusedError(NO_RIGHT))
        if isinstance(leader, int):
            reason = REASONS.get(leader, f"the broker answers with code {leader}")
            return AdapterError(f'stream "{partition}" in {self._where} cannot be read: {reason}')
        if self.errors:  # of the node that leads it, or that was asked for nothing else
            return AdapterError("; ".join(self.errors))
        text = f'the leader of stream "{partition}" is {leader.host}:{leader.port}, which no address of stream_url is'
        return AdapterError(f"{text}: write one for each node", lasting=True)

    @property
    def _where(self) -> str:
        return f'vhost "{self._vhost}"'


class PublishedMessages:
    """Counts the messages that are published to streams, from read to read."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[int, int]] = {}
        """By vhost and stream: the last offset, and the messages so far."""

    async def after(self, connection: StreamConnection, vhost: str, stream: str, last: StreamChunk | None) -> int:
        """Returns the messages since the first read of the stream; raises as StreamConnection does."""
        place, end = (vhost, stream), -1 if last is None else last.last
        before, count = self._known.get(place, (_NEW, 0))
        if last is not None and _NEW < before < end:
            count += await _messages(connection, stream, before, last)
        elif end < before:
            count = 0
        self._known.pop(place, None)
        if len(self._known) >= MOST_QUEUES:
            del self._known[next(iter(self._known))]
        self._known[place] = end, count
        return count


async def _messages(connection: StreamConnection, stream: str, after: int | None, last: StreamChunk) -> int:
    """Returns how many messages follow an offset (None: are in the stream) up to the last chunk.

    Between them are offsets that consumers have stored. Their share is that in the first chunks, of which so many are
    read that they take about _SAMPLE_BYTES, and of a small number of messages all.
    """
    if after is not None and after >= last.first - 1:
        return max(0, last.last - after)
    begin = None if after is None else after + 1
    most = max(1, min(_MOST_CHUNKS, _SAMPLE_BYTES // last.size))
    return counted(await connection.chunks(stream, begin, most), -1 if after is None else after, last.last)


def counted(chunks: Sequence[StreamChunk], after: int, last: int) -> int:
    """Returns how many messages follow the offset `after`, up to `last`. `chunks`: the first ones, in their order."""
    if not chunks:
        return last - after
    messages = sum(max(0, min(each.last, last) - max(each.first - 1, after)) for each in chunks)
    begin, end = max(chunks[0].first - 1, after), chunks[-1].last
    return messages + round(max(0, last - end) * messages / max(1, end - begin))


def _named(node: str) -> str:
    return f"rabbitmq_stream at {node}"


def _failed(error: Exception) -> str:
    if isinstance(error, ValueError) and not isinstance(error, OSError):  # as errors of certificates are both
        return f"sent something other than the stream protocol: {error}"
    if isinstance(error, EOFError):
        return "closed the connection: is it the address of the plugin rabbitmq_stream?"
    return failure(error)
