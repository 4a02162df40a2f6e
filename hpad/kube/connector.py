"""Connections to a server: the lookup of its name, its addresses, and TLS."""

import asyncio
import math
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import aiohappyeyeballs

from hpad.kube import errors
from hpad.kube.exchange import CONNECT_S, Failed

P = TypeVar("P", bound=asyncio.BaseProtocol)
_RESOLVED_S: Final = 10.0
"""Seconds for which the addresses of a name are kept, as in aiohttp: a burst of connections resolves it once."""


class Connector:
    """Opens connections to a server, as aiohttp does for the requests that it sends.

    `server` is its URL in messages, and `base` the same, escaped; `tls_name` is the name in its certificate, if that is
    not its host.
    """

    def __init__(self, server: str, base: str, tls: ssl.SSLContext | None, tls_name: str | None) -> None:
        parts = urlsplit(base)
        secured = parts.scheme == "https"
        self.server = server
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secured else 80)
        self._options: dict[str, Any] = {}
        if secured:  # certificates have names without a dot at the end
            self._options = {"ssl": tls or True, "server_hostname": tls_name or self._host.rstrip(".")}
        self._resolving = asyncio.Lock()
        self._addresses: Sequence[Any] = ()
        self._outdated_at = -math.inf

    async def connect(self, protocol: Callable[[], P], ends: float) -> P:
        """Connects to the first address that works. Raises Failed, at the latest at `ends`, a time of the loop."""
        try:
            async with asyncio.timeout_at(ends):
                return await self._connected(protocol)
        except errors.FOREIGN as error:
            raise Failed(*errors.unreachable(self.server, error)) from error

    async def _connected(self, protocol: Callable[[], P]) -> P:
        """Connects to the address that is the first to accept; while TLS fails, to one of the others."""
        addresses = list(await self._resolved())
        loop, tried = asyncio.get_running_loop(), dict[socket.socket, Any]()

        def opened(address: Any) -> socket.socket:
            tried[found := socket.socket(*address[:3])] = address
            return found

        while True:
            ends = loop.time() + CONNECT_S
            async with asyncio.timeout_at(ends):
                accepted = await aiohappyeyeballs.start_connection(
                    addresses, happy_eyeballs_delay=0.25, socket_factory=opened
                )
            try:
                async with asyncio.timeout_at(ends):
                    _, connected = await loop.create_connection(protocol, sock=accepted, **self._options)
                return connected
            except OSError:
                addresses.remove(tried[accepted])
                if not addresses:
                    raise

    async def _resolved(self) -> Sequence[Any]:
        """Returns the addresses of the server. Raises OSError, and UnicodeError for what is no name."""
        loop = asyncio.get_running_loop()
        async with self._resolving:
            if loop.time() >= self._outdated_at:
                self._addresses = await loop.getaddrinfo(
                    self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                )
                self._outdated_at = loop.time() + _RESOLVED_S
        return self._addresses
