"""The page on the advice: what it says, that nothing in it is taken for markup, and how it works in Chromium."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from support import advised_fleet, axe, browser
from support.assessments import assessment, unchecked
from support.browser import Page

from hpad.api.metadata import Key
from hpad.simulation.advice.assessment import Assessment, HpaFault, NotAssessed, Severity
from hpad.simulation.advice.page import page, sentence
from hpad.simulation.advice.past import MetricReading
from hpad.simulation.advice.summary import FleetAdvice, summed

BEGIN = datetime.fromtimestamp(advised_fleet.BEGIN, UTC)
ADVICE = FleetAdvice(
    BEGIN,
    BEGIN + timedelta(days=7),
    "http://prometheus:9090",
    {},
    (),
    [NotAssessed(Key("shop", "broken"), "no metrics")],
    price=0.04,
)
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u202e\x1b[2J"


def text(fleet: Sequence[Assessment], advice: FleetAdvice = ADVICE) -> str:
    return "".join(page(advice._replace(assessments=fleet)))


def test_the_fleet_in_one_sentence() -> None:
    fleet = [
        assessment("a", saved=168 * 3600.0, faults=[(HpaFault.GOAL_LOW, Severity.WARNING)]),
        assessment("b", saved=-42 * 3600.0),
        assessment("c"),
    ]
    assert sentence(summed(fleet), 0.5) == (
        "3 HPAs, 1 with faults, 2 with advice: 2,520 replica-hours for 1,260.00; "
        "advice saves 168 replica-hours worth 84.00 (6.7 %); advice against overload adds 42 replica-hours for 21.00."
    )
    alone = "1 HPA, none with faults, none with advice: 840 replica-hours."
    assert sentence(summed(fleet[2:]), None) == alone
    assert sentence(summed([]), None) == "There is no HPA to give advice on."


def test_nothing_from_outside_is_markup() -> None:
    fault = (HpaFault.FLAPPING, Severity.ERROR)
    reading = MetricReading(HOSTILE, HOSTILE, HOSTILE)
    each = assessment("x", faults=[fault], saved=3600.0, readings={HOSTILE: reading}, failing={HOSTILE: 60.0})
    each = msgspec.structs.replace(each, key=Key(HOSTILE, HOSTILE), verdict=HOSTILE, notes=(HOSTILE,))
    found = text(
        [each], FleetAdvice(BEGIN, BEGIN, HOSTILE, {}, (), [NotAssessed(Key(HOSTILE, HOSTILE), HOSTILE)], [HOSTILE])
    )
    assert "<img" not in found
    assert found.count("</script>") == 1
    assert "\u202e" not in found
    assert "\x1b" not in found
    assert found.count("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&quot;&#x27;&amp;") > 10


def test_each_hpa_has_its_figures_before_and_after() -> None:
    found = text([assessment("web", saved=84 * 3600.0)])
    row = re.search(r'<tr><th scope="row">replica-hours</th>(.*?)</tr>', found)
    assert row is not None
    # 5 replicas for 168 h are 840: 588 on the first days, 252 on the last; four fifths are saved on the first.
    assert re.findall("<td>(.*?)</td>", row[1]) == ["588.0", "520.8", "252.0", "235.2"]
    assert "chosen on the first 5 days" in found
    assert "checked on the last 2 days" in found
    assert "averageUtilization</code> <s>50</s> &rarr; <b>65</b>" in found
    short = text([unchecked(assessment("web", saved=84 * 3600.0))])
    assert '<tr><th scope="row">replica-hours</th><td>588.0</td><td>520.8</td></tr>' in short
    assert "checked on the last" not in short


def test_a_fault_without_advice_says_why() -> None:
    stuck = assessment("web", faults=[(HpaFault.METRIC_FAILING, Severity.ERROR)])
    found = text([msgspec.structs.replace(stuck, unadvised="nothing <i>helps</i>")])
    assert "<h4>Advice</h4><p>none: nothing &lt;i&gt;helps&lt;/i&gt;</p>" in found


def test_equal_bounds_have_no_time_at_either() -> None:
    fixed = assessment("x", faults=[(HpaFault.MINIMUM_IS_MAXIMUM, Severity.WARNING)])
    assert "at the maximum" in text([assessment("x")])
    assert "at the maximum" not in text([fixed])


def test_a_large_fleet_is_a_small_file() -> None:
    """500 HPAs must stay below 8 MB."""
    fleet = advised_fleet.many(26)
    alone = len(text([]).encode())
    assert (len(text(fleet).encode()) - alone) / len(fleet) * 500 + alone < 8_000_000


def test_an_hpa_without_a_past_is_on_the_page() -> None:
    found = text([advised_fleet.unread()])
    assert "There are no values to draw." in found
    assert "the count is not known at any time" in found
    assert "no series kube_horizontalpodautoscaler_status_target_metric" in found


@contextlib.asynccontextmanager
async def opened(
    chromium: browser.Browser,
    folder: Path,
    fleet: Sequence[Assessment],
    fragment: str = "",
    width: int = 1280,
    **options: bool,
) -> AsyncIterator[Page]:
    """Opens the page from a file. It may report no problem: no error, and no violation of its policy."""
    file = folder / "advice.html"
    await asyncio.to_thread(lambda: file.write_text(text(fleet)))
    found = await chromium.page(width, 900, dark=options.get("dark", False))
    await found.open(f"file://{file}{fragment}")
    yield found
    assert found.problems == []


SHOWN = (
    "[...document.querySelectorAll('.fleet tbody tr')].filter((row) => !row.hidden)"
    ".map((row) => row.cells[0].innerText)"
)
OPEN = "[...document.querySelectorAll('.hpa')].filter((each) => !each.hidden).map((each) => each.id)"


async def choose(found: Page, field: str, value: str) -> None:
    await found.value(
        f"(() => {{ const field = document.getElementById('filter').elements.{field}; field.value = '{value}';"
        "field.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


async def test_the_filter(pages: browser.Browser, tmp_path: Path) -> None:
    """Text, fault, severity and advice, alone and together; rows and parts are filtered alike."""
    async with opened(pages, tmp_path, advised_fleet.fleet()) as found:
        assert len(await found.value(SHOWN)) == len(advised_fleet.MEMBERS) + 1
        await choose(found, "severity", "error")
        failing = ["shop/checkout", "shop/orders-worker", "shop/recommendations", "shop/thumbnails"]
        assert sorted(await found.value(SHOWN)) == failing
        assert sorted(await found.value(OPEN)) == failing
        assert await found.text("[role=status]") == "4 of 13 HPAs"
        await found.click("[name=advice]")
        assert sorted(await found.value(SHOWN)) == ["shop/checkout", "shop/recommendations"]
        await choose(found, "q", "GOAL recommendations")
        assert await found.value(SHOWN) == ["shop/recommendations"]
        assert await found.value("location.hash") == "#?q=GOAL+recommendations&severity=error&advice=yes"
        await found.click("[name=advice]")
        for field in ("severity", "q"):
            await choose(found, field, "")
        await choose(found, "fault", "window-useless")
        assert await found.value(SHOWN) == ["shop/ranking"]
        await choose(found, "fault", "")
        assert await found.value("location.hash") == ""
        await choose(found, "severity", "fine")
        assert sorted(await found.value(SHOWN)) == ["shop/cache", "shop/ghost", "shop/session", "shop/sleeper"]


async def test_the_address_keeps_the_filter(pages: browser.Browser, tmp_path: Path) -> None:
    async with opened(pages, tmp_path, advised_fleet.fleet(), "#?fault=flapping&order=name&severity=nonsense") as found:
        assert await found.value(SHOWN) == ["shop/search"]
        await found.value("location.hash = '#?order=saved'")
        await found.until(f"{SHOWN}.length > 1")
        assert (await found.value(SHOWN))[:3] == ["shop/catalog", "shop/gateway", "shop/search"]
        assert (await found.value(OPEN))[:3] == ["shop/catalog", "shop/gateway", "shop/search"]


async def test_a_link_opens_the_part_on_an_hpa(pages: browser.Browser, tmp_path: Path) -> None:
    strange = msgspec.structs.replace(assessment("x"), key=Key("shop", 'ä%20"b c'))
    async with opened(pages, tmp_path, [*advised_fleet.fleet(), strange]) as found:
        last = "document.querySelectorAll('.hpa')[{}]"
        for number, name in ((12, "shop/sleeper"), (13, 'shop/ä%20"b c')):
            assert await found.value(f"{last.format(number)}.querySelector('h3').textContent") == name
            assert not await found.value(f"{last.format(number)}.open")
            await found.click(f".fleet tr:nth-child({number + 1}) a")
            await found.until(f"{last.format(number)}.open")
            assert await found.value(f"document.activeElement === {last.format(number)}.querySelector('summary')")
            place = await found.value(f"{last.format(number)}.getBoundingClientRect().y")
            assert -1 <= place < 900


async def test_keys(pages: browser.Browser, tmp_path: Path) -> None:
    """A slash goes to the filter; Tab and Enter reach and open an HPA."""
    async with opened(pages, tmp_path, advised_fleet.fleet()) as found:
        await found.press("/", "s", "l", "e", "e", "p")
        await found.until(f"{SHOWN}.length === 1")
        assert await found.value("document.activeElement.name") == "q"
        await found.press("Tab", "Tab", "Tab", "Tab", "Tab", "Enter")
        await found.until("document.getElementById('shop/sleeper').open")
        await found.press("Enter")
        await found.until("!document.getElementById('shop/sleeper').open")


async def test_the_legend_tells_the_values_at_the_pointer(pages: browser.Browser, tmp_path: Path) -> None:
    """The HPA has 12 replicas all week and the advice 3; the load is not known from 5.5 to 6.1 days on."""
    async with opened(pages, tmp_path, [advised_fleet.fleet()[2], advised_fleet.fleet()[6]]) as found:
        notes = "[...document.querySelectorAll('.hpa:nth-of-type({}) .legend li')].map((each) => each.innerText)"
        assert "recorded 12" in await found.value(notes.format(2))
        for number, share, time, expected in (
            (2, 0.5, "Tue 24 12:00", ["recorded 12", "model, advised settings 3", "goal 50\u00a0%"]),
            (1, 0.82, "Thu 26 17:46", ["cpu not known", "recorded not known"]),
        ):
            area = f"document.querySelectorAll('.hpa')[{number - 1}].querySelectorAll('.area')[1]"
            await found.value(f"{area}.scrollIntoView({{block: 'center'}})")
            box = await found.value(f"(({{x, y, width}}) => ({{x, y, width}}))({area}.getBoundingClientRect())")
            await found.point(box["x"] + box["width"] * share, box["y"] + 20)
            await found.until("document.querySelectorAll('.cursor').length === 2")
            assert (await found.text(".cursor"))[:9] == time[:9]
            texts = await found.value(notes.format(number))
            assert [each for each in expected if each not in texts] == []
            await found.point(2, 2)
            await found.until("document.querySelectorAll('.cursor').length === 0")
        assert "recorded 12" in await found.value(notes.format(2))


async def test_the_policy_lets_no_other_script_run_and_nothing_be_loaded(
    pages: browser.Browser, tmp_path: Path
) -> None:
    """Markup that got into the page in spite of all does nothing, and says nothing to anybody."""
    file = tmp_path / "advice.html"
    markup = (
        "<script>document.title = 'run'</script><img src=http://127.0.0.1:9/ onerror=\"document.title = 'run'\">"
        "<style>h1 { display: none }</style>"
    )
    await asyncio.to_thread(lambda: file.write_text(text([]).replace("</main>", f"{markup}</main>")))
    found = await pages.page()
    await found.open(f"file://{file}")
    assert await found.value("document.title") == "Advice on HPAs"
    assert await found.value("getComputedStyle(document.querySelector('h1')).display") != "none"
    refused = " ".join(each for each in found.reported if "Content Security Policy" in each)
    assert [kind for kind in ("script-src", "style-src", "img-src") if kind not in refused] == []


async def test_without_scripts_everything_can_be_read(pages: browser.Browser, tmp_path: Path) -> None:
    async with opened(pages, tmp_path, advised_fleet.fleet()) as found:
        await found.send("Emulation.setScriptExecutionDisabled", {"value": True})
        await found.send("Page.reload")
        loaded = "document.readyState === 'complete' && document.querySelector('footer') !== null"
        while True:  # Page.until needs scripts
            if await found.value(loaded):
                break
            await asyncio.sleep(0.05)
        assert not await found.value("document.getElementById('filter').checkVisibility()")
        assert len(await found.value(SHOWN)) == len(advised_fleet.MEMBERS) + 1
        assert await found.value("document.querySelectorAll('.hpa svg.area').length") > 20


async def test_no_width_scrolls_sideways(pages: browser.Browser, tmp_path: Path) -> None:
    """Also not with names and verdicts as long as can be; texts of charts are no smaller than 11 pixels."""
    fleet = [
        msgspec.structs.replace(each, key=Key("n" * 63, "h" * 253), verdict=f"{each.verdict} {'x' * 300}")
        for each in advised_fleet.fleet()[:2]
    ]
    async with opened(pages, tmp_path, [*advised_fleet.fleet(), *fleet]) as found:
        await found.value("document.querySelectorAll('details').forEach((each) => each.open = true)")
        for width in (320, 400, 800, 1280, 1600):
            await found.resize(width, 900)
            assert await found.value("document.documentElement.scrollWidth") == width
            texts = "[...document.querySelectorAll('.xs text, .ys span')]"
            assert min(await found.value(f"{texts}.map((each) => parseFloat(getComputedStyle(each).fontSize))")) >= 11
            scales = "[...new Set([...document.querySelectorAll('.xs')].map((each) => each.getScreenCTM().a))]"
            assert await found.value(scales) == [1]


@pytest.mark.skipif(not axe.SCRIPT.exists(), reason=axe.ABSENT)
@pytest.mark.parametrize(("width", "dark"), [(400, True), (1280, False)])
async def test_axe_finds_nothing(pages: browser.Browser, tmp_path: Path, width: int, *, dark: bool) -> None:
    async with opened(pages, tmp_path, advised_fleet.fleet(), width=width, dark=dark) as found:
        await found.value("document.querySelectorAll('details').forEach((each) => each.open = true)")
        await found.value(
            "document.querySelectorAll('.hpa').forEach((each) => each.style.contentVisibility = 'visible')"
        )
        # The policy of the page lets no other script run.
        await found.send("Page.setBypassCSP", {"enabled": True})
        assert await axe.findings(found) == []
