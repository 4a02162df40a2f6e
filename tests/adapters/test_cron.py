"""Replicas by a schedule, in the time zone of the schedule."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from hpad import settings, testing
from hpad.adapter import AdapterError, ExternalSample
from hpad.sources import plugins
from hpad_adapters import cron

WORK = {"start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "replicas": 10, "timezone": "Europe/Berlin"}


def window(**changed: object) -> cron.CronWindow:
    return cron.CronWindow(**(WORK | changed))


def value(window: cron.CronWindow, now: datetime) -> int:
    return window.value(now, ZoneInfo(window.timezone))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-01-05T06:59:59", 0),  # a Monday; Berlin is an hour ahead of UTC in winter
        ("2026-01-05T07:00:00", 10),
        ("2026-01-05T16:59:59", 10),
        ("2026-01-05T17:00:00", 0),
        ("2026-01-10T12:00:00", 0),  # a Saturday
        ("2026-07-06T06:00:00", 10),  # summer: two hours
        ("2026-07-06T05:59:59", 0),
    ],
)
def test_a_window_opens_and_closes_in_local_time(now, expected):
    assert value(window(), datetime.fromisoformat(now).replace(tzinfo=UTC)) == expected


@pytest.mark.parametrize(("hour", "expected"), [(21, 2), (22, 7), (23, 7), (3, 7), (5, 7), (6, 2), (12, 2)])
def test_a_window_may_span_midnight(hour, expected):
    night = window(start="0 22 * * *", end="0 6 * * *", timezone="UTC", replicas=7, otherwise=2)
    assert value(night, datetime(2026, 3, 4, hour, tzinfo=UTC)) == expected


@pytest.mark.parametrize(
    ("start", "end", "closed"),
    [
        ("30 6 * * 1-5", "10 22 * * *", "2026-01-10T12:00:00"),  # the window of Friday ended in the evening
        ("0 8 1 * *", "0 20 * * *", "2026-01-15T12:00:00"),
        ("0 8 * * 1-5", "0 12,18 * * *", "2026-01-05T13:00:00"),
    ],
)
def test_a_window_stays_closed_after_its_end(start, end, closed):
    """Although the end comes again before the next start: kedacore/keda#4677."""
    assert value(window(start=start, end=end, timezone="UTC"), datetime.fromisoformat(closed).replace(tzinfo=UTC)) == 0


@pytest.mark.parametrize("now", ["2026-01-05T07:59:59", "2026-01-05T08:00:00", "2026-01-05T08:00:59"])
def test_a_window_that_starts_as_another_ends_is_open(now):
    daily = window(start="0 8 * * *", end="0 8 * * 1", timezone="UTC")
    assert value(daily, datetime.fromisoformat(now).replace(tzinfo=UTC)) == 10


def test_a_constant_has_one_value_inside_and_outside():
    constant = window(start="0 0 * * *", end="0 0 * * *", otherwise=10)
    assert value(constant, datetime(2026, 1, 5, tzinfo=UTC)) == 10


def test_a_window_over_the_missing_hour_lasts_an_hour_less():
    """On 2026-03-29 the clocks of Berlin go from 02:00 to 03:00, which is 01:00 UTC."""
    night = window(start="0 1 * * *", end="0 4 * * *")
    start = datetime(2026, 3, 29, tzinfo=UTC)
    minutes = [m for m in range(0, 240, 30) if value(night, start + timedelta(minutes=m)) == 10]
    assert minutes == [0, 30, 60, 90]


@pytest.mark.parametrize(("start", "end"), [("0 2 * * *", "30 2 * * *"), ("30 2 * * *", "45 2 * * *")])
def test_a_window_within_the_missing_hour_does_not_open(start, end):
    """Start and end come at 03:00, which is 01:00 UTC on 2026-03-29. The next window is of the day after."""
    night = window(start=start, end=end)
    first = datetime(2026, 3, 29, tzinfo=UTC)
    assert {value(night, first + timedelta(minutes=m)) for m in range(0, 1440, 15)} == {0}
    assert value(night, datetime(2026, 3, 30, 0, 30 if start == "30 2 * * *" else 0, tzinfo=UTC)) == 10


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"timezone": "Europe/Atlantis"}, "timezone: there is no 'Europe/Atlantis'"),
        ({"timezone": "../etc/passwd"}, "timezone: there is no"),
        ({"start": "every day"}, "start: 'every day' is not a schedule"),
        ({"start": "0 0 8 * * 1-5"}, "start: '0 0 8 * * 1-5' is not a schedule"),
        ({"end": "0  8 * * 1-5"}, "end: '0  8 * * 1-5' is the start as well"),
        ({"end": "0 0 30 2 *"}, "end: '0 0 30 2 *' is not a schedule"),
        ({"start": "0 8 * * 1" + ",1" * 100}, "is not text with max_length 200"),
        ({"replicas": -1}, "replicas: -1 is not a whole number >= 0"),
        ({"replica": 1}, "replica: unknown field; did you mean 'replicas'?"),
    ],
)
def test_an_invalid_schedule_is_named(changed, error):
    source = settings.SourceSettings(name="hours", adapter="cron", settings={"metrics": {"work": WORK | changed}})
    with pytest.raises(AdapterError) as caught:
        plugins.decode(source, cron.CronSettings)
    assert error in caught.value.message


async def test_the_adapter_keeps_the_contract():
    async with testing.context("hours") as context:
        adapter = cron.Cron(cron.CronSettings({"work": window()}), context)
        assert plugins.offered("hours", adapter) == ("work",)
        answers = await testing.check_adapter(adapter, [testing.external("work"), testing.external("play")])
    assert isinstance(answers[0], ExternalSample)
    assert answers[1] == AdapterError('there is no metric "play"; there are work', "spec")


async def test_an_autoscaler_brings_its_schedule_along():
    always = window(start="* * * * *", end="0 0 1 1 *", timezone="Asia/Tokyo")
    async with testing.context("hours") as context:
        (answer,) = await cron.Cron(cron.CronSettings({}), context).answer([testing.own_query(always)])
    assert answer.values in [(0,), (10_000,)]
