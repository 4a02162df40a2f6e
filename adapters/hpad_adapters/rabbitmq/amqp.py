"""Queues by AMQP 0-9-1: a passive declaration tells how many messages are ready, as of now, and how many consumers.

One connection a vhost, with one channel, whatever the number of queues; both are opened again when they are gone, which
the channel is after each queue that does not exist ("Queue.Declare, passive" in the AMQP 0-9-1 reference). Needs the
extra `hpad[amqp]`. aiormq and not aio-pika, whose channels answer a second declaration from memory.

What an AMQP connection may bring: no frame above the negotiated size, and so many bytes for each question.

The library reads whatever length a frame claims, up to 4 GiB. All that hpad asks for fits into a few hundred bytes.
Source: AMQP 0-9-1 specification, sections 2.3.5 (frames) and 4.2.3, and connection.tune in the class reference.
"""

import asyncio
import contextlib
import importlib
import ssl
import struct
from typing import Any

import yarl

from hpad.adapter import AdapterError, Context, reason
from hpad_adapters.rabbitmq import http
from hpad_adapters.rabbitmq.http import Tokens
from hpad_adapters.rabbitmq.modes import ANY_VHOST
from hpad_adapters.rabbitmq.queue import Queue, Sought
from hpad_adapters.rabbitmq.settings import Elsewhere, Settings

FRAME_MAX = 8192
"""Bytes of a frame with its header and its end; RabbitMQ 4.1 takes no client with less. Before the server has said what
it takes, the specification allows 4096."""
ANSWER_BYTES = 1 << 16
"""For the answer to one question: a connection, or one queue."""
_FRAME_MIN = 4096
_HEADER_BYTES, _END_BYTES = 7, 1
_LENGTH = struct.Struct(">L")
_TUNE = struct.pack(">HH", 10, 30)
_FRAME_MAX_AT = slice(6, 10)


class TooMuch(ConnectionError):
    """The broker sent what nothing asked for; the message is the end of a sentence about the broker."""


class Reader:
    """What the library reads a connection with: an asyncio.StreamReader that refuses before it makes room.

    `refused` says why the connection was given up, empty while it was not.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.refused = ""
        self._reader = reader
        self._frame_max = FRAME_MAX
        self._left = ANSWER_BYTES
        self._header = b""

    def allow(self) -> None:
        """Another question is asked."""
        self._left = ANSWER_BYTES

    def at_eof(self) -> bool:
        return self._reader.at_eof()

    async def readexactly(self, count: int) -> bytes:
        """The next bytes: of a frame its type, the rest of its header, then its content with the end, as the library
        asks for them. Raises TooMuch, and as asyncio's."""
        if len(self._header) == _HEADER_BYTES and count + _HEADER_BYTES > self._frame_max:
            self._refuse(f"sent a frame of {count + _HEADER_BYTES} bytes, above the negotiated {self._frame_max}")
        self._left -= count
        if self._left < 0:
            self._refuse(f"sent more than {ANSWER_BYTES >> 10} KiB, too much for an answer")
        found = await self._reader.readexactly(count)
        if len(self._header) < _HEADER_BYTES:
            self._header += found
            return found
        self._header = b""
        return self._tuned(found) if found.startswith(_TUNE) else found

    def _tuned(self, content: bytes) -> bytes:
        """connection.tune with the size of frames that is agreed on; the library repeats it in its answer."""
        (offered,) = _LENGTH.unpack(content[_FRAME_MAX_AT]) if len(content) >= _FRAME_MAX_AT.stop else (0,)
        self._frame_max = max(_FRAME_MIN, min(offered or FRAME_MAX, FRAME_MAX))
        agreed = _LENGTH.pack(self._frame_max)
        return content[: _FRAME_MAX_AT.start] + agreed + content[_FRAME_MAX_AT.stop :]

    def _refuse(self, why: str) -> None:
        self.refused = why
        raise TooMuch(why)


class Transport:
    """The library's way to connect, `inner`, with a Reader around what it gives."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.reader: Reader | None = None

    async def create(self, url: Any, **options: Any) -> tuple[Reader, asyncio.StreamWriter]:
        """As the library's."""
        reader, writer = await self._inner.create(url, **options)
        self.reader = Reader(reader)
        return self.reader, writer

    def allow(self) -> None:
        """Another question is asked."""
        if self.reader is not None:
            self.reader.allow()

    @property
    def refused(self) -> str:
        """Why the connection was given up; empty while it was not."""
        return self.reader.refused if self.reader is not None else ""


_HEARTBEAT_SECONDS = "30"
_NO_QUEUE = "NOT_FOUND - no queue"
_LONGEST_NAME_BYTES = 255
_USER_OF_A_TOKEN = "hpad"  # RabbitMQ takes a token as the password, and the name from the token


class Amqp:
    """Reads queues of one broker. Raises AdapterError where the extra is not installed."""

    def __init__(self, settings: Settings, context: Context) -> None:
        try:
            self._library: Any = importlib.import_module("aiormq")
        except ImportError:
            raise AdapterError("source: amqp needs the extra: pip install 'hpad[amqp]'", "spec") from None
        self._declare = _declaration(self._library)
        self._settings = settings
        self._timeout = settings.timeout.total_seconds()
        self._nodes = list(settings.nodes)
        self._tls = http.Tls(settings)
        self._tokens = Tokens(settings.oauth2, context, self._tls, settings.timeout) if settings.oauth2 else None
        self._connections: dict[str, Any] = {}
        self._channels: dict[str, Any] = {}
        self._transports: dict[str, Transport] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def __str__(self) -> str:
        return f"rabbitmq at {self._nodes[0]}"

    async def read(self, vhost: str, sought: Sought) -> list[Queue]:
        """The queues that exist. Raises AdapterError."""
        if sought.patterns or vhost == ANY_VHOST:
            raise AdapterError("AMQP cannot list queues: a queue_regex needs source: management or prometheus", "spec")
        async with self._locks.setdefault(vhost, asyncio.Lock()):
            try:
                return await self._declared(vhost, sorted(sought.names))
            except BaseException:  # cancellation too: an answer that nobody waits for must meet no later question
                await self._drop(vhost)
                raise

    async def aclose(self) -> None:
        """Close all connections."""
        for vhost in tuple(self._connections):
            await self._drop(vhost)

    async def _declared(self, vhost: str, names: list[str]) -> list[Queue]:
        found = []
        for name in (name for name in names if len(name.encode()) <= _LONGEST_NAME_BYTES):
            try:
                async with asyncio.timeout(self._timeout):
                    channel = await self._channel(vhost)
                    self._transports[vhost].allow()
                    answer = await channel.rpc(self._declare(queue=name, passive=True))
            except self._library.exceptions.ChannelNotFoundEntity as error:
                if _NO_QUEUE not in str(error):  # it is there, and its node is not: RabbitMQ has one code for both
                    found.append(Queue(name, vhost, state="down"))
                continue
            except TimeoutError:
                raise AdapterError(f"{self} did not answer within {self._timeout:g}s") from None
            except AdapterError:
                raise
            except Exception as error:  # noqa: BLE001  # of the library, or of a frame that makes it stumble
                raise AdapterError(
                    f'{self} tells nothing of queue "{name}" in vhost "{vhost}": {self._said(vhost, error)}'
                ) from None
            found.append(Queue(name, vhost, messages_ready=answer.message_count, consumers=answer.consumer_count))
        return found

    async def _channel(self, vhost: str) -> Any:
        channel = self._channels.get(vhost)
        if channel is None or channel.is_closed:
            connection = self._connections.get(vhost)
            if connection is None or connection.is_closed or not connection.is_opened:
                await self._drop(vhost)
                connection = self._connections[vhost] = await self._connected(vhost)
            self._transports[vhost].allow()
            channel = self._channels[vhost] = await connection.channel()
        return channel

    async def _connected(self, vhost: str) -> Any:
        """To the first node that takes a connection, which is asked first from then on."""
        errors = []
        for node in tuple(self._nodes):
            try:
                connection = await self._connection(node, vhost)
            except AdapterError:
                raise
            except Exception as error:  # noqa: BLE001  # of the library, or of a frame that makes it stumble
                refused = self._transports[vhost].refused if vhost in self._transports else ""
                errors.append(f"rabbitmq at {node} {refused or _refusal(self._library, error, vhost)}")
                continue
            self._nodes.remove(node)
            self._nodes.insert(0, node)
            return connection
        raise AdapterError("; ".join(errors))

    async def _connection(self, node: str, vhost: str) -> Any:
        user, password = await self._credentials()
        url = yarl.URL(node).with_user(user or None).with_password(password or None)
        url = url.with_query(heartbeat=_HEARTBEAT_SECONDS, name="hpad")
        secure = url.scheme == "amqps"
        options = {"server_hostname": self._settings.server_name} if secure and self._settings.server_name else {}
        tls = await self._tls.context() if secure else None
        transport = self._transports[vhost] = Transport(self._transport(secure=secure))
        connection = self._library.Connection(url, context=tls, transport_factory=transport, **options)
        connection.vhost = vhost  # past the URL, whose path would not carry each name
        async with asyncio.timeout(self._timeout / len(self._nodes)):
            await connection.connect()
        return connection

    def _transport(self, *, secure: bool) -> Any:
        """The library's own way to connect."""
        ways = self._library.connection
        return ways.TLSTransportFactory() if secure else ways.TCPTransportFactory()

    def _said(self, vhost: str, error: Exception) -> str:
        """Why there is no answer on a connection that was open."""
        transport = self._transports.get(vhost)
        if transport is not None and transport.refused:
            return f"it {transport.refused}"
        return f"the connection broke off ({reason(error)})"

    async def _credentials(self) -> tuple[str, str]:
        settings = self._settings
        if self._tokens is not None:
            return _USER_OF_A_TOKEN, await self._tokens.token()
        if settings.bearer_token_file:
            token = await http.text("bearer_token", Elsewhere(file=settings.bearer_token_file))
            return _USER_OF_A_TOKEN, token
        return settings.username, await http.text("password", settings.secret)

    async def _drop(self, vhost: str) -> None:
        self._channels.pop(vhost, None)
        self._transports.pop(vhost, None)
        connection = self._connections.pop(vhost, None)
        if connection is not None:
            with contextlib.suppress(Exception):  # it is of no more use, however it ends
                async with asyncio.timeout(1):
                    await connection.close()


def _declaration(library: Any) -> Any:
    """The library's queue.declare, for any name that a broker takes: its own check refuses "jobs(1)" and "würfel"."""
    return type("Declare", (library.spec.Queue.Declare,), {"validate": lambda _: None})


def _refusal(library: Any, error: Exception, vhost: str) -> str:
    if isinstance(error, library.exceptions.AuthenticationError | library.exceptions.ProbableAuthenticationError):
        return "refused the user: wrong user name or password"
    if isinstance(error, library.exceptions.ConnectionNotAllowed | library.exceptions.InvalidFrameError):
        return f'does not let the user into vhost "{vhost}", or there is no such vhost'  # it closes instead of opening
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    if isinstance(error.__cause__ or error, ssl.SSLCertVerificationError):
        return "has a certificate that is not trusted: configure ca"
    return f"cannot be reached over AMQP ({reason(error)})"
