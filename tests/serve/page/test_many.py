"""1,200 HPAs: the document has the rows in sight, and the list stays complete. `tools/bench/page.py` has the times."""

from support import fleet_cast
from support.fleet import Fleet

from tests.serve.page.conftest import Opening

HPAS = 1200
MOST_ROWS = 60
MOST_NODES = 2500
PLACES = "[...document.querySelectorAll('.row')].map((row) => Number(row.dataset.index))"


async def test_a_long_list(opening: Opening) -> None:
    fleet = Fleet()
    fleet_cast.enlarge(fleet, HPAS)
    async with opening(fleet) as site:
        page = await site.open("#/?sort=name", height=1000)
        await page.until(f"document.querySelector('.filter .number').innerText === '{HPAS:,}'")
        names = [key.name for key in sorted(fleet.members, key=str)]
        await page.until(f"document.querySelector('.grid').getAttribute('aria-rowcount') === '{HPAS + 1}'")
        assert 10 < await page.value("document.querySelectorAll('.row').length") < MOST_ROWS
        assert await page.value("document.querySelectorAll('*').length") < MOST_NODES
        assert await page.text(".row .title") == names[0]
        last = f"document.querySelector('.row:last-child .title').innerText === {names[-1]!r}"
        await page.until(f"scrollTo(0, document.body.scrollHeight), {last}")
        assert await page.value("document.querySelectorAll('.row').length") < MOST_ROWS
        await page.value("scrollTo(0, document.body.scrollHeight / 2)")
        await page.until(f"Number(document.querySelector('.row:last-child').dataset.index) < {HPAS * 3 // 5}")
        shown = await page.value(
            "[...document.querySelectorAll('.row')]"
            ".map((row) => [row.dataset.index, row.querySelector('.title').innerText])"
        )
        assert all(name == names[int(index)] for index, name in shown)
        await page.click("#search")
        await page.press(*names[1023])
        await page.until("document.querySelectorAll('.row').length === 1")
        assert await page.text(".row .title") == names[1023]


async def test_the_rows_are_reused_and_stand_in_order_once_the_list_rests(opening: Opening) -> None:
    """A row that leaves the screen shows the HPA that enters it; making new rows costs more than all the rest."""
    fleet = Fleet()
    fleet_cast.enlarge(fleet, 300)
    async with opening(fleet) as site:
        page = await site.open("#/?sort=name", height=1000)
        await page.until("document.querySelector('.grid').getAttribute('aria-rowcount') === '301'")
        await page.value("window.made = new Set(document.querySelectorAll('.row'))")
        for end in ("document.body.scrollHeight", "0", "3000", "2000"):
            there = f"Math.abs(scrollY - Math.min({end}, document.body.scrollHeight - innerHeight)) < 2"
            await page.until(f"scrollTo(0, {end}), {there}")  # again where the page has grown meanwhile
            await page.until(f"{PLACES}.includes(Math.round(scrollY / 66))")
            await page.until(f"{PLACES}.every((each, at, all) => !at || each > all[at - 1])")
            made = await page.value("document.querySelectorAll('.row').forEach((row) => made.add(row)), made.size")
        assert made < MOST_ROWS
        names = sorted(map(str, fleet.members))
        shown = await page.value(
            "[...document.querySelectorAll('.row')].map((row) => [row.dataset.index, row.dataset.key,"
            " row.querySelector('a').hash, row.querySelector('.sub span').innerText])"
        )
        for index, key, link, namespace in shown:
            assert key == names[int(index)]
            assert link == f"#/hpas/{key}"
            assert key.startswith(f"{namespace}/")
