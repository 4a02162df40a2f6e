"""As much of AMQP 0-9-1 as the demo needs: publish, count, and consume one message at a time with acknowledgement.

The numbers (class, method) and the layouts are those of the AMQP 0-9-1 specification, "Class and Method Reference".
Blocking sockets, one channel, no heartbeats: for a broker on loopback.
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
    """The broker refused, or closed the connection; the text is the broker's own where it gave one."""


class Delivery(NamedTuple):
    """One message to work on; `tag` names it in the acknowledgement."""

    tag: int
    body: bytes


class Count(NamedTuple):
    """What the broker says of a queue: messages ready for delivery, and consumers."""

    ready: int
    consumers: int


def short_string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">B", len(raw)) + raw


def long_string(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


class Connection:
    """A connection with one open channel; raises AmqpError and OSError."""

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        """Connect to `amqp://user:password@host:port/vhost` (no path: the vhost `/`)."""
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
        self._most = min(frame_size or LARGEST_FRAME, LARGEST_FRAME) - FRAME_OVERHEAD
        self._send(0, (10, 31), struct.pack(">HIH", channels, frame_size, 0))
        self._send(0, (10, 40), short_string(vhost) + short_string("") + b"\0")
        self._expect((10, 41))
        self._send(1, (20, 10), short_string(""))
        self._expect((20, 11))

    def publish(self, queue: str, bodies: list[bytes]) -> None:
        """Put messages into a queue through the default exchange."""
        for body in bodies:
            self._send(1, (BASIC, 40), struct.pack(">H", 0) + short_string("") + short_string(queue) + b"\0")
            self._frame(HEADER, 1, struct.pack(">HHQH", BASIC, 0, len(body), 0))
            for start in range(0, len(body), self._most):
                self._frame(BODY, 1, body[start : start + self._most])

    def count(self, queue: str) -> Count:
        """Look at a queue that is there (a passive declare); delivered but unacknowledged messages are not counted."""
        self._send(1, (50, 10), struct.pack(">H", 0) + short_string(queue) + b"\x01" + long_string(b""))
        return Count(*struct.unpack(">II", self._expect((50, 11))[-8:]))

    def consume(self, queue: str) -> Iterator[Delivery]:
        """Deliver one message at a time, for ever; the next comes after `ack`."""
        self._send(1, (BASIC, 10), struct.pack(">IHB", 0, 1, 0))
        self._expect((BASIC, 11))
        self._send(
            1, (BASIC, 20), struct.pack(">H", 0) + short_string(queue) + short_string("") + b"\0" + long_string(b"")
        )
        self._expect((BASIC, 21))
        self._socket.settimeout(None)
        while True:
            yield self._delivery()

    def ack(self, delivery: Delivery) -> None:
        self._send(1, (BASIC, 80), struct.pack(">QB", delivery.tag, 0))

    def close(self) -> None:
        """Say good-bye, without waiting for an answer: whatever was not acknowledged goes back to the queue."""
        with contextlib.suppress(OSError):
            self._send(0, CONNECTION_CLOSE, struct.pack(">H", 200) + short_string("") + struct.pack(">HH", 0, 0))
        self._stream.close()
        self._socket.close()

    def _delivery(self) -> Delivery:
        arguments = self._expect((BASIC, 60))
        (tag,) = struct.unpack_from(">Q", arguments, 1 + arguments[0])
        _kind, header = self._read()
        (left,) = struct.unpack_from(">Q", header, 4)
        body = b""
        while len(body) < left:
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
            raise AmqpError("the broker sent a frame that does not end where it should")
        return kind, payload[:-1]

    def _expect(self, wanted: Method) -> bytes:
        """The arguments of the next method, which must be the one wanted."""
        kind, payload = self._read()
        method: Method = struct.unpack_from(">HH", payload) if kind == METHOD else (0, 0)
        if method in (CONNECTION_CLOSE, CHANNEL_CLOSE):
            raise AmqpError(payload[7 : 7 + payload[6]].decode(errors="replace"))
        if method != wanted:
            raise AmqpError(f"the broker sent method {method} where {wanted} was due")
        return payload[4:]
