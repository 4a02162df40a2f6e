"""Connections to Redis: one per batch and server, with its credentials, TLS and limits."""

import asyncio
import contextlib
import ssl
from collections.abc import Sequence

import msgspec

from hpad.adapter import AdapterError, Context
from hpad.adapter_http import Secret, Tls, failure, read_secrets
from hpad_adapters.redis_servers.replies import Budget, ProtocolError, Replies, Reply, ReplyError, encoded
from hpad_adapters.redis_servers.settings import Address
from hpad_adapters.trust import Trust

Command = Sequence[str]


class Request(msgspec.Struct, frozen=True):
    """Commands of one key, which decides the node of a cluster that they are sent to."""

    key: str
    commands: tuple[Command, ...]


class Login(msgspec.Struct, frozen=True):
    """The credentials of a kind of server ("Redis", "Redis Sentinel"), whose name begins its errors."""

    kind: str
    username: str
    password: Secret


class Access:
    """Opens sessions with the login and TLS of one kind of server; `tls` is None for plain text.

    `trust` says which servers may get the login.
    """

    def __init__(self, login: Login, tls: Tls | None, trust: Trust, context: Context) -> None:
        self.kind = login.kind
        self.trust = trust
        self._login = login
        self._tls = tls
        self._context = context

    async def session(self, *opening: Command) -> "Session":
        """Reads the secrets and the files of TLS, once per batch; raises AdapterError naming the file."""
        try:
            password = (await read_secrets({"password": self._login.password}))["password"]
            tls = await self._tls.context() if self._tls is not None else None
        except AdapterError as error:
            raise AdapterError(f"{self.kind}: {error.message}") from None
        login = [("AUTH", *filter(None, (self._login.username,)), password)] if password else []
        return Session(self, (*login, *opening), tls, self._context)

    def check(self, at: Address) -> None:
        """Raises AdapterError for a server that may not get the login."""
        if self._login.password:
            self.trust.check(self.kind, *at)


class Session:
    """What the connections of one batch have in common: the commands that open each one, TLS, and the budget."""

    def __init__(
        self, access: Access, opening: Sequence[Command], tls: ssl.SSLContext | None, context: Context
    ) -> None:
        self._access = access
        self._kind = access.kind
        self._opening = opening
        self._tls = tls
        self._clock = context.clock
        self._budget = Budget()

    async def exchange(self, at: Address, commands: Sequence[Command]) -> list[Reply]:
        """Returns the replies of one server, in one connection and one round trip; raises AdapterError."""
        self._access.check(at)
        name = f"{self._kind} {at}"
        sent = (*self._opening, *commands)
        try:
            reader, writer = await asyncio.open_connection(at.host, at.port, ssl=self._tls)
            with contextlib.closing(writer):
                writer.write(b"".join(map(encoded, sent)))
                incoming = Replies(reader, lambda: self._clock.sleep(0), self._budget)
                replies = [await incoming.next() for _ in sent]
        except ProtocolError as error:
            raise AdapterError(f"{name} {error}", lasting=True) from None
        except (OSError, EOFError, UnicodeError) as error:
            raise AdapterError(f"{name} {failure(error)}") from None
        opened = len(self._opening)
        refusal = next((reply for reply in replies[:opened] if isinstance(reply, ReplyError)), None)
        if refusal is not None:
            raise AdapterError(f"{name} refuses: {refusal}")
        return replies[opened:]

    async def exchange_within(self, seconds: float, at: Address, commands: Sequence[Command]) -> list[Reply]:
        """As `exchange`, for one of several servers: a server that hangs must not take the time of the others."""
        try:
            async with asyncio.timeout(seconds):
                return await self.exchange(at, commands)
        except TimeoutError:
            raise AdapterError(f"{self._kind} {at} did not answer within {seconds:g}s") from None
