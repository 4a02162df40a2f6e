"""The page of `hpad backtest --report`: its curves and figures, and how Chromium shows it."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path

import pytest
from support import axe
from support.browser import Browser
from support.simulations import CPU, START, hpa

from hpad.simulation import report
from hpad.simulation.backtest import Result
from hpad.simulation.history import LoadHistory
from hpad.simulation.outcome import SimulatedOutcome, SimulatedRescale
from hpad.simulation.report import BacktestReport
from hpad.simulation.thinning import metric_charts

MINUTES = range(0, 1441)
LONG = "spec.metrics[0].resource.target.averageUtilization=" + "4" * 80


def result(name: str, low: int, high: int, *, judged: bool = True) -> Result:
    """Returns a day with `high` replicas from hour 8 to 20, without the turns of hour 10."""
    counts = [high if 480 <= minute < 1200 else low for minute in MINUTES]
    curve = [(START + timedelta(minutes=minute), counts[minute]) for minute in MINUTES if not 600 <= minute < 660]
    rescales = (SimulatedRescale(START + timedelta(hours=8), low, high, "<b>because</b>"),)
    figures = SimulatedOutcome(
        seconds=86_400.0,
        rescales=rescales,
        lowest=low,
        highest=high,
        replica_seconds=43_200.0 * (low + high),
        judged=judged,
    )
    return Result(name, curve, figures)


def made() -> str:
    start = START.timestamp()
    load = LoadHistory([start + 60 * minute for minute in MINUTES], {"cpu": [40.0 + minute % 20 for minute in MINUTES]})
    results = [result("recorded", 2, 8, judged=False), result("web.yaml", 2, 8), result(LONG, 2, 4)]
    parts = report.page(
        BacktestReport("shop/web", {"past": "a.csv"}, results, metric_charts(hpa(CPU), load), ["a<b"], 0.04)
    )
    return "".join(parts)


def test_all_curves_are_in_one_chart_with_gaps() -> None:
    page = made()
    assert re.findall("<b>(Load[^<]*|Replicas)</b>", page) == ["Load, % of the request", "Replicas"]
    drawn = re.findall(r'<path class="(recorded|modelled|advised)" d="(M0 \d+h\d+v[^"]*)"', page)
    assert [(look, path.count("M")) for look, path in drawn] == [("recorded", 2), ("modelled", 2), ("advised", 2)]
    assert "not known" in page
    lead = re.search('<p class="lead">(.*?)</p>', page)
    assert lead is not None
    assert lead[1].startswith(f"{LONG}: 40\u00a0% fewer replica-hours than web.yaml; above goal 0\u00a0% of the time")


def test_texts_are_escaped() -> None:
    page = made()
    assert "<li>a&lt;b</li>" in page
    assert "&lt;b&gt;because&lt;/b&gt;" in page


async def test_a_long_name_of_a_column_begins_beside_its_key(pages: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    await asyncio.to_thread(file.write_text, made())
    found = await pages.page(1280, 900)
    await found.open(f"file://{file}")
    beside = """[...document.querySelectorAll("th .key")].map((key) => {
      const first = document.createRange();
      first.setStart(key.nextSibling, 0);
      first.setEnd(key.nextSibling, 1);
      return first.getBoundingClientRect().top < key.getBoundingClientRect().bottom;
    })"""
    assert await found.value(beside) == [True] * 3


@pytest.mark.skipif(not axe.SCRIPT.exists(), reason=axe.ABSENT)
async def test_it_is_shown_at_all_widths_and_axe_finds_nothing(pages: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    await asyncio.to_thread(file.write_text, made())
    for width, dark in ((400, False), (800, True), (1280, False), (1600, True)):
        found = await pages.page(width, 900, dark=dark)
        await found.open(f"file://{file}")
        await found.value("document.querySelectorAll('details').forEach((each) => each.open = true)")
        assert await found.value("document.documentElement.scrollWidth") == width
        assert found.problems == []
        await found.send("Page.setBypassCSP", {"enabled": True})
        assert await axe.findings(found) == []
        await found.close()
