"""An adapter's HTTP session follows no redirect to another host."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from hpad import testing
from hpad.adapter import AdapterError


@asynccontextmanager
async def server(location: str) -> AsyncIterator[str]:
    """Redirects /go to `location`, answers /here."""

    async def go(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": location})

    async def here(request: web.Request) -> web.Response:
        return web.Response(text="here")

    application = web.Application()
    application.add_routes([web.get("/go", go), web.get("/here", here)])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_redirect_on_the_same_host_is_followed():
    async with server("/here") as url, testing.context("mine") as context, context.http.get(f"{url}/go") as answer:
        assert await answer.text() == "here"


@pytest.mark.parametrize(
    "location", ["http://localhost/secret?token=abc", "//example.org/x", "http://127.0.0.1:1/here"]
)
async def test_a_redirect_to_another_host_is_an_error(location):
    async with server(location) as url, testing.context("mine") as context:
        with pytest.raises(AdapterError, match="redirects to another host") as raised:
            await context.http.get(f"{url}/go", headers={"Authorization": "Bearer abc"})
    assert "abc" not in raised.value.message
    assert raised.value.lasting
