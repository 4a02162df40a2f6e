"""Who hpad is to an API server, and how that is kept fresh: tokens, certificates and their renewal."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ssl import SSLContext

import structlog

from hpad.clock import Clock

_EARLY = timedelta(seconds=60)
_LEAST_S = 10.0  # between two readings, however often the server refuses us


class ConfigError(ValueError):
    """There is no usable configuration of a cluster; the message says where it was looked for and what is missing."""


@dataclass(frozen=True)
class Credentials:
    """What one reading gave. `authorization` is a header value and never printed; `expires` None where unknown."""

    authorization: str = field(default="", repr=False)
    expires: datetime | None = None


Read = Callable[[], Credentials]
"""Read the credentials anew (files, a plugin, an identity provider). Blocks: called in a thread. Raises ConfigError."""


class Identity:
    """The Authorization header of each request, read anew every `every` seconds, before it expires, and when refused.

    Where a reading fails, the credentials held stay in use and the reading is tried again a little later.
    """

    def __init__(self, held: Credentials | None = None, read: Read | None = None, every: float | None = None) -> None:
        self._held = held or Credentials()
        self._headers = _headers(self._held)
        self._read = read
        self._every = every
        self._read_at: float | None = None
        self._stale = False
        self._renewed = False
        self._reading = asyncio.Lock()
        self._log = structlog.get_logger("hpad.kube")

    async def headers(self, clock: Clock) -> Mapping[str, str]:
        """The headers to send; waits for a reading where one is due."""
        if self._read is not None and self._due(clock):
            async with self._reading:
                if self._due(clock):
                    await self._renew(self._read, clock)
        return self._headers

    def refuse(self, sent: Mapping[str, str], clock: Clock) -> bool:
        """The server answered 401 to these headers: whether asking `headers` again may bring better ones."""
        if sent is not self._headers:
            return True
        if self._read is None or (self._renewed and self._age(clock) < _LEAST_S):
            return False
        self._stale = True
        return True

    def _due(self, clock: Clock) -> bool:
        age = self._age(clock)
        if self._stale or age < _LEAST_S:
            return self._stale
        expires = self._held.expires
        ending = expires is not None and clock.now() >= expires - _EARLY
        return ending or (self._every is not None and age >= self._every)

    def _age(self, clock: Clock) -> float:
        """Seconds since the last reading; the first counts from the first use."""
        now = clock.monotonic()
        if self._read_at is None:
            self._read_at = now
        return now - self._read_at

    async def _renew(self, read: Read, clock: Clock) -> None:
        try:
            self._held = await asyncio.to_thread(read)
        except ConfigError as error:
            self._log.warning("credentials cannot be renewed", error=str(error))
        else:
            self._headers = _headers(self._held)
        self._stale = False
        self._renewed = True
        self._read_at = clock.monotonic()


def _headers(credentials: Credentials) -> dict[str, str]:
    return {"Authorization": credentials.authorization} if credentials.authorization else {}


@dataclass(frozen=True)
class ClusterConfig:
    """Where the API server is and how to speak to it.

    `server` is its URL without a slash at the end; `ssl` None for plain HTTP; `namespace` the one of the context, or of
    the pod hpad runs in; `source` says where all this comes from; `certified`: a client certificate says who we are.
    """

    server: str
    ssl: SSLContext | None = None
    identity: Identity = field(default_factory=Identity)
    tls_server_name: str | None = None
    proxy: str | None = None
    namespace: str = "default"
    source: str = ""
    certified: bool = False
