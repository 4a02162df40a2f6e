"""A port without authentication refuses foreign host names (DNS rebinding)."""

import asyncio
from pathlib import Path

import pytest
from support import http_server

from hpad.serve.authentication import all_loopback
from hpad.serve.server import Server
from hpad.settings.model import Serving

LOCAL = ("localhost", "LOCALHOST:8473", "localhost.", "hpad.localhost:80", "127.0.0.1", "127.1.2.3:8473", "[::1]:8473")
FOREIGN = (
    "evil.example",
    "evil.example:8473",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "10.0.0.1",
    "",
    "[::2]",
)
PATHS = (
    *("/", "/metrics", "/nowhere", "/api/v1/hpas", "/api/v1/hpas/shop/web", "/api/v1/sources"),
    *("/api/v1/decisions", "/api/v1/openapi.json", "/api/v1/nowhere"),
)


async def status(server: Server, path: str, *hosts: str) -> tuple[int, str]:
    """Returns status and text of a GET with these Host headers."""
    address, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    version = b"1.1" if hosts else b"1.0"
    headers = "".join(f"Host: {name}\r\n" for name in hosts)
    writer.write(b"GET %b HTTP/%b\r\n%bConnection: close\r\n\r\n" % (path.encode(), version, headers.encode()))
    answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]


@pytest.mark.parametrize("host", FOREIGN)
async def test_an_open_port_on_loopback_refuses_foreign_host_names(host: str) -> None:
    async with http_server.opened(Serving(), unready=lambda: ["no secret"]) as server:
        for path in PATHS:
            assert (await status(server, path, host))[0] == 421
        assert await status(server, "/readyz", host) == (503, "not ready\n")
        for path in ("/livez", "/healthz"):
            assert await status(server, path, host) == (200, "ok\n")
        _, text = await status(server, "/", host)
        assert "listen_token_file" in text


@pytest.mark.parametrize("host", LOCAL)
async def test_local_host_names_are_answered(host: str) -> None:
    async with http_server.opened(Serving(), unready=lambda: ["the lease"]) as server:
        assert (await status(server, "/api/v1/hpas", host))[0] == 200
        assert await status(server, "/readyz", host) == (503, "the lease\n")


async def test_a_request_without_a_host_header_is_answered() -> None:
    async with http_server.opened(Serving()) as server:
        assert (await status(server, "/api/v1/hpas"))[0] == 200


async def test_a_request_with_two_host_headers_is_refused() -> None:
    async with http_server.opened(Serving()) as server:
        assert (await status(server, "/api/v1/hpas", "localhost", "evil.example"))[0] in (400, 421)


async def test_a_port_with_authentication_accepts_any_host_name(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("secret\n")
    async with http_server.opened(Serving(token_file=tmp_path / "tokens")) as server:
        assert (await status(server, "/api/v1/hpas", "hpad.example"))[0] == 401


async def test_an_open_port_on_other_addresses_answers_to_any_name() -> None:
    """Such a port is reached by the name of its machine, which hpad does not know."""
    async with http_server.opened(Serving(), address="0.0.0.0") as server:
        assert (await status(server, "/api/v1/hpas", "hpad.example"))[0] == 200


def test_host_names_are_checked_only_if_all_addresses_are_loopback() -> None:
    assert all_loopback(["127.0.0.1", "::1"])
    assert not all_loopback(["0.0.0.0"])
    assert not all_loopback(["127.0.0.1", "10.0.0.1"])
    assert not all_loopback(["::"])
