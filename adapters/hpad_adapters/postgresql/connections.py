"""Connections to one database, and the read-only transaction of a query, by asyncpg.

Queries are unnamed statements in a transaction of their own, so that a pooler such as PgBouncer may be in between.
Source: PostgreSQL, "libpq: SSL support", "SET TRANSACTION", "statement_timeout".
"""

import asyncio
import contextlib
import itertools
import re
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import asyncpg
from asyncpg import protocol

from hpad.adapter import AdapterError, Context, shown
from hpad.adapter_http import Tls, failure, read_secrets
from hpad_adapters.postgresql.settings import PostgreSQLSettings
from hpad_adapters.servers import Servers

# Closes connections whose server does not speak PostgreSQL's protocol, before asyncpg reads what it sends.
#
# asyncpg trusts the length of a message: with a negative one it loops without end and blocks the event loop, with a
# large one it takes up to 2 GiB of memory. A server of another kind on the port is enough, such as MySQL, whose
# greeting has other bytes where a length belongs. asyncpg also computes as many iterations of SCRAM as the server asks
# for, and takes the square of its length to read the server's version, within the event loop. Source: PostgreSQL,
# "Frontend/Backend Protocol", "Message Formats"; RFC 5802, section 5.1.

MAX_BYTES: Final = 4 << 20
"""What a server may send until it is asked again."""
MAX_ITERATIONS: Final = 100_000
"""Of SCRAM in one login, which the server chooses: 4096 by default. So many take a twentieth of a second."""
NO_DATABASE: Final = "does not answer as PostgreSQL does: is this the port of PostgreSQL?"
_HEADER: Final = struct.Struct("!ci")
_LENGTH_BYTES: Final = 4
"""A length counts itself, but not the type in front of it."""
_LEAST_BYTES: Final = 400
"""What a shorter message counts for: small ones take their time, too."""
_LONGEST: Final = {b"R": 1 << 16, b"T": 1 << 18, b"t": 1 << 16}
"""In bytes: requests for authentication (the longest are tokens of GSSAPI), descriptions of columns (PostgreSQL has at
most 1,664) and of parameters."""
_OK, _CLEARTEXT, _MD5, _SASL, _SASL_CONTINUE, _SASL_FINAL = 0, 3, 5, 10, 11, 12
_SUPPORTED: Final = (_OK, _CLEARTEXT, _MD5, _SASL, _SASL_CONTINUE, _SASL_FINAL)
_METHODS: Final = {2: "Kerberos V5", 7: "GSSAPI", 9: "SSPI"}
_SCRAM: Final = b"SCRAM-SHA-256"
_ITERATIONS: Final = re.compile(rb",i=([0-9]+)")
_VERSION: Final = re.compile(rb"[^0-9]{0,100}[0-9]{1,6}(?![0-9]).{0,100}\0", re.DOTALL)


class PostgresqlRefusedError(ConnectionError):
    """hpad closed the connection; the message is the end of a sentence that begins with the server."""


class Frames:
    """Follows the messages of a stream, which arrives in pieces of any size."""

    def __init__(self) -> None:
        self._header = b""
        self._rest = 0
        self._spent = 0
        self._iterations = 0
        self._message = bytearray()
        self._check: Callable[[bytes], None] | None = None
        self._checks = {b"R": self._check_authentication, b"S": _check_parameter, b"E": _check_error}

    def renew(self) -> None:
        """Allows another answer."""
        self._spent = 0

    def accept(self, data: bytes) -> None:
        """Raises RefusedError unless the data continue a valid stream, which is not followed any further then."""
        at = 0
        while at < len(data):
            if self._rest:
                step = min(self._rest, len(data) - at)
                self._read(data[at : at + step])
                at += step
                continue
            step = _HEADER.size - len(self._header)
            self._header += data[at : at + step]
            at += step
            if len(self._header) == _HEADER.size:
                self._begin()

    def _begin(self) -> None:
        kind, length = _HEADER.unpack(self._header)
        self._header = b""
        self._rest = length - _LENGTH_BYTES
        self._spent += max(length, _LEAST_BYTES)
        if self._rest < 0 or not kind.isalnum():
            raise PostgresqlRefusedError(NO_DATABASE)
        if self._spent > MAX_BYTES or length > _LONGEST.get(kind, MAX_BYTES):
            raise PostgresqlRefusedError("sent more than fits into an answer: is this the port of PostgreSQL?")
        self._message.clear()
        self._check = self._checks.get(kind)

    def _read(self, part: bytes) -> None:
        self._rest -= len(part)
        if self._check is not None:
            self._message += part
            if not self._rest:
                self._check(bytes(self._message))

    def _check_authentication(self, message: bytes) -> None:
        """Raises RefusedError for a way to log in that hpad does not have, and for too many iterations of SCRAM."""
        code, mechanisms = int.from_bytes(message[:4], "big"), message[4:].split(b"\0")
        if code not in _SUPPORTED or (code == _SASL and _SCRAM not in mechanisms):
            method = (
                shown(mechanisms[0].decode(errors="replace")) if code == _SASL else _METHODS.get(code, f"way {code}")
            )
            raise PostgresqlRefusedError(
                f"asks for a login by {method}, which hpad does not have: allow scram-sha-256 in pg_hba.conf"
            )
        for digits in _ITERATIONS.findall(message):
            self._iterations += MAX_ITERATIONS + 1 if len(digits) > len(str(MAX_ITERATIONS)) else int(digits)
            if self._iterations > MAX_ITERATIONS:
                asked = digits[:20].decode() + ("…" if len(digits) > 20 else "")
                raise PostgresqlRefusedError(
                    f"asks for {asked} iterations of SCRAM; hpad computes at most {MAX_ITERATIONS}"
                )


def _check_parameter(message: bytes) -> None:
    """Raises RefusedError if the text that the server sent as its version is not that of a PostgreSQL server."""
    name, _, value = message.partition(b"\0")
    if name == b"server_version" and not _VERSION.fullmatch(value):
        raise PostgresqlRefusedError(NO_DATABASE)


def _check_error(message: bytes) -> None:
    """Raises RefusedError with the text of an error in another encoding, as until the login, which asyncpg cannot read.

    Source: PostgreSQL, "Error and Notice Message Fields".
    """
    try:
        message.decode()
    except UnicodeDecodeError:
        fields = {field[:1]: field[1:].decode(errors="replace") for field in message.split(b"\0") if field}
        code, text = (fields.get(name, "") for name in (b"C", b"M"))
        raise PostgresqlRefusedError(f"answers {shown(text)} ({shown(code)})") from None


class GuardedProtocol(protocol.Protocol):
    """The protocol of asyncpg behind a check of each message's type and length."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._frames = Frames()
        self._refused: PostgresqlRefusedError | None = None
        self._wire: Any = None

    def renew(self) -> None:
        """Begins another question. What says that the server is ready is the server's word, and counts for nothing."""
        self._frames.renew()

    def connection_made(self, transport: Any) -> None:
        self._wire = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._refused is not None:
            return
        try:
            self._frames.accept(data)
            super().data_received(data)
        except PostgresqlRefusedError as refused:
            self._refused = refused
            self._wire.abort()
        except Exception:  # noqa: BLE001  # the library raises any kind for messages that come out of turn
            self._refused = PostgresqlRefusedError(NO_DATABASE)
            self._wire.abort()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(self._refused or error)


def install() -> None:
    """Makes asyncpg use the guard, for which it has no parameter."""
    protocol.Protocol = GuardedProtocol


install()
_LIFE_SECONDS: Final = 600.0
"""A connection is replaced after this time, so that one to a host whose address has changed does not stay."""
_CLOSE_SECONDS: Final = 2.0
_NUMBERS: Final = frozenset({"int2", "int4", "int8", "float4", "float8", "numeric"})
_PASSING: Final = ("08", "40", "53", "57")
"""Classes of SQLSTATE: connection, transaction rollback, insufficient resources, operator intervention."""

Value = int | float | Decimal


class PostgresqlConnections:
    """The connections of a source: opened when they are needed, and at most `connections` of them."""

    def __init__(self, settings: PostgreSQLSettings, context: Context) -> None:
        self._settings = settings
        self._hosts = Servers(settings.hosts)
        self._connect_seconds = context.within(settings.connect_seconds)
        self._clock = context.clock
        self._tls = Tls(settings.tls)
        self._idle: list[tuple[float, Any]] = []
        self._busy = 0
        self._semaphore = asyncio.Semaphore(settings.connections)
        self.name = f"PostgreSQL {', '.join(settings.hosts)} ({settings.database})"
        if settings.sslmode in ("prefer", "require") and settings.tls.insecure:
            context.log.warning("the server's certificate is not verified", source=context.name)

    async def ready(self) -> None:
        """Opens a connection if there is none, so that a server that is down is tried once; raises AdapterError."""
        if not self._busy:
            async with self.connection():
                pass

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """Yields a connection; waits for one if all are in use. Raises AdapterError if none can be opened.

        After an exception it is closed, because nothing is known about its state.
        """
        async with self._semaphore:
            opened, connection = self._reused() or (self._clock.monotonic(), await self._open())
            self._busy += 1
            connection._protocol.renew()
            try:
                yield connection
            except BaseException:
                connection.terminate()
                raise
            finally:
                self._busy -= 1
            self._idle.append((opened, connection))

    async def aclose(self) -> None:
        """Closes the connections that are not in use."""
        idle, self._idle = self._idle, []
        for _, connection in idle:
            # It closes in any case; only the farewell may fail.
            with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await connection.close(timeout=_CLOSE_SECONDS)

    def _reused(self) -> tuple[float, Any] | None:
        while self._idle:
            opened, connection = self._idle.pop()
            if not connection.is_closed():
                if self._clock.monotonic() - opened < _LIFE_SECONDS:
                    return opened, connection
                connection.terminate()
        return None

    async def _open(self) -> Any:
        """Returns a new connection; raises AdapterError."""
        try:
            password = (await read_secrets({"password": self._settings.secret}))["password"]
            tls = None if self._settings.sslmode == "disable" else await self._context()
        except AdapterError as error:
            raise AdapterError(f"{self.name}: {error.message}", lasting=True) from None
        try:
            return await self._connected(password, tls)
        except asyncpg.PostgresError as error:
            if _is_of_server(error):
                raise refusal(self.name, error) from None
            raise lost(self.name, error, ": is this the port of PostgreSQL?") from None
        except TimeoutError:
            raise AdapterError(f"{self.name} did not answer within {self._connect_seconds:g}s") from None
        except asyncpg.TargetServerAttributeNotMatched:
            raise AdapterError(f"{self.name}: no server is {self._settings.target_session_attrs}") from None
        except (OSError, UnicodeError) as error:  # ssl.SSLError is a subclass
            raise AdapterError(f"{self.name} {_failure(error)}") from None
        except asyncpg.InterfaceError:
            raise AdapterError(f"{self.name} has not proved that it knows the password: is it the right one?") from None
        except Exception as error:  # noqa: BLE001  # the library raises any kind for a malformed message
            raise lost(self.name, error) from None

    async def _context(self) -> ssl.SSLContext:
        context = await self._tls.context()
        if self._settings.sslmode != "verify-full":
            context.check_hostname = False
        return context

    async def _connected(self, password: str, tls: ssl.SSLContext | None) -> Any:
        """Returns a connection to the first host that fits; raises what the last one raised.

        As in libpq, the timeout is that of each host. asyncpg has one for all, which a host that hangs would use up.
        Such a host is tried once, and is the last one from then on: the call may end before all others are tried.
        """
        wanted = self._settings.target_session_attrs
        roles = ("standby", "any") if wanted == "prefer-standby" else (wanted,)
        silent: set[str] = set()
        for role, host in itertools.product(roles, self._hosts.order):
            if host in silent:
                continue
            try:
                return await self._to_host(role, host, password, tls)
            except asyncio.CancelledError:
                if not silent:  # else it had only the time that another host left it
                    self._hosts.put_last(host)
                raise
            except TimeoutError as error:
                self._hosts.put_last(host)
                silent.add(host)
                failed: Exception = error
            except (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched) as error:
                failed = error
        raise failed

    async def _to_host(self, role: str, host: str, password: str, tls: ssl.SSLContext | None) -> Any:
        settings = self._settings
        try:
            return await asyncpg.connect(
                host=[host],
                port=settings.port,
                user=settings.username,
                # With None, asyncpg would read ~/.pgpass.
                password=password,
                database=settings.database,
                ssl=tls if tls is not None else False,
                target_session_attrs=role,
                timeout=self._connect_seconds,
                statement_cache_size=0,
                server_settings={"application_name": "hpad"},
            )
        except ConnectionError as error:
            if settings.sslmode != "prefer" or tls is None or not _lacks_tls(error):
                raise
        return await self._to_host(role, host, password, None)


class PostgresqlNoNumberError(Exception):
    """A query does not return one number; the message is the end of a sentence that begins with the query."""


async def number(connection: Any, query: str, arguments: Sequence[Any], seconds: float) -> Value:
    """Returns the only value of the only row of a query, in a read-only transaction.

    Raises PostgresqlNoNumberError if the answer is not one number, and asyncpg.PostgresError. In these cases the
    transaction has ended, and the connection can be used.
    """
    await connection.execute(f"BEGIN READ ONLY; SET LOCAL statement_timeout = {max(1, round(seconds * 1000))}")
    try:
        value = await _asked(connection, query, arguments)
    except (PostgresqlNoNumberError, asyncpg.PostgresError):
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("ROLLBACK")
    return value


async def _asked(connection: Any, query: str, arguments: Sequence[Any]) -> Value:
    statement = await connection.prepare(query)
    _check(statement, len(arguments))
    try:
        cursor = await statement.cursor(*arguments)
    except asyncpg.DataError as error:
        # asyncpg itself raises it for an argument of another type.
        if _is_of_server(error):
            raise
        raise PostgresqlNoNumberError(
            "takes a parameter of another type than declared: cast it, as in $1::bigint"
        ) from None
    # Two rows suffice to see that there is more than one.
    return _single(await cursor.fetch(2))


def _check(statement: Any, arguments: int) -> None:
    """Raises PostgresqlNoNumberError for a statement that does not return one number, before it is executed."""
    columns, parameters = statement.get_attributes(), statement.get_parameters()
    if len(parameters) != arguments:
        raise PostgresqlNoNumberError(f"has {len(parameters)} parameters, but params names {arguments}")
    if len(columns) != 1:
        raise PostgresqlNoNumberError(f"returns {len(columns)} columns instead of one")
    kind = columns[0].type.name
    if kind not in _NUMBERS:
        raise PostgresqlNoNumberError(f"returns a value of type {kind} instead of a number: cast it, as in …::float8")


def _single(rows: Sequence[Any]) -> Value:
    if len(rows) != 1:
        raise PostgresqlNoNumberError("returns more than one row" if rows else "returns no row")
    value: Value | None = rows[0][0]
    if value is None:
        raise PostgresqlNoNumberError("returns NULL")
    return value


def lost(name: str, error: Exception, hint: str = "") -> AdapterError:
    """Describes a connection that ended: hpad refused what the server sent, or the server closed it."""
    if isinstance(error.__cause__, PostgresqlRefusedError):
        return AdapterError(f"{name} {error.__cause__}")
    if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError | OSError):
        return AdapterError(f"{name} closed the connection{hint}")
    return AdapterError(f"{name} {NO_DATABASE}")


def refusal(name: str, error: asyncpg.PostgresError) -> AdapterError:
    """Describes an error of the server. Of its fields only the code and the message are repeated."""
    code = getattr(error, "sqlstate", None) or "no code"
    passing = str(code).startswith(_PASSING)
    return AdapterError(
        f"{name}: {shown(str(error.args[0]) if error.args else 'no message')} ({code})", lasting=not passing
    )


def _is_of_server(error: asyncpg.PostgresError) -> bool:
    """Returns whether the server sent the error; asyncpg raises some of them itself."""
    return bool(getattr(error, "severity", None))


def _lacks_tls(error: ConnectionError) -> bool:
    return type(error) is ConnectionError


def _failure(error: Exception) -> str:
    """Describes a failed connection. asyncpg raises a bare ConnectionError if the first answer is not that of TLS."""
    if type(error) is ConnectionError:
        return "does not offer TLS, or is no PostgreSQL: enable TLS there, or write sslmode: disable"
    return failure(error)
