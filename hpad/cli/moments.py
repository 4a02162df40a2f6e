"""Times on the command line: `--at 02:40`, `--since 2h`."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from hpad.api import duration
from hpad.api.text import shown
from hpad.cli.output import Failure

_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
FORMS: Final = "02:40 (local time), 2026-11-22T02:40:00Z, or 10m (ago)"


def parse(flag: str, text: str, now: datetime) -> datetime:
    """Returns a time in UTC: RFC 3339, a duration before `now`, or the last such time of day in the zone of `now`.

    Raises Failure for any other text, and for a time after `now`.
    """
    found = _of_day(text, now) or _ago(text, now) or _timestamp(text)
    if found is None:
        raise Failure(f"{flag}: {shown(text)} is no time such as {FORMS}")
    if found > now:
        raise Failure(f"{flag}: {shown(text)} is in the future")
    return found.astimezone(UTC)


def _of_day(text: str, now: datetime) -> datetime | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups())
    at = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    return at if at <= now else at - timedelta(days=1)


def _ago(text: str, now: datetime) -> datetime | None:
    try:
        return now - abs(duration.parse(text.removeprefix("-")))
    except (ValueError, OverflowError):
        return None


def _timestamp(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None
