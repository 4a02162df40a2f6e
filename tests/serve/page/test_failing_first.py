"""The list puts HPAs that fail first, those with the same cause together, and shows the cause before all else."""

import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from support import axe
from support.engine import Workload, external, resource
from support.fleet import END, Fleet, Member

from hpad.api.metadata import Key
from hpad.api.sample import AdapterError, ExternalSample
from tests.serve.page.conftest import Opening, Site, go

NAMES = ".row .title"
DRAWN = "window.lists === 2 && document.querySelector('.row .title')"
"""The second list is never answered, and rows are drawn in the frame after the first one."""
HOST = "http://rabbitmq-management.payments.svc.cluster.local:15672"
QUERY = "disable_stats=true&enable_queue_totals=true"
REFUSED = f"rabbitmq: GET {HOST}/api/queues/%2F/the-messages-of-{{}}?{QUERY}: connection refused"
IN_SIGHT = """(selector, text) => {
  const texts = document.createTreeWalker(document.querySelector(selector), NodeFilter.SHOW_TEXT);
  while (texts.nextNode() && !texts.currentNode.data.includes(text));
  const node = texts.currentNode, range = document.createRange(), at = node.data.indexOf(text);
  range.setStart(node, at);
  range.setEnd(node, at + text.length);
  for (let around = node.parentElement; around !== document.body; around = around.parentElement) {
    if (getComputedStyle(around).overflow === "visible") continue;
    const outer = around.getBoundingClientRect();
    const cut = (box) => box.bottom > outer.bottom + 2 || box.right > outer.right + 2;
    if ([...range.getClientRects()].some(cut)) return false;
  }
  return range.getClientRects().length > 0 && range.getBoundingClientRect().width > 0;
}"""
FIRST_LIST_ONLY = """
  const through = window.fetch;
  window.lists = 0;
  window.fetch = (url, ...given) => {
    if (/\\/api\\/v1\\/hpas(\\?|$)/.test(url) && ++window.lists > 1) return new Promise(() => {});
    return through(url, ...given);
  };
"""
LONG_TARGET = "the-deployment-of-the-frontend-with-a-name-of-its-own"


def failing(key: Key, cause: str) -> Member:
    metric = external(f"the_messages_of_{key.name}", {"queue": key.name, "vhost": "production"}, averageValue="50")
    return Member(key, Workload(metric, replicas=3, low=2, high=20), lambda member, now: [AdapterError(cause)])


def idle(key: Key) -> Member:
    workload = Workload(external("queue", averageValue="30"), replicas=2, low=2, high=15)
    return Member(key, workload, lambda member, now: [ExternalSample((0,), now)])


def other_name() -> Member:
    """Its target has another name than the HPA."""
    workload = Workload(resource("cpu", averageUtilization=60), replicas=4, low=2)
    member = Member(Key("a-namespace", "frontend"), workload, lambda member, now: [member.shares(1100, now)])
    spec = workload.hpa.spec
    target = msgspec.structs.replace(spec.scale_target_ref, name=LONG_TARGET)
    workload.hpa = msgspec.structs.replace(workload.hpa, spec=msgspec.structs.replace(spec, scale_target_ref=target))
    return member


@pytest.fixture
async def site(opening: Opening) -> AsyncIterator[Site]:
    members = [
        failing(Key("mail", "sender"), REFUSED.format("sender")),
        failing(Key("shop", "bounces"), "rabbitmq: no queue 'bounces' in vhost 'production'"),
        failing(Key("shop", "mailer"), REFUSED.format("mailer")),
        idle(Key("media", "thumbnailer")),
        other_name(),
    ]
    fleet = Fleet(members)
    for key in fleet.members:
        fleet.live(key, END, 40, timedelta(seconds=15))
    async with opening(fleet) as made:
        yield made


def beyond() -> Member:
    """Wants many times its maximum, and says so at length."""
    metric = external("invoices", averageValue="5")
    workload = Workload(metric, resource("cpu", averageUtilization=60), replicas=6, low=2, high=12)

    def answers(member: Member, now: datetime) -> list[Any]:
        depth = 5000 if END - now < timedelta(minutes=3) else 40
        return [ExternalSample((depth * 1000,), now), AdapterError("no value: " + "why " * 200)]

    return Member(Key("billing", "invoices"), workload, answers)


async def listed(site: Site, width: int = 1280) -> Any:
    page = await site.open(width=width, height=1200)
    await page.until("document.querySelectorAll('.row').length === 5")
    return page


async def test_hpas_that_fail_come_first_and_those_with_one_cause_together(site: Site) -> None:
    page = await listed(site)
    assert await page.texts(NAMES) == ["sender", "mailer", "bounces", "frontend", "thumbnailer"]
    assert await page.value("location.hash") == "#/", "this is the order without a choice"


async def test_hpas_that_fail_stand_first_in_the_first_answer(opening: Opening) -> None:
    fleet = Fleet([failing(Key("zoo", name), REFUSED.format(name)) for name in ("yak", "zebra")])
    for key in fleet.members:
        fleet.live(key, END, 3, timedelta(seconds=15))
    for number in range(150):
        member = idle(Key("aviary", f"finch-{number:03}"))
        fleet.members[member.key] = member
        fleet.live(member.key, END, 1)
    async with opening(fleet) as site:
        page = await site.open(before=FIRST_LIST_ONLY)
        await page.until(DRAWN)
        assert await page.value("document.querySelector('.grid').getAttribute('aria-rowcount')") == "101"
        assert (await page.texts(NAMES))[:3] == ["yak", "zebra", "finch-000"]
        page = await site.open("#/?sort=name", before=FIRST_LIST_ONLY)
        await page.until(DRAWN)
        assert (await page.texts(NAMES))[:2] == ["finch-000", "finch-001"], "another order is asked for as well"


async def test_a_cause_of_several_hpas_is_listed_and_finds_them(site: Site) -> None:
    page = await listed(site)
    assert await page.texts(".causes li") == [f"2 HPAs\nrabbitmq: GET {HOST}/…: connection refused"]
    await page.click(".causes button")
    await page.until("document.querySelectorAll('.row').length === 2")
    assert await page.texts(NAMES) == ["sender", "mailer"]


async def visible(page: Any, selector: str, text: str) -> bool:
    """Whether a text within the first element that matches is in sight, and not cut off by a box around it."""
    found: bool = await page.value(f"({IN_SIGHT})({json.dumps(selector)}, {json.dumps(text)})")
    return found


@pytest.mark.parametrize("width", [1280, 1000, 400])
async def test_cause_namespace_usage_and_target_are_in_sight(site: Site, width: int) -> None:
    """The cause of a failure, the namespace of a target with another name than the HPA, and the usage of a metric."""
    page = await listed(site, width)
    failing, other = ".row[data-index='0']", ".row[data-index='3']"
    assert await page.text(f"{failing} .title") == "sender"
    assert await visible(page, f"{failing} .sentence", "cannot decide: rabbitmq")
    assert await visible(page, f"{failing} .sentence", "connection refused")
    assert await page.text(f"{other} .title") == "frontend"
    assert await visible(page, f"{other} .sub", "a-namespace")
    assert await visible(page, f"{other} .metric", "/ 60%")


async def test_an_idle_hpa_at_its_minimum_is_in_order(site: Site) -> None:
    page = await listed(site)
    assert await page.value("document.querySelector('.row[data-index=\"4\"] .mark').dataset.state") == "ok"
    assert await page.texts(".row[data-index='4'] .badge") == []
    await go(page, "#/hpas/media/thumbnailer")
    await page.until("document.querySelector('.outlook')")
    assert await page.texts(".title .badge") == []
    assert await page.value("document.querySelector('[data-kind=blocked] .icon').dataset.icon") == "atMin"
    assert await page.value("[...document.querySelectorAll('[data-icon=atMax]')].length") == 0


async def test_the_page_of_an_hpa_marks_what_its_chart_has_no_room_for_and_folds_long_errors(opening: Opening) -> None:
    fleet = Fleet([beyond()])
    fleet.live(Key("billing", "invoices"), END, 40, timedelta(seconds=15))
    async with opening(fleet) as site:
        page = await site.open("#/hpas/billing/invoices")
        await page.until("document.querySelector('.beyond text')")
        assert await page.value("document.querySelector('.beyond').textContent") == "1,000"
        first = await page.value(
            "Number(document.querySelector('.metrics path').getAttribute('d').match(/M([0-9.]+)/)[1])"
        )
        left = await page.value("document.querySelector('.axes .zero').x1.baseVal.value")
        assert first == pytest.approx(left, abs=15), "ten minutes of history fill the chart"
        folded = ".proposal .fold"
        assert len(await page.text(folded)) < 300
        await page.click(f"{folded} summary")
        await page.until(f"document.querySelector('{folded}').innerText.length > 800")


@pytest.mark.skipif(not axe.SCRIPT.exists(), reason=axe.ABSENT)
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
async def test_causes_and_folds_have_no_finding_and_fit(opening: Opening, width: int, dark: bool) -> None:
    members = [failing(Key("shop", name), f"{name!r}: " + "why " * 200) for name in ("one", "two")]
    fleet = Fleet(members)
    for key in fleet.members:
        fleet.live(key, END, 3, timedelta(seconds=15))
    async with opening(fleet) as site:
        page = await site.open("#/sources", width, 900, dark=dark)
        for hash_, part in (("#/", ".causes button"), ("#/hpas/shop/one", ".fold")):
            await go(page, hash_)
            await page.until(f"document.querySelector('{part}')")
            assert await axe.findings(page) == []
            assert await page.value("document.documentElement.scrollWidth") <= width
