"""Windows of time in which an HPA has another minimum or maximum (`hpad.io/schedule`).

A window begins at the times of a cron expression in a time zone, and lasts for a duration of elapsed time. Where clocks
change, a start that is skipped comes at the next moment that exists, and one that occurs twice counts once, as with
cron in Debian (cronsim).
"""

import functools
import itertools
import re
import zoneinfo
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import cronsim
import msgspec

from hpad.api import duration
from hpad.api.quantity import MAX_INT32
from hpad.api.text import begin, shown

_MINUTE: Final = timedelta(minutes=1)
_LONGEST: Final = timedelta(days=31)
_MOST_WINDOWS: Final = 20
LONGEST: Final = 4096
"""Characters of all windows."""
_LONGEST_START: Final = 100
"""Characters of a start: cronsim parses it anew for each search."""
_MOST_READ: Final = 200
"""The number of times that windows are searched for the next change of the bounds."""
_FORESEEN: Final = timedelta(days=5 * 366)
"""How far ahead the next change is searched."""
_WINDOW: Final = re.compile(r"(?P<start>\S+ \S+ \S+ \S+ \S+) for (?P<length>\S+)(?: in (?P<zone>\S+))?: (?P<bounds>.+)")
_BOUND: Final = re.compile(r"(min|max) ?= ?([0-9]{1,10})")
_FORM: Final = "0 8 * * 1-5 for 10h in Europe/Berlin: min=5, max=40"
_ZONE: Final = re.compile(r" in (\S+):")
_SAMPLE: Final = datetime(2000, 1, 1, tzinfo=UTC)

_zones: Final[dict[str, zoneinfo.ZoneInfo]] = {}
"""The time zones whose files have been read. zoneinfo itself keeps only the last few."""


class ScheduleWindow(msgspec.Struct, frozen=True, gc=False):
    """One window: it begins at each `start`, five fields as in crontab(5), and lasts for `length`, whole minutes.

    `low` and `high` are its minimum and maximum, None where it sets none.
    """

    start: str
    length: timedelta
    zone: str
    low: int | None
    high: int | None

    def __str__(self) -> str:
        return f"{self.start} for {duration.write(self.length)} in {self.zone}"

    def ends(self, now: datetime) -> datetime | None:
        """Returns when the window ends that is open at this time; None while it is closed."""
        begun = self._begun(now)
        end = None if begun is None else begun.astimezone(UTC) + self.length
        return end if end is not None and now < end else None

    def edge(self, now: datetime, end: datetime | None) -> datetime | None:
        """Returns the next time at which the window begins or ends; None for a window that never comes again.

        `end` is what `ends` returns for this time.
        """
        starts = (each.astimezone(UTC) for each in cronsim.CronSim(self.start, now.astimezone(_zone(self.zone))))
        # In the hour that occurs for the second time, cronsim begins with starts of the first time.
        found = (next((start for start in starts if start > now), None), end)
        return min((each for each in found if each is not None), default=None)

    def _begun(self, now: datetime) -> datetime | None:
        """Returns the latest start up to this time, and None if there was none."""
        # Searching backwards begins before the given minute, and this one counts.
        after = (now.astimezone(UTC) + _MINUTE).astimezone(_zone(self.zone))
        begun = next(cronsim.CronSim(self.start, after, reverse=True), None)
        if begun is None:
            return None
        # Backwards, it passes over starts where clocks change, such as those of the hour that occurs twice.
        later = itertools.takewhile(lambda start: start.astimezone(UTC) <= now, cronsim.CronSim(self.start, begun))
        return max(later, key=datetime.timestamp, default=begun)


Schedule = tuple[ScheduleWindow, ...]


class Bounds(NamedTuple):
    """The lowest and the highest count at a time, and the windows that are open then with their ends."""

    low: int
    high: int
    windows: tuple[tuple[ScheduleWindow, datetime], ...] = ()

    def __str__(self) -> str:
        """The windows, such as `0 8 * * 1-5 for 10h0m0s in UTC (until 2026-01-05T18:00:00Z)`."""
        return "; ".join(f"{window} (until {end:%Y-%m-%dT%H:%M:%SZ})" for window, end in self.windows)


def bounds(schedule: Schedule, now: datetime, low: int, high: int) -> Bounds:
    """Returns the bounds of an HPA with this minimum and maximum.

    Of several open windows the largest minimum and the smallest maximum hold, and never more than the maximum of the
    HPA. A minimum above the maximum is lowered to it.
    """
    return _bounded(_open(schedule, now.replace(second=0, microsecond=0)), low, high)


def _bounded(found: tuple[tuple[ScheduleWindow, datetime], ...], low: int, high: int) -> Bounds:
    """Returns the bounds while these windows are open."""
    if not found:
        return Bounds(low, high)
    high = min([high, *(window.high for window, _ in found if window.high is not None)])
    low = max([low, *(window.low for window, _ in found if window.low is not None)])
    return Bounds(min(low, high), high, found)


def following(schedule: Schedule, now: datetime, low: int, high: int) -> tuple[datetime, Bounds] | None:
    """Returns when the bounds change next, and those from then on; `low` and `high` as for `bounds`.

    Returns None where they do not change, or not within five years, or not within the next starts and ends: 200 of one
    window, 100 each of two.
    """
    return _following(schedule, now.replace(second=0, microsecond=0), low, high)


@functools.lru_cache(1024)
def _following(schedule: Schedule, minute: datetime, low: int, high: int) -> tuple[datetime, Bounds] | None:
    present = bounds(schedule, minute, low, high)
    ends = [window.ends(minute) for window in schedule]
    edges = [window.edge(minute, end) for window, end in zip(schedule, ends, strict=True)]
    for _ in range(_MOST_READ // len(schedule)):
        at = min((edge for edge in edges if edge is not None), default=None)
        if at is None or at > minute + _FORESEEN:
            break
        # Only windows that begin or end: a search for rare days, such as 29 February on a Sunday, passes decades.
        for index in [index for index, edge in enumerate(edges) if edge == at]:
            ends[index] = schedule[index].ends(at)
            edges[index] = schedule[index].edge(at, ends[index])
        open_ones = tuple([(each, end) for each, end in zip(schedule, ends, strict=True) if end is not None])
        found = _bounded(open_ones, low, high)
        if (found.low, found.high) != (present.low, present.high):
            return at, found
    return None


@functools.lru_cache(1 << 14)
def _open(schedule: Schedule, minute: datetime) -> tuple[tuple[ScheduleWindow, datetime], ...]:
    """Returns the windows that are open.

    Cached: starts and lengths are whole minutes, HPAs share schedules, and backtests go through a week several times.
    """
    ends = ((window, window.ends(minute)) for window in schedule)
    return tuple((window, end) for window, end in ends if end is not None)


def reads_files(text: str) -> bool:
    """Whether `parse` has to read the files of time zones, which the event loop must not wait for."""
    return any(name not in _zones for name in ("UTC", *_ZONE.findall(" ".join(text.split()))))


def parse(text: str) -> Schedule:
    """Reads windows with semicolons between. Raises ValueError naming the window, and what is wrong with it."""
    texts = [part.strip() for part in text.split(";") if part.strip()]
    if not texts or len(texts) > _MOST_WINDOWS:
        raise ValueError(f"{len(texts)} windows; 1 to {_MOST_WINDOWS} are needed, such as {_FORM}")
    return tuple(map(_window, texts))


def _window(text: str) -> ScheduleWindow:
    match = _WINDOW.fullmatch(" ".join(text.split()))
    if match is None:
        raise ValueError(f"{shown(begin(text))} is not a window such as {_FORM}")
    try:
        low, high = _bounds(match["bounds"])
        start, zone = _start(match["start"]), _known(match["zone"] or "UTC")
        return ScheduleWindow(start, _length(match["length"]), zone, low, high)
    except ValueError as error:
        raise ValueError(f"{shown(begin(text))}: {error}") from None


def _bounds(text: str) -> tuple[int | None, int | None]:
    found: dict[str, int] = {}
    for part in text.split(","):
        match = _BOUND.fullmatch(part.strip())
        if match is None or match[1] in found or not 1 <= int(match[2]) <= MAX_INT32:
            raise ValueError(f"{shown(part.strip())} is not one of min=N and max=N, each once and 1 or more")
        found[match[1]] = int(match[2])
    low, high = found.get("min"), found.get("max")
    if low is not None and high is not None and low > high:
        raise ValueError(f"min={low} is above max={high}")
    return low, high


def _start(text: str) -> str:
    if len(text) > _LONGEST_START:
        raise ValueError(f"its start has {len(text):,} characters; at most {_LONGEST_START} are read")
    try:
        next(cronsim.CronSim(text, _SAMPLE))
    except (cronsim.CronSimError, StopIteration):  # StopIteration: a date that never comes, such as 30 February
        raise ValueError(f"{shown(text)} is not a start in five fields such as 0 8 * * 1-5") from None
    return text


def _length(text: str) -> timedelta:
    length = duration.parse(text)
    if length % _MINUTE or not _MINUTE <= length <= _LONGEST:
        raise ValueError(f"for {shown(text)}: whole minutes from 1m to {duration.write(_LONGEST)} are needed")
    return length


def _known(name: str) -> str:
    """Returns the name of a time zone that exists."""
    try:
        _zone(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # the last two: no name of a file
        raise ValueError(f"in {shown(name)}: there is no such time zone; write something like Europe/Berlin") from None
    return name


def _zone(name: str) -> zoneinfo.ZoneInfo:
    """Returns a time zone. Reads its file when it is named for the first time."""
    found = _zones.get(name)
    if found is None:
        found = _zones[name] = zoneinfo.ZoneInfo(name)
    return found
