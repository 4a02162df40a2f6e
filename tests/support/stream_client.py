"""A client of RabbitMQ's stream protocol that stores offsets as consumers do, and a node whose answers a test sets."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable

Answers = Callable[[int, bytes], list[bytes]]
"""Key and content of a request -> the frames of its answer."""
PROPERTIES, HANDSHAKE, LOGIN, TUNE, OPEN, STORE, QUERY, CLOSE = 0x11, 0x12, 0x13, 0x14, 0x15, 0x0A, 0x0B, 0x16
METADATA, SUBSCRIBE, DELIVER, UNSUBSCRIBE, PARTITIONS = 0x0F, 0x07, 0x08, 0x0C, 0x19
ANSWER = 0x8000
OK = 1


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded


def frame(key: int, content: bytes) -> bytes:
    return struct.pack(">IHH", len(content) + 4, key, 1) + content


def store(port: int, stream: str, group: str, offset: int, user: str = "hpad", password: str = "hpad-lab") -> None:
    """Stores an offset in a stream of vhost "/", and waits until the broker knows it."""
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        file = connection.makefile("rwb")

        def send(key: int, content: bytes) -> None:
            file.write(frame(key, content))
            file.flush()

        def received(key: int) -> bytes:
            while True:
                size, found, _ = struct.unpack(">IHH", file.read(8))
                content = file.read(size - 4)
                if found & ~ANSWER == key:
                    return content

        secret = f"\0{user}\0{password}".encode()
        send(PROPERTIES, struct.pack(">II", 1, 0))
        received(PROPERTIES)
        send(HANDSHAKE, struct.pack(">I", 2))
        received(HANDSHAKE)
        send(LOGIN, struct.pack(">I", 3) + text("PLAIN") + struct.pack(">I", len(secret)) + secret)
        send(TUNE, received(TUNE))
        send(OPEN, struct.pack(">I", 4) + text("/"))
        received(OPEN)
        send(STORE, text(group) + text(stream) + struct.pack(">Q", offset))
        while True:
            send(QUERY, struct.pack(">I", 5) + text(group) + text(stream))
            _, code, known = struct.unpack(">IHQ", received(QUERY))
            if (code, known) == (OK, offset):
                return


def answered(key: int, request: bytes, content: bytes = b"", code: int = OK) -> bytes:
    """Returns the answer to a request, with its number and a response code."""
    return frame(key | ANSWER, request[:4] + struct.pack(">H", code) + content)


def chunk(first: int, records: int, data: int = 10) -> bytes:
    """Returns a delivered chunk with so many bytes of messages."""
    header = struct.pack(">BBBHIqQQiIII", 1, 0x50, 0, records, records, 0, 1, first, 0, data, 0, 0)
    return frame(DELIVER, header + b"x" * data)


def node(answers: Answers, *, host: str = "a", port: int = 5552, leader: str = "a") -> Answers:
    """Returns a node that accepts each login, and knows one leader of each stream. `answers` come first."""

    def answer(key: int, content: bytes) -> list[bytes]:
        if found := answers(key, content):
            return found
        if key == LOGIN:
            return [answered(key, content), frame(TUNE, struct.pack(">II", 1 << 20, 60))]
        if key == OPEN:
            properties = text("advertised_host") + text(host) + text("advertised_port") + text(str(port))
            return [answered(key, content, struct.pack(">I", 2) + properties)]
        if key == METADATA:
            (count,) = struct.unpack(">I", content[4:8])
            (size,) = struct.unpack(">H", content[8:10])
            stream = struct.pack(">I", count) + content[8 : 10 + size] + struct.pack(">HHI", OK, 0, 0)
            nodes = struct.pack(">IH", 1, 0) + text(leader) + struct.pack(">I", port)
            return [frame(key | ANSWER, content[:4] + nodes + stream)]
        return [] if key in (TUNE, CLOSE) else [answered(key, content)]

    return answer


@contextlib.asynccontextmanager
async def serving(answers: Answers) -> AsyncIterator[str]:
    """Serves the protocol with these answers; yields the URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError), contextlib.closing(writer):
            while True:
                size, key, _ = struct.unpack(">IHH", await reader.readexactly(8))
                for each in answers(key, await reader.readexactly(size - 4)):
                    writer.write(each)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"rabbitmq-stream://127.0.0.1:{server.sockets[0].getsockname()[1]}"
