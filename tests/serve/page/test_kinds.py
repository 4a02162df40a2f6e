"""An Autoscaler beside an HPA of the same name: which is which in the list, and the page of each."""

from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest
from support import axe
from support.engine import Workload, external, series
from support.fleet import END, Fleet, Member

from hpad.api.hpa import AUTOSCALER, KIND, key_of
from tests.serve.page.conftest import Opening, Site, go

NAMES = ".row .title"
IN_SHADOW = {"hpad.io/mode": "shadow"}


def member(name: str, kind: str = KIND, *, replicas: int) -> Member:
    workload = Workload(
        external("orders", averageValue="10"), replicas=replicas, annotations=IN_SHADOW if kind == AUTOSCALER else None
    )
    workload.hpa = msgspec.structs.replace(workload.hpa, kind=kind)
    return Member(key_of("shop", name, kind), workload, lambda member, now: [series(60)])


def fleet(*members: Member) -> Fleet:
    made = Fleet(members)
    for key in made.members:
        made.live(key, END, 8, timedelta(seconds=15))
    return made


@pytest.fixture
async def site(opening: Opening) -> AsyncIterator[Site]:
    members = (member("web", replicas=4), member("web", AUTOSCALER, replicas=5), member("api", replicas=3))
    async with opening(fleet(*members)) as made:
        yield made


async def test_a_row_says_which_kind_it_is_and_a_filter_shows_one_kind(site: Site) -> None:
    page = await site.open("#/?sort=name")
    await page.until("document.querySelectorAll('.row').length === 3")
    assert await page.texts(NAMES) == ["api", "web", "web Autoscaler"]
    await page.click(".kinds [data-kind=Autoscaler]")
    await page.until("document.querySelectorAll('.row').length === 1")
    assert await page.texts(NAMES) == ["web Autoscaler"]
    assert await page.text(".filter[data-state=all] .number") == "1"
    assert "kind=Autoscaler" in await page.value("location.hash")


async def test_the_page_of_an_autoscaler_has_its_own_decisions(site: Site) -> None:
    page = await site.open("#/?sort=name")
    await page.until("document.querySelectorAll('.row').length === 3")
    await page.click(".row[data-key='shop/autoscaler/web'] .title")
    await page.until("document.querySelector('.past-list a')")
    assert await page.text("h1") == "web\nAutoscaler"
    assert await page.value("document.title") == "shop/autoscaler/web · hpad"
    assert await page.texts(".title .badge") == ["Shadow"]
    await page.click(".past-list a")
    await page.until("document.querySelector('.decision-card.past .cascade')")
    assert "5 → 6" in await page.text(".past-list a")
    await page.click(".decision-card .button")
    await page.until("!document.querySelector('.decision-card.past')")
    assert await page.text("h1") == "web\nAutoscaler"
    await go(page, "#/hpas/shop/web")
    await page.until("document.querySelector('.past-list a')")
    assert "4 → 6" in await page.text(".past-list a")
    assert await page.text("h1") == "web"


async def test_where_all_are_of_one_kind_no_row_says_so(opening: Opening) -> None:
    async with opening(fleet(member("web", AUTOSCALER, replicas=4))) as site:
        page = await site.open()
        await page.until("document.querySelector('.row')")
        assert await page.text(NAMES) == "web"
        assert await page.value("document.querySelector('.kinds').hidden")


@pytest.mark.skipif(not axe.SCRIPT.exists(), reason=axe.ABSENT)
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
async def test_both_kinds_have_no_finding_and_fit(site: Site, width: int, dark: bool) -> None:
    page = await site.open("#/sources", width, 900, dark=dark)
    for hash_ in ("#/", "#/hpas/shop/web?kind=Autoscaler"):
        await go(page, hash_)
        await page.until("document.querySelector('.row, .cascade')")
        assert await axe.findings(page) == []
        assert await page.value("document.documentElement.scrollWidth") <= width
