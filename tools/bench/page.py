"""Benchmark of the status page: `PYTHONPATH=tests python -m tools.bench.page` prints times of Chromium with 5,000 HPAs.

`first paint` is that of the empty page, `first row` the first HPA, `all` the whole list, in milliseconds from the start
of the navigation. The list is then scrolled through, a screen per frame, and once more on a processor that is slowed
down, while decisions arrive and the whole list is loaded anew. `frame` is the median time between two frames, `CPU`
what the main thread of the page computes for one, and `long tasks` are those that block the page for more than 50 ms
(W3C, "Long Tasks API"). Other load on the machine makes frames and tasks longer, and leaves `CPU` as it is. Without a
GPU, painting takes most of the time. `--short` uses 50 HPAs.
"""

import asyncio
import itertools
import sys
from typing import Any

from support import browser, fleet_cast, http_server
from support.fleet import Fleet

from hpad.settings.model import Serving

SHORT = "--short" in sys.argv[1:]
HPAS = 50 if SHORT else 5_000
FRAMES = 20 if SHORT else 300
WIDTH, HEIGHT = 1600, 900
SLOWED = 2
"""How many times slower than the machine the processor of the second scrolling is."""
DECISIONS = 50
"""Decisions per second while the list is scrolled the second time."""
_RELOAD = "document.dispatchEvent(new Event('visibilitychange'))"
_WATCH = """
window.tasks = [];
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) tasks.push(task.duration);
}).observe({type: 'longtask', buffered: true});
new MutationObserver((_, observer) => {
  if (!document.querySelector('.row')) return;
  window.firstRow = performance.now();
  observer.disconnect();
}).observe(document, {childList: true, subtree: true});
"""
_SCROLL = """(async () => {
  const frames = [];
  const pixels = Math.max(200, document.body.scrollHeight / %d);
  tasks.length = 0;
  for (let frame = 0; frame < %d; frame += 1) {
    const before = performance.now();
    scrollBy(0, pixels);
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - before);
  }
  frames.sort((one, other) => one - other);
  return {frame: frames[frames.length >> 1], tasks};
})()"""


async def measured(page: browser.Page, url: str) -> dict[str, Any]:
    """Loads the page, scrolls through it, and returns milliseconds and counts."""
    await page.send("Performance.enable", {"timeDomain": "threadTicks"})
    await page.send("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
    await page.open(url)
    await page.until(f"document.querySelector('.grid')?.getAttribute('aria-rowcount') === '{HPAS + 1}'")
    # A short list is there before the browser has noted its first paint.
    await page.until("performance.getEntriesByName('first-contentful-paint').length && window.firstRow")
    found: dict[str, Any] = await page.value(
        "({paint: performance.getEntriesByName('first-contentful-paint')[0].startTime, firstRow,"
        " all: performance.now(), nodes: document.querySelectorAll('*').length, loading: [...tasks]})"
    )
    return found | await _scrolled(page)


async def _scrolled(page: browser.Page) -> dict[str, Any]:
    before = await _thread_time(page)
    found: dict[str, Any] = await page.value(_SCROLL % (FRAMES, FRAMES))
    return found | {"cpu": (await _thread_time(page) - before) / FRAMES}


async def _thread_time(page: browser.Page) -> float:
    """Returns the milliseconds of processor time that the main thread has used."""
    found = (await page.send("Performance.getMetrics"))["metrics"]
    return float(next(each["value"] for each in found if each["name"] == "ThreadTime")) * 1000


async def disturbed(page: browser.Page, fleet: Fleet) -> dict[str, Any]:
    """Scrolls through the list on a slower processor, while decisions arrive and the list is loaded anew."""
    await page.value("scrollTo(0, 0)")
    await page.send("Emulation.setCPUThrottlingRate", {"rate": SLOWED})
    deciding = asyncio.create_task(_decide(fleet))
    try:
        await page.value(_RELOAD)
        return await _scrolled(page)
    finally:
        deciding.cancel()


async def _decide(fleet: Fleet) -> None:
    for key in itertools.cycle(list(fleet.members)):
        member = fleet.members[key]
        member.workload.replicas = member.workload.replicas % member.workload.hpa.spec.max_replicas + 1
        fleet.now(key)
        await asyncio.sleep(1 / DECISIONS)


async def run() -> None:
    fleet = Fleet()
    fleet_cast.enlarge(fleet, HPAS)
    with browser.launched() as address:
        server = http_server.opened(Serving(), source=fleet, store=fleet.store, decisions=fleet.log)
        async with server as running, browser.connected(address) as chromium:
            page = await chromium.page(WIDTH, HEIGHT)
            found = await measured(page, running.url)
            slowed = await disturbed(page, fleet)
    print(
        f"page: {HPAS:,} HPAs: first paint {found['paint']:.0f} ms, first row {found['firstRow']:.0f} ms, "
        f"all {found['all']:.0f} ms, {found['nodes']} elements, {_tasks(found['loading'])}; "
        f"scrolling: {_frames(found)}; {SLOWED} times slower, with {DECISIONS} decisions/s: {_frames(slowed)}"
    )


def _frames(found: dict[str, Any]) -> str:
    return f"frame {found['frame']:.0f} ms, CPU {found['cpu']:.1f} ms, {_tasks(found['tasks'])}"


def _tasks(milliseconds: list[float]) -> str:
    longest = f", the longest {max(milliseconds):.0f} ms" if milliseconds else ""
    return f"{len(milliseconds)} long tasks{longest}"


if __name__ == "__main__":
    asyncio.run(run())
