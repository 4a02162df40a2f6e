"""Queues by AMQP 0-9-1, for brokers whose management API is absent, closed to the user, or not reachable.

A passive declaration reports how many messages are ready, as of now, and how many consumers there are ("Queue.Declare,
passive" in the AMQP 0-9-1 reference). Each vhost has one connection with one channel. Both are opened again when they
are closed; the broker closes the channel after each queue that does not exist. The reader needs the extra `amqp`:
aiormq, because the channels of aio-pika answer a second declaration from memory.

No request of AMQP 0-9-1 tells the type of a queue, so a stream counts like one: docs/rabbitmq.md.

The library reads frames of any length that they claim, up to 4 GiB. FrameReader refuses frames above the negotiated
size, and more bytes than one answer needs. Source: AMQP 0-9-1 specification, sections 2.3.5 (frames) and 4.2.3, and
connection.tune in the class reference.
"""

import asyncio
import contextlib
import logging
import struct
from typing import Any
from weakref import WeakValueDictionary

import yarl

from hpad.adapter import AdapterError, Context, reason
from hpad.adapter_http import Http, failure
from hpad_adapters import extras
from hpad_adapters.rabbitmq.broker import login, meant
from hpad_adapters.rabbitmq.metric import ANY_VHOST
from hpad_adapters.rabbitmq.queues import RabbitmqQueue, possible
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.values import Lookup
from hpad_adapters.servers import Servers, none_answered

FRAME_MAX = 8192
"""The largest frame in bytes, with header and end; RabbitMQ 4.1 refuses clients with less. Before connection.tune the
specification allows 4096."""
ANSWER_BYTES = 1 << 16
"""The limit for the answer to one request: the opening of a connection or channel, or the declaration of a queue."""
_FRAME_MIN = 4096
_HEADER_BYTES = 7
_LENGTH = struct.Struct(">L")
_TUNE = struct.pack(">HH", 10, 30)
_FRAME_MAX_AT = slice(6, 10)

# It logs the words of the broker, which may repeat the password, and a traceback for each malformed frame; the errors
# reach the metrics.
logging.getLogger("aiormq").setLevel(logging.CRITICAL)


class TooMuchError(ConnectionError):
    """The broker sent more than was requested; the message is the end of a sentence that begins with the broker."""


class _NodeFailedError(AdapterError):
    """A node does not accept; another one may."""


class FrameReader:
    """The stream that the library reads from: it refuses a length before anything of that length is allocated.

    `refused` is the reason why the connection was given up, "" while it is in use.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.refused = ""
        self._reader = reader
        self._frame_max = FRAME_MAX
        self._remaining = ANSWER_BYTES
        self._header = b""

    def allow(self) -> None:
        """Starts the budget of another request."""
        self._remaining = ANSWER_BYTES

    def at_eof(self) -> bool:
        """Returns whether the stream has ended, as asyncio.StreamReader reports it."""
        return self._reader.at_eof()

    async def readexactly(self, count: int) -> bytes:
        """Returns the next bytes; raises TooMuchError, and the errors of asyncio.StreamReader.

        For each frame the library reads the type, the rest of the header, then the content with the end.
        """
        if len(self._header) == _HEADER_BYTES and count + _HEADER_BYTES > self._frame_max:
            self._refuse(f"sent a frame of {count + _HEADER_BYTES} bytes, above the negotiated {self._frame_max}")
        self._remaining -= count
        if self._remaining < 0:
            self._refuse(f"sent more than {ANSWER_BYTES >> 10} KiB, too much for an answer")
        found = await self._reader.readexactly(count)
        if len(self._header) < _HEADER_BYTES:
            self._header += found
            return found
        self._header = b""
        return self._tuned(found) if found.startswith(_TUNE) else found

    def _tuned(self, content: bytes) -> bytes:
        """Replaces the frame size in connection.tune by one that both sides accept, which the library then answers."""
        (offered,) = _LENGTH.unpack(content[_FRAME_MAX_AT]) if len(content) >= _FRAME_MAX_AT.stop else (0,)
        self._frame_max = max(_FRAME_MIN, min(offered or FRAME_MAX, FRAME_MAX))
        agreed = _LENGTH.pack(self._frame_max)
        return content[: _FRAME_MAX_AT.start] + agreed + content[_FRAME_MAX_AT.stop :]

    def _refuse(self, why: str) -> None:
        self.refused = why
        raise TooMuchError(why)


class Link:
    """A connection to one vhost with its channel; also the library's transport factory, which bounds the stream."""

    def __init__(self, factory: Any) -> None:
        self.connection: Any = None
        self._channel: Any = None
        self._factory = factory
        self._reader: FrameReader | None = None

    async def create(self, url: Any, **options: Any) -> tuple[FrameReader, asyncio.StreamWriter]:
        """Connects as the library's factory does, with a FrameReader around its stream."""
        reader, writer = await self._factory.create(url, **options)
        self._reader = FrameReader(reader)
        return self._reader, writer

    @property
    def refused(self) -> str:
        """The reason why the connection was given up, "" while it is in use."""
        return self._reader.refused if self._reader is not None else ""

    @property
    def usable(self) -> bool:
        """Whether requests can be sent."""
        return self.connection is not None and not self.connection.is_closed and self.connection.is_opened

    async def rpc(self, method: Any) -> Any:
        """Sends one request and returns its answer; opens a channel if there is none."""
        if self._channel is None or self._channel.is_closed:
            self._allow()
            self._channel = await self.connection.channel()
        self._allow()
        return await self._channel.rpc(method)

    async def close(self) -> None:
        """Closes the connection. Never raises, because the connection is not used again."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.connection.close()

    def _allow(self) -> None:
        if self._reader is not None:
            self._reader.allow()


_CLOSE_SECONDS = 1.0
_HEARTBEAT_SECONDS = "30"
_NO_QUEUE = "NOT_FOUND - no queue"
_LONGEST_REASON = 300


class Amqp:
    """Reads queues of one broker. Raises AdapterError where the extra is not installed."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._library: Any = extras.load("aiormq", "amqp")
        # Without the library's check of names, which refuses "jobs(1)" and "würfel".
        self._declare = _unchecked(self._library.spec.Queue.Declare)
        self._settings = settings
        self._timeout = context.within(settings.timeout_seconds)
        self._nodes = Servers(settings.nodes)
        self._http = Http(context, settings.http_options())
        self._links: dict[str, Link] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """For as long as they are held or waited for: HPAs choose the names of vhosts."""

    def __str__(self) -> str:
        return f"rabbitmq at {self._nodes.order[0]}"

    async def read(self, vhost: str, lookup: Lookup) -> list[RabbitmqQueue]:
        """Returns the queues that exist. Raises AdapterError."""
        if lookup.patterns or vhost == ANY_VHOST:
            raise AdapterError("AMQP cannot list queues: a queue_regex needs source: management", "spec")
        async with self._locks.setdefault(vhost, asyncio.Lock()):
            try:
                return await self._declared(vhost, sorted(lookup.names))
            except BaseException:
                # Also after a cancellation: a late answer would be taken for that of the next request.
                await self._drop(vhost)
                raise

    async def aclose(self) -> None:
        """Closes all connections."""
        for vhost in tuple(self._links):
            await self._drop(vhost)

    async def _declared(self, vhost: str, names: list[str]) -> list[RabbitmqQueue]:
        """Returns the queues that exist. One that breaks the connection fails alone; with a second one, all do."""
        found, broken = list[RabbitmqQueue | None](), False
        for name in filter(possible, names):
            try:
                found.append(await self._queue(vhost, name))
            except AdapterError as error:
                if broken or len(names) == 1:
                    raise
                found.append(RabbitmqQueue(name, vhost, fault=error.message))
                broken = True
                await self._drop(vhost)
        return [queue for queue in found if queue is not None]

    async def _queue(self, vhost: str, name: str) -> RabbitmqQueue | None:
        """Returns a queue, None if it does not exist; raises AdapterError if the connection cannot be used."""
        try:
            async with asyncio.timeout(self._timeout):
                link = await self._link(vhost)
                answer = await link.rpc(self._declare(queue=name, passive=True))
        except self._library.exceptions.ChannelNotFoundEntity as error:
            # RabbitMQ answers with the same code if the queue exists and its node is down.
            return None if _NO_QUEUE in str(error) else RabbitmqQueue(name, vhost, state="down")
        except self._library.exceptions.ChannelClosed as error:
            return RabbitmqQueue(name, vhost, fault=_of_one_queue(self._library, error))
        except TimeoutError:
            raise AdapterError(f"{self} did not answer within {self._timeout:g}s") from None
        except AdapterError:
            raise
        except Exception as error:  # noqa: BLE001  # the library raises many kinds, and any for a malformed frame
            raise AdapterError(
                f'{self} did not report queue "{name}" in vhost "{vhost}": {self._refusal(vhost, error)}'
            ) from None
        return RabbitmqQueue(name, vhost, messages_ready=answer.message_count, consumers=answer.consumer_count)

    async def _link(self, vhost: str) -> Link:
        link = self._links.get(vhost)
        if link is None or not link.usable:
            await self._drop(vhost)
            link = self._links[vhost] = await self._connected(vhost)
        return link

    async def _connected(self, vhost: str) -> Link:
        """Connects to the first node that accepts."""

        async def connected(node: str) -> Link:
            factories = self._library.connection
            secure = node.startswith("amqps:")
            link = Link(factories.TLSTransportFactory() if secure else factories.TCPTransportFactory())
            try:
                await self._connect(link, node, vhost)
            except AdapterError:
                raise
            except Exception as error:  # noqa: BLE001  # the library raises many kinds, and any for a malformed frame
                refusal = link.refused or _connection_failure(self._library, error, vhost)
                raise _NodeFailedError(f"rabbitmq at {node} {refusal}") from None
            return link

        return await self._nodes.ask(connected, _NodeFailedError, none_answered)

    async def _connect(self, link: Link, node: str, vhost: str) -> None:
        user, password = await login(self._settings, self._http)
        url = yarl.URL(node).with_user(user or None).with_password(password or None)
        url = url.with_query(heartbeat=_HEARTBEAT_SECONDS, name="hpad")
        secure = url.scheme == "amqps"
        options = {"server_hostname": self._settings.server_name} if secure and self._settings.server_name else {}
        tls = await self._http.tls() if secure else None
        link.connection = self._library.Connection(url, context=tls, transport_factory=link, **options)
        # Set here and not in the URL, whose path cannot hold every name.
        link.connection.vhost = vhost
        refused = self._library.exceptions.AuthenticationError, self._library.exceptions.ProbableAuthenticationError
        try:
            async with asyncio.timeout(self._timeout / len(self._nodes.order)):
                await link.connection.connect()
        except refused:
            self._http.discard(password)  # a token that was revoked is replaced
            raise

    def _refusal(self, vhost: str, error: Exception) -> str:
        """Returns why there is no answer on an open connection."""
        link = self._links.get(vhost)
        return f"it {link.refused}" if link is not None and link.refused else f"the connection broke ({reason(error)})"

    async def _drop(self, vhost: str) -> None:
        link = self._links.pop(vhost, None)
        if link is not None:
            await link.close()


def _unchecked(method: Any) -> Any:
    """Returns a request without the library's check of names."""
    return type(method.__name__, (method,), {"validate": lambda _: None})


def _of_one_queue(library: Any, error: Exception) -> str:
    """Returns why the broker refuses a queue, in its own words. The connection and other queues are not concerned."""
    said = "".join(each if each.isprintable() else " " for each in str(error.args[-1] if error.args else error))
    if isinstance(error, library.exceptions.ChannelAccessRefused):
        needed = "from RabbitMQ 4.2.6 on, the user needs a permission on each queue (docs/rabbitmq.md)"
        return f"the broker answers {said[:_LONGEST_REASON]}; {needed}"
    return f"the broker answers {said[:_LONGEST_REASON]}"


def _connection_failure(library: Any, error: Exception, vhost: str) -> str:
    if isinstance(error, library.exceptions.AuthenticationError | library.exceptions.ProbableAuthenticationError):
        return "refused the user: wrong user name or password"
    if isinstance(error, library.exceptions.ConnectionNotAllowed | library.exceptions.InvalidFrameError):
        # RabbitMQ closes the connection without a reason.
        return f'refuses the user for vhost "{vhost}", or there is no such vhost{meant(vhost)}'
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    return f"cannot be used over AMQP: it {failure(error)}"
