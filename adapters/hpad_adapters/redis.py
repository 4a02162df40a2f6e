"""Backlogs in Redis: the length of a list or stream, and the entries that a consumer group has not acknowledged.

Source: Redis, commands LLEN, XLEN, XPENDING, TYPE; "RESP protocol specification" (RESP2). Replies are read within a
budget of bytes and elements, so that a server can neither fill the memory nor block the event loop.
"""

import asyncio
import contextlib
import re
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query, meant
from hpad.adapter_http import Tls, TlsOptions, failure, read_secrets, secret, secret_error, url_error

MAX_BYTES = 4 << 20
"""The limit for all replies of a batch together. The summary of XPENDING takes about 60 bytes per consumer."""
MAX_ELEMENTS = 1 << 16
"""The limit for replies and array elements of a batch together."""
_DEEPEST = 8
_PAUSE_ELEMENTS = 512
_NIL = b"-1"
_LENGTH = re.compile(rb"[0-9]{1,10}\Z")
_INTEGER = re.compile(rb"[-+]?[0-9]{1,19}\Z")
_INT64 = range(-(2**63), 2**63)


class ProtocolError(Exception):
    """The reply is not RESP2, or too large; the message is the end of a sentence that begins with the server."""


class ReplyError(Exception):
    """An error reply of the server."""


Reply = str | int | list["Reply"] | None | ReplyError


def encoded(command: Sequence[str]) -> bytes:
    """Encodes a command in RESP2: an array of bulk strings, which may hold any text."""
    parts = [part.encode() for part in command]
    return b"".join((b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)))


class Replies:
    """Reads the replies of one batch; `pause` yields to the event loop and is awaited every few hundred elements."""

    def __init__(self, reader: asyncio.StreamReader, pause: Callable[[], Awaitable[None]]) -> None:
        self._reader = reader
        self._pause = pause
        self._bytes = MAX_BYTES
        self._elements = MAX_ELEMENTS

    async def next(self, depth: int = 0) -> Reply:
        """Reads one reply, None for nil. Raises ProtocolError, EOFError at the end of the connection, and OSError."""
        self._take_elements(1)
        if self._elements % _PAUSE_ELEMENTS == 0:
            await self._pause()
        line = await self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode("utf-8", "replace")
        if kind == b"-":
            return ReplyError(rest.decode("utf-8", "replace"))
        if kind == b":":
            return _integer(rest)
        if kind == b"$":
            return await self._bulk(rest)
        if kind == b"*":
            return await self._array(rest, depth)
        raise ProtocolError("did not answer in RESP2: is this the port of a Redis server?")

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readuntil(b"\r\n")
        except asyncio.LimitOverrunError:
            raise ProtocolError("sent a line without end") from None
        self._take_bytes(len(line))
        return line[:-2]

    async def _bulk(self, size: bytes) -> str | None:
        if size == _NIL:
            return None
        length = _length(size)
        # Counted first: a length above the budget must not be allocated.
        self._take_bytes(length + 2)
        text = await self._reader.readexactly(length + 2)
        if not text.endswith(b"\r\n"):
            raise ProtocolError("sent a text that is longer than its length")
        return text[:-2].decode("utf-8", "replace")

    async def _array(self, size: bytes, depth: int) -> list[Reply] | None:
        if size == _NIL:
            return None
        length = _length(size)
        if depth >= _DEEPEST:
            raise ProtocolError(f"sent arrays nested more than {_DEEPEST} levels deep")
        # The elements are counted one by one as they are read; this refuses a hopeless array at once.
        if length > self._elements:
            self._take_elements(length)
        return [await self.next(depth + 1) for _ in range(length)]

    def _take_bytes(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise ProtocolError(f"sent more than {MAX_BYTES >> 20} MiB, too much for an answer")

    def _take_elements(self, count: int) -> None:
        self._elements -= count
        if self._elements < 0:
            raise ProtocolError(f"sent more than {MAX_ELEMENTS} elements, too many for an answer")


def _length(text: bytes) -> int:
    """Parses a length in digits. The only negative one, -1 for nil, is handled by the callers."""
    if not _LENGTH.match(text):
        raise ProtocolError(f"sent {_shown(text)} where the length of a value belongs")
    return int(text)


def _integer(text: bytes) -> int:
    if not _INTEGER.match(text) or int(text) not in _INT64:
        raise ProtocolError(f"sent {_shown(text)} where a whole number of 64 bits belongs")
    return int(text)


def _shown(text: bytes) -> str:
    return f'"{text[:40].decode("utf-8", "replace")}"'


LIST, STREAM, PENDING = "redis_list_length", "redis_stream_length", "redis_stream_pending"
_TYPES = {LIST: "list", STREAM: "stream", PENDING: "stream"}
_PORT = 6379
_EXAMPLE = "redis://host:6379/0"
_MOST = (2**63 - 1) // 1000
"""The largest count whose thousandths fit into 64 bits."""


class RedisSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One Redis server.

    url: "redis://host:6379/0", or rediss:// for TLS; the path is the number of the database.
    username: a user of the server's ACL; password: the password; password_file: a file that holds it, read for each
    batch; password_env: an environment variable that holds it.
    keys: the key in a metric's selector -> the real key, for keys that label values cannot hold ("jobs:mail").
    only_keys: selectors may name the keys of `keys` only.
    missing_stream: a stream that does not exist is an error, or zero. A list that does not exist is empty: Redis
    removes a list with its last element.
    ca, cert, key: PEM files, loaded again when they change; insecure: trust any certificate.
    """

    url: str
    username: str = ""
    password: str = ""
    password_file: str = ""
    password_env: str = ""
    keys: dict[str, str] = {}
    only_keys: bool = False
    missing_stream: Literal["error", "zero"] = "error"
    ca: str = ""
    cert: str = ""
    key: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        if error := url_error(self.url, ("redis", "rediss"), _EXAMPLE):
            raise ValueError(f"url: {error}")
        if not (urllib.parse.urlsplit(self.url).path.strip("/") or "0").isdecimal():
            raise ValueError(f'url: the path is not the number of a database, as in "{_EXAMPLE}"')
        if error := secret_error(self, "password") or self.tls.error:
            raise ValueError(error)

    def __repr__(self) -> str:
        return f"RedisSettings(url={self.url!r}, …)"

    @property
    def tls(self) -> TlsOptions:
        """The options of TLS."""
        return TlsOptions(ca=self.ca, cert=self.cert, key=self.key, insecure=self.insecure)


class Redis:
    """External metrics of lists and streams, chosen by the selector: `key=…`, and `group=…` for pending entries.

    A batch is one connection and one round trip.
    """

    serves = frozenset({EXTERNAL})
    metrics = (LIST, STREAM, PENDING)
    Settings = RedisSettings

    def __init__(self, settings: RedisSettings, context: Context) -> None:
        self._settings = settings
        self._clock = context.clock
        parts = urllib.parse.urlsplit(settings.url)
        self._host, self._port = parts.hostname or "", parts.port or _PORT
        self._database = parts.path.strip("/") or "0"
        self._tls = Tls(settings.tls) if parts.scheme == "rediss" else None
        self._where = f"Redis {self._host}:{self._port}"

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; raises AdapterError if the server does not answer."""
        planned = [self._commands(query) for query in queries]
        commands = [command for pair in planned if not isinstance(pair, AdapterError) for command in pair]
        if not commands:
            return [each for each in planned if isinstance(each, AdapterError)]
        replies = iter(await self._replies(commands))
        return [
            each if isinstance(each, AdapterError) else self._sample(query, next(replies), next(replies))
            for query, each in zip(queries, planned, strict=True)
        ]

    async def aclose(self) -> None:
        """Does nothing: a connection ends with its batch."""

    def _commands(self, query: Query) -> tuple[Sequence[str], Sequence[str]] | AdapterError:
        """Returns the two commands of a query: TYPE, and the one that returns the count; an error if it is invalid."""
        needed = ("key", "group") if query.name == PENDING else ("key",)
        requirements = query.selector.requirements if query.selector is not None else ()
        labels = {term.key: term.values[0] for term in requirements if term.operator.value in ("=", "==")}
        if query.name not in _TYPES:
            hint = meant(query.name, _TYPES)
            return AdapterError(f'there is no metric "{query.name}"{hint}; there are {", ".join(_TYPES)}', "spec")
        if set(labels) != set(needed) or len(requirements) != len(needed) or not all(labels.values()):
            return AdapterError(
                f'metric "{query.name}" needs a selector "{",".join(f"{name}=…" for name in needed)}"', "spec"
            )
        if self._settings.only_keys and labels["key"] not in self._settings.keys:
            return AdapterError(
                f'the key "{labels["key"]}" is not one of the keys that the configuration allows', "spec"
            )
        key = self._settings.keys.get(labels["key"], labels["key"])
        counts = {LIST: ("LLEN", key), STREAM: ("XLEN", key), PENDING: ("XPENDING", key, labels.get("group", ""))}
        return ("TYPE", key), counts[query.name]

    def _sample(self, query: Query, kind: Reply, count: Reply) -> Answer:
        for reply in (kind, count):
            # The count of a key of another type is an error reply too, but less clear than the check of the type below.
            if isinstance(reply, ReplyError) and (reply is kind or kind == _TYPES[query.name]):
                return AdapterError(f'{self._where}: "{query.name}" of "{query.selector}": {reply}')
        if kind == "none":
            if query.name == LIST or self._settings.missing_stream == "zero":
                return ExternalSample((0,), self._clock.now())
            return AdapterError(f'{self._where}: there is no stream for "{query.selector}"', "spec")
        if not isinstance(kind, str):
            return AdapterError(f'{self._where}: the reply to TYPE of "{query.selector}" is not a type')
        if kind != _TYPES[query.name]:
            return AdapterError(
                f'{self._where}: the key of "{query.selector}" is a {kind}, not a {_TYPES[query.name]}', "spec"
            )
        number = count[0] if query.name == PENDING and isinstance(count, list) and count else count
        if not isinstance(number, int):
            return AdapterError(f'{self._where}: the reply for "{query.name}" is not a number')
        if not 0 <= number <= _MOST:
            return AdapterError(f'{self._where}: the reply for "{query.name}" is {number}, which is not a count')
        return ExternalSample((number * 1000,), self._clock.now())

    async def _replies(self, commands: Sequence[Sequence[str]]) -> list[Reply]:
        """Returns the replies to the commands; raises AdapterError."""
        settings = self._settings
        source = {"password": secret(settings.password, settings.password_file, settings.password_env)}
        try:
            password = (await read_secrets(source))["password"]
            tls = await self._tls.context() if self._tls is not None else None
        except AdapterError as error:
            raise AdapterError(f"{self._where}: {error.message}") from None
        opening: list[Sequence[str]] = []
        if password:
            opening.append(("AUTH", *filter(None, (settings.username,)), password))
        opening.append(("SELECT", self._database))
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=tls)
            with contextlib.closing(writer):
                writer.write(b"".join(map(encoded, (*opening, *commands))))
                incoming = Replies(reader, lambda: self._clock.sleep(0))
                replies = [await incoming.next() for _ in (*opening, *commands)]
        except ProtocolError as error:
            raise AdapterError(f"{self._where} {error}") from None
        except (OSError, EOFError) as error:
            raise AdapterError(f"{self._where} {failure(error)}") from None
        for reply in replies[: len(opening)]:
            if isinstance(reply, ReplyError):
                raise AdapterError(f"{self._where} refuses: {reply}")
        return replies[len(opening) :]
