"""The settings of a PostgreSQL source, and its queries."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Annotated, Literal, get_args

import msgspec

from hpad.adapter import positive_duration, shown
from hpad.adapter_http import Secret, SecretRef, TlsOptions, duration_error, refuse, secret, secret_error

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
        if not self.metrics:
            yield 'metrics: is empty; write a metric, such as waiting: {query: "SELECT count(*) FROM jobs"}'
        for name in ("database", "username"):
            if not getattr(self, name):
                yield f"{name}: is empty"
        yield secret_error(self, "password")
        yield self.tls.error
        if self.sslmode == "disable" and self.tls.files:
            yield "sslmode: disable does not use the files of ca, cert and key"
        if self.sslmode == "prefer" and self.ca:
            yield "sslmode: prefer does not use the ca, and trusts any certificate; write verify-full"
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
