"""A browser for the pages of reports, which are files."""

from collections.abc import AsyncIterator, Iterator

import pytest
from support import browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[str]:
    """The address of a browser."""
    if browser.command() is None:
        pytest.skip(browser.ABSENT)
    with browser.launched() as address:
        yield address


@pytest.fixture
async def pages(chromium: str) -> AsyncIterator[browser.Browser]:
    """The browser, without pages."""
    async with browser.connected(chromium) as found:
        yield found
