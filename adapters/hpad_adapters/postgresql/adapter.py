"""External metrics from queries: the query stands in the configuration, the HPA's selector gives its parameters."""

import asyncio
import ipaddress
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from hpad.adapter import (
    EXTERNAL,
    AdapterError,
    Answer,
    Context,
    ExternalSample,
    Quantity,
    Query,
    positive_duration,
    shown,
)
from hpad.adapter_http import Secret, SecretRef, TlsOptions, duration_error, refuse, secret, secret_error
from hpad_adapters import extras
from hpad_adapters.selection import attempt, labels, no_metric

Kind = Literal["text", "integer", "number", "boolean"]
SslMode = Literal["disable", "prefer", "require", "verify-ca", "verify-full"]
Role = Literal["any", "read-write", "read-only", "primary", "standby", "prefer-standby"]


_NAME = re.compile(r"[^\s/@:,?#=]+")
KINDS: tuple[str, ...] = get_args(Kind)


def _is_host(text: str) -> bool:
    """Whether the text may be a host name or an address, with no port behind it."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _NAME.fullmatch(text) is not None
    return True


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query whose answer is one row with one number.

    query: one SQL statement, with $1, $2 and so on for parameters.
    params: the labels that the metric's selector must give, in the order of $1, $2 and so on; each is a name, or a name
        with a type behind a colon: text (the default), integer, number or boolean, as in [queue, "priority:integer"].
        The server gets their values beside the query, never as a part of it.
    """

    query: str
    params: list[str] = []

    def __post_init__(self) -> None:
        """Raises ValueError with a line for each error."""
        refuse(*self._errors())

    def _errors(self) -> Iterator[str]:
        if not self.query.strip() or "\0" in self.query:
            yield f"query: {shown(self.query)} is not a query"
        names = [name for name, _ in self.parameters]
        for param, (name, kind) in zip(self.params, self.parameters, strict=True):
            if not name or kind not in KINDS:
                kinds = ", ".join(KINDS)
                yield f'params: {shown(param)} is not a name, or a name and a type ({kinds}) as in "age:integer"'
            elif names.count(name) > 1:
                yield f"params: {shown(name)} is there twice; use $1 twice in the query instead"

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Name and type of each parameter, in their order."""
        return [(name, kind or "text") for name, _, kind in (param.partition(":") for param in self.params)]


class PostgreSQLSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One database.

    host: of the server, or a folder with its socket; of a list, the first that fits target_session_attrs is used.
    port: of each host. database: its name. metrics: name -> query.
    username: a role that may read what the queries read, such as a member of pg_monitor or one with SELECT on a table.
    password: of the role; password_file: a file that holds it, read for each connection; password_env: an environment
        variable that holds it.
    sslmode: as in libpq. disable: no TLS; prefer: TLS if the server offers it, with any certificate; require: TLS with
        any certificate, or with a trusted one if there is a ca; verify-ca: with a trusted one; verify-full: with one
        that is trusted and names the host.
    ca: a PEM file to trust instead of the system's (sslrootcert); cert, key, key_password: PEM files of a client
        certificate, and the key's password, which may be {file: …} or {env: …}. Loaded again when they change.
    target_session_attrs: which server of the list is used, as in libpq; a host that hangs is tried last from then on.
    query_timeout: of a query, by the server and by hpad; connect_timeout: of a connection to one of the hosts.
    connections: the most connections, which queries share.
    """

    host: str | list[str]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 5432
    database: str
    username: str
    password: str = ""
    password_file: str = ""
    password_env: str = ""
    sslmode: SslMode = "verify-full"
    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: str | SecretRef = ""
    target_session_attrs: Role = "any"
    metrics: dict[str, Metric]
    query_timeout: str = "5s"
    connect_timeout: str = "5s"
    connections: Annotated[int, msgspec.Meta(ge=1, le=16)] = 2

    def __post_init__(self) -> None:
        """Raises ValueError with a line for each error."""
        refuse(*self._errors())

    def __repr__(self) -> str:
        return f"PostgreSQLSettings(host={self.host!r}, database={self.database!r}, …)"

    def _errors(self) -> Iterator[str]:
        """Yields the errors in the fields, some of them empty."""
        if not self.hosts or not all(self.hosts):
            yield "host: is empty; write the host of the server"
        elif not all(host.startswith("/") or _is_host(host) for host in self.hosts):
            text = "write user, port, database and options as settings of their own, and several hosts as a list"
            yield f"host: is not a host name: {text}"
        for name in ("database", "username"):
            if not getattr(self, name):
                yield f"{name}: is empty"
        yield secret_error(self, "password")
        yield self.tls.error
        if self.sslmode == "disable" and self.tls.files:
            yield "sslmode: disable does not use the files of ca, cert and key"
        for name in ("query_timeout", "connect_timeout"):
            yield duration_error(name, getattr(self, name))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts in their order."""
        return (self.host,) if isinstance(self.host, str) else tuple(self.host)

    @property
    def secret(self) -> Secret:
        """The password."""
        return secret(self.password, self.password_file, self.password_env)

    @property
    def tls(self) -> TlsOptions:
        """The options of TLS; certificates are verified where the mode says so."""
        unverified = self.sslmode == "prefer" or (self.sslmode == "require" and not self.ca)
        return TlsOptions(ca=self.ca, cert=self.cert, key=self.key, key_password=self.key_password, insecure=unverified)

    @property
    def query_seconds(self) -> float:
        """The time for a query, in seconds."""
        return positive_duration("query_timeout", self.query_timeout).total_seconds()

    @property
    def connect_seconds(self) -> float:
        """The time for a connection, in seconds."""
        return positive_duration("connect_timeout", self.connect_timeout).total_seconds()


_INT64: Final = range(-(2**63), 2**63)
_GRACE_SECONDS: Final = 1.0
_WORDS: Final = {"true": True, "false": False}


class PostgresqlCall(msgspec.Struct, frozen=True):
    """A query with its arguments; equal for queries of HPAs that share an answer."""

    name: str
    arguments: tuple[Any, ...]


class PostgreSQL:
    """Results of SQL queries of a PostgreSQL database, each in a read-only transaction with a time limit."""

    serves = frozenset({EXTERNAL})
    metrics: tuple[str, ...] = ()
    Settings = PostgreSQLSettings

    @staticmethod
    def lacks(settings: PostgreSQLSettings) -> str:
        """Returns the package that is missing; "" if none is."""
        return extras.lacks("asyncpg", "postgresql")

    def __init__(self, settings: PostgreSQLSettings, context: Context) -> None:
        self.metrics = tuple(settings.metrics)
        self.parameters = frozenset(name for metric in settings.metrics.values() for name, _ in metric.parameters)
        self._settings = settings
        self._seconds = context.within(settings.query_seconds)
        self._clock = context.clock
        self._library: Any = extras.load("hpad_adapters.postgresql.connections", "postgresql")
        self._errors: Any = extras.load("asyncpg", "postgresql")
        self._connections: Any = self._library.PostgresqlConnections(settings, context)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; raises AdapterError if there is no connection to the server."""
        calls = [attempt(self._call, query) for query in queries]
        distinct = list(dict.fromkeys(call for call in calls if isinstance(call, PostgresqlCall)))
        if distinct:
            await self._connections.ready()
        # The server ends a query by itself; hpad only if the server does not, or if no connection becomes free.
        deadline = asyncio.get_running_loop().time() + self._seconds + _GRACE_SECONDS
        answers = await asyncio.gather(*(self._answered(call, deadline) for call in distinct))
        found = dict(zip(distinct, answers, strict=True))
        return [call if isinstance(call, AdapterError) else found[call] for call in calls]

    def group(self, query: Query) -> PostgresqlCall | None:
        """Returns the query with its arguments, which HPAs of several namespaces may share."""
        call = attempt(self._call, query)
        return None if isinstance(call, AdapterError) else call

    async def explain(self, query: Query) -> str:
        """Returns the SQL of the query with the values of its parameters; raises AdapterError."""
        call = self._call(query)
        values = ", ".join(f"${number} = {value!s}" for number, value in enumerate(call.arguments, 1))
        sql = self._settings.metrics[call.name].query.strip()
        return f"{sql} with {values}" if values else sql

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._connections.aclose()

    def _call(self, query: Query) -> PostgresqlCall:
        """Returns the query of a metric with its arguments; raises AdapterError."""
        metric = self._settings.metrics.get(query.name)
        if metric is None:
            raise no_metric(query, self._settings.metrics)
        by_label = labels(query, [name for name, _ in metric.parameters])
        try:
            arguments = tuple(argument(name, kind, by_label[name]) for name, kind in metric.parameters)
        except ValueError as error:
            raise AdapterError(f'metric "{query.name}": {error}', "spec") from None
        return PostgresqlCall(query.name, arguments)

    async def _answered(self, call: PostgresqlCall, deadline: float) -> Answer:
        try:
            async with asyncio.timeout_at(deadline), self._connections.connection() as connection:
                return await self._read(call, connection)
        except AdapterError as error:
            return error
        except TimeoutError:
            return self._failed(call, f"has no answer within {self._seconds:g}s")
        except Exception as error:  # noqa: BLE001  # the library raises any kind for a malformed message
            lost: AdapterError = self._library.lost(self._connections.name, error)
            return lost

    async def _read(self, call: PostgresqlCall, connection: Any) -> Answer:
        """Returns the sample of one query, or the error of a server that can be used for other queries."""
        query = self._settings.metrics[call.name].query
        try:
            value = await self._library.number(connection, query, call.arguments, self._seconds)
            milli = _milli(value)
        except self._library.PostgresqlNoNumberError as error:
            return self._failed(call, str(error))
        except self._errors.PostgresError as error:
            if connection.is_closed():
                raise
            if isinstance(error, self._errors.QueryCanceledError):
                return self._failed(call, f"has no answer within {self._seconds:g}s")
            refused = self._library.refusal(f'metric "{call.name}": {self._connections.name}', error)
            return AdapterError(refused.message, lasting=refused.lasting, alive=True)
        if milli is None:
            return self._failed(call, "returns a number that is not finite, or too large")
        return ExternalSample((milli,), self._clock.now())

    def _failed(self, call: PostgresqlCall, why: str) -> AdapterError:
        return AdapterError(f'metric "{call.name}": the query {why}', alive=True)


def argument(name: str, kind: str, text: str) -> Any:
    """Returns the value of a label in the type of its parameter; raises ValueError."""
    try:
        if kind == "integer":
            value = int(text)
            if value in _INT64 and "_" not in text:
                return value
        elif kind == "number":
            number = Decimal(text)
            if number.is_finite() and "_" not in text:
                return number
        elif kind == "boolean":
            return _WORDS[text]
        else:
            return text
    except (ValueError, ArithmeticError, KeyError):
        pass
    raise ValueError(f"{name}={shown(text)} is not of type {kind}")


def _milli(value: Any) -> int | None:
    """Returns thousandths; None for a number that is not finite, or too large."""
    try:
        milli = int(Quantity.parse(value if isinstance(value, int | float) else str(value)).milli())
    except ValueError:
        return None
    return milli if milli in _INT64 else None
