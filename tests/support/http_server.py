"""An HTTP server of hpad on loopback with its files, and clients for it."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import trustme

from hpad.clock import Clock
from hpad.serve.authentication import Reviewer
from hpad.serve.page import HpaSource
from hpad.serve.server import Server
from hpad.settings.model import Serving
from hpad.store.memory import InMemory
from hpad.telemetry import Telemetry


class NoHpas:
    def values(self) -> tuple[Any, ...]:
        return ()


@asynccontextmanager
async def opened(
    serving: Serving,
    *,
    reviewer: Reviewer | None = None,
    unready: Callable[[], list[str]] = list,
    clock: Clock | None = None,
    source: HpaSource | None = None,
    telemetry: Telemetry | None = None,
) -> AsyncIterator[Server]:
    """A server on a free port of loopback."""
    server = Server(
        ("127.0.0.1", 0),
        source=source or NoHpas(),
        store=InMemory(),
        telemetry=telemetry or Telemetry(),
        unready=unready,
        serving=serving,
        reviewer=reviewer,
        clock=clock,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def get(url: str, *, token: str | None = None, tls: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Status and text of a GET on a connection of its own."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True)
    async with (
        aiohttp.ClientSession(connector=connector, trust_env=False) as session,
        session.get(url, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


def write_certificate(folder: Path, authority: trustme.CA) -> tuple[Path, Path]:
    """A certificate for loopback and its key, in place of those that are there."""
    leaf = authority.issue_cert("127.0.0.1")
    certificate, key = folder / "tls.crt", folder / "tls.key"
    leaf.cert_chain_pems[0].write_to_path(str(certificate))
    leaf.private_key_pem.write_to_path(str(key))
    return certificate, key


def client(trusts: trustme.CA, *, shows: trustme.CA | None = None) -> ssl.SSLContext:
    """A client's side of TLS; it has a certificate if an authority is given that signs one."""
    context = ssl.create_default_context()
    trusts.configure_trust(context)
    if shows is not None:
        shows.issue_cert("scraper@example.com").configure_cert(context)
    return context
