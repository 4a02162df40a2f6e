"""HTTP servers on loopback whose answers a test sets, and a clock that a test sets."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
import trustme
from aiohttp import web

from hpad import clock as clocks
from hpad.adapter import Context
from hpad.adapter_http import Http, HttpOptions, Request, RequestFailedError

SECRET = "s3cr3t"
SERVER = "the server"
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[str]:
    """Serves every request with the handler; yields the URL of the server."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def server_tls(authority: trustme.CA, *names: str, clients: trustme.CA | None = None) -> ssl.SSLContext:
    """Returns the TLS of a server on 127.0.0.1 (and `names`); it requires certificates of the authority `clients`."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", *names).configure_cert(tls)
    if clients is not None:
        clients.configure_trust(tls)
        tls.verify_mode = ssl.CERT_REQUIRED
    return tls


async def hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """Closes the connection without an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """Passes bytes between a client and another server, until both have closed."""

    async def pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while part := await source.read(65536):
            target.write(part)
        target.close()

    # Also where the test ends first.
    with contextlib.closing(writer):
        there = await asyncio.open_connection(host, port)
        with contextlib.closing(there[1]):
            await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))


class Stub:
    """A server whose answers are those of `handler`; `requests` and `forms` hold each request and its form."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[web.BaseRequest] = []
        self.forms: list[dict[str, str]] = []
        self.handler: Handler = hang_up

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        self.forms.append({key: str(value) for key, value in (await request.post()).items()})
        return await self.handler(request)

    def answers(
        self, body: object = b"", status: int = 200, content_type: str = "application/json", **headers: str
    ) -> None:
        """Answers every request alike: with text or bytes as they are, or anything else as JSON."""
        text = body.encode() if isinstance(body, str) else body
        encoded = text if isinstance(text, bytes) else msgspec.json.encode(text)

        async def handler(request: web.BaseRequest) -> web.Response:
            return web.Response(body=encoded, status=status, content_type=content_type, headers=headers)

        self.handler = handler


class SetClock(clocks.SystemClock):
    """The system's clock, except that a test sets `seconds`, the monotonic time."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


async def get(context: Context, url: str, **options: object) -> str:
    """Returns the body of the answer to a request with these options, by default with timeouts of a minute."""
    patient = {"timeout": 60.0, "connect_timeout": 60.0, **options}
    return (await Http(context, HttpOptions(**patient)).send(Request(url=url, name=SERVER))).body.decode()


async def refusal(context: Context, url: str, **options: object) -> str:
    """Returns the message of the error of a request; no secret stands in it."""
    with pytest.raises(RequestFailedError) as caught:
        await get(context, url, **options)
    assert SECRET not in caught.value.message
    return caught.value.message
