"""The page of one HPA: its cascade, curves, past decisions, pods, conditions and sources."""

import itertools
from typing import Any

import pytest

from hpad.records.history import PastDecision
from tests.serve.page.conftest import Site

CHECKOUT = "#/hpas/shop/checkout"


async def steps(page: Any) -> dict[str, str]:
    """Returns the count after each stage of the cascade, "" where it has none."""
    found: dict[str, str] = await page.value(
        "Object.fromEntries([...document.querySelectorAll('.step')].map((step) => "
        "[step.dataset.key, step.querySelector('.after')?.firstChild.nodeValue ?? '']))"
    )
    return found


async def test_the_cascade_has_the_lines_of_the_trace(site: Site) -> None:
    page = await site.open("#/hpas/search/indexer")
    await page.until("document.querySelector('.cascade')")
    trace = (await site.get("hpas/search/indexer"))["trace"]
    assert trace["policies"]["limited"], "the indexer is limited"
    assert await steps(page) == {each["stage"]: str(each.get("replicas", "")) for each in trace["stages"]}
    text = await page.text(".cascade")
    assert all(line in text for each in trace["stages"] for line in (each.get("text", ""), *each.get("more", ())))
    [held] = [each["text"] for each in trace["stages"] if "heldBy" in each]
    assert await page.text(".hold") == held
    assert await page.text(".title h1") == "indexer"
    assert await page.text(".says .sentence") == trace["sentence"]


async def test_each_metric_has_its_facts_and_its_proposal(site: Site) -> None:
    page = await site.open(CHECKOUT)
    await page.until("document.querySelector('.cascade')")
    metrics = (await site.get("hpas/shop/checkout"))["trace"]["metrics"]
    assert await page.texts(".proposal .name") == [metric["address"] for metric in metrics]
    assert await page.texts(".proposal .line .number") == [metric["verdict"] for metric in metrics]
    facts = [fact["text"] for metric in metrics for fact in metric["facts"]]
    assert await page.texts(".proposal dd") == facts
    assert "Resource cpu, from metrics-server" in facts
    assert await page.texts(".side [aria-label] + *, .side a") != []
    assert "connection refused" in await page.text(".side")


async def test_a_metric_that_fails_has_its_error_and_its_fallback(site: Site) -> None:
    page = await site.open("#/hpas/payments/fraud-scoring")
    await page.until("document.querySelector('.cascade')")
    text = await page.text(".proposals")
    assert 'no series for scoring_backlog{namespace="payments"}' in text
    assert "replicas:8" in text
    assert "ExternalMetricFallbackActive" in await page.text(".conditions")
    assert "FailedGetPodsMetric" in await page.text(".side")


async def test_without_a_scale_the_cascade_says_where_it_stopped(site: Site) -> None:
    page = await site.open("#/hpas/platform/auth")
    await page.until("document.querySelector('.cascade')")
    assert set(await steps(page)) == {"halt"}, "the count is unknown"
    assert "FailedGetScale" in await page.text(".cascade")


async def test_pods_are_grouped_and_long_lists_collapsed(site: Site) -> None:
    page = await site.open("#/hpas/platform/gateway")
    await page.until("document.querySelector('.pods')")
    metric = (await site.get("hpas/platform/gateway"))["trace"]["metrics"][0]
    ready = sum(pod["group"] == "ready" for pod in metric["pods"])
    assert f"{ready} ready" in await page.text(".pods summary")
    assert "without a value" in await page.text(".pods summary")
    assert await page.value("document.querySelector('.pods').open") is False
    await page.click(".pods summary")
    await page.until("document.querySelector('.pods').open")
    visible = "[...document.querySelectorAll('.pod-table tbody tr')].filter((each) => each.checkVisibility()).length"
    assert 12 < await page.value(visible) < ready
    assert f"{ready - 12} more pods" in await page.text(".pods")


async def test_the_chart_has_replicas_bounds_and_a_line_per_metric(site: Site) -> None:
    page = await site.open(CHECKOUT)
    await page.until("document.querySelectorAll('.metrics path').length === 3")
    entries = (await site.get("hpas/shop/checkout/history?limit=1000"))["items"]
    changes = sum(one["current"] != other["current"] for one, other in itertools.pairwise(entries))
    line = await page.value("document.querySelector('.replicas .line').getAttribute('d')")
    assert changes > 3
    assert line.count("V") == changes, "a step for each change of the count, and no slope"
    assert "L" not in line
    bounds = "[...document.querySelectorAll('.bounds text')].map((each) => each.textContent)"
    assert await page.value(bounds) == ["max 24", "min 3"]
    assert await page.value("document.querySelectorAll('.marks polygon').length") > 0


async def test_lines_can_be_hidden(site: Site) -> None:
    page = await site.open(CHECKOUT)
    await page.until("document.querySelectorAll('.metrics path').length === 3")
    await page.click("button.key[data-address=cpu]")
    await page.until("document.querySelectorAll('.metrics path').length === 2")
    assert await page.value("document.querySelector('[data-address=cpu]').getAttribute('aria-pressed')") == "false"
    await page.click("button.key[data-address=cpu]")
    await page.until("document.querySelectorAll('.metrics path').length === 3")


async def test_the_range_of_the_chart_is_chosen(site: Site) -> None:
    page = await site.open(CHECKOUT)
    await page.until("document.querySelectorAll('.metrics path').length === 3")
    values = "document.querySelector('.chart').getAttribute('aria-valuemax')"
    six_hours = int(await page.value(values))
    await page.click("[data-range='1h']")
    await page.until(f"Number({values}) < {six_hours}")
    await page.click("[data-range=all]")
    await page.until(f"Number({values}) === {six_hours}")  # there are three hours of history


async def test_a_past_decision_has_what_was_next_and_says_where_this_version_decides_otherwise(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PastDecision, "note", "it was decided otherwise")
    found = await site.get("hpas/shop/checkout/history")
    began = next(
        each["began"] for each in found["items"] if each["action"] == "none" and "stabilized" in each["sentence"]
    )
    page = await site.open(f"{CHECKOUT}?at={began}")
    await page.until("document.querySelector('.decision-card.past .outlook li')")
    assert await page.text(".decision-card.past .note") == "it was decided otherwise"
    outlook = await page.texts(".decision-card.past .outlook li")
    shown = await site.get(f"hpas/shop/checkout/decision?at={began}")
    assert len(outlook) == len(shown["outlook"]) > 0
    assert shown["notes"] == ["it was decided otherwise"]


async def test_a_mark_shows_its_sentence_and_leads_to_the_decision_of_its_time(site: Site) -> None:
    page = await site.open(CHECKOUT, height=1000)
    await page.until("document.querySelector('.marks .down')")
    place = await page.value(
        "(() => { const box = document.querySelector('.marks .down').getBoundingClientRect();"
        "return {x: box.x + box.width / 2, y: box.y + box.height / 2}; })()"
    )
    await page.point(place["x"], place["y"])
    await page.until("!document.querySelector('.tip').hidden")
    sentence = await page.text(".tip p")
    assert sentence.startswith("scale checkout from")
    await page.click(".marks .down")
    await page.until("document.querySelector('.decision-card.past .sentence')")
    assert await page.text(".decision-card .sentence") == sentence
    at = await page.value("new URLSearchParams(location.hash.split('?')[1]).get('at')")
    shown = await site.get(f"hpas/shop/checkout/decision?at={at}")
    assert shown["sentence"] == sentence
    assert (await steps(page))["write"] == str(shown["desired"])
    await page.value("history.back()")
    await page.until("!document.querySelector('.decision-card.past')")
    assert await page.value("location.hash") == CHECKOUT


async def test_the_chart_is_a_slider_for_the_keyboard(site: Site) -> None:
    page = await site.open(CHECKOUT)
    await page.until("document.querySelectorAll('.metrics path').length === 3")
    await page.value("document.querySelector('.chart').focus()")
    await page.press("ArrowLeft", "ArrowLeft", "ArrowRight")
    newest = (await site.get("hpas/shop/checkout/history"))["items"][0]
    text = await page.value("document.querySelector('.chart').getAttribute('aria-valuetext')")
    assert newest["sentence"] in text
    await page.press("Enter")
    await page.until(f"location.hash.includes({newest['began'].replace(':', '%3A')!r})")


async def test_past_decisions_are_listed_and_one_can_be_chosen(site: Site) -> None:
    page = await site.open(CHECKOUT)
    await page.until("document.querySelectorAll('.past-list li').length > 2")
    assert all("→" in text for text in await page.texts(".past-list b"))
    await page.click(".past-list li:nth-child(2) a")
    await page.until("document.querySelector('.past-list [aria-current]')")
    await page.click(".decision-card .button")
    await page.until("!document.querySelector('.decision-card.past')")


async def test_a_time_before_the_history_says_where_it_begins(site: Site) -> None:
    page = await site.open(f"{CHECKOUT}?at=2020-01-01T00:00:00Z")
    await page.until("document.body.innerText.includes('the decision history of the HPA shop/checkout begins at')")
    page.expect("404")  # the browser notes every answer of that kind


async def test_an_hpa_that_is_unknown(site: Site) -> None:
    page = await site.open("#/hpas/shop/nothing")
    await page.until("document.body.innerText.includes('No such HPA')")
    page.expect("404")


async def test_the_page_of_the_sources(site: Site) -> None:
    page = await site.open("#/sources")
    await page.until("document.querySelectorAll('.source-list li').length === 3")
    failing = (await page.texts(".source-list li"))[2]
    for text in ("rabbitmq", "failing", "58", "68 source, 2 spec", "2,010 ms", "connection refused"):
        assert text in failing
    assert "33.3%" in await page.text(".source-list li"), "30 of 90 queries were answered without a call"
