"""The ways to run Redis behind one method, `ask`."""

import urllib.parse
from collections.abc import Sequence
from typing import Protocol

from hpad.adapter import AdapterError, Context
from hpad.adapter_http import Tls
from hpad_adapters.redis_servers.cluster import RedisCluster
from hpad_adapters.redis_servers.connection import Access, Login, Request
from hpad_adapters.redis_servers.replies import Reply
from hpad_adapters.redis_servers.sentinel import SentinelMaster
from hpad_adapters.redis_servers.settings import REDIS_PORT, Address, RedisServers


class Servers(Protocol):
    """Redis in one of its forms; `name` begins error messages."""

    name: str

    async def ask(self, requests: Sequence[Request]) -> list[list[Reply] | AdapterError]:
        """Returns the replies to the commands of each request, in order.

        An error reply is a ReplyError among the replies. An AdapterError answers the requests of a node that failed.
        Raises AdapterError if no server answers.
        """
        ...


def servers(settings: RedisServers, context: Context) -> Servers:
    """Returns Redis as the settings name it; neither blocks nor connects."""
    parts = urllib.parse.urlsplit(settings.url)
    chosen = settings.sentinel or settings.cluster
    secure = chosen.tls if chosen is not None else parts.scheme == "rediss"
    tls = Tls(settings.tls_options) if secure else None
    access = Access(Login("Redis", settings.username, settings.secret), tls, context)
    if settings.sentinel is not None:
        login = Login("Redis Sentinel", settings.sentinel.username, settings.sentinel.secret)
        return SentinelMaster(settings.sentinel, access, Access(login, tls, context))
    if settings.cluster is not None:
        return RedisCluster(settings.cluster, access)
    return _Single(Address(parts.hostname or "", parts.port or REDIS_PORT), parts.path.strip("/") or "0", access)


class _Single:
    """One server: one connection and one round trip per batch."""

    def __init__(self, at: Address, database: str, access: Access) -> None:
        self.name = f"{access.kind} {at}"
        self._at = at
        self._database = database
        self._access = access

    async def ask(self, requests: Sequence[Request]) -> list[list[Reply] | AdapterError]:
        session = await self._access.session(("SELECT", self._database))
        replies = iter(await session.exchange(self._at, [command for each in requests for command in each.commands]))
        return [[next(replies) for _ in request.commands] for request in requests]
