"""The functions of the page that only compute, called in Chromium."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support import browser

import hpad.serve

WEB = Path(hpad.serve.__file__).parent / "web"
FILES = ("dom.js", "format.js", "model.js", "list.js", "series.js")
MINUTE = 60_000


class Functions:
    """Evaluates expressions in the scope of the files."""

    def __init__(self, page: browser.Page) -> None:
        self._page = page
        self._files = "\n".join((WEB / name).read_text("utf-8") for name in FILES)

    async def __call__(self, expression: str) -> Any:
        return await self._page.value(f"(() => {{ {self._files}\nreturn {expression}; }})()")


@pytest.fixture
async def js(chromium: str) -> AsyncIterator[Functions]:
    async with browser.connected(chromium) as connected:
        yield Functions(await connected.page())


TEXTS = [
    ("span(0)", "0s"),
    ("span(59999)", "59s"),
    ("span(60000)", "1m"),
    ("span(47 * 3600e3)", "47h"),
    ("span(48 * 3600e3)", "2d"),
    ("ago(1000, 1500)", "now"),
    ("ago(0, 90e3)", "1m ago"),
    ("ago(300e3, 0)", "in 5m"),
    ("amount('59%')", 59),
    ("amount('250m')", 0.25),
    ("amount('1.5Gi')", 1.5 * 2**30),
    ("quantity('250m')", "250m"),
    ("quantity('50447m')", "50.4"),
    ("quantity('313')", "313"),
    ("quantity('41943040', 'bytes')", "40Mi"),
    ("quantity('506108875000m', 'bytes')", "483Mi"),
    ("quantity('512Mi', 'bytes')", "512Mi"),
    ("quantity(undefined)", ""),
    ("quantity('<odd>')", "<odd>"),
    ("short(1234.5)", "1,235"),
    ("short(0.98333)", "0.983"),
    ("plural(1, 'pod')", "1 pod"),
    ("plural(1234, 'policy', 'policies')", "1,234 policies"),
    ("withoutLongWords('a b')", "a b"),
    (
        "withoutLongWords('GET http://rabbit.payments.svc:15672/api/queues/%2F/ledger: refused')",
        "GET http://rabbit.payments.s…ues/%2F/ledger: refused",
    ),
    ("countTicks(25)", [0, 10, 20]),
    ("countTicks(1)", [0, 1]),
    ("countTicks(4.3)", [0, 2, 4]),
    ("[...ascending([])]", []),
    ("[...ascending([7, 8, 9, 4, 5])].sort()", [7, 8, 9]),
    ("[...ascending([4, 5, 1, 6, 2])].sort()", [4, 5, 6]),
    ("timeTicks(0, 3600e3, 6).map(([time]) => time)", [minutes * MINUTE for minutes in range(0, 61, 10)]),
]


async def test_texts_for_people(js: Functions) -> None:
    found = await js(f"[{', '.join(expression for expression, _ in TEXTS)}]")
    assert list(zip([expression for expression, _ in TEXTS], found, strict=True)) == [
        (expression, pytest.approx(value) if isinstance(value, float) else value) for expression, value in TEXTS
    ]


def entry(began: float, ended: float, current: int, *proposals: int | None, turns: int = 5, **fields: Any) -> Any:
    """An entry of the history; times are minutes since 1970."""
    time = [f"1970-01-01T00:{int(minutes):02d}:{int(minutes * 60 % 60):02d}Z" for minutes in (began, ended)]
    points = [{"time": time[0], "recommended": current, "proposals": list(proposals)}]
    made = {
        "began": time[0],
        "ended": time[1],
        "turns": turns,
        "current": current,
        "min": 1,
        "max": 9,
        "points": points,
    }
    return {**made, "metrics": ["cpu", "queue"][: len(proposals)], "action": "none", **fields}


async def series(js: Functions, *entries: Any, start: float = 0) -> Any:
    newest_first = json.dumps(entries[::-1])
    flat = "({metrics, ...lines}) => ({...lines, ...Object.fromEntries(metrics)})"
    return await js(f"({flat})(seriesOf({newest_first}, {start}))")


async def test_a_line_has_a_point_where_its_count_changes(js: Functions) -> None:
    found = await series(js, entry(0, 1, 2, 2), entry(1.25, 2, 2, 4), entry(2.25, 3, 4, 4))
    assert found["replicas"] == [[0, 2], [2.25 * MINUTE, 4]]
    assert found["cpu"] == [[0, 2], [1.25 * MINUTE, 4]]
    assert found["max"] == [[0, 9]]
    assert found["until"] == 3 * MINUTE


async def test_a_time_without_decisions_is_a_gap(js: Functions) -> None:
    """Turns every 15 seconds: after a minute without one, nothing is known."""
    found = await series(js, entry(0, 1, 2, 2), entry(9, 10, 2, 2))
    assert found["replicas"] == found["cpu"] == [[0, 2], [MINUTE, None], [9 * MINUTE, 2]]


async def test_a_count_that_is_not_known_is_a_gap(js: Functions) -> None:
    """As while the scale cannot be read."""
    unknown = {name: value for name, value in entry(1.25, 2, 0, None, error="x").items() if name != "current"}
    found = await series(js, entry(0, 1, 2, 2), unknown, entry(2.25, 3, 2, 2))
    assert found["replicas"] == [[0, 2], [1.25 * MINUTE, None], [2.25 * MINUTE, 2]]
    assert await js(f"countOf({json.dumps(unknown)})") == "?"


async def test_a_metric_that_proposes_nothing_or_is_new_has_a_gap(js: Functions) -> None:
    found = await series(js, entry(0, 1, 2, 2), entry(1.25, 2, 2, None, 7))
    assert found["cpu"] == [[0, 2], [1.25 * MINUTE, None]]
    assert found["queue"] == [[0, None], [1.25 * MINUTE, 7]]


async def test_failures_are_joined_only_where_none_succeeded_between_them(js: Functions) -> None:
    """Else a metric that fails every other half minute would seem to fail all the time."""
    entries = [entry(0, 0.5, 2, None, error="x"), entry(0.75, 1, 2, None, error="y"), entry(1.25, 1.5, 2, 2)]
    entries += [entry(1.75, 2, 2, None, error="x"), entry(20, 21, 2, None, error="x")]
    found = await js(f"failuresOf({json.dumps(entries)})")
    assert found == [[0, MINUTE], [1.75 * MINUTE, 2 * MINUTE], [20 * MINUTE, 21 * MINUTE]]


async def test_a_line_begins_at_the_start_of_the_range(js: Functions) -> None:
    found = await series(js, entry(0, 1, 2, 2), entry(1.25, 5, 3, 3), start=3 * MINUTE)
    assert found["replicas"] == [[3 * MINUTE, 3]]
    assert len(found["entries"]) == 1


async def test_newer_entries_replace_the_stretch_that_has_grown(js: Functions) -> None:
    known = [entry(2, 3, 4, 4), entry(0, 1, 2, 2)]
    newer = [entry(4, 5, 6, 6), entry(2, 3.5, 4, 4)]
    merged = await js(
        f"mergeEntries({json.dumps(known)}, {json.dumps(newer)}).map((each) => [each.current, each.ended])"
    )
    assert merged == [[6, newer[0]["ended"]], [4, newer[1]["ended"]], [2, known[1]["ended"]]]


async def test_bounds_far_above_the_counts_do_not_flatten_the_lines(js: Functions) -> None:
    counts = "replicas: [[0, 5]], shadow: [], min: [[0, 1]], max: [[0, %d]]"
    top = f"topOf({{{counts}, metrics: new Map([['cpu', [[0, %d]]]])}})"
    assert await js(top % (6, 5)) == pytest.approx(6 * 1.08)
    assert await js(top % (1000, 5)) == pytest.approx(5 * 1.6)
    assert await js(top % (6, 900)) == pytest.approx(9 * 1.08), "nor does a proposal far above the maximum"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(0, 40 * MINUTE, id="the history is shorter than the range"),
        pytest.param(42 * MINUTE, 42 * MINUTE, id="the history is longer"),
        pytest.param(50 * MINUTE, 50 * MINUTE, id="no decision is in the range"),
    ],
)
async def test_the_chart_begins_with_the_first_decision_in_its_range(js: Functions, start: int, expected: int) -> None:
    entries = json.dumps([entry(43, 45, 4, 4), entry(40, 42.5, 2, 2)])
    assert await js(f"chartStart({entries}, {start}, {60 * MINUTE})") == expected


async def test_the_chart_of_a_new_hpa_is_a_minute_long(js: Functions) -> None:
    entries = json.dumps([entry(39.75, 40, 2, 2)])
    assert await js(f"chartStart({entries}, -Infinity, {40 * MINUTE})") == 39 * MINUTE


async def test_proposals_beyond_the_scale_are_found_with_their_peak(js: Functions) -> None:
    line = "[[0, 3], [10, 40], [20, 70], [30, 5], [40, null], [50, 12]]"
    assert await js(f"stretchesAbove({line}, 10, 60)") == [
        {"from": 10, "to": 30, "peak": 70},
        {"from": 50, "to": 60, "peak": 12},
    ]
    assert await js(f"stretchesAbove({line}, 70, 60)") == []


async def test_a_long_text_folds_and_none_of_it_is_lost(js: Functions) -> None:
    text = "x" * 239 + "\U0001f40c" + "y" * 300
    found = await js(
        f"((made) => [made.textContent, made.querySelector('summary').textContent])(folded({json.dumps(text)}))"
    )
    assert found == ["x" * 239 + "… " + text, "x" * 239 + "… "]
    assert await js("folded('short')") == "short"


async def test_an_older_summary_never_replaces_a_newer_one(js: Functions) -> None:
    row = {
        **{"namespace": "shop", "name": "web", "target": {"name": "web"}, "states": [], "metrics": []},
        **{"minReplicas": 1, "maxReplicas": 3, "currentReplicas": 1, "desiredReplicas": 1},
    }
    newer = row | {"lastDecision": {"time": "1970-01-01T00:02:00Z"}, "currentReplicas": 2}
    older = row | {"lastDecision": {"time": "1970-01-01T00:01:00Z"}, "currentReplicas": 1}
    found = await js(
        f"((model) => [model.put({json.dumps(newer)}), model.put({json.dumps(older)}),"
        " model.rows.get('shop/web').currentReplicas])(new Model())"
    )
    assert found == [True, False, 2]
