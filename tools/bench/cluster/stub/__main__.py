"""Runs the stub server as a process; the bench gives the options (see `child`)."""

import asyncio
import gc
import socket
import ssl
from typing import Any

from tools.bench.cluster import child
from tools.bench.cluster.population import Population
from tools.bench.cluster.stub import http
from tools.bench.cluster.stub.api import Api
from tools.bench.cluster.stub.http1 import Connection
from tools.bench.cluster.stub.storms import Storms


async def serve(population: Population, options: dict[str, Any]) -> None:
    """Serves on loopback; `certificate` and `key` are files for TLS, which is off without them."""
    api, context = Api(population), None
    connections: set[http.Connection] = set()
    storms = Storms(api, connections)
    if "certificate" in options:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options["certificate"], options["key"])
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(api.handle, connections), sock=listening, ssl=context)
    gc.freeze()
    async with server:
        scheme = "https" if context else "http"
        await child.obey(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}", storms.commands())


if __name__ == "__main__":
    child.main(serve)
