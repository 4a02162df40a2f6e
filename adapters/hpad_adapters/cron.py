"""Replicas by a schedule: External metrics with one value inside a time window and another outside.

With a target of AverageValue 1 the metric proposes as many replicas as its value. Other metrics of the HPA may propose
more; minReplicas, maxReplicas and behavior apply as for any metric.
"""

import asyncio
import zoneinfo
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Annotated

import cronsim
import msgspec

from hpad.adapter import EXTERNAL, Answer, Context, ExternalSample, Query, shown
from hpad_adapters.selection import no_metric

# Reads files: at import, which hpad does in a thread.
_ZONES = zoneinfo.available_timezones()
_Replicas = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class CronWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """From each `start` to the next `end`.

    start, end: five fields, as in crontab(5); timezone: of the schedule, such as "Europe/Berlin".
    replicas: the value inside the window; otherwise: the value outside, where 0 proposes nothing.
    """

    start: str
    end: str
    replicas: _Replicas
    otherwise: _Replicas = 0
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if self.timezone not in _ZONES:
            raise ValueError(f'timezone: there is no {shown(self.timezone)}; write something like "Europe/Berlin"')
        for field in ("start", "end"):
            try:
                next(cronsim.CronSim(getattr(self, field), datetime(2000, 1, 1, tzinfo=UTC)))
            except (cronsim.CronSimError, StopIteration):  # StopIteration: a date that never comes, such as 30 February
                text = shown(getattr(self, field))
                raise ValueError(f'{field}: {text} is not a schedule; write something like "0 8 * * 1-5"') from None

    def value(self, now: datetime, zone: tzinfo) -> int:
        """Returns the value at this time."""
        here = now.astimezone(zone)
        start, end = (next(cronsim.CronSim(expression, here)) for expression in (self.start, self.end))
        # Inside the window the next end comes before the next start.
        return self.replicas if end < start else self.otherwise


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
