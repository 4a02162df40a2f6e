"""Live updates: each decision reaches the page, and moves nothing that is being read."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support import browser, fleet_cast, free_ports
from support.fleet import Fleet

from hpad.api.metadata import Key
from hpad.serve import stream
from tests.serve.page.conftest import Opening, Site

INDEXER = Key("search", "indexer")
HURRIED = "const wait = window.{0}; window.{0} = (call, milliseconds) => wait(call, milliseconds / 20);"
"""JavaScript with which timers of the page, or its regular calls, come 20 times as often."""
OFTEN, SOON = HURRIED.format("setInterval"), HURRIED.format("setTimeout")


def small() -> Fleet:
    return fleet_cast.rich(0.05)


@pytest.fixture
async def site(opening: Opening) -> AsyncIterator[Site]:
    async with opening(small()) as made:
        yield made


async def test_a_decision_reaches_the_list_at_once(site: Site) -> None:
    page = await site.open("#/?search=indexer")
    await page.until("document.querySelector('.live').dataset.live === 'live'")
    site.fleet.members[INDEXER].workload.replicas = 33
    site.fleet.now(INDEXER)
    await page.until("document.querySelector('.row .count')?.innerText.startsWith('33')")


async def test_a_decision_that_changes_nothing_renews_its_usage_and_time(site: Site) -> None:
    """The stream has changed decisions only; the rows in sight are asked for every ten seconds."""
    page = await site.open("#/?search=storefront", before=OFTEN)
    await page.until("document.querySelector('.live').dataset.live === 'live'")
    time = "document.querySelector('.row .time time').dateTime"
    before = await page.until(time)
    site.fleet.now(Key("shop", "storefront"))
    await page.until(f"{time} !== {before!r}")


async def test_a_decision_reaches_the_page_of_its_hpa(site: Site) -> None:
    page = await site.open("#/hpas/search/indexer")
    await page.until("document.querySelector('.live').dataset.live === 'live'")
    site.fleet.members[INDEXER].workload.replicas = 33
    site.fleet.now(INDEXER)
    await page.until("document.querySelector('.step .after').firstChild.nodeValue === '33'")


async def test_while_somebody_reads_the_order_stays_until_it_is_asked_for(site: Site) -> None:
    page = await site.open("#/?sort=replicas&state=competing&state=limited&state=failing", height=500)
    await page.until("document.querySelector('.live').dataset.live === 'live' && document.querySelector('.row')")
    await page.value("scrollTo(0, 150)")
    names = await page.texts(".row .title")
    assert names[0] != "query"
    query = Key("search", "query")
    site.fleet.members[query].workload.replicas = 20_000
    site.fleet.now(query)
    await page.until("document.querySelector('.pill button')")
    assert (await page.texts(".row .title"))[: len(names)] == names
    assert await page.value("scrollY") == 150
    await page.click(".pill button")
    await page.until("document.querySelector('.row .title').innerText === 'query'")


async def test_a_new_hpa_appears_and_a_deleted_one_goes(opening: Opening) -> None:
    async with opening(small()) as site:
        page = await site.open()
        await page.until("document.querySelectorAll('.row').length === 13")
        await page.until("document.querySelector('.live').dataset.live === 'live'")
        fleet_cast.enlarge(site.fleet, 14)
        await page.until("document.querySelector('.filter .number').innerText === '14'")
        del site.fleet.members[INDEXER]
        await page.value("document.dispatchEvent(new Event('visibilitychange'))")  # else within half a minute
        await page.until("document.querySelector('.filter .number').innerText === '13'")
        assert "indexer" not in await page.texts(".row .title")


async def test_without_an_answer_the_page_says_so_and_recovers(opening: Opening) -> None:
    fleet = small()
    with free_ports.port() as port:
        async with opening(fleet, port=port) as site:
            page = await site.open("#/?search=indexer", before=SOON)
            await page.until("document.querySelector('.live').dataset.live === 'live'")
            await site.server.stop()
            await page.until("document.querySelector('.live').dataset.live === 'lost'")
            assert "hpad does not answer" in await page.text(".notices")
            assert await page.texts(".row .title") == ["indexer"], "what was known stays"
            fleet.members[INDEXER].workload.replicas = 33
            fleet.now(INDEXER)
            await site.serve(port=port)
            await page.until("document.querySelector('.live').dataset.live === 'live'")
            await page.until("document.querySelector('.row .count').innerText.startsWith('33')")
            assert await page.text(".notices") == ""
            page.expect("ERR_CONNECTION")


async def test_without_a_stream_the_page_polls(opening: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpad.serve.stream.MOST_CLIENTS", 0)
    fleet = small()
    async with opening(fleet) as site:
        page = await site.open("#/?search=indexer", before=SOON)
        await page.until("document.querySelector('.live').dataset.live === 'polling'")
        fleet.members[INDEXER].workload.replicas = 33
        fleet.now(INDEXER)
        await page.until("document.querySelector('.row .count').innerText.startsWith('33')")
        page.expect("503")


async def test_a_hidden_page_holds_no_stream(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser opens six connections to one server, which all its tabs share."""
    monkeypatch.setattr(stream.Streams, "keep_alive", 0.1)  # when the server notices that a client has left
    page = await site.open()
    await page.until("document.querySelector('.live').dataset.live === 'live'")
    assert len(site.server.streams) == 1
    await page.value(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    async with asyncio.timeout(browser.PATIENCE):
        while len(site.server.streams):  # noqa: ASYNC110  # the server tells nobody
            await asyncio.sleep(0.05)


async def test_an_update_keeps_open_what_the_reader_has_opened(site: Site) -> None:
    page = await site.open("#/hpas/platform/gateway", before=OFTEN)
    await page.click(".pods summary")
    await page.until("document.querySelector('.pods').open")
    time = "document.querySelector('.decision-card header time').dateTime"
    before = await page.value(time)
    site.fleet.now(Key("platform", "gateway"))
    await page.until(f"{time} !== {before!r}")
    assert await page.value("document.querySelector('.pods').open") is True
