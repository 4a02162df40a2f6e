"""Times on the command line: `--at 02:40`, `--since 2h`."""

import argparse
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from hpad.api import duration
from hpad.api.text import shown
from hpad.cli.output import WrongUse
from hpad.clock import SystemClock

_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?(Z?)")
_DAYS: Final = re.compile(r"-?([0-9]{1,5})d")
_DAYS_BACK: Final = 3
"""Today and the days before it; a time that the clocks skip today and yesterday does not occur in any zone."""
_MOMENT: Final = timedelta(microseconds=1)
FORMS: Final = "02:40 (local time), 02:40Z (UTC), 2026-11-22T02:40:00Z, 10m or 7d (ago)"


def parse(flag: str, text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Returns a time in UTC: RFC 3339, a duration before `now`, or the last such time of day.

    `zone` is that of a time of day without Z (None: the one of this machine). Raises Failure for any other text, and
    for a time after `now`.
    """
    found = _of_day(text, now, zone) or _ago(text, now) or _timestamp(text)
    if found is None:
        raise WrongUse(f"{flag}: {shown(text)} is not a time such as {FORMS}")
    if found > now:
        raise WrongUse(f"{flag}: {shown(text)} is in the future")
    return found.astimezone(UTC)


def between(args: argparse.Namespace) -> tuple[datetime | None, datetime | None]:
    """Returns the times of the flags --from and --to, None for one that is not given.

    Raises WrongUse, also where the first one is the later one.
    """
    now = SystemClock().now()
    begin = None if args.begin is None else parse("--from", args.begin, now)
    end = None if args.end is None else through_second(parse("--to", args.end, now))
    if begin is not None and end is not None and begin > end:
        raise WrongUse(f"--from {shown(args.begin)} is {written(begin)}, after --to {shown(args.end)}, {written(end)}")
    return begin, end


def written(time: datetime) -> str:
    """Returns a time in UTC: 2026-11-22T02:40:00Z."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def through_second(at: datetime) -> datetime:
    """Returns the end of a whole second; any other time as it is.

    Decisions are shown with whole seconds, so the time of a decision as shown is before the decision itself.
    """
    return at if at.microsecond else at + timedelta(seconds=1) - _MOMENT


def _of_day(text: str, now: datetime, zone: tzinfo | None) -> datetime | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    zone = UTC if match[4] else zone
    wall = _wall(now, zone).replace(hour=hour, minute=minute, second=second, microsecond=0)
    return next(at for at in _occurrences(wall, zone) if at <= now)


def _occurrences(wall: datetime, zone: tzinfo | None) -> Iterator[datetime]:
    """Yields the moments at which clocks show this time of day, today and on the days before, the latest first.

    On the day on which clocks are set back, an hour occurs twice; where they are set forward, one does not occur.
    """
    for days in range(_DAYS_BACK):
        for fold in (1, 0):
            local = (wall - timedelta(days=days)).replace(fold=fold)
            at = (local if zone is None else local.replace(tzinfo=zone)).astimezone(UTC)
            if _wall(at, zone) == local:
                yield at


def _wall(at: datetime, zone: tzinfo | None) -> datetime:
    """Returns what clocks of the zone show, without the zone."""
    return at.astimezone(zone).replace(tzinfo=None)


def _ago(text: str, now: datetime) -> datetime | None:
    days = _DAYS.fullmatch(text)
    try:
        if days is not None:
            return now - timedelta(days=int(days[1]))
        return now - abs(duration.parse(text.removeprefix("-")))
    except (ValueError, OverflowError):
        return None


def _timestamp(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
        return None if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):  # in UTC, it may be before the first year
        return None
