"""Connections to Redis by redis-py, with the login, TLS and trust of their source. Needs the extra `redis`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from redis import exceptions
from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import Connection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, SentinelManagedConnection
from redis.backoff import NoBackoff

from hpad.adapter import AdapterError
from hpad.adapter_http import Secret, Tls, failure, read_secrets
from hpad_adapters.credentials import Trust
from hpad_adapters.redis_servers import RedisRequest, Reply, ReplyError, ServerError
from hpad_adapters.redis_servers.settings import RedisAddress, named


class RedisAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How a batch reaches one kind of server ("Redis", "Redis Sentinel"), whose name begins its errors.

    `trust` says which servers may get the login. `tls` is None for plain text. `seconds` is how long a server may take
    to connect and to reply, None for as long as the call may take.
    """

    kind: str
    username: str
    password: Secret
    tls: Tls | None
    trust: Trust
    seconds: float | None = None

    def name(self, at: RedisAddress) -> str:
        """Returns the name of a server in errors."""
        return f"{self.kind} {at}"

    def check(self, at: RedisAddress) -> None:
        """Raises AdapterError for a server that may not get the login."""
        if self.password:
            self.trust.check(self.kind, *at)


COMMON: Mapping[str, Any] = {
    "protocol": 2,
    "decode_responses": True,
    "encoding_errors": "replace",
    "driver_info": None,  # its CLIENT SETINFO needs a right
    "retry": Retry(NoBackoff(), 0),
    "socket_timeout": None,  # redis-py's limit loses a cancellation that comes with a reply; `Access.seconds` does not
    "socket_connect_timeout": None,
}
"""Options of each client."""
MOST_BYTES = 32 << 20
"""Of a batch; Celery's tasks, the longest answers, are read up to 4 MiB."""
_LINES = 1000


class Fault(exceptions.ConnectionError):
    """A server that cannot be used. The message names it."""

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting

    @property
    def error(self) -> ServerError:
        """The error of the queries that needed the server."""
        return ServerError(str(self), lasting=self.lasting)


class TooLong(exceptions.ConnectionError):
    """A server has sent more than MOST_BYTES."""


class BoundedReader:
    """What a server sends on one connection, which a batch has to itself: at most MOST_BYTES.

    redis-py has no limit: it waits for a text of any announced length, and decodes it on the event loop.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._left = MOST_BYTES
        self._lines = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def readexactly(self, count: int) -> bytes:
        """Reads a text; raises TooLong before it has arrived."""
        self._take(count)
        return await self._reader.readexactly(count)

    async def readline(self) -> bytes:
        """Reads a line, whose length asyncio limits; raises TooLong."""
        line = await self._reader.readline()
        self._take(len(line))
        self._lines += 1
        if self._lines % _LINES == 0:
            await asyncio.sleep(0)  # noqa: TID251  # what has arrived is read without a pause; lets other tasks run
        return line

    async def read(self, count: int) -> bytes:
        """Reads what is there, as the parser in C does; raises TooLong."""
        part = await self._reader.read(count)
        self._take(len(part))
        return part

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise TooLong


class Guarded(Connection):
    """A connection that checks the server before it connects, and whose errors are faults."""

    def __init__(self, *, access: RedisAccess, faults: list[Fault], **options: Any) -> None:
        super().__init__(**{**COMMON, **options})
        self._access = access
        self._faults = faults
        self._tls: Any = None
        self._broken: Fault | None = None

    async def connect_check_health(self, *args: Any, **options: Any) -> None:
        """Connects and logs in, unless it is connected; raises Fault."""
        if self.is_connected:
            return
        try:
            await self._prepare()
        except AdapterError as error:
            raise self._noted(Fault(error.message, lasting=error.lasting)) from None
        self._broken = None
        try:
            async with asyncio.timeout(self._access.seconds):
                await super().connect_check_health(*args, **options)
        except (exceptions.RedisError, TimeoutError) as error:
            raise self._fault(error) from None

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Returns a reply; raises ResponseError for an error reply, and Fault."""
        if self._broken is not None and not self.is_connected:
            raise self._broken
        try:
            async with asyncio.timeout(self._access.seconds):
                return await super().read_response(*args, **options)
        except exceptions.ResponseError:
            raise
        except Exception as error:  # noqa: BLE001  # the parser raises any kind for a malformed reply
            raise self._fault(error) from None

    async def _connect(self) -> None:
        await super()._connect()
        connected: Any = self  # redis-py has no place for another reader
        connected._reader = BoundedReader(connected._reader)

    async def can_read(self) -> bool:
        """Returns False: a connection is new, and what a server sends without being asked is read as its reply."""
        return False

    async def disconnect(self, nowait: bool = False, **options: Any) -> None:
        """Closes the connection without waiting for the server, which may hang."""
        await super().disconnect(nowait=True, **options)

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {**super()._connection_arguments(), "ssl": self._tls}

    async def _prepare(self) -> None:
        """Checks the address, and reads the secret and the files of TLS; raises AdapterError naming the server."""
        access = self._access
        at = named(str(self.host), self.port)
        if at is None:
            raise AdapterError(f"{access.kind}: a server names an address that is none")
        access.check(at)
        try:
            self.password = (await read_secrets({"password": access.password}))["password"] or None
            self._tls = await access.tls.context() if access.tls is not None else None
        except AdapterError as error:
            raise AdapterError(f"{access.kind}: {error.message}") from None
        self.username = access.username if self.password else None

    def _fault(self, error: Exception) -> Fault:
        return error if isinstance(error, Fault) else self._noted(self._described(error))

    def _noted(self, fault: Fault) -> Fault:
        self._broken = fault
        self._faults.append(fault)
        return fault

    def _described(self, error: Exception) -> Fault:
        name = self._access.name(RedisAddress(str(self.host), self.port))
        if isinstance(error, TooLong):
            return Fault(f"{name} answers more than {MOST_BYTES >> 20} MiB", lasting=True)
        if isinstance(error, TimeoutError) and self._access.seconds is not None:
            return Fault(f"{name} did not answer within {self._access.seconds:g}s")
        if isinstance(error, exceptions.ResponseError) or getattr(error, "status_code", None):
            return Fault(f"{name} refuses: {text(error)}")
        for cause in (error, error.__cause__, error.__context__):
            if isinstance(cause, OSError | EOFError | UnicodeError):
                return Fault(f"{name} {failure(cause)}")
        if isinstance(error, exceptions.ConnectionError):
            return Fault(f"{name} {failure(EOFError())}")
        return Fault(f"{name} did not answer in RESP2: is this the port of a Redis server?", lasting=True)


class ToSentinel(Guarded):
    """A connection to a sentinel: one that refuses a command is passed over as one that is down."""

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Returns a reply; raises Fault."""
        try:
            return await super().read_response(*args, **options)
        except exceptions.ResponseError as error:
            raise self._fault(error) from None


class ToMaster(Guarded, SentinelManagedConnection):
    """A connection to the master that a sentinel names."""


def text(error: Exception) -> str:
    """Returns the text of an error reply, whose first word redis-py may have taken off."""
    return " ".join(filter(None, (getattr(error, "status_code", None), str(error))))


# Sends the commands of requests through a client of redis-py, and returns the replies as they are.


@contextlib.asynccontextmanager
async def raw(pool: ConnectionPool) -> AsyncIterator[Redis]:
    """Yields a client that returns replies as they are; closes the pool at the end."""
    client = Redis.from_pool(pool)
    client.response_callbacks.clear()
    try:
        yield client
    finally:
        await client.aclose()


async def sent(name: str, client: Redis | RedisCluster, commands: Sequence[Sequence[str]]) -> list[Any]:
    """Sends the commands at once, and returns replies, ReplyErrors and ServerErrors; raises ServerError."""
    pipeline = client.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    try:
        replies = await pipeline.execute(raise_on_error=False)
    except MasterNotFoundError:
        raise
    except Fault as fault:
        raise fault.error from None
    except Exception as error:  # noqa: BLE001  # the library raises any kind for a malformed reply
        raise _odd(name, error) from None
    return [_reply(name, each) for each in replies]


def _reply(name: str, reply: Any) -> Any:
    match reply:
        case Fault():
            return reply.error
        case exceptions.ResponseError():
            return ReplyError(text(reply))
        case Exception():
            return _odd(name, reply)
    return reply


def _odd(name: str, error: Exception) -> ServerError:
    if isinstance(error, exceptions.ClusterError):
        return ServerError(f"{name}: the key was redirected too often")
    return ServerError(f"{name} did not answer as Redis does ({type(error).__name__})")


def commands(requests: Sequence[RedisRequest]) -> list[Sequence[str]]:
    return [command for request in requests for command in request.commands]


def by_request(requests: Sequence[RedisRequest], replies: Sequence[Any]) -> list[list[Reply] | AdapterError]:
    """Returns the replies to each request, or the first error of a server among them."""
    remaining = iter(replies)
    groups = [[next(remaining) for _ in request.commands] for request in requests]
    return [next((each for each in group if isinstance(each, AdapterError)), group) for group in groups]
