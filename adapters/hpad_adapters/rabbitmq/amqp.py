"""Queues by AMQP 0-9-1, for brokers whose management API is absent, closed to the user, or not reachable.

A passive declaration reports how many messages are ready, as of now, and how many consumers there are ("Queue.Declare,
passive" in the AMQP 0-9-1 reference). Each vhost has one connection with one channel. Both are opened again when they
are closed; the broker closes the channel after each queue that does not exist. The reader needs the extra `hpad[amqp]`:
aiormq, because the channels of aio-pika answer a second declaration from memory.

The library reads frames of any length that they claim, up to 4 GiB. FrameReader refuses frames above the negotiated
size, and more bytes than one answer needs. Source: AMQP 0-9-1 specification, sections 2.3.5 (frames) and 4.2.3, and
connection.tune in the class reference.
"""

import asyncio
import contextlib
import importlib
import struct
from typing import Any

import yarl

from hpad.adapter import AdapterError, Context, reason
from hpad.adapter_http import failure, read_secrets
from hpad_adapters.rabbitmq.broker import connection
from hpad_adapters.rabbitmq.settings import ANY_VHOST, Settings
from hpad_adapters.rabbitmq.values import Lookup, Queue

FRAME_MAX = 8192
"""The largest frame in bytes, with header and end; RabbitMQ 4.1 refuses clients with less. Before connection.tune the
specification allows 4096."""
ANSWER_BYTES = 1 << 16
"""The limit for the answer to one request: the opening of a connection, or the declaration of one queue."""
_FRAME_MIN = 4096
_HEADER_BYTES, _END_BYTES = 7, 1
_LENGTH = struct.Struct(">L")
_TUNE = struct.pack(">HH", 10, 30)
_FRAME_MAX_AT = slice(6, 10)


class TooMuchError(ConnectionError):
    """The broker sent more than was requested; the message is the end of a sentence that begins with the broker."""


class FrameReader:
    """The stream that the library reads from: it refuses a length before anything of that length is allocated.

    `refused` is the reason why the connection was given up, "" while it is in use.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.refused = ""
        self._reader = reader
        self._frame_max = FRAME_MAX
        self._left = ANSWER_BYTES
        self._header = b""

    def allow(self) -> None:
        """Starts the budget of another request."""
        self._left = ANSWER_BYTES

    def at_eof(self) -> bool:
        return self._reader.at_eof()

    async def readexactly(self, count: int) -> bytes:
        """The next bytes. For each frame the library asks for the type, the rest of the header, then content and end.

        Raises TooMuchError, and the errors of asyncio.StreamReader.
        """
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
        """connection.tune with the frame size that both sides accept; the library repeats it in its answer."""
        (offered,) = _LENGTH.unpack(content[_FRAME_MAX_AT]) if len(content) >= _FRAME_MAX_AT.stop else (0,)
        self._frame_max = max(_FRAME_MIN, min(offered or FRAME_MAX, FRAME_MAX))
        agreed = _LENGTH.pack(self._frame_max)
        return content[: _FRAME_MAX_AT.start] + agreed + content[_FRAME_MAX_AT.stop :]

    def _refuse(self, why: str) -> None:
        self.refused = why
        raise TooMuchError(why)


class Transport:
    """The transport factory of the library, with a FrameReader around its stream."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.reader: FrameReader | None = None

    async def create(self, url: Any, **options: Any) -> tuple[FrameReader, asyncio.StreamWriter]:
        """Connects as the library's factory does."""
        reader, writer = await self._inner.create(url, **options)
        self.reader = FrameReader(reader)
        return self.reader, writer

    def allow(self) -> None:
        """Starts the budget of another request."""
        if self.reader is not None:
            self.reader.allow()

    @property
    def refused(self) -> str:
        """The reason why the connection was given up, "" while it is in use."""
        return self.reader.refused if self.reader is not None else ""


_HEARTBEAT_SECONDS = "30"
_NO_QUEUE = "NOT_FOUND - no queue"
_LONGEST_NAME_BYTES = 255
_USER_OF_A_TOKEN = "hpad"  # RabbitMQ takes the token from the password, and the user name from the token


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
        self._http = connection(settings, context)
        self._connections: dict[str, Any] = {}
        self._channels: dict[str, Any] = {}
        self._transports: dict[str, Transport] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def __str__(self) -> str:
        return f"rabbitmq at {self._nodes[0]}"

    async def read(self, vhost: str, lookup: Lookup) -> list[Queue]:
        """The queues that exist. Raises AdapterError."""
        if lookup.patterns or vhost == ANY_VHOST:
            raise AdapterError("AMQP cannot list queues: a queue_regex needs source: management", "spec")
        async with self._locks.setdefault(vhost, asyncio.Lock()):
            try:
                return await self._declared(vhost, sorted(lookup.names))
            except BaseException:  # cancellation too: a late answer must not be read as that of the next request
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
                if _NO_QUEUE not in str(
                    error
                ):  # the queue exists, but its node is down: RabbitMQ has one code for both
                    found.append(Queue(name, vhost, state="down"))
                continue
            except TimeoutError:
                raise AdapterError(f"{self} did not answer within {self._timeout:g}s") from None
            except AdapterError:
                raise
            except Exception as error:  # noqa: BLE001  # the library raises many kinds, and any for a malformed frame
                raise AdapterError(
                    f'{self} did not report queue "{name}" in vhost "{vhost}": {self._refusal(vhost, error)}'
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
        """A connection to the first node that accepts one, which is tried first from then on."""
        errors = []
        for node in tuple(self._nodes):
            try:
                connection = await self._connection(node, vhost)
            except AdapterError:
                raise
            except Exception as error:  # noqa: BLE001  # the library raises many kinds, and any for a malformed frame
                refused = self._transports[vhost].refused if vhost in self._transports else ""
                errors.append(f"rabbitmq at {node} {refused or _connection_failure(self._library, error, vhost)}")
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
        tls = await self._http.tls() if secure else None
        transport = self._transports[vhost] = Transport(self._transport(secure=secure))
        connection = self._library.Connection(url, context=tls, transport_factory=transport, **options)
        connection.vhost = vhost  # not by the URL, whose path cannot hold every name
        async with asyncio.timeout(self._timeout / len(self._nodes)):
            await connection.connect()
        return connection

    def _transport(self, *, secure: bool) -> Any:
        """The transport factory of the library."""
        factories = self._library.connection
        return factories.TLSTransportFactory() if secure else factories.TCPTransportFactory()

    def _refusal(self, vhost: str, error: Exception) -> str:
        """Why there is no answer on an open connection."""
        transport = self._transports.get(vhost)
        if transport is not None and transport.refused:
            return f"it {transport.refused}"
        return f"the connection broke off ({reason(error)})"

    async def _credentials(self) -> tuple[str, str]:
        if token := await self._http.bearer():
            return _USER_OF_A_TOKEN, token
        secrets = await read_secrets({"password": self._settings.secret})
        return self._settings.username, secrets["password"]

    async def _drop(self, vhost: str) -> None:
        self._channels.pop(vhost, None)
        self._transports.pop(vhost, None)
        connection = self._connections.pop(vhost, None)
        if connection is not None:
            with contextlib.suppress(Exception):  # the connection is not used again, however closing ends
                async with asyncio.timeout(1):
                    await connection.close()


def _declaration(library: Any) -> Any:
    """The library's queue.declare without its check of names, which refuses "jobs(1)" and "würfel"."""
    return type("Declare", (library.spec.Queue.Declare,), {"validate": lambda _: None})


def _connection_failure(library: Any, error: Exception, vhost: str) -> str:
    if isinstance(error, library.exceptions.AuthenticationError | library.exceptions.ProbableAuthenticationError):
        return "refused the user: wrong user name or password"
    if isinstance(error, library.exceptions.ConnectionNotAllowed | library.exceptions.InvalidFrameError):
        # RabbitMQ closes the connection without a reason.
        return f'refuses the user for vhost "{vhost}", or there is no such vhost'
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    return f"cannot be used over AMQP: it {failure(error)}"
