"""Opens connections to the API server: resolves its name, connects to one of its addresses, and does TLS."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import aiohappyeyeballs

from hpad.kube import errors
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http.exchange import SAFE, Failed
from hpad.kube.http.sockets import CLOSE_TIMEOUT_S, Sockets

CONNECT_S: Final = 5.0
"""Seconds for one address, TLS included."""
_RESOLVED_S: Final = 10.0
"""Seconds for which resolved addresses are used again, so that a burst of connections resolves the name once."""
_NEXT_ADDRESS_S: Final = 0.25
"""Delay before the next address is tried as well (RFC 8305, section 5)."""
_INTERLEAVE: Final = 1

C = TypeVar("C", bound=asyncio.Protocol)

Address = tuple[int, int, int, str, tuple[Any, ...]]
"""As in the result of getaddrinfo."""


class Place(NamedTuple):
    """Where a server is: the parts of its URL. `host` is in ASCII unless it is no name of a host."""

    tls: bool
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, server: str) -> "Place":
        url = urlsplit(server)
        tls = url.scheme == "https"
        return cls(tls, _ascii(url.hostname or ""), url.port or (443 if tls else 80), quote(url.path, safe=SAFE))

    @property
    def header(self) -> str:
        """The value of the header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


class Dialer:
    """Opens connections to one server. A cluster configuration may renew the certificates of its TLS context."""

    def __init__(self, config: ClusterConfig, sockets: Sockets) -> None:
        self._config = config
        self._sockets = sockets
        self._place = Place.of(config.server)
        self._resolving = asyncio.Lock()
        self._resolved: list[Address] = []
        self._resolved_until = 0.0
        self._attempts: set[asyncio.Timeout] = set()

    async def open(self, make: Callable[[], C], deadline: float) -> C:
        """Returns a new connection. Raises Failed, at `deadline` of the loop's time at the latest."""
        try:
            with self._stoppable(asyncio.timeout_at(deadline)) as limit:
                async with limit:
                    return await self._connect(make, list(await self._addresses()))
        except (OSError, UnicodeError, RuntimeError) as error:
            raise Failed(*errors.unreachable(self._config.server, error)) from error

    def stop(self) -> None:
        """Ends the attempts in progress: they time out at once."""
        for each in self._attempts:
            if not each.expired():
                each.reschedule(0.0)

    @contextmanager
    def _stoppable(self, limit: asyncio.Timeout) -> Iterator[asyncio.Timeout]:
        self._attempts.add(limit)
        try:
            yield limit
        finally:
            self._attempts.discard(limit)

    async def _addresses(self) -> list[Address]:
        """Resolves the name; an address needs no thread."""
        place, loop = self._place, asyncio.get_running_loop()
        try:
            family = socket.AF_INET if ipaddress.ip_address(place.host).version == 4 else socket.AF_INET6
        except ValueError:
            pass
        else:
            return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (place.host, place.port))]
        async with self._resolving:
            if not self._resolved or loop.time() >= self._resolved_until:
                found = await loop.getaddrinfo(
                    place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                )
                self._resolved, self._resolved_until = list(found), loop.time() + _RESOLVED_S
            return self._resolved

    async def _connect(self, make: Callable[[], C], addresses: list[Address]) -> C:
        """Tries the addresses: the next ones as well if one is slow, and the others if one fails, also in TLS."""
        while True:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await self._attempt(make, addresses)
            except OSError:
                aiohappyeyeballs.pop_addr_infos_interleave(addresses, _INTERLEAVE)
                if not addresses:
                    raise

    async def _attempt(self, make: Callable[[], C], addresses: list[Address]) -> C:
        loop = asyncio.get_running_loop()
        connected = await aiohappyeyeballs.start_connection(
            addresses,
            happy_eyeballs_delay=_NEXT_ADDRESS_S,
            interleave=_INTERLEAVE,
            loop=loop,
            socket_factory=self._sockets.make,
        )
        _, connection = await loop.create_connection(make, sock=connected, **self._tls())
        return connection

    def _tls(self) -> dict[str, Any]:
        if not self._place.tls:
            return {}
        context: ssl.SSLContext | bool = self._config.ssl if self._config.ssl is not None else True
        name = (self._config.tls_server_name or self._place.host).rstrip(".")  # certificates have names without a dot
        return {"ssl": context, "server_hostname": name, "ssl_shutdown_timeout": CLOSE_TIMEOUT_S}


def _ascii(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:  # to resolve it fails as well, with an error that says so
        return host
