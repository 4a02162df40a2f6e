"""The server under concurrent, slow and endless requests, and with bugs of its own."""

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest
import structlog
import trustme
from support import http_server

from hpad.serve import limits, server
from hpad.serve.authentication import Reviewer
from hpad.serve.server import Server
from hpad.settings.model import Serving
from hpad.telemetry import Telemetry

SOON = 120.0


async def connected(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = server.url.partition("://")[2].split(":")
    return await asyncio.open_connection(host, int(port))


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Returns everything that comes until the server closes the connection."""
    async with asyncio.timeout(SOON):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


class Broken(http_server.NoHpas):
    def values(self) -> tuple[Any, ...]:
        raise RuntimeError("the password is hunter2")


@pytest.mark.parametrize("path", ["/api/v1/hpas", "/api/v1/hpas/shop/web"])
async def test_the_response_to_a_bug_has_no_details(path: str) -> None:
    async with http_server.opened(Serving(), source=Broken()) as server:
        with structlog.testing.capture_logs() as logged:
            assert await http_server.get(server.url + path) == (500, '{"error":"500: Internal Server Error"}')
    assert [(line["log_level"], line["path"]) for line in logged] == [("error", path)]


class Slow(Reviewer):
    """A reviewer that never answers."""

    def __init__(self) -> None:
        """Needs no client."""

    async def review(self, token: str, path: str) -> Any:
        await asyncio.Event().wait()


async def test_a_response_that_takes_too_long_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.1)
    async with http_server.opened(Serving(review=True), reviewer=Slow()) as server, asyncio.timeout(SOON):
        assert await http_server.get(server.url + "/", token="x") == (503, "503: Service Unavailable\n")


class Busy(Telemetry):
    """Counts concurrent scrapes, which last until `end` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = self.most = 0
        self.end = asyncio.Event()

    async def exposition(self) -> bytes:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self.end.wait()
        self.inside -= 1
        return b""


async def test_the_number_of_concurrent_requests_is_limited() -> None:
    telemetry = Busy()
    async with http_server.opened(Serving(), telemetry=telemetry) as server:
        requests = [
            asyncio.create_task(http_server.get(server.url + "/metrics")) for _ in range(limits.CONCURRENT_REQUESTS * 3)
        ]
        async with asyncio.timeout(SOON):
            while telemetry.inside < limits.CONCURRENT_REQUESTS:  # noqa: ASYNC110  # nothing signals it
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # time for further requests to get in
        telemetry.end.set()
        answers = await asyncio.gather(*requests)
    assert {status for status, _ in answers} == {200}
    assert telemetry.most == limits.CONCURRENT_REQUESTS


async def test_a_client_that_does_not_finish_the_handshake_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDSHAKE_SECONDS", 0.2)
    certificate, key = http_server.write_certificate(tmp_path, trustme.CA())
    async with http_server.opened(Serving(certificate=certificate, private_key=key)) as server:
        reader, writer = await connected(server)
        assert await rest(reader) == b""
        writer.close()


async def test_an_endless_body_is_not_read() -> None:
    async with http_server.opened(Serving()) as server:
        reader, writer = await connected(server)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
        sent = 0

        async def pour() -> None:
            nonlocal sent
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536

        pouring = asyncio.create_task(pour())
        await rest(reader)
        pouring.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await pouring
        writer.close()
    assert sent < 100_000_000  # the sockets' buffers hold some of the 1,000,000,000


def test_old_versions_of_tls_are_refused(tmp_path: Path) -> None:
    certificate, key = http_server.write_certificate(tmp_path, trustme.CA())
    certificates = server.Certificates(Serving(certificate=certificate, private_key=key))
    certificates.refresh()
    assert certificates.context is not None
    assert certificates.context.minimum_version >= ssl.TLSVersion.TLSv1_2
