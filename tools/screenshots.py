"""Draws the pictures of the status page in docs/images: `PYTHONPATH=tests python -m tools.screenshots`.

It needs Chromium, and the font Inter (Debian's fonts-inter) for the same letters as in the present pictures.
"""

import asyncio
from pathlib import Path

from support import browser, fleet_cast, http_server

from hpad.election.leader import KnownReplica
from hpad.serve.api_types import Status
from hpad.settings.model import Serving

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SHOTS = {"status-page.png": ("#/", 800), "status-hpa.png": ("#/hpas/shop/checkout", 1240)}
"""The address and the height of each picture."""
WIDTH, SCALE = 1280, 1.5


async def draw() -> None:
    """Draws every picture."""
    fleet = fleet_cast.rich(24, odd=False)
    facts = ("leader", "HPAs of the API server")
    mode = Status(doing=f"Scaling by {len(fleet.values())} HPAs", facts=facts, dry_run=False)
    replicas = lambda: (KnownReplica("hpad-0", "leader"),)  # noqa: E731
    options = {"source": fleet, "store": fleet.store, "decisions": fleet.log, "mode": mode, "replicas": replicas}
    with browser.launched() as address:
        async with http_server.opened(Serving(), **options) as server, browser.connected(address) as chromium:
            for name, (hash_, height) in SHOTS.items():
                page = await chromium.page(WIDTH, height)
                await page.resize(WIDTH, height, SCALE)
                await page.open(f"{server.url}/{hash_}")
                await page.until("document.querySelector('.row, .metrics path')")
                await asyncio.sleep(1)
                await page.screenshot(IMAGES / name)


if __name__ == "__main__":
    asyncio.run(draw())
