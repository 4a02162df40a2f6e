"""Times on the command line."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from hpad.cli import moments
from hpad.cli.output import Failure

NOW = datetime(2026, 1, 2, 1, 30, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("01:00", "2026-01-01T23:00:00+00:00"),
        ("02:40", "2026-01-01T00:40:00+00:00"),  # 02:40 of yesterday: today's has not come yet
        ("1:29:59", "2026-01-01T23:29:59+00:00"),
        ("10m", "2026-01-01T23:20:00+00:00"),
        ("-1h30m", "2026-01-01T22:00:00+00:00"),
        ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00+00:00"),
        ("2026-01-01T12:00:00+02:00", "2026-01-01T10:00:00+00:00"),
    ],
)
def test_a_time_is_a_time_of_day_a_timestamp_or_a_duration_ago(text: str, expected: str) -> None:
    found = moments.parse("--at", text, NOW)
    assert found.tzinfo is UTC
    assert found.isoformat() == expected


@pytest.mark.parametrize("text", ["25:00", "yesterday", "2026-01-01T12:00:00", "", "1:2"])
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(Failure, match=r"is no time such as 02:40 \(local time\)"):
        moments.parse("--at", text, NOW)


def test_a_time_to_come_is_refused() -> None:
    with pytest.raises(Failure, match="is in the future"):
        moments.parse("--at", "2026-01-03T00:00:00Z", NOW)
