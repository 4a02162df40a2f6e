"""The keyboard reaches everything, and the focus is visible."""

from tests.serve.page.conftest import Site

FOCUSED = "document.activeElement.innerText"


async def test_j_and_k_move_enter_opens_and_escape_leads_back(site: Site) -> None:
    page = await site.open()
    await page.until("document.querySelectorAll('.row').length > 5")
    await page.press("j")
    names = await page.texts(".row .title")
    assert await page.value(FOCUSED) == names[0]
    await page.press("j", "j", "k", "ArrowDown")
    assert await page.value(FOCUSED) == names[2]
    assert await page.value("getComputedStyle(document.activeElement.closest('.row')).boxShadow") != "none"
    await page.press("Enter")
    await page.until(f"document.querySelector('.title h1')?.innerText === {names[2]!r}")
    await page.press("Escape")
    await page.until(f"location.hash === '#/' && {FOCUSED} === {names[2]!r}")  # the place is kept


async def test_slash_searches_and_escape_clears(site: Site) -> None:
    page = await site.open()
    await page.press("/")
    assert await page.value("document.activeElement.id") == "search"
    await page.press(*"gate")
    await page.until("document.querySelectorAll('.row').length === 1")
    await page.press("Enter")
    assert await page.value(FOCUSED) == "gateway"
    await page.press("/", "Escape")
    await page.until("document.querySelectorAll('.row').length > 5")
    await page.press("j")
    assert await page.value("document.activeElement.id") == "search", "typed as text"
    await page.press("Escape", "Escape")
    assert await page.value("document.activeElement.id") != "search"


async def test_the_list_is_one_stop_of_the_tab_key(site: Site) -> None:
    page = await site.open()
    await page.until("document.querySelectorAll('.row').length > 5")
    assert await page.value("document.querySelectorAll('.rows [tabindex=\"0\"]').length") == 1


async def test_the_focus_goes_on_in_rows_that_were_not_in_sight(site: Site) -> None:
    page = await site.open(height=400)
    await page.until("document.querySelectorAll('.row').length > 3")
    await page.press(*"jjjjjjjjjj")
    box = await page.value(
        "(() => { const box = document.activeElement.getBoundingClientRect(); return [box.top, box.bottom]; })()"
    )
    assert await page.value("document.activeElement.closest('.row').dataset.index") == "9"
    assert 0 < box[0] < box[1] < 400


async def test_help_opens_and_closes(site: Site) -> None:
    page = await site.open()
    await page.press("?")
    await page.until("document.getElementById('help').open")
    assert "next, previous HPA" in await page.text("#help")
    await page.press("Escape")
    await page.until("!document.getElementById('help').open")


async def test_g_leads_to_the_pages(site: Site) -> None:
    page = await site.open()
    await page.press("g", "s")
    await page.until("document.querySelector('h1')?.innerText === 'Metric sources'")
    assert await page.text(".tab[aria-current]") == "Sources"
    await page.press("g", "h")
    await page.until("document.querySelector('h1')?.innerText === 'HPAs'")


async def test_the_first_tab_skips_to_the_content(site: Site) -> None:
    page = await site.open()
    await page.press("Tab")
    assert await page.value(FOCUSED) == "Skip to the content"
    await page.press("Enter")
    assert await page.value("document.activeElement.id") == "main"


async def test_the_color_scheme_follows_the_system_until_it_is_chosen(site: Site) -> None:
    page = await site.open(dark=True)
    dark = await page.value("getComputedStyle(document.body).backgroundColor")
    await page.press("t")
    light = await page.value("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    await page.prefer(dark=False)
    await page.press("t")
    assert await page.value("getComputedStyle(document.body).backgroundColor") == dark
    again = await site.open(dark=False)
    assert await again.value("getComputedStyle(document.body).backgroundColor") == dark, "it is remembered"
