"""The status page in Chromium, served by a real server with the decisions of a fleet."""

import contextlib
import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from support import browser, fleet_cast, http_server
from support.fleet import END, Fleet

from hpad.serve.api_types import Status
from hpad.serve.server import Server
from hpad.settings.model import Serving
from hpad.sources.limits import SourceReport

SOURCES = (
    SourceReport(
        name="metrics-server", adapter="metrics-server", state="ok", latency=0.018, calls=120, asked=90, hits=30
    ),
    SourceReport(name="prometheus", adapter="prometheus", state="ok", latency=0.06, calls=57, retries=3, asked=115),
    SourceReport(
        name="rabbitmq",
        adapter="rabbitmq",
        state="failing",
        latency=2.01,
        calls=58,
        retries=6,
        asked=172,
        errors={"source": 68, "spec": 2},
        last_error="GET http://rabbitmq.payments:15672/api/queues/%2F/ledger: connection refused",
        last_error_at=END - timedelta(seconds=4),
    ),
)


LOADED = "document.querySelector('main') && !document.querySelector('.loading')"


class Site:
    """A server with a fleet, and pages of it. No page may have reported a problem at the end of a test."""

    def __init__(self, fleet: Fleet, chromium: browser.Browser, stack: contextlib.AsyncExitStack) -> None:
        self.fleet = fleet
        self.server: Server
        self.pages: list[browser.Page] = []
        self._chromium = chromium
        self._stack = stack

    async def serve(self, **options: Any) -> None:
        """Starts the server; `options` are those of http_server.opened."""
        defaults: dict[str, Any] = {
            "source": self.fleet,
            "store": self.fleet.store,
            "decisions": self.fleet.log,
            "reports": SOURCES,
            "mode": Status(doing="Scaling by all HPAs", facts=("no leader election",), dry_run=False),
        }
        server = http_server.opened(Serving(), **(defaults | options))
        self.server = await self._stack.enter_async_context(server)

    async def get(self, path: str) -> Any:
        """Returns the JSON of a path under /api/v1/."""
        async with http_server.session() as session, session.get(f"{self.server.url}/api/v1/{path}") as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def open(
        self,
        hash_: str = "#/",
        width: int = 1280,
        height: int = 800,
        *,
        url: str = "",
        before: str = "",
        **options: Any,
    ) -> browser.Page:
        """Opens an address of the page, at the server's URL or another, and waits until it has data.

        `before` is JavaScript that runs before that of the page.
        """
        still = {"prefers_reduced_motion": "reduce"}  # a click must meet what it was aimed at
        page = await self._chromium.page(width, height, **(still | options))
        self.pages.append(page)
        await page.send("Page.addScriptToEvaluateOnNewDocument", {"source": before})
        await page.open(f"{url or self.server.url}/{hash_}")
        await page.until(LOADED)
        return page


async def go(page: browser.Page, hash_: str) -> None:
    """Goes to another address of the page, as a link does: that is quicker than to load it again."""
    gone = "new Promise((gone) => {{ addEventListener('hashchange', gone, {{once: true}}); location.hash = {}; }})"
    await page.value(f"{gone.format(json.dumps(hash_))}.then(() => 0)")
    await page.until(LOADED)


Opening = Callable[..., contextlib.AbstractAsyncContextManager[Site]]


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    """The address of a browser that all tests use."""
    if browser.command() is None:
        pytest.skip(browser.ABSENT)
    with browser.launched() as address:
        yield address


@pytest.fixture
def opening(chromium: str) -> Opening:
    """Returns the function that opens a site for a fleet; its other arguments are those of Site.serve."""

    @contextlib.asynccontextmanager
    async def opened(fleet: Fleet, **options: Any) -> AsyncIterator[Site]:
        async with contextlib.AsyncExitStack() as stack:
            site = Site(fleet, await stack.enter_async_context(browser.connected(chromium)), stack)
            await site.serve(**options)
            yield site
            assert [page.problems for page in site.pages] == [[]] * len(site.pages)

    return opened


@functools.cache
def shared() -> Fleet:
    """The HPAs of `fleet_cast` with three hours of history. Tests that add decisions have fleets of their own."""
    return fleet_cast.rich(3)


@pytest.fixture
async def site(opening: Opening) -> AsyncIterator[Site]:
    """A site with the shared fleet."""
    async with opening(shared()) as made:
        yield made
