"""The list of HPAs: rows, filters, search and order."""

from support.fleet import END

from tests.serve.page.conftest import Site

NAMES = ".row .title"


async def test_each_hpa_is_a_row_in_the_order_of_its_name(site: Site) -> None:
    page = await site.open("#/?sort=name", height=1400)
    keys = sorted([*site.fleet.members, *site.fleet.idle], key=str)
    await page.until(f"document.querySelectorAll('.row').length === {len(keys)}")
    assert await page.texts(NAMES) == [key.name for key in keys]
    assert await page.value("document.querySelector('.grid').getAttribute('aria-rowcount')") == str(len(keys) + 1)


async def test_a_row_has_target_replicas_bounds_metrics_and_the_last_decision(site: Site) -> None:
    page = await site.open("#/?search=storefront")
    await page.until("document.querySelectorAll('.row').length === 1")
    text = await page.text(".row")
    assert "shop" in text
    assert "Deployment" in text
    assert (await page.text(".row .count")) == "12"
    assert (await page.text(".row .bounds")) == "4–12"
    assert "cpu" in await page.text(".row .metric")
    assert "/ 70%" in await page.text(".row .metric")
    assert "wanted but the maximum is 12" in await page.text(".row .sentence")
    assert await page.value("document.querySelector('.row .time time').dateTime") == END.isoformat().replace(
        "+00:00", "Z"
    )
    assert (await page.text(".row .time time")).endswith(("ago", "now"))


async def test_texts_that_may_be_cut_off_have_titles_where_the_pointer_is(site: Site) -> None:
    page = await site.open("#/?search=checkout")
    await page.until("document.querySelectorAll('.row').length === 1")
    place = await page.value(
        "(() => { const {x, y} = document.querySelector('.row .sentence').getBoundingClientRect(); return {x, y}; })()"
    )
    await page.point(place["x"] + 9, place["y"] + 9)
    await page.until("document.querySelector('.row .sentence').title")
    sentence = (await site.get("hpas/shop/checkout"))["sentence"]
    assert await page.value("document.querySelector('.row .sentence').title") == sentence
    assert await page.value("document.querySelector('.row .title').title") == "checkout"
    assert await page.value("document.querySelector('.row .time time').title") != ""


async def test_states_have_a_sign_and_words_besides_their_color(site: Site) -> None:
    page = await site.open("#/?search=storefront")
    await page.until("document.querySelectorAll('.row').length === 1")
    assert await page.texts(".row .badge") == ["At max", "Limited"]
    assert await page.value("document.querySelector('.row .mark .icon').getAttribute('aria-label')") == "At max"
    assert await page.value("[...document.querySelectorAll('.row .badge .icon')].map((each) => each.dataset.icon)") == [
        "atMax",
        "limited",
    ]


async def test_an_unknown_count_is_no_number(site: Site) -> None:
    page = await site.open("#/?search=platform")
    await page.until("document.querySelectorAll('.row').length === 3")
    assert dict(zip(await page.texts(NAMES), await page.texts(".row .count"), strict=True))["new-service"] == "?"
    assert dict(zip(await page.texts(NAMES), await page.texts(".row .count"), strict=True))["auth"] == "?"
    assert "No decision by this replica yet." in await page.text(".rows")


async def test_filters_show_counts_and_are_part_of_the_address(site: Site) -> None:
    page = await site.open()
    await page.until("document.querySelectorAll('.row').length > 5")
    labels, numbers = await page.texts(".filter .label"), await page.texts(".filter .number")
    shown = dict(zip(labels, map(int, numbers), strict=True))
    known = await site.get("hpas")
    names = {
        "failing": "Failing",
        "atMax": "At max",
        "limited": "Limited",
        "fallback": "Fallback",
        "competing": "Competing",
    }
    assert shown == {"All": known["total"]} | {label: known["counts"][state] for state, label in names.items()}
    assert min(shown.values()) > 0
    await page.click(".filter[data-state=failing]")
    await page.until("location.hash === '#/?state=failing'")
    await page.until("document.querySelectorAll('.row').length === 4")
    assert set(await page.texts(NAMES)) == {"fraud-scoring", "ledger-worker", "auth", "hostile"}
    assert await page.value("document.querySelector('[data-state=failing]').getAttribute('aria-pressed')") == "true"
    await page.click(".filter[data-state=competing]")
    await page.until("document.querySelectorAll('.row').length === 5")
    await page.value("history.back()")
    await page.until("document.querySelectorAll('.row').length === 4")
    await page.value("history.back()")
    await page.until("document.querySelectorAll('.row').length === 13")


async def test_the_search_finds_namespaces_names_and_targets(site: Site) -> None:
    page = await site.open()
    await page.click("#search")
    await page.press(*"PAYMENTS/")
    await page.until("document.querySelectorAll('.row').length === 2")
    assert await page.text(".filter[data-state=all] .number") == "2"
    await page.press(*"nothing")
    await page.until("document.body.innerText.includes('No HPA matches')")
    await page.click("[data-do=clear]")
    await page.until("document.querySelectorAll('.row').length === 13")
    assert await page.value("document.getElementById('search').value") == ""


async def test_a_column_sorts_and_sorts_the_other_way(site: Site) -> None:
    page = await site.open(height=1400)
    await page.until("document.querySelectorAll('.row').length === 13")
    await page.click(".head [data-by=replicas]")
    await page.until("document.querySelector('.row .title').innerText.startsWith('hhh')")
    await page.click(".head [data-by=replicas]")
    await page.until("document.querySelector('.row:last-child .title').innerText.startsWith('hhh')")
    assert await page.value("document.querySelector('.head .replicas').getAttribute('aria-sort')") == "ascending"


async def test_a_row_leads_to_the_page_of_its_hpa_and_the_way_back_to_the_same_place(site: Site) -> None:
    page = await site.open("#/?sort=replicas", height=500)
    await page.until("document.querySelectorAll('.row').length > 5")
    await page.until("scrollTo(0, 300), scrollY === 300")
    await page.click(".row[data-index='6'] .sentence")
    await page.until("location.hash.startsWith('#/hpas/') && scrollY === 0")
    await page.value("history.back()")
    await page.until("document.querySelectorAll('.row').length > 5 && scrollY === 300")
    assert await page.value("location.hash") == "#/?sort=replicas"
