"""Requests through a proxy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trustme
from support.http_stub import get, refusal, relay, server_tls, serving

from hpad.adapter import Context
from hpad.adapter_http import TlsOptions
from hpad.lab.servers import ports


@asynccontextmanager
async def tunnel(targets: list[str], status: str = "200 Connected") -> AsyncIterator[str]:
    """A proxy that speaks CONNECT; `targets` receives the host and port of each connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        targets.append(target)
        writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
        if not status.startswith("200"):
            writer.close()
            return
        host, _, port = target.partition(":")
        await relay(reader, writer, host, int(port))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


async def test_a_plain_request_goes_to_the_proxy(stub, context: Context) -> None:
    stub.answers("through the proxy")
    assert await get(context, "http://metrics.invalid/depth", proxy=stub.url) == "through the proxy"
    assert [each.headers["Host"] for each in stub.requests] == ["metrics.invalid"]


async def test_tls_goes_through_the_proxy_to_the_server(stub, context: Context, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca")
    stub.answers("through the tunnel")
    targets: list[str] = []
    async with serving(stub.handle, tls=server_tls(authority)) as url, tunnel(targets) as proxy:
        text = await get(context, url, proxy=proxy, tls=TlsOptions(ca=str(tmp_path / "ca")))
    assert text == "through the tunnel"
    assert targets == [url.removeprefix("https://")]


async def test_each_fault_of_a_proxy_has_its_own_sentence(context: Context) -> None:
    async with tunnel([], "407 Proxy Authentication Required") as proxy:
        assert "the proxy refuses the connection" in await refusal(context, "https://127.0.0.1:1/", proxy=proxy)
    dead = f"http://127.0.0.1:{ports.free(1)[0]}"
    assert "no connection to the proxy" in await refusal(context, "http://metrics.invalid/", proxy=dead)
