"""A Kafka broker on a real socket, for what librdkafka's mock cluster lacks: logins, TLS, and faults.

It speaks one version of each request, with the message classes of aiokafka. `answers` holds the fields of each
response, by the class of the request; an exception ends the connection, and bytes are sent in place of a response. Each
response takes `seconds`.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import io
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

admin = pytest.importorskip("aiokafka.protocol.admin", reason="needs the extra kafka")
commit = pytest.importorskip("aiokafka.protocol.commit")
coordination = pytest.importorskip("aiokafka.protocol.coordination")
metadata = pytest.importorskip("aiokafka.protocol.metadata")
offset = pytest.importorskip("aiokafka.protocol.offset")

VERSIONS = admin.ApiVersionRequest_v0
HANDSHAKE = admin.SaslHandShakeRequest_v1
AUTHENTICATE = admin.SaslAuthenticateRequest_v0
METADATA = metadata.MetadataRequest_v4
COORDINATOR = coordination.FindCoordinatorRequest_v1
COMMITTED = commit.OffsetFetchRequest_v3
OFFSETS = offset.OffsetRequest_v1
_SPOKEN = {
    each.API_KEY: each for each in (VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA, COORDINATOR, COMMITTED, OFFSETS)
}

USER, PASSWORD, TOKEN = "hpad", "s3cr3t", "t0ken"
_DENIED = 58


class Broker:
    """One broker, which leads the two partitions of topic "orders" and coordinates all groups."""

    def __init__(self, mechanism: str = "") -> None:
        self.port = 0
        self.iterations = 4096
        self.asked: list[Any] = []
        self.answers: dict[type, Any] = {}
        self.seconds = 0.0
        self.connections: set[asyncio.Task[Any]] = set()
        self._mechanism = mechanism

    def default(self, request: Any) -> tuple[Any, ...]:
        """Returns the fields of the response: partitions with offsets 0 to 10 and 0 to 20; 4 and 20 are committed."""
        kind = type(request)
        if kind is VERSIONS:
            return (0, [(key, each.API_VERSION, each.API_VERSION) for key, each in _SPOKEN.items()])
        if kind is METADATA:
            partitions = [(0, number, 1, [1], [1]) for number in (0, 1)]
            return (0, [(1, "127.0.0.1", self.port, None)], "c", 1, [(0, "orders", False, partitions)])
        if kind is COORDINATOR:
            return (0, 0, None, 1, "127.0.0.1", self.port)
        if kind is COMMITTED:
            return (0, [("orders", [(0, 4, "", 0), (1, 20, "", 0)])], 0)
        assert kind is OFFSETS
        last = {0: 10, 1: 20}
        listed = [
            (topic, [(number, 0, -1, 0 if time == -2 else last[number]) for number, time in numbers])
            for topic, numbers in request.topics
        ]
        return (listed,)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        current = asyncio.current_task()
        assert current is not None
        self.connections.add(current)
        login = self._login()
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                key, version, correlation, length = struct.unpack(">hhih", await reader.readexactly(10))
                rest = await reader.readexactly(size - 10)
                kind = _SPOKEN[key]
                assert version == kind.API_VERSION
                request = kind.decode(io.BytesIO(rest[length:]))
                self.asked.append(request)
                await asyncio.sleep(self.seconds)
                answer = self.answers.get(kind)
                if kind is HANDSHAKE:
                    answer = answer or (0, [self._mechanism])
                if kind is AUTHENTICATE:
                    answer = answer or login.send(request.sasl_auth_bytes)
                if isinstance(answer, bytes):
                    writer.write(answer)
                    await writer.drain()
                    continue
                fields = answer if answer is not None else self.default(request)
                body = struct.pack(">i", correlation) + kind.RESPONSE_TYPE(*fields).encode()
                writer.write(struct.pack(">i", len(body)) + body)
                await writer.drain()
        writer.close()

    def _login(self) -> Any:
        steps = self._scram() if self._mechanism.startswith("SCRAM") else self._single()
        next(steps)
        return steps

    def _single(self) -> Any:
        answer: Any = None
        while True:
            sent = yield answer
            if self._mechanism == "PLAIN":
                right = sent.split(b"\0")[1:] == [USER.encode(), PASSWORD.encode()]
            else:
                right = sent == b"n,,\x01auth=Bearer " + TOKEN.encode() + b"\x01\x01"
            answer = (0, "", b"") if right else self._denied()

    def _scram(self) -> Any:
        """The server's side of RFC 5802."""
        hashed = self._mechanism.removeprefix("SCRAM-SHA-")
        name, salt = f"sha{hashed}", b"salt of this test"
        first = (yield None).decode().removeprefix("n,,")
        nonce = first.partition("r=")[2] + "server"
        second = f"r={nonce},s={base64.b64encode(salt).decode()},i={self.iterations}"
        final = (yield (0, "", second.encode())).decode()
        bare, _, proof = final.rpartition(",p=")
        salted = hashlib.pbkdf2_hmac(name, PASSWORD.encode(), salt, self.iterations)
        key = hmac.digest(salted, b"Client Key", name)
        message = f"{first},{second},{bare}".encode()
        signature = hmac.digest(hashlib.new(name, key).digest(), message, name)
        wanted = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        if base64.b64decode(proof) != wanted:
            yield self._denied()
        server = hmac.digest(hmac.digest(salted, b"Server Key", name), message, name)
        yield (0, "", b"v=" + base64.b64encode(server))

    @staticmethod
    def _denied() -> tuple[int, str, bytes]:
        return (_DENIED, "Authentication failed: Invalid username or password", b"")


@asynccontextmanager
async def serving(broker: Broker, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Yields the address of the broker."""
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=tls)
    broker.port = server.sockets[0].getsockname()[1]
    async with server:
        yield f"127.0.0.1:{broker.port}"
        if broker.connections:
            await asyncio.wait(broker.connections)  # they end when the client closes them
