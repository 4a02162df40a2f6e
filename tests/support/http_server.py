"""An HTTP server of hpad on loopback with its files, and clients for it."""

import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import trustme

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.election import owner
from hpad.election.leader import KnownReplica
from hpad.records.history import DecisionHistory
from hpad.records.recent import RecentReconciles
from hpad.serve.api import Shown
from hpad.serve.api_types import Status
from hpad.serve.authentication import Reviewer
from hpad.serve.server import Server
from hpad.serve.summary import ShownHpas
from hpad.settings.model import Serving
from hpad.sources.limits import SourceReport
from hpad.store.store import InMemory, Store
from hpad.telemetry import Telemetry

MODE = Status(doing="Scaling by 0 HPAs", dry_run=False)


class NoHpas:
    """A source of HPAs; subclasses override `values`."""

    def values(self) -> tuple[Any, ...]:
        return ()

    def get(self, key: Key) -> HorizontalPodAutoscaler | None:
        return next((hpa for hpa in self.values() if hpa.key == key), None)

    def keys(self) -> list[Key]:
        return [hpa.key for hpa in self.values()]


class Present:
    """What hpad does at present, by functions."""

    def __init__(
        self,
        unready: Callable[[], list[str]] = list,
        problems: Callable[[], list[str]] = list,
        mode: Callable[[], Status] = lambda: MODE,
    ) -> None:
        self.unready = unready
        self.problems = problems
        self.mode = mode


@asynccontextmanager
async def opened(
    serving: Serving,
    *,
    address: str = "127.0.0.1",
    reviewer: Reviewer | None = None,
    unready: Callable[[], list[str]] = list,
    problems: Callable[[], list[str]] = list,
    replicas: Callable[[], Sequence[KnownReplica]] = owner.alone,
    port: int = 0,
    clock: Clock | None = None,
    source: ShownHpas | None = None,
    store: Store | None = None,
    decisions: DecisionHistory | None = None,
    telemetry: Telemetry | None = None,
    mode: Status = MODE,
    reports: Sequence[SourceReport] = (),
    recent: RecentReconciles | None = None,
) -> AsyncIterator[Server]:
    """Starts a server on that address, on a free port (0) or another, and stops it."""
    server = Server(
        (address, port),
        Shown(source or NoHpas(), store or InMemory(), decisions, recent, lambda: reports, replicas),
        Present(unready, problems, lambda: mode),
        telemetry or Telemetry(),
        serving=serving,
        reviewer=reviewer,
        clock=clock,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def session() -> aiohttp.ClientSession:
    """Returns a client that uses no proxy."""
    return aiohttp.ClientSession(trust_env=False)


async def get(url: str, *, token: str | None = None, tls: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Returns status and text of a GET on a new connection."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True)
    async with (
        aiohttp.ClientSession(connector=connector, trust_env=False) as session,
        session.get(url, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


def write_certificate(folder: Path, authority: trustme.CA) -> tuple[Path, Path]:
    """Writes a certificate for loopback and its key; existing ones are replaced."""
    leaf = authority.issue_cert("127.0.0.1")
    certificate, key = folder / "tls.crt", folder / "tls.key"
    leaf.cert_chain_pems[0].write_to_path(str(certificate))
    leaf.private_key_pem.write_to_path(str(key))
    return certificate, key


def client(trusts: trustme.CA) -> ssl.SSLContext:
    """Returns a client's TLS context that trusts `trusts`."""
    context = ssl.create_default_context()
    trusts.configure_trust(context)
    return context


def decoded(text: str) -> Any:
    """Returns the JSON of an answer."""
    return json.loads(text)
