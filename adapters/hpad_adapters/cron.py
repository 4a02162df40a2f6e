"""Replicas by a schedule: External metrics with one value inside a time window and another outside.

With a target of AverageValue 1 the metric proposes as many replicas as its value. Other metrics of the HPA may propose
more; minReplicas, maxReplicas and behavior apply as for any metric.
"""

import asyncio
import functools
import itertools
import zoneinfo
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated

import cronsim
import msgspec

from hpad.adapter import EXTERNAL, Answer, Context, ExternalSample, Query, shown
from hpad_adapters.selection import no_metric

# Reads files: at import, which hpad does in a thread.
_ZONES = zoneinfo.available_timezones()
_FIELDS = 5
_MINUTE = timedelta(minutes=1)
_Expression = Annotated[str, msgspec.Meta(max_length=200)]
_Replicas = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class CronWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """From each `start` to the next `end`.

    start, end: five fields, as in crontab(5); timezone: of the schedule, such as "Europe/Berlin".
    replicas: the value inside the window; otherwise: the value outside, where 0 proposes nothing.
    """

    start: _Expression
    end: _Expression
    replicas: _Replicas
    otherwise: _Replicas = 0
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if self.timezone not in _ZONES:
            raise ValueError(f'timezone: there is no {shown(self.timezone)}; write something like "Europe/Berlin"')
        for field in ("start", "end"):
            if not _comes(getattr(self, field)):
                text = shown(getattr(self, field))
                raise ValueError(f'{field}: {text} is not a schedule; write something like "0 8 * * 1-5"')
        # `hpad convert` writes a constant so: the same value inside and outside.
        if self.start.split() == self.end.split() and self.replicas != self.otherwise:
            raise ValueError(f"end: {shown(self.end)} is the start as well, so the window would never close")

    def value(self, now: datetime, zone: tzinfo) -> int:
        """Returns the value at this time."""
        minute = now.replace(second=0, microsecond=0)
        start, end = (_latest(expression, minute, zone) for expression in (self.start, self.end))
        if start == end:  # by the clock on the wall: both come late if clocks skip them
            wall = minute.astimezone(zone).replace(tzinfo=UTC)
            start, end = (_latest(expression, wall, UTC) for expression in (self.start, self.end))
        return self.replicas if start >= end else self.otherwise


def _comes(expression: str) -> bool:
    """Whether the text has five fields, and names a date that comes, unlike 30 February."""
    try:
        found = next(cronsim.CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC)), None)
    except cronsim.CronSimError:
        return False
    # Of six fields, the first one would be seconds.
    return found is not None and len(expression.split()) == _FIELDS


@functools.lru_cache(1 << 12)
def _latest(expression: str, minute: datetime, zone: tzinfo) -> float:
    """Returns the latest time of a schedule up to a minute, as a timestamp. Cached: many HPAs share a schedule."""
    # Searching backwards begins before the given minute, and this one counts.
    found = next(cronsim.CronSim(expression, (minute + _MINUTE).astimezone(zone), reverse=True))
    # Backwards, it passes over times where clocks change, such as those of the hour that occurs twice.
    later = (time.timestamp() for time in cronsim.CronSim(expression, found))
    return max(itertools.takewhile(lambda time: time <= minute.timestamp(), later), default=found.timestamp())


class CronSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """metrics: name -> {start, end, timezone, replicas, otherwise}."""

    metrics: dict[str, CronWindow]


class Cron:
    """Numbers by the clock: replicas between a start and an end, as cron schedules in a time zone."""

    serves = frozenset({EXTERNAL})
    metrics: Sequence[str] = ()
    Settings = CronSettings
    QuerySchema = CronWindow

    def __init__(self, settings: CronSettings, context: Context) -> None:
        self.metrics = tuple(settings.metrics)
        self._windows = settings.metrics
        self._clock = context.clock
        self._zones: dict[str, tzinfo] = {}

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns the present value of each schedule."""
        windows = (self._window(query) for query in queries)
        if missing := {window.timezone for window in windows if window is not None} - self._zones.keys():
            # In a thread, because ZoneInfo reads files.
            self._zones |= await asyncio.to_thread(lambda: {name: zoneinfo.ZoneInfo(name) for name in missing})
        return [self._answer(query, self._clock.now()) for query in queries]

    async def aclose(self) -> None:
        """Does nothing: the adapter has no connections."""

    def _answer(self, query: Query, now: datetime) -> Answer:
        window = self._window(query)
        if window is None:
            return no_metric(query, self._windows)
        return ExternalSample((window.value(now, self._zones[window.timezone]) * 1000,), now)

    def _window(self, query: Query) -> CronWindow | None:
        return self._windows.get(query.name) if query.definition is None else query.definition.metric
