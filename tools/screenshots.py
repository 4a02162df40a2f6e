"""Draws the pictures of pages in docs/images: `PYTHONPATH=tests python -m tools.screenshots`.

It needs Chromium, Prometheus, and the font Inter (Debian's fonts-inter) for the same letters as in the present
pictures.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from support import advice_seeds_server, browser, fleet_cast, http_server
from support.browser import Browser

from hpad.election.leader import KnownReplica
from hpad.serve.api_types import Status
from hpad.settings.model import Serving

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
STATUS_SHOTS = {"status-page.png": ("#/", 800), "status-hpa.png": ("#/hpas/shop/checkout", 1240)}
"""The address and the height of each picture of the status page."""
ADVICE_SHOTS = {"advice-fleet.png": ("", 880), "advice-hpa.png": ("#shop/recommend", 830)}
"""The same of the page on the advice."""
SEED = 1
WIDTH, SCALE = 1280, 1.5


async def draw() -> None:
    """Draws every picture."""
    with browser.launched() as address:
        async with browser.connected(address) as chromium:
            await draw_status(chromium)
            await draw_advice(chromium)


async def draw_status(chromium: Browser) -> None:
    """Draws the status page of a fleet."""
    fleet = fleet_cast.rich(24, odd=False)
    facts = ("leader", "HPAs of the API server")
    mode = Status(doing=f"Scaling by {len(fleet.values())} HPAs", facts=facts, dry_run=False)
    replicas = lambda: (KnownReplica("hpad-0", "leader"),)  # noqa: E731
    options = {"source": fleet, "store": fleet.store, "decisions": fleet.log, "mode": mode, "replicas": replicas}
    async with http_server.opened(Serving(), **options) as server:
        for name, (hash_, height) in STATUS_SHOTS.items():
            await shoot(
                chromium, f"{server.url}/{hash_}", height, "document.querySelector('.row, .metrics path')", name
            )


async def draw_advice(chromium: Browser) -> None:
    """Draws the page on the advice for the seeded week of the tests, which takes about two minutes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "advice.html")
        await asyncio.to_thread(advise, Path(folder), file)
        for name, (hash_, height) in ADVICE_SHOTS.items():
            await shoot(chromium, f"file://{file}{hash_}", height, "document.querySelector('.area')", name)


def advise(folder: Path, report: Path) -> None:
    """Writes the page. Blocks."""
    for week in advice_seeds_server.serve(folder, SEED):
        command = [sys.executable, "-m", "hpad", "advise", *week.arguments, "--price", "0.04", "--report", str(report)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


async def shoot(chromium: Browser, url: str, height: int, shown: str, name: str) -> None:
    """Draws one picture once an expression is true in the page."""
    found = await chromium.page(WIDTH, height)
    await found.resize(WIDTH, height, SCALE)
    await found.open(url)
    await found.until(shown)
    await asyncio.sleep(1)
    await found.screenshot(IMAGES / name)


if __name__ == "__main__":
    asyncio.run(draw())
