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
from hpad_adapters.redis_servers.settings import REDIS_PORT, SENTINEL_PORT, Address, RedisServers, address
from hpad_adapters.trust import Trust


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
    trust = Trust(_configured(settings), settings.trusted_hosts, verified=secure and not settings.insecure)
    access = Access(Login("Redis", settings.username, settings.secret), tls, trust, context)
    if settings.sentinel is not None:
        login = Login("Redis Sentinel", settings.sentinel.username, settings.sentinel.secret)
        return SentinelMaster(settings.sentinel, access, Access(login, tls, trust, context))
    if settings.cluster is not None:
        return RedisCluster(settings.cluster, access)
    (only,) = _configured(settings)
    return _Single(only, parts.path.strip("/") or "0", access)


def _configured(settings: RedisServers) -> list[Address]:
    """Returns the servers that the settings name."""
    if settings.sentinel is not None:
        return [address(node, SENTINEL_PORT) for node in settings.sentinel.nodes]
    if settings.cluster is not None:
        return [address(node, REDIS_PORT) for node in settings.cluster.nodes]
    parts = urllib.parse.urlsplit(settings.url)
    return [Address(parts.hostname or "", parts.port or REDIS_PORT)]


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
