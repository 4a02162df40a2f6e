"""Durations in the format of Go."""

from datetime import timedelta

import pytest

from hpad.api import duration


@pytest.mark.parametrize(
    ("text", "expected", "canonical"),
    [
        ("15s", timedelta(seconds=15), "15s"),
        ("5m0s", timedelta(minutes=5), "5m0s"),
        ("5m", timedelta(minutes=5), "5m0s"),
        ("1h30m", timedelta(minutes=90), "1h30m0s"),
        ("1.5h", timedelta(minutes=90), "1h30m0s"),
        ("200ms", timedelta(milliseconds=200), "200ms"),
        ("1.5s", timedelta(milliseconds=1500), "1.5s"),
        ("250us", timedelta(microseconds=250), "250µs"),
        ("0", timedelta(0), "0s"),
        ("-30s", timedelta(seconds=-30), "-30s"),
        ("49h", timedelta(hours=49), "49h0m0s"),
    ],
)
def test_go_durations(text: str, expected: timedelta, canonical: str) -> None:
    assert duration.parse(text) == expected
    assert duration.write(expected) == canonical


@pytest.mark.parametrize("text", ["", "15", "s", "15 s", "1d", "five minutes", "1h-30m", "999999999999h"])
def test_any_other_text_raises_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration.parse(text)
