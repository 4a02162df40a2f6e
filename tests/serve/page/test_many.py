"""5,000 HPAs: the document has the rows in sight, and the list stays complete. `tools/bench/page.py` has the times."""

from support import fleet_cast
from support.fleet import Fleet

from tests.serve.page.conftest import Opening

HPAS = 5000
MOST_ROWS = 60
MOST_NODES = 2500


async def test_five_thousand_hpas(opening: Opening) -> None:
    fleet = Fleet()
    fleet_cast.enlarge(fleet, HPAS)
    async with opening(fleet) as site:
        page = await site.open(height=1000)
        await page.until(f"document.querySelector('.filter .number').innerText === '{HPAS:,}'")
        names = [key.name for key in sorted(fleet.members, key=str)]
        await page.until(f"document.querySelector('.grid').getAttribute('aria-rowcount') === '{HPAS + 1}'")
        assert 10 < await page.value("document.querySelectorAll('.row').length") < MOST_ROWS
        assert await page.value("document.querySelectorAll('*').length") < MOST_NODES
        assert await page.text(".row .title") == names[0]
        await page.value("scrollTo(0, document.body.scrollHeight)")
        await page.until(f"document.querySelector('.row:last-child .title').innerText === {names[-1]!r}")
        assert await page.value("document.querySelectorAll('.row').length") < MOST_ROWS
        await page.value("scrollTo(0, document.body.scrollHeight / 2)")
        await page.until("Number(document.querySelector('.row:last-child').dataset.index) < 3000")
        shown = await page.value(
            "[...document.querySelectorAll('.row')]"
            ".map((row) => [row.dataset.index, row.querySelector('.title').innerText])"
        )
        assert all(name == names[int(index)] for index, name in shown)
        await page.click("#search")
        await page.press(*names[4321])
        await page.until("document.querySelectorAll('.row').length === 1")
        assert await page.text(".row .title") == names[4321]
