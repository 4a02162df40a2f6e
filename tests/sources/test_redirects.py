"""An adapter's HTTP session follows no redirect."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from hpad import testing
from hpad.adapter import AdapterError


@asynccontextmanager
async def server(location: str) -> AsyncIterator[str]:
    """Redirects /go to `location`."""

    async def go(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": location})

    application = web.Application()
    application.add_routes([web.get("/go", go)])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    "location", ["http://localhost/secret?token=abc", "//example.org/x", "http://127.0.0.1:1/here", "/here"]
)
async def test_a_redirect_is_an_error(location):
    async with server(location) as url, testing.context("mine") as context:
        with pytest.raises(AdapterError, match="answers with a redirect to ") as raised:
            await context.http.get(f"{url}/go", headers={"Authorization": "Bearer abc"})
    assert "abc" not in raised.value.message
    assert raised.value.lasting
