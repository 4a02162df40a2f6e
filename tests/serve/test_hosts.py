"""A page of another site that has its own name resolve to loopback reads nothing of an open port (DNS rebinding)."""

import asyncio
from pathlib import Path

import pytest
from support import http_server

from hpad.serve import server as hosts
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
PATHS = ("/", "/api/hpas", "/api/hpas/shop/web", "/api/sources", "/metrics", "/nowhere")


async def status(server: Server, path: str, *named: str) -> tuple[int, str]:
    """The status of a GET with these Host headers, and what it says."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    version = b"1.1" if named else b"1.0"
    headers = "".join(f"Host: {name}\r\n" for name in named)
    writer.write(b"GET %b HTTP/%b\r\n%bConnection: close\r\n\r\n" % (path.encode(), version, headers.encode()))
    answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]


@pytest.mark.parametrize("named", FOREIGN)
async def test_an_open_port_on_loopback_answers_to_no_foreign_name(named: str) -> None:
    async with http_server.opened(Serving(), unready=lambda: ["no secret"]) as server:
        for path in PATHS:
            assert (await status(server, path, named))[0] == 421
        assert await status(server, "/readyz", named) == (503, "not ready\n")
        for path in ("/livez", "/healthz"):
            assert await status(server, path, named) == (200, "ok\n")
        _, said = await status(server, "/", named)
        assert "listen_token_file" in said


@pytest.mark.parametrize("named", LOCAL)
async def test_local_names_are_answered(named: str) -> None:
    async with http_server.opened(Serving(), unready=lambda: ["the lease"]) as server:
        assert (await status(server, "/api/hpas", named))[0] == 200
        assert await status(server, "/readyz", named) == (503, "the lease\n")


async def test_a_request_without_a_name_is_no_browsers() -> None:
    async with http_server.opened(Serving()) as server:
        assert (await status(server, "/api/hpas"))[0] == 200


async def test_two_names_are_none() -> None:
    async with http_server.opened(Serving()) as server:
        assert (await status(server, "/api/hpas", "localhost", "evil.example"))[0] in (400, 421)


async def test_a_guarded_port_asks_for_a_token_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("secret\n")
    async with http_server.opened(Serving(token_file=tmp_path / "tokens")) as server:
        assert (await status(server, "/api/hpas", "hpad.example"))[0] == 401


def test_only_ports_of_loopback_alone_care() -> None:
    assert hosts.all_loopback(["127.0.0.1", "::1"])
    assert not hosts.all_loopback(["0.0.0.0"])
    assert not hosts.all_loopback(["127.0.0.1", "10.0.0.1"])
    assert not hosts.all_loopback(["::"])
