"""Schedules: windows of time with other bounds, clocks that change, and decisions at their edges."""

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st
from support import environment
from support.engine import START, Workload, external, series

from hpad.api.sample import AdapterError, Sample
from hpad.engine import controls, schedule
from hpad.engine.conditions import SCALED_TO_ZERO, SCHEDULE_ACTIVE, TRUE, find
from hpad.engine.outlook.types import Outlook
from hpad.engine.schedule import Bounds
from hpad.engine.view import Gates

SCHEDULE = "hpad.io/schedule"
QUEUE = external("orders", averageValue="10")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def bounds(text: str, now: str, low: int = 2, high: int = 20) -> tuple[int, int]:
    return schedule.bounds(schedule.parse(text), at(now), low, high)[:2]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-01-05T07:59:59Z", (2, 20)),  # a Monday
        ("2026-01-05T08:00:00Z", (5, 10)),
        ("2026-01-05T17:59:59Z", (5, 10)),
        ("2026-01-05T18:00:00Z", (2, 20)),
        ("2026-01-09T12:00:00Z", (5, 10)),
        ("2026-01-10T12:00:00Z", (2, 20)),  # a Saturday
    ],
)
def test_a_window_begins_and_ends(now: str, expected: tuple[int, int]) -> None:
    assert bounds("0 8 * * 1-5 for 10h: min=5, max=10", now) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 * * * * for 1h: min=5; 0 * * * * for 1h: min=7", (7, 20)),
        ("0 * * * * for 1h: max=9; 0 * * * * for 1h: max=12", (2, 9)),
        ("0 * * * * for 1h: min=8; 0 * * * * for 1h: max=3", (3, 3)),  # never a minimum above the maximum
        ("0 * * * * for 1h: min=50", (20, 20)),
        ("0 * * * * for 1h: max=50", (2, 20)),
        ("0 * * * * for 1h: max=1", (1, 1)),
        ("0 * * * * for 1h: min=1", (2, 20)),
        ("0 0 * * * for 72h: min=3", (3, 20)),  # the next start comes before the end
    ],
)
def test_several_windows(text: str, expected: tuple[int, int]) -> None:
    assert bounds(text, "2026-01-05T12:30:00Z") == expected


ZONES = [
    # Berlin: on 2026-03-29 02:00 is 03:00 (01:00Z); a start at 02:30 is skipped and comes at 03:00.
    ("30 2 * * * for 1h in Europe/Berlin: min=5", "2026-03-29T00:59:00Z", False),
    ("30 2 * * * for 1h in Europe/Berlin: min=5", "2026-03-29T01:00:00Z", True),
    ("30 2 * * * for 1h in Europe/Berlin: min=5", "2026-03-29T01:59:00Z", True),
    ("30 2 * * * for 1h in Europe/Berlin: min=5", "2026-03-29T02:00:00Z", False),
    # Ten hours from 20:00 (19:00Z) the evening before end at 05:00Z, which is 07:00 and not 06:00 there.
    ("0 20 * * * for 10h in Europe/Berlin: min=5", "2026-03-29T04:59:00Z", True),
    ("0 20 * * * for 10h in Europe/Berlin: min=5", "2026-03-29T05:00:00Z", False),
    # On 2026-10-25 03:00 is 02:00 again: 02:30 occurs at 00:30Z and 01:30Z, and counts once.
    ("30 2 * * * for 30m in Europe/Berlin: min=5", "2026-10-25T00:30:00Z", True),
    ("30 2 * * * for 30m in Europe/Berlin: min=5", "2026-10-25T01:30:00Z", False),
    # A start in each hour or minute counts in both hours that are called 02:00.
    ("0 * * * * for 1h in Europe/Berlin: min=5", "2026-10-25T01:00:00Z", True),
    ("0 * * * * for 1h in Europe/Berlin: min=5", "2026-10-25T01:59:00Z", True),
    ("0 * * * * for 10m in Europe/Berlin: min=5", "2026-10-25T00:59:00Z", False),
    ("* * * * * for 1m in Europe/Berlin: min=5", "2026-10-25T01:00:00Z", True),
    ("* * * * * for 1m in Europe/Berlin: min=5", "2026-10-25T01:59:00Z", True),
    ("30 2 * * * for 2h in Europe/Berlin: min=5", "2026-10-25T00:29:00Z", False),
    ("30 2 * * * for 2h in Europe/Berlin: min=5", "2026-10-25T00:30:00Z", True),
    ("30 2 * * * for 2h in Europe/Berlin: min=5", "2026-10-25T01:15:00Z", True),
    ("30 2 * * * for 2h in Europe/Berlin: min=5", "2026-10-25T02:29:00Z", True),
    ("30 2 * * * for 2h in Europe/Berlin: min=5", "2026-10-25T02:30:00Z", False),
    # New York: on 2026-11-01 01:30 occurs at 05:30Z and 06:30Z.
    ("30 1 * * * for 2h in America/New_York: min=5", "2026-11-01T05:30:00Z", True),
    ("30 1 * * * for 2h in America/New_York: min=5", "2026-11-01T07:29:00Z", True),
    ("30 1 * * * for 2h in America/New_York: min=5", "2026-11-01T07:30:00Z", False),
    # New York: 08:00 is 13:00Z in winter and 12:00Z in summer, from 2026-03-08 on.
    ("0 8 * * * for 1h in America/New_York: min=5", "2026-03-07T13:00:00Z", True),
    ("0 8 * * * for 1h in America/New_York: min=5", "2026-03-08T13:00:00Z", False),
    ("0 8 * * * for 1h in America/New_York: min=5", "2026-03-08T12:00:00Z", True),
    # Lord Howe is 11:00 ahead of UTC, and 10:30 from 2026-04-05 on: 08:00 is 21:00Z, then 21:30Z, of the day before.
    ("0 8 * * * for 1h in Australia/Lord_Howe: min=5", "2026-04-03T21:00:00Z", True),
    ("0 8 * * * for 1h in Australia/Lord_Howe: min=5", "2026-04-05T21:29:00Z", False),
    ("0 8 * * * for 1h in Australia/Lord_Howe: min=5", "2026-04-05T21:30:00Z", True),
    # And 02:00 is 01:30 again there: 01:45 occurs at 14:45Z and 15:15Z.
    ("45 1 * * * for 20m in Australia/Lord_Howe: min=5", "2026-04-04T15:04:00Z", True),
    ("45 1 * * * for 20m in Australia/Lord_Howe: min=5", "2026-04-04T15:05:00Z", False),
]


@pytest.mark.parametrize(("text", "now", "is_open"), ZONES)
def test_windows_where_clocks_change(text: str, now: str, is_open: bool) -> None:
    assert bounds(text, now) == ((5, 20) if is_open else (2, 20))


CHANGES = [  # when clocks change, in UTC
    ("Europe/Berlin", "2026-03-29T01:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00Z"),
    ("America/New_York", "2026-03-08T07:00Z"),
    ("America/New_York", "2026-11-01T06:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
]


@pytest.mark.parametrize("start", ["0 * * * *", "*/20 * * * *", "30 2 * * *", "15 2,3 * * *", "45 1 * * *"])
@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_a_window_is_open_for_its_length_after_each_start_where_clocks_change(
    start: str, zone: str, change: str
) -> None:
    """Holds windows, which search from each minute, against all starts of the days around it, one after the other."""
    (window,) = schedule.parse(f"{start} for 7m in {zone}: min=5")
    middle = at(change)
    starts = CronSim(start, (middle - timedelta(days=2)).astimezone(ZoneInfo(zone)))
    until = middle + timedelta(days=2)
    begun = [each.astimezone(UTC) for each in takewhile(lambda each: each < until, starts)]
    assert len(begun) >= 2
    for minutes in range(-200, 300):
        now = middle + timedelta(minutes=minutes)
        latest = max(each for each in begun if each <= now)
        end = latest + timedelta(minutes=7)
        assert window.ends(now) == (end if now < end else None), now
        following = min(each for each in begun if each > now)
        assert window.edge(now, window.ends(now)) == (min(end, following) if now < end else following), now


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 18 * * 1-5 for 2h: min=5", ("2026-01-05T18:00Z", 5, 20)),
        ("0 12 * * * for 2h: min=5, max=9", ("2026-01-05T14:00Z", 2, 20)),
        ("0 12 * * * for 2h: min=5; 0 13 * * * for 2h: min=4", ("2026-01-05T14:00Z", 4, 20)),
        ("0 12 * * * for 1h: min=5; 0 13 * * * for 2h: min=5", ("2026-01-05T15:00Z", 2, 20)),
        ("0 * * * * for 1h: min=5; 0 8 * * 2 for 1h: max=9", ("2026-01-06T08:00Z", 5, 9)),
        ("0 14 * * * for 1h: min=2", None),  # no other minimum than that of the spec
        ("* * * * * for 1m: min=5", None),
        ("0 8 29 2 * for 1h in Europe/Berlin: max=4", ("2028-02-29T07:00Z", 2, 4)),
    ],
)
def test_the_next_bounds(text: str, expected: tuple[str, int, int] | None) -> None:
    found = schedule.following(schedule.parse(text), at("2026-01-05T12:30:10Z"), 2, 20)
    assert (found and (found[0], found[1].low, found[1].high)) == (expected and (at(expected[0]), *expected[1:]))


@pytest.mark.parametrize("others", ["", "; * * * * * for 1m: min=1"])
def test_rare_days_are_not_searched_again_for_each_change(others: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for 29 February on a Sunday passes decades, and a page with a day of decisions asks 1,440 times."""
    searched = []
    begun = schedule.ScheduleWindow._begun

    def search(window: schedule.ScheduleWindow, now: datetime) -> datetime | None:
        searched.append(window.start)
        return begun(window, now)

    monkeypatch.setattr(schedule.ScheduleWindow, "_begun", search)
    rare = "; ".join(f"0 0 29 2 */7 for {length}m: min={length}" for length in range(1, 19))
    assert schedule.following(schedule.parse(rare + others), at("2026-11-26T20:00:00Z"), 100, 100) is None
    assert searched.count("0 0 29 2 */7") <= 2 * 18  # for the present bounds, and for the next


def test_the_trace_names_the_next_bounds() -> None:
    web = Workload(QUEUE, replicas=3, high=10, annotations={SCHEDULE: "10 12 1 1 * for 5m: min=6"})
    web.reconcile(series(30))
    found = web.trace.replicas.next_bounds
    assert found is not None
    assert (found.at, found.min, found.max) == (at("2026-01-01T12:10:00Z"), 6, 10)


def test_the_file_of_a_time_zone_is_read_once() -> None:
    text = "0 8 * * * for 1h in Antarctica/Troll: min=5; 0 8 * * * for 1h: max=8"
    assert schedule.reads_files(text)
    schedule.parse(text)
    assert not schedule.reads_files(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "0 windows; 1 to 20 are needed, such as 0 8 * * 1-5 for 10h"),
        ("always: min=5", "'always: min=5' is not a window such as 0 8"),
        ("0 8 * * 1-5 for 10h", "is not a window such as"),
        ("0 8 * * 9 for 10h: min=5", "'0 8 * * 9' is not a start in five fields"),
        ("0 8 30 2 * for 10h: min=5", "'0 8 30 2 *' is not a start in five fields"),
        ("0 8 * * * for 90s: min=5", "for '90s': whole minutes from 1m to 744h0m0s are needed"),
        ("0 8 * * * for 745h: min=5", "for '745h': whole minutes from 1m to 744h0m0s are needed"),
        ("0 8 * * * for ten: min=5", "'ten' is not a duration"),
        ("0 8 * * * for 1h in Europe/Paris2: min=5", "in 'Europe/Paris2': there is no such time zone"),
        ("0 8 * * * for 1h in ../etc: min=5", "in '../etc': there is no such time zone"),
        ("0 8 * * * for 1h: min=0", "'min=0' is not one of min=N and max=N, each once and 1 or more"),
        ("0 8 * * * for 1h: min=5, min=6", "'min=6' is not one of min=N and max=N"),
        ("0 8 * * * for 1h: min=9, max=6", "min=9 is above max=6"),
        ("0 8 * * * for 1h: min=9, max=6; x", "min=9 is above max=6"),
        (";".join(["0 8 * * * for 1h: min=1"] * 21), "21 windows; 1 to 20 are needed"),
        (f"{','.join(['1'] * 60)} * * * * for 1h: min=1", "its start has 127 characters; at most 100 are read"),
    ],
)
def test_mistakes(text: str, error: str) -> None:
    ((name, found),) = controls.read({SCHEDULE: text}).errors
    assert name == SCHEDULE
    assert error in found


WINDOWS = st.builds(
    "{} {} * * {} for {}m in {}: {}".format,
    st.integers(0, 59),
    st.integers(0, 23),
    st.sampled_from(["*", "1-5", "6"]),
    st.integers(1, 3000),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    st.sampled_from(["min=3", "min=30", "max=1", "max=8", "min=4, max=6", "max=90"]),
)


@given(
    st.lists(WINDOWS, min_size=1, max_size=4),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
    st.integers(1, 5),
    st.integers(5, 40),
)
def test_the_bounds_are_always_in_order_and_within_the_maximum(
    texts: list[str], now: datetime, low: int, high: int
) -> None:
    found = schedule.bounds(schedule.parse("; ".join(texts)), now, low, high)
    assert 1 <= found.low <= found.high <= high
    assert found.low >= min(low, found.high)
    assert all(now < end for _, end in found.windows)
    if not found.windows:
        assert found == Bounds(low, high)


@settings(max_examples=8 * environment.EFFORT)
@given(st.lists(WINDOWS, min_size=1, max_size=3), st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)))
def test_the_next_bounds_hold_from_the_first_minute_with_others(texts: list[str], when: datetime) -> None:
    windows, now, minute = schedule.parse("; ".join(texts)), when.replace(tzinfo=UTC), timedelta(minutes=1)
    begin = now.replace(second=0, microsecond=0)
    later = (begin + n * minute for n in range(1, 600))
    present = schedule.bounds(windows, now, 2, 20)[:2]
    first = next((each for each in later if schedule.bounds(windows, each, 2, 20)[:2] != present), None)
    found = schedule.following(windows, now, 2, 20)
    if first is None:
        assert found is None or found[0] >= begin + 600 * minute
    else:
        assert found is not None
        assert (found[0], found[1][:2]) == (first, schedule.bounds(windows, first, 2, 20)[:2])


def test_a_decision_uses_the_bounds_of_its_time() -> None:
    """At noon the minimum becomes 6; five minutes later the window ends, and the metric alone decides."""
    window = "0 12 1 1 * for 5m: min=6, max=8"
    web = Workload(
        QUEUE, replicas=3, behavior=None, annotations={SCHEDULE: window}, downscale_stabilization=timedelta(0)
    )
    decision = web.reconcile(series(30))
    assert (decision.scale_to, str(decision)) == (6, "scale web from 3 to 6: the minimum is 6 by its schedule")
    condition = find(web.hpa.status.conditions, SCHEDULE_ACTIVE)
    assert condition is not None
    assert condition.message == (
        "the minimum is 6 and the maximum 8 by 0 12 1 1 * for 5m0s in UTC (until 2026-01-01T12:05:00Z)"
    )
    decision = web.reconcile(series(300), after=15)
    assert decision.scale_to == 8
    assert "the maximum is 8 by its schedule" in str(decision)
    assert web.condition("ScalingLimited").reason == "TooManyReplicas"
    assert (web.trace.replicas.min, web.trace.replicas.max) == (6, 8)
    assert web.trace.replicas.schedule == "0 12 1 1 * for 5m0s in UTC (until 2026-01-01T12:05:00Z)"
    decision = web.reconcile(series(30), after=285)
    assert decision.scale_to == 3
    assert find(web.hpa.status.conditions, SCHEDULE_ACTIVE) is None
    assert datetime(2026, 1, 1, 12, tzinfo=UTC) == START


def test_the_outlook_names_the_schedule_whose_bound_holds_the_count() -> None:
    """An edit of minReplicas or maxReplicas would change nothing."""
    web = Workload(QUEUE, replicas=8, high=10, behavior=None, annotations={SCHEDULE: "* * * * * for 1h: min=6, max=8"})
    web.reconcile(series(300))
    assert "30 wanted by orders, but the maximum is 8 by its schedule" in [each.text for each in web.outlook]
    web = Workload(QUEUE, replicas=6, behavior=None, annotations={SCHEDULE: "* * * * * for 1h: min=6"})
    web.reconcile(series(60))
    assert "cannot shrink: the minimum is 6 by its schedule" in [each.text for each in web.outlook]


def test_the_outlook_names_the_next_bounds_and_what_they_do_to_the_count() -> None:
    window = "10 12 1 1 * for 5m: min=6, max=8"
    web = Workload(QUEUE, replicas=3, high=10, behavior=None, annotations={SCHEDULE: window})
    web.reconcile(series(30))
    opens = Outlook(
        text="3 -> 6 from 12:10:00Z on: the schedule sets min 6, max 8",
        kind="schedule",
        at=at("2026-01-01T12:10:00Z"),
        rest=": the schedule sets min 6, max 8",
        replicas=6,
    )
    assert opens in web.outlook
    assert web.reconcile(series(30), after=599).scale_to is None
    assert web.reconcile(series(30), after=1).scale_to == 6
    # Without metrics: the count has just been set to the nearer bound.
    assert [each.text for each in web.outlook] == [
        "the metrics decide with the next reconcile, between 6 and 8",
        "from 12:15:00Z on the schedule sets min 1, max 10",
    ]
    web.reconcile(series(70), after=15)
    assert [each.text for each in web.outlook if each.kind == "schedule"] == [
        "from 12:15:00Z on the schedule sets min 1, max 10"
    ]
    web.reconcile(series(70), after=300)
    assert "from 2027-01-01T12:10:00Z on the schedule sets min 6, max 8" in [each.text for each in web.outlook]


@pytest.mark.parametrize(
    ("bound", "replicas", "length", "text"),
    [
        ("min=3", 8, 300, "the maximum is 10"),
        ("min=3", 11, 30, "scale web from 11 to 10: the maximum is 10"),
        ("max=8", 1, 10, "scale web from 1 to 2: the minimum is 2"),
        ("max=8", 9, 30, "scale web from 9 to 8: the maximum is 8 by its schedule"),
        ("max=8", 7, 300, "the maximum is 8 by its schedule"),
    ],
)
def test_a_bound_of_the_spec_is_not_called_one_of_the_schedule(
    bound: str, replicas: int, length: int, text: str
) -> None:
    window = {SCHEDULE: f"0 12 * * * for 1h: {bound}"}
    web = Workload(QUEUE, replicas=replicas, low=2, high=10, behavior=None, annotations=window)
    assert str(web.reconcile(series(length))).endswith(text)


@pytest.mark.parametrize("answer", [series(0), series(80), AdapterError("down")])
def test_a_minimum_wakes_a_sleeping_target_whatever_its_metrics_say(answer: Sample | AdapterError) -> None:
    window = {SCHEDULE: "5 12 * * * for 5m: min=3"}
    gates = Gates(HPAScaleToZero=True)
    web = Workload(QUEUE, replicas=1, low=0, annotations=window, gates=gates, downscale_stabilization=timedelta(0))
    web.reconcile(series(0))
    assert web.reconcile(series(0), after=299).desired == 0
    assert str(web.reconcile(after=1)) == "scale web from 0 to 3: the minimum is 3 by its schedule"
    web.reconcile(answer, after=15)
    assert web.replicas >= 3
    assert web.reconcile(series(0), after=300).scale_to == 0
    assert web.condition(SCALED_TO_ZERO).status == TRUE


def test_a_minimum_leaves_a_target_alone_that_was_stopped_by_hand() -> None:
    window = {SCHEDULE: "0 12 * * * for 5m: min=3"}
    web = Workload(QUEUE, replicas=0, low=0, annotations=window, gates=Gates(HPAScaleToZero=True))
    assert web.reconcile().scale_to is None


def test_a_count_above_the_ceiling_is_lowered_without_metrics() -> None:
    web = Workload(QUEUE, replicas=9, annotations={SCHEDULE: "0 12 * * * for 1h: max=4"})
    assert web.reconcile(series(90)).scale_to == 4
    assert [reason for reason, _ in web.events] == ["SuccessfulRescale"]
