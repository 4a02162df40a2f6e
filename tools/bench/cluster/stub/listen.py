"""Listens on loopback. With TLS the client chooses between HTTP/2 and HTTP/1.1, as with an API server."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any, Final, cast

from hpad.kube.http import frames
from tools.bench.cluster.stub import http, http1, http2
from tools.bench.cluster.stub.http import Handler

_PROTOCOLS: Final = [frames.PROTOCOL, "http/1.1"]


class _Arriving(asyncio.Protocol):
    """A connection whose client has not said yet which protocol it speaks."""

    def __init__(self, handler: Handler, connections: set[http.Connection]) -> None:
        self._handler = handler
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls = transport.get_extra_info("ssl_object")
        multiplexed = tls is not None and tls.selected_alpn_protocol() == frames.PROTOCOL
        make = http2.Connection if multiplexed else http1.Connection
        chosen = make(self._handler, self._connections)
        cast("asyncio.Transport", transport).set_protocol(chosen)
        chosen.connection_made(transport)


def tls(certificate: str | Path, key: str | Path) -> ssl.SSLContext:
    """Returns the context of a server with the files of its certificate and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(_PROTOCOLS)
    return context


async def listen(
    handler: Handler, context: ssl.SSLContext | None, connections: set[http.Connection]
) -> tuple[asyncio.Server, str]:
    """Returns a server and its URL. `connections` holds the open ones."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    keywords: dict[str, Any] = {"sock": listening, "ssl": context}
    server = await asyncio.get_running_loop().create_server(lambda: _Arriving(handler, connections), **keywords)
    scheme = "https" if context else "http"
    return server, f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
