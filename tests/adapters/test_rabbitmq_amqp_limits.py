"""Hostile brokers over AMQP: too large frames and answers are refused before they are read."""

import asyncio
import contextlib
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from support import free_ports
from support.brokers import PATIENT

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample
from hpad_adapters import rabbitmq
from hpad_adapters.rabbitmq import amqp
from hpad_adapters.rabbitmq.values import Lookup

commands = pytest.importorskip("pamqp.commands", reason="needs the extra amqp")
marshal = pytest.importorskip("pamqp.frame").marshal
MIB = 1 << 20
HEARTBEAT = 8
DECLARE = struct.pack(">HH", 50, 10)
LARGEST_MEMORY = 8 * MIB
"""Bytes for the buffers of the library and of the test's server, far less than these servers send."""


class Broker:
    """Opens a connection as a broker does, then sends `after` until the client stops reading.

    `tuned` is the frame size that it offers, `waiting` what it reports of messages and consumers; `before` is sent
    instead of an opening. `agreed` is the client's. `each`: more declarations follow, each
    answered by `after`.
    """

    def __init__(
        self,
        *,
        tuned: int = 131072,
        waiting: tuple[int, int] = (7, 1),
        each: bool = False,
        before: Callable[[], Iterator[bytes]] | None = None,
        after: Callable[[], Iterator[bytes]] | None = None,
    ) -> None:
        self.agreed = 0
        self._each = each
        self._tuned, self._waiting, self._before, self._after = tuned, waiting, before, after

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, EOFError), contextlib.closing(writer):
            await self._talk(reader, writer)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        if self._before is not None:
            await self._send(writer, self._before())
            return
        await self._open(reader, writer)
        channel, _ = await self._frame(reader)  # channel.open
        await self._send(writer, iter([marshal(commands.Channel.OpenOk(), channel)]))
        await self._frame(reader)  # confirm.select, which the library sends first
        await self._send(writer, iter([marshal(commands.Confirm.SelectOk(), channel)]))
        answer = marshal(commands.Queue.DeclareOk("a", *self._waiting), channel)
        while (await self._frame(reader))[1].startswith(DECLARE):
            await self._send(writer, self._after() if self._after is not None else iter([answer]))
            if not self._each:
                break
        await reader.read()

    async def _open(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = commands.Connection.Start(0, 9, {"capabilities": {"publisher_confirms": True}}, "PLAIN", "en_US")
        await self._send(writer, iter([marshal(start, 0)]))
        await self._frame(reader)
        await self._send(writer, iter([marshal(commands.Connection.Tune(2047, self._tuned, 60), 0)]))
        _, taken = await self._frame(reader)
        self.agreed = struct.unpack(">L", taken[6:10])[0]
        await self._frame(reader)
        await self._send(writer, iter([marshal(commands.Connection.OpenOk(), 0)]))

    @staticmethod
    async def _send(writer: asyncio.StreamWriter, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    @staticmethod
    async def _frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
        """Returns the channel and the content of the next frame that is not a heartbeat."""
        while True:
            kind, channel, size = struct.unpack(">BHL", await reader.readexactly(7))
            content = (await reader.readexactly(size + 1))[:-1]
            if kind != HEARTBEAT:
                return channel, content


@asynccontextmanager
async def listening(broker: Broker) -> AsyncIterator[str]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    async with server:
        yield f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def ask(url: str) -> Answer:
    (answer,) = await ask_all(url, "a")
    return answer


async def ask_all(url: str, names: str) -> list[Answer]:
    settings = rabbitmq.Settings(url=url, source="amqp", username="u", password="p", **PATIENT)
    async with testing.context("mq") as context:
        source = rabbitmq.RabbitMQ(settings, context)
        try:
            return await source.answer([testing.external("queue_messages_ready", f"queue={name}") for name in names])
        finally:
            await source.aclose()


async def refusal(broker: Broker) -> str:
    """Returns the error for the broker; asserts that memory was bounded."""
    async with listening(broker) as url:
        tracemalloc.start()
        try:
            answer = await ask(url)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < LARGEST_MEMORY
    assert isinstance(answer, AdapterError)
    assert answer.blame == "source"
    return answer.message


def frame(size: int, kind: int = 1, channel: int = 0) -> Callable[[], Iterator[bytes]]:
    """A frame header with this size, and content without end."""

    def pieces() -> Iterator[bytes]:
        yield struct.pack(">BHL", kind, channel, size)
        while True:
            yield b"x" * MIB

    return pieces


def repeated(piece: bytes) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        while True:
            yield piece * (65536 // len(piece))

    return pieces


def nested(depth: int) -> bytes:
    """connection.start with `depth` nested tables."""
    table = b""
    for _ in range(depth):
        table = b"\x00F" + struct.pack(">L", len(table)) + table
    content = struct.pack(">HHBB", 10, 10, 0, 9) + struct.pack(">L", len(table)) + table
    content += struct.pack(">L5sL5s", 5, b"PLAIN", 5, b"en_US")
    return struct.pack(">BHL", 1, 0, len(content)) + content + b"\xce"


@pytest.mark.parametrize("size", [0xFFFFFFF0, 1 << 30, amqp.FRAME_MAX - 7])
async def test_a_too_large_frame_before_negotiation_is_refused(size: int) -> None:
    error = await refusal(Broker(before=frame(size)))
    assert f"sent a frame of {size + 8} bytes, above the negotiated {amqp.FRAME_MAX}" in error


@pytest.mark.parametrize(
    ("tuned", "agreed"),
    [(0, amqp.FRAME_MAX), (4096, 4096), (131072, amqp.FRAME_MAX), (0xFFFFFFFF, amqp.FRAME_MAX), (1, 4096)],
)
async def test_a_frame_above_the_negotiated_size_is_refused(tuned: int, agreed: int) -> None:
    broker = Broker(tuned=tuned, after=frame(agreed - 7, channel=1))
    assert f"sent a frame of {agreed + 1} bytes, above the negotiated {agreed}" in await refusal(broker)
    assert broker.agreed == agreed


@pytest.mark.parametrize(
    "piece",
    [
        struct.pack(">BHLB", 8, 0, 0, 0xCE),
        marshal(commands.Queue.DeclareOk("a", 7, 1), 9),
        struct.pack(">BHL", 3, 1, 4000) + b"x" * 4000 + b"\xce",
    ],
    ids=["heartbeats", "answers on another channel", "content that was not requested"],
)
async def test_small_frames_without_end_are_refused(piece: bytes) -> None:
    assert "sent more than 64 KiB" in await refusal(Broker(after=repeated(piece)))


async def test_deeply_nested_tables_are_an_error_of_the_source() -> None:
    assert "cannot be used over AMQP" in await refusal(Broker(before=lambda: iter([nested(1300)])))


async def test_the_refusal_of_a_queue_is_quoted_and_says_what_is_needed() -> None:
    """RabbitMQ 4.2.6 and later want a permission on a queue for its passive declaration, 4.2.5 wants none."""
    said = "ACCESS_REFUSED - configure access to queue 'a' in vhost '/' refused for user 'u'"
    refused = marshal(commands.Channel.Close(403, said, 50, 10), 1)
    async with listening(Broker(after=lambda: iter([refused]))) as url:
        answer = await ask(url)
    assert isinstance(answer, AdapterError)
    assert answer.message == (
        f'queue "a" in vhost "/" of rabbitmq at {url} cannot be read: the broker answers {said}; from RabbitMQ '
        "4.2.6 on, the user needs a permission on each queue (docs/rabbitmq.md)"
    )


@pytest.mark.parametrize("bad", ["a", "b", "c", "ab", "ac"])
async def test_a_queue_that_breaks_the_connection_fails_alone(bad: str) -> None:
    """A fault of RabbitMQ itself ends the connection (INTERNAL_ERROR). A second one is taken for one of the broker."""
    declared = iter("abc")
    crashed = marshal(commands.Connection.Close(541, "INTERNAL_ERROR", 50, 10), 0)

    def after() -> Iterator[bytes]:
        name = next(declared)
        return iter([crashed if name in bad else marshal(commands.Queue.DeclareOk(name, 7, 1), 1)])

    async with listening(Broker(after=after, each=True)) as url:
        answers = await ask_all(url, "abc")
    failed = {name for name, answer in zip("abc", answers, strict=True) if isinstance(answer, AdapterError)}
    assert failed == set(bad if len(bad) == 1 else "abc")
    for name in bad if len(bad) == 1 else ():
        error = answers["abc".index(name)]
        assert isinstance(error, AdapterError)
        assert error.blame == "spec"
        assert error.message.startswith(f'queue "{name}" in vhost "/" of rabbitmq at {url} cannot be read: ')
        assert "the connection broke" in error.message


async def test_the_type_of_a_queue_is_asked_of_rabbitmq_only() -> None:
    """Another broker may accept the consumer, and deliver messages."""
    async with listening(Broker(waiting=(7, 0))) as url:
        answer = await ask(url)
    assert isinstance(answer, ExternalSample)
    assert answer.values == (7000,)


async def test_an_ordinary_answer_is_accepted_at_any_negotiated_size() -> None:
    for tuned in (0, 4096, 131072):
        async with listening(Broker(tuned=tuned)) as url:
            answer = await ask(url)
        assert isinstance(answer, ExternalSample)
        assert answer.values == (7000,)


async def test_the_words_of_a_broker_do_not_reach_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The broker knows the password, and the library logs what it says."""

    def blocked() -> Iterator[bytes]:
        yield marshal(commands.Connection.Blocked(reason="s3cr3t"), 0)
        yield marshal(commands.Queue.DeclareOk("a", 7, 1), 1)

    async with listening(Broker(after=blocked)) as url:
        assert isinstance(await ask(url), ExternalSample)
    assert caplog.text == ""


async def test_nothing_is_kept_of_vhosts_that_do_not_exist() -> None:
    async with testing.context("rabbit") as context:
        with contextlib.closing(free_ports.reserved()) as nobody:
            at = f"amqp://127.0.0.1:{nobody.getsockname()[1]}"
            reader = amqp.Amqp(rabbitmq.RabbitMQ.Settings(url=at, source="amqp"), context)
            for number in range(20):
                with pytest.raises(AdapterError):
                    await reader.read(f"vhost-{number}", Lookup(names=frozenset({"orders"})))
        assert not reader._links
        assert not reader._locks
