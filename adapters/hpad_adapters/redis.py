"""How much waits in Redis: the length of a list or of a stream, and what a consumer group has not acknowledged.

Source: Redis, commands LLEN, XLEN, XPENDING, TYPE.
"""

import asyncio
import os
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query, meant, reason, shown
from hpad_adapters import resp
from hpad_adapters.resp import Reply, ReplyError

LIST, STREAM, PENDING = "redis_list_length", "redis_stream_length", "redis_stream_pending"
_TYPES = {LIST: "list", STREAM: "stream", PENDING: "stream"}
_PORT = 6379
_MOST = (2**63 - 1) // 1000
"""More cannot be said in thousandths of 64 bits."""


class RedisSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One Redis server.

    url: "redis://host:6379/0", or rediss:// for TLS; the path is the number of the database.
    username: of the server's ACL, if there is one; password: its password; password_file: a file that holds it, read
    for each batch; password_env: a variable with it.
    keys: what a metric's selector may say -> the real key, for keys that label values cannot hold ("jobs:mail").
    only_keys: no other key may be asked for.
    missing_stream: a stream that is not there is an error, or zero. A list that is not there is an empty one: Redis
    removes a list with its last element.
    ca, cert, key: PEM files; insecure: trust any certificate.
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
        try:
            parts = urllib.parse.urlsplit(self.url)
            bad_port = parts.port == 0
        except ValueError:
            raise ValueError("url: no URL, or no number for a port") from None
        if "@" in parts.netloc:
            raise ValueError("url: leave credentials out of it; write password_file")
        database = parts.path.strip("/") or "0"
        if parts.scheme not in ("redis", "rediss") or not parts.hostname or bad_port or not database.isdecimal():
            raise ValueError(f'url: {shown(self.url)} is not of the form "redis://host:6379/0"')
        if sum(map(bool, (self.password, self.password_file, self.password_env))) > 1:
            raise ValueError("give one of password, password_file and password_env")

    def __repr__(self) -> str:
        return f"RedisSettings(url={self.url!r}, …)"


class Redis:
    """External metrics of lists and streams, chosen by the selector: `key=…`, and `group=…` for what is pending.

    A batch is one connection and one round trip, and its answer has a budget (`resp`).
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
        self._secure = parts.scheme == "rediss"
        self._where = f"Redis {self._host}:{self._port}"

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Every number, or why there is none; a server that does not answer is an error for all."""
        asked = [self._commands(query) for query in queries]
        commands = [command for pair in asked if not isinstance(pair, AdapterError) for command in pair]
        if not commands:
            return [each for each in asked if isinstance(each, AdapterError)]
        replies = iter(await self._replies(commands))
        return [
            each if isinstance(each, AdapterError) else self._sample(query, next(replies), next(replies))
            for query, each in zip(queries, asked, strict=True)
        ]

    async def aclose(self) -> None:
        """Nothing to let go of: no connection outlives its batch."""

    def _commands(self, query: Query) -> tuple[Sequence[str], Sequence[str]] | AdapterError:
        """TYPE and the command that counts."""
        needed = ("key", "group") if query.name == PENDING else ("key",)
        terms = query.selector.requirements if query.selector is not None else ()
        given = {term.key: term.values[0] for term in terms if term.operator.value in ("=", "==")}
        if query.name not in _TYPES:
            hint = meant(query.name, _TYPES)
            return AdapterError(f'there is no metric "{query.name}"{hint}; there are {", ".join(_TYPES)}', "spec")
        if set(given) != set(needed) or len(terms) != len(needed) or not all(given.values()):
            return AdapterError(
                f'metric "{query.name}" needs a selector "{",".join(f"{name}=…" for name in needed)}"', "spec"
            )
        if self._settings.only_keys and given["key"] not in self._settings.keys:
            return AdapterError(f'the key "{given["key"]}" is not among those that may be asked for', "spec")
        key = self._settings.keys.get(given["key"], given["key"])
        counts = {LIST: ("LLEN", key), STREAM: ("XLEN", key), PENDING: ("XPENDING", key, given.get("group", ""))}
        return ("TYPE", key), counts[query.name]

    def _sample(self, query: Query, kind: Reply, count: Reply) -> Answer:
        for reply in (kind, count):
            if isinstance(reply, ReplyError) and (reply is kind or kind == _TYPES[query.name]):
                return AdapterError(f'{self._where}: "{query.name}" of "{query.selector}": {reply}')
        if kind == "none":
            if query.name == LIST or self._settings.missing_stream == "zero":
                return ExternalSample((0,), self._clock.now())
            return AdapterError(f'{self._where}: there is no stream for "{query.selector}"', "spec")
        if not isinstance(kind, str):
            return AdapterError(f'{self._where}: TYPE of "{query.selector}" is answered by no type')
        if kind != _TYPES[query.name]:
            return AdapterError(
                f'{self._where}: what "{query.selector}" names is a {kind}, no {_TYPES[query.name]}', "spec"
            )
        number = count[0] if query.name == PENDING and isinstance(count, list) and count else count
        if not isinstance(number, int):
            return AdapterError(f'{self._where}: "{query.name}" is answered by no number')
        if not 0 <= number <= _MOST:
            return AdapterError(f'{self._where}: "{query.name}" is answered by {number}, which is no count')
        return ExternalSample((number * 1000,), self._clock.now())

    async def _replies(self, commands: Sequence[Sequence[str]]) -> list[Reply]:
        """The replies to the commands; raises AdapterError."""
        password, tls = await asyncio.to_thread(self._secrets)
        opening: list[Sequence[str]] = []
        if password:
            opening.append(("AUTH", *filter(None, (self._settings.username,)), password))
        opening.append(("SELECT", self._database))
        try:
            async with _connected(self._host, self._port, tls) as (reader, writer):
                writer.write(b"".join(map(resp.encoded, (*opening, *commands))))
                incoming = resp.Replies(reader, lambda: self._clock.sleep(0))
                replies = [await incoming.next() for _ in (*opening, *commands)]
        except ssl.SSLCertVerificationError:
            raise AdapterError(f"{self._where}: the server's certificate is not trusted (ca)") from None
        except resp.ProtocolError as error:
            raise AdapterError(f"{self._where} {error}") from None
        except (OSError, EOFError) as error:
            raise AdapterError(f"{self._where} cannot be reached or broke off ({reason(error)})") from None
        for reply in replies[: len(opening)]:
            if isinstance(reply, ReplyError):
                raise AdapterError(f"{self._where} refuses: {reply}")
        return replies[len(opening) :]

    def _secrets(self) -> tuple[str, ssl.SSLContext | None]:
        """The password and what TLS needs; blocks while it reads. Raises AdapterError."""
        settings = self._settings
        try:
            password = settings.password
            if settings.password_file:
                password = Path(settings.password_file).read_text(encoding="utf-8").strip()
            elif settings.password_env:
                password = os.environ[settings.password_env]
            return password, self._tls() if self._secure else None
        except (OSError, UnicodeDecodeError, KeyError) as error:
            raise AdapterError(
                f"{self._where}: a file or variable of its settings cannot be read: {_name(error)}"
            ) from None

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._settings.ca or None)
        if self._settings.cert:
            context.load_cert_chain(self._settings.cert, self._settings.key or None)
        if self._settings.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@asynccontextmanager
async def _connected(
    host: str, port: int, tls: ssl.SSLContext | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        yield reader, writer
    finally:
        writer.close()


def _name(error: Exception) -> str:
    return str(getattr(error, "filename", None) or (error.args[0] if isinstance(error, KeyError) else reason(error)))
