"""One Redis server, the master that sentinels watch, or a cluster, by redis-py. Needs the extra `redis`.

A batch opens its connections and closes them.
"""

import contextlib
import urllib.parse
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from redis.asyncio import ConnectionPool, Redis, Sentinel
from redis.asyncio.sentinel import MasterNotFoundError, SentinelConnectionPool

from hpad.adapter import AdapterError, shown
from hpad.adapter_http import Tls
from hpad_adapters.credentials import Trust
from hpad_adapters.redis_servers import AnyRedis, RedisRequest, Reply, ReplyError, ServerError
from hpad_adapters.redis_servers.cluster import ClusterServers
from hpad_adapters.redis_servers.connection import (
    COMMON,
    Fault,
    Guarded,
    RedisAccess,
    ToMaster,
    ToSentinel,
    by_request,
    commands,
    raw,
    sent,
)
from hpad_adapters.redis_servers.settings import REDIS_PORT, SENTINEL_PORT, RedisAddress, RedisServers, address

SENTINEL_SECONDS = 1.0
"""How long one sentinel may take before the next one is asked."""
NODE_SECONDS = 2.0
"""How long one node of a cluster may take: keys of other nodes are answered in the same batch."""


def made(settings: RedisServers) -> AnyRedis:
    """Returns Redis as the settings name it; neither blocks nor connects."""
    url, secure = urllib.parse.urlsplit(settings.url), settings.secure
    tls = Tls(settings.tls_options) if secure else None
    nodes = _configured(settings)
    trust = Trust(_with_numbers(nodes), settings.trusted_hosts, verified=secure and not settings.insecure)
    seconds = NODE_SECONDS if settings.cluster is not None else None
    access = RedisAccess(
        kind="Redis", username=settings.username, password=settings.secret, tls=tls, trust=trust, seconds=seconds
    )
    if settings.cluster is not None:
        return ClusterServers(nodes, access)
    if settings.sentinel is None:
        return Single(nodes[0], int(url.path.strip("/") or 0), access)
    own = settings.sentinel
    sentinels = RedisAccess(
        kind="Redis Sentinel",
        username=own.username,
        password=own.secret,
        tls=tls,
        trust=trust,
        seconds=SENTINEL_SECONDS,
    )
    return SentinelMaster(own.master, nodes, own.database, access, sentinels)


def _configured(settings: RedisServers) -> list[RedisAddress]:
    """Returns the servers that the settings name."""
    if settings.sentinel is not None:
        return [address(node, SENTINEL_PORT) for node in settings.sentinel.nodes]
    if settings.cluster is not None:
        return [address(node, REDIS_PORT) for node in settings.cluster.nodes]
    parts = urllib.parse.urlsplit(settings.url)
    return [RedisAddress(parts.hostname or "", parts.port or REDIS_PORT)]


def _with_numbers(nodes: Sequence[RedisAddress]) -> list[RedisAddress]:
    """Returns the addresses, and that of this machine for its name, which redis-py replaces in clusters."""
    return [*nodes, *(RedisAddress("127.0.0.1", port) for host, port in nodes if host == "localhost")]


class Single:
    """One server: one connection per batch."""

    def __init__(self, at: RedisAddress, database: int, access: RedisAccess) -> None:
        self.name = access.name(at)
        self._at = at
        self._database = database
        self._access = access

    async def ask(self, requests: Sequence[RedisRequest]) -> list[list[Reply] | AdapterError]:
        """Returns the replies to each request; raises ServerError."""
        pool = ConnectionPool(
            connection_class=Guarded, **self._at._asdict(), db=self._database, access=self._access, faults=[], **COMMON
        )
        async with raw(pool) as client:
            return by_request(requests, await sent(self.name, client, commands(requests)))

    async def located(self) -> RedisAddress:
        """Returns the server."""
        return self._at


class SentinelMaster:
    """Asks a sentinel for the address of the master in each batch, so that a failover needs no detection."""

    def __init__(
        self, master: str, nodes: Sequence[RedisAddress], database: int, access: RedisAccess, sentinels: RedisAccess
    ) -> None:
        self.name = f'Redis master "{master}"'
        self._master = master
        self._nodes = list(nodes)
        self._database = database
        self._access = access
        self._sentinels = sentinels

    async def ask(self, requests: Sequence[RedisRequest]) -> list[list[Reply] | AdapterError]:
        """Returns the replies to each request; raises ServerError if neither sentinels nor master answer."""
        return (await self._asked_master(requests))[1]

    async def located(self) -> RedisAddress:
        """Returns the master, which has proved to be one; raises ServerError."""
        return (await self._asked_master(()))[0]

    async def _asked_master(
        self, requests: Sequence[RedisRequest]
    ) -> tuple[RedisAddress, list[list[Reply] | AdapterError]]:
        faults: list[Fault] = []
        async with self._asked(faults) as sentinels:
            options = {"db": self._database, "access": self._access, "faults": [], **COMMON}
            pool = SentinelConnectionPool(self._master, sentinels, connection_class=ToMaster, **options)
            async with raw(pool) as client:
                try:
                    role, *replies = await sent(self.name, client, [("ROLE",), *commands(requests)])
                except MasterNotFoundError:
                    unknown = f"{self._sentinels.kind} knows no master {shown(self._master)} that is up"
                    raise ServerError("; ".join(map(str, faults)) or unknown) from None
            self._nodes = [_address(each) for each in sentinels.sentinels]
        master = RedisAddress(*pool.master_address)
        self._check_role(master, role)
        return master, by_request(requests, replies)

    @contextlib.asynccontextmanager
    async def _asked(self, faults: list[Fault]) -> AsyncIterator[Sentinel]:
        """Yields the sentinels, of which the first that knows the master is asked first from then on."""
        made = Sentinel([])
        options = {"connection_class": ToSentinel, "access": self._sentinels, "faults": faults, **COMMON}
        made.sentinels = [Redis.from_pool(ConnectionPool(**at._asdict(), **options)) for at in self._nodes]
        try:
            yield made
        finally:
            await made.aclose()

    def _check_role(self, at: RedisAddress, role: Reply) -> None:
        """Raises ServerError unless the server is a master, or its ACL denies ROLE to the user."""
        match role:
            case ["master", *_] | ReplyError():
                return
            case [str(other), *_]:
                raise ServerError(f"{self.name}: {at} is a {other[:40]}, not the master: a failover is under way")
        raise ServerError(f"{self.name}: {at} did not answer to ROLE")


def _address(client: Redis) -> RedisAddress:
    options: Mapping[str, Any] = client.connection_pool.connection_kwargs
    return RedisAddress(options["host"], options["port"])
