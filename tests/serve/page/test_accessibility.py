"""Every page in light and dark: no finding of axe-core, and no sideways scrolling at three widths."""

import pytest
from support import axe

from tests.serve.page.conftest import Site, go

LONG = f"#/hpas/{'n' * 63}/{'h' * 253}"
PAGES = ("#/", "#/hpas/shop/checkout", "#/hpas/payments/fraud-scoring", "#/hpas/test/hostile", LONG, "#/sources")

needs_axe = pytest.mark.skipif(not axe.SCRIPT.exists(), reason=axe.ABSENT)


@needs_axe
@pytest.mark.parametrize(("width", "dark"), [(400, True), (1000, True), (1600, False)])
async def test_no_page_has_a_finding(site: Site, width: int, dark: bool) -> None:
    page = await site.open(PAGES[-1], width, 900, dark=dark)
    for hash_ in PAGES:
        await go(page, hash_)
        await page.until("document.querySelector('.row, .cascade, .source-list')")
        # axe-core takes seconds, and half a minute for the long page, which is one of an HPA as others are.
        if hash_ != LONG and width != 1000:
            assert await axe.findings(page) == [], hash_
        assert await page.value("document.documentElement.scrollWidth") <= width, hash_


@needs_axe
async def test_dialog_details_and_a_past_decision_have_no_finding(site: Site) -> None:
    page = await site.open("#/hpas/platform/gateway", 1280, 900)
    await page.until("document.querySelector('.pods')")
    await page.value("document.querySelectorAll('details').forEach((each) => each.open = true)")
    assert await axe.findings(page) == []
    await page.press("?")
    assert await axe.findings(page) == []
    await page.press("Escape")
    await go(page, "#/hpas/shop/checkout")
    await page.click(".past-list a")
    await page.until("document.querySelector('.decision-card.past .cascade')")
    assert await axe.findings(page) == []


async def test_the_axes_are_those_of_axe_core(site: Site) -> None:
    """The judge finds what it should: a button without a name."""
    if not axe.SCRIPT.exists():
        pytest.skip(axe.ABSENT)
    page = await site.open()
    await page.value("document.querySelector('main').append(document.createElement('button'))")
    assert [each.split()[0] for each in await axe.findings(page)] == ["button-name"]


async def test_nothing_moves_for_those_who_want_no_motion(site: Site) -> None:
    page = await site.open()
    still = "getComputedStyle(each).transitionDuration === '0s'"
    moving = f"[...document.querySelectorAll('*')].filter((each) => !({still})).length"
    assert await page.value(moving) == 0
    assert await page.value("document.getAnimations().length") == 0
    page = await site.open(prefers_reduced_motion="no-preference")
    assert await page.value(moving) > 0
