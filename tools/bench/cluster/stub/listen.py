"""Listens on loopback, with TLS or without it."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

from tools.bench.cluster.stub import http, http1
from tools.bench.cluster.stub.http import Handler


def tls(certificate: str | Path, key: str | Path) -> ssl.SSLContext:
    """Returns the context of a server with the files of its certificate and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def listen(
    handler: Handler, context: ssl.SSLContext | None, connections: set[http.Connection]
) -> tuple[asyncio.Server, str]:
    """Returns a server and its URL. `connections` holds the open ones."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    keywords: dict[str, Any] = {"sock": listening, "ssl": context}
    server = await asyncio.get_running_loop().create_server(lambda: http1.Connection(handler, connections), **keywords)
    scheme = "https" if context else "http"
    return server, f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
