"""A small AMQP 0-9-1 client: publishes, counts, and consumes one message at a time with acknowledgement.

Source of numbers (class, method) and layouts: the AMQP 0-9-1 specification, "Class and Method Reference".
It uses a blocking socket, one channel and no heartbeats, which suffices for a broker on loopback.
"""

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

METHOD, HEADER, BODY, FRAME_END = 1, 2, 3, 0xCE
FRAME_OVERHEAD = 8
LARGEST_FRAME = 131_072
CONNECTION_CLOSE, CHANNEL_CLOSE = (10, 50), (20, 40)
BASIC = 60
Method = tuple[int, int]


class AmqpError(Exception):
    """The broker refused a request or closed the connection; the text is that of the broker, if it sent one."""


class Delivery(NamedTuple):
    """A delivered message; `tag` identifies it in the acknowledgement."""

    tag: int
    body: bytes


class Count(NamedTuple):
    """The broker's counts of a queue: messages ready for delivery, and consumers."""

    ready: int
    consumers: int


def short_string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">B", len(raw)) + raw


def long_string(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


class Connection:
    """A connection with one open channel. All methods raise AmqpError and OSError."""

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        """Connects to `amqp://user:password@host:port/vhost`; without a path, to the vhost `/`."""
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 5672), timeout)
        self._stream = self._socket.makefile("rb")
        try:
            self._open(parts.username or "guest", parts.password or "guest", unquote(parts.path[1:]) or "/")
        except BaseException:
            self.close()
            raise

    def _open(self, user: str, password: str, vhost: str) -> None:
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect((10, 10))
        response = f"\0{unquote(user)}\0{unquote(password)}".encode()
        self._send(
            0, (10, 11), long_string(b"") + short_string("PLAIN") + long_string(response) + short_string("en_US")
        )
        channels, frame_size, _heartbeat = struct.unpack(">HIH", self._expect((10, 30)))
        # 0 means that the broker has no limit
        self._max_payload = min(frame_size or LARGEST_FRAME, LARGEST_FRAME) - FRAME_OVERHEAD
        self._send(0, (10, 31), struct.pack(">HIH", channels, frame_size, 0))
        self._send(0, (10, 40), short_string(vhost) + short_string("") + b"\0")
        self._expect((10, 41))
        self._send(1, (20, 10), short_string(""))
        self._expect((20, 11))

    def publish(self, queue: str, bodies: list[bytes]) -> None:
        """Publishes messages to a queue through the default exchange."""
        for body in bodies:
            self._send(1, (BASIC, 40), struct.pack(">H", 0) + short_string("") + short_string(queue) + b"\0")
            self._frame(HEADER, 1, struct.pack(">HHQH", BASIC, 0, len(body), 0))
            for start in range(0, len(body), self._max_payload):
                self._frame(BODY, 1, body[start : start + self._max_payload])

    def count(self, queue: str) -> Count:
        """Returns the counts of an existing queue, by a passive declare. Unacknowledged messages are not counted."""
        self._send(1, (50, 10), struct.pack(">H", 0) + short_string(queue) + b"\x01" + long_string(b""))
        return Count(*struct.unpack(">II", self._expect((50, 11))[-8:]))

    def consume(self, queue: str, consumer_tag: str = "", prefetch: int = 1) -> Iterator[Delivery]:
        """Yields one message at a time, endlessly. The broker sends up to `prefetch` messages before an `ack`.

        Without a `consumer_tag` the broker makes one.
        """
        self._send(1, (BASIC, 10), struct.pack(">IHB", 0, prefetch, 0))
        self._expect((BASIC, 11))
        names = struct.pack(">H", 0) + short_string(queue) + short_string(consumer_tag)
        self._send(1, (BASIC, 20), names + b"\0" + long_string(b""))
        self._expect((BASIC, 21))
        self._socket.settimeout(None)
        while True:
            yield self._delivery()

    def ack(self, delivery: Delivery) -> None:
        self._send(1, (BASIC, 80), struct.pack(">QB", delivery.tag, 0))

    def close(self) -> None:
        """Closes without waiting for a response; unacknowledged messages return to the queue."""
        with contextlib.suppress(OSError):
            self._send(0, CONNECTION_CLOSE, struct.pack(">H", 200) + short_string("") + struct.pack(">HH", 0, 0))
        self._stream.close()
        self._socket.close()

    def _delivery(self) -> Delivery:
        arguments = self._expect((BASIC, 60))
        (tag,) = struct.unpack_from(">Q", arguments, 1 + arguments[0])
        _kind, header = self._read()
        (size,) = struct.unpack_from(">Q", header, 4)
        body = b""
        while len(body) < size:
            body += self._read()[1]
        return Delivery(tag, body)

    def _send(self, channel: int, method: Method, arguments: bytes) -> None:
        self._frame(METHOD, channel, struct.pack(">HH", *method) + arguments)

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        self._socket.sendall(struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([FRAME_END]))

    def _read(self) -> tuple[int, bytes]:
        head = self._stream.read(7)
        if len(head) < 7:
            raise AmqpError("the broker closed the connection")
        kind, _channel, size = struct.unpack(">BHI", head)
        payload = self._stream.read(size + 1)
        if len(payload) <= size or payload[-1] != FRAME_END:
            raise AmqpError("the broker sent a frame without an end mark")
        return kind, payload[:-1]

    def _expect(self, expected: Method) -> bytes:
        """Returns the arguments of the next method; raises AmqpError if that is another one."""
        kind, payload = self._read()
        method: Method = struct.unpack_from(">HH", payload) if kind == METHOD else (0, 0)
        if method in (CONNECTION_CLOSE, CHANNEL_CLOSE):
            raise AmqpError(payload[7 : 7 + payload[6]].decode(errors="replace"))
        if method != expected:
            raise AmqpError(f"the broker sent method {method} instead of {expected}")
        return payload[4:]
