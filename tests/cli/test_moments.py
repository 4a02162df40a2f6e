"""Times on the command line."""

import time
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from hpad.cli import moments
from hpad.cli.output import Failure

ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 1, 2, 1, 30, tzinfo=ZONE)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("01:00", "2026-01-01T23:00:00+00:00"),
        ("02:40", "2026-01-01T00:40:00+00:00"),  # 02:40 of yesterday: today's has not come yet
        ("1:29:59", "2026-01-01T23:29:59+00:00"),
        ("23:30Z", "2026-01-01T23:30:00+00:00"),  # now
        ("23:30:01Z", "2025-12-31T23:30:01+00:00"),
        ("2:40Z", "2026-01-01T02:40:00+00:00"),
        ("10m", "2026-01-01T23:20:00+00:00"),
        ("-1h30m", "2026-01-01T22:00:00+00:00"),
        ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00+00:00"),
        ("2026-01-01T12:00:00+02:00", "2026-01-01T10:00:00+00:00"),
    ],
)
def test_a_time_is_a_time_of_day_a_timestamp_or_a_duration_ago(text: str, expected: str) -> None:
    found = moments.parse("--at", text, NOW, ZONE)
    assert found.tzinfo is UTC
    assert found.isoformat() == expected


@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        # Summer time in Berlin ends on 2026-10-25 at 03:00, 01:00Z: clocks show 02:00 to 03:00 twice.
        ("2026-10-25T12:00:00Z", "01:30", "2026-10-24T23:30:00+00:00"),
        ("2026-10-25T12:00:00Z", "03:30", "2026-10-25T02:30:00+00:00"),
        ("2026-10-25T12:00:00Z", "02:30", "2026-10-25T01:30:00+00:00"),
        ("2026-10-25T01:10:00Z", "02:30", "2026-10-25T00:30:00+00:00"),
        ("2026-10-25T11:00:00Z", "14:00", "2026-10-24T12:00:00+00:00"),  # yesterday, when summer time was in force
        # It begins on 2026-03-29 at 02:00, 01:00Z: clocks skip to 03:00.
        ("2026-03-29T12:00:00Z", "01:30", "2026-03-29T00:30:00+00:00"),
        ("2026-03-29T12:00:00Z", "03:30", "2026-03-29T01:30:00+00:00"),
        ("2026-03-29T12:00:00Z", "02:30", "2026-03-28T01:30:00+00:00"),  # that day has no 02:30
        ("2026-03-30T00:10:00Z", "02:30", "2026-03-28T01:30:00+00:00"),
    ],
)
def test_a_time_of_day_is_that_of_the_clocks_on_its_own_day(now: str, text: str, expected: str) -> None:
    """Scenario 30."""
    found = moments.parse("--at", text, datetime.fromisoformat(now), BERLIN)
    assert found.isoformat() == expected
    assert f"{found.astimezone(BERLIN):%H:%M}" == text


def test_the_zone_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 10, 25, 12, tzinfo=UTC)
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        found = moments.parse("--at", "01:30", now)
    time.tzset()
    assert found.isoformat() == "2026-10-24T23:30:00+00:00"


def test_a_whole_second_lasts_until_its_end() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert moments.through_second(at) == at.replace(microsecond=999_999)
    assert moments.through_second(at.replace(microsecond=7)) == at.replace(microsecond=7)


@pytest.mark.parametrize(
    "text", ["25:00", "yesterday", "2026-01-01T12:00:00", "", "1:2", "24:00Z", "Z", "0001-01-01T00:00:00+12:00"]
)
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(Failure, match=r"is not a time such as 02:40 \(local time\)"):
        moments.parse("--at", text, NOW)


def test_a_time_to_come_is_refused() -> None:
    with pytest.raises(Failure, match="is in the future"):
        moments.parse("--at", "2026-01-03T00:00:00Z", NOW)
