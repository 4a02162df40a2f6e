"""Two days in a real Prometheus, two specs, and the report in a browser, against a plain recomputation."""

import asyncio
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import browser, prometheus_lab

from hpad import cli
from hpad.engine.words import span
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer

pytestmark = [
    pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT),
    pytest.mark.skipif(browser.command() is None, reason=browser.ABSENT),
]
STEP = 60
COUNT = 2 * 24 * 60
GAP = range(2160, 2220)
"""Minutes of the last day without samples."""
MANIFEST = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: worker, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: worker}
  minReplicas: 2
  maxReplicas: 30
  metrics:
    - type: External
      external: {metric: {name: orders}, target: {type: AverageValue, averageValue: "GOAL"}}
"""


def begin() -> int:
    """Returns a whole hour, eight days ago: the samples are older than what Prometheus keeps in memory."""
    return (int(time.time()) // 3600 - 8 * 24) * 3600


def orders(minute: int) -> int:
    """Returns a working day as a sine, a quiet second day, and a spike of ten minutes every six hours."""
    hour, day = minute % 1440 / 60, minute // 1440
    value = 150 + 120 * math.sin((hour - 9) / 24 * 2 * math.pi)
    return round((value * 0.3 if day == 1 else value) + (200 if minute % 360 < 10 else 0))


@pytest.fixture(scope="module")
def start() -> int:
    return begin()


@pytest.fixture(scope="module")
def server(start: int) -> Iterator[PrometheusServer]:
    lines = ["# TYPE orders gauge"]
    # Two series, which the query adds up.
    for part, share in (("a", 1), ("b", 0)):
        for minute in range(COUNT):
            if minute not in GAP:
                half = orders(minute) // 2
                value = half if share else orders(minute) - half
                lines.append(f'orders{{queue="{part}"}} {value} {start + minute * STEP}')
    lines.append("# TYPE workers gauge")
    lines += [f"workers 5 {start + minute * STEP}" for minute in range(COUNT)]
    yield from prometheus_lab.serve("\n".join([*lines, "# EOF\n"]))


def plain(goal: int) -> dict[str, float]:
    """Decides these days as Kubernetes does without spec.behavior, in as few lines as possible.

    Proposal: ceil(total / goal) outside a tolerance of 0.1; the largest of less than five minutes; at most twice the
    count or 4; within 2 and 30. A metric that fails keeps the count.
    """
    count, past = 5, [(-1.0, 5)]
    replica_seconds = above = rescales = undecided = 0.0
    highest = count
    last = (COUNT - 1) * STEP
    turns = last // 15 + 1
    for turn in range(turns):
        now = turn * 15
        minute = now // STEP
        # After an hour without samples Prometheus still answers with the last one for five minutes.
        gap = minute in GAP[5:]
        wanted = None
        if not gap:
            total = orders(GAP.start - 1 if minute in GAP else minute)
            ratio = total / (goal * count)
            wanted = count if 1 - 0.1 <= ratio <= 1 + 0.1 else math.ceil(total / goal)
        if turn:
            replica_seconds += 15 * count
            if wanted is None:
                undecided += 15
            else:
                above += 15 * (max(wanted, 2) > count)
        if wanted is None:
            continue
        past = [(at, value) for at, value in past if turn == 0 or at > now - 300] + [(now, wanted)]
        stable = max(value for _, value in past)
        after = min(max(stable, 2), 30, max(2 * count, 4))
        rescales += after != count
        count = after
        highest = max(highest, count)
    return {
        "rescales": rescales,
        "replica-hours": replica_seconds / 3600,
        "highest count": highest,
        "minutes above goal": above / 60,
        "minutes undecided": undecided / 60,
    }


async def shown(page_file: Path, picture: Path) -> dict[str, list[str]]:
    """Opens the report, and returns the cells of its table of figures by their label."""
    with browser.launched() as address:
        async with browser.connected(address) as chromium:
            page = await chromium.page(1200, 900)
            await page.open(page_file.as_uri())
            await page.screenshot(picture, whole=True)
            text = await page.value(
                "JSON.stringify([...document.querySelectorAll('.figures tr')].map("
                "row => [...row.children].map(cell => cell.textContent)))"
            )
            lines = "[...document.querySelectorAll('svg.area path:is(.recorded,.modelled,.advised,.load)')]"
            widths = await page.value(f"JSON.stringify({lines}.map(each => each.getBoundingClientRect().width))")
            narrow = await page.value("document.documentElement.scrollWidth <= innerWidth")
            assert page.problems == []
    assert narrow
    # Recorded, two specs, and the metric: each curve spans nearly the whole chart.
    assert len(json.loads(widths)) == 4
    assert all(width > 900 for width in json.loads(widths))
    return {row[0]: row[1:] for row in json.loads(text)}


def test_two_specs_over_days_of_prometheus(
    server: PrometheusServer, start: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, report = tmp_path / "ten.yaml", tmp_path / "twenty-five.yaml", tmp_path / "report.html"
    first.write_text(MANIFEST.replace("GOAL", "10"))
    second.write_text(MANIFEST.replace("GOAL", "25"))
    times = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) for at in (start, start + (COUNT - 1) * STEP)]
    args = ["backtest", str(first), str(second), "--prometheus", server.url, "--from", times[0], "--to", times[1]]
    queries = ["--query", "orders=orders", "--query", "replicas=workers", "--step", "1m"]
    assert cli.main([*args, *queries, "--report", str(report), "-o", "json"]) == 0
    summaries = [each["summary"] for each in json.loads(capsys.readouterr().out)["results"]]
    assert report.stat().st_size < 1_000_000
    cells = asyncio.run(shown(report, tmp_path / "report.png"))
    assert float(cells["replica-hours"][0]) == pytest.approx(5 * (COUNT - 1) / 60, abs=0.01)
    for column, goal in ((1, 10), (2, 25)):
        expected = plain(goal)
        assert float(cells["rescales"][column]) == expected["rescales"]
        assert float(cells["replica-hours"][column]) == pytest.approx(expected["replica-hours"], abs=0.006)
        assert cells["lowest, highest"][column].split(", ")[1] == f"{expected['highest count']:.0f}"
        for label in ("above goal", "undecided"):
            assert cells[label][column] == span(round(60 * expected[f"minutes {label}"])), (goal, label)
        assert summaries[column]["rescales"] == expected["rescales"] > 20
        assert summaries[column]["replicaHours"] == pytest.approx(expected["replica-hours"], rel=1e-5)
    hours = [float(cells["replica-hours"][column]) for column in (1, 2)]
    assert float(cells["replica-hours"][3]) == pytest.approx(hours[1] - hours[0], abs=0.011)


def test_queries_that_fail_are_named(
    server: PrometheusServer, start: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "ten.yaml"
    manifest.write_text(MANIFEST.replace("GOAL", "10"))
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start))
    args = ["backtest", str(manifest), "--prometheus", server.url, "--from", when, "--step", "1h"]
    assert cli.main([*args, "--query", "orders=sum(orders"]) == 1
    error = capsys.readouterr().err
    assert "orders: 'sum(orders'" in error
    assert "the server answered: " in error
    assert cli.main([*args, "--query", "orders=nothing"]) == 1
    assert "orders: 'nothing' has no value in the whole interval" in capsys.readouterr().err
    secret = tmp_path / "token"
    secret.write_text("swordfish\n")
    closed = ["backtest", str(manifest), "--prometheus", "http://127.0.0.1:9", "--from", when]
    assert cli.main([*closed, "--query", "orders=orders", "--prometheus-token-file", str(secret)]) == 1
    assert "swordfish" not in capsys.readouterr().err
