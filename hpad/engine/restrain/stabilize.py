"""Stabilization windows: a recommendation holds only once the recent ones agree."""

from datetime import datetime, timedelta

import msgspec

from hpad.model.history import Recommendation
from hpad.model.rules import Behavior

Past = tuple[Recommendation, ...]


class Stabilized(msgspec.Struct, frozen=True, gc=False):
    """The count after the windows, the recommendations to remember, and the one that held it back, if any."""

    replicas: int
    past: Past
    held_by: Recommendation | None = None


def stabilize(
    wanted: int, current: int, past: Past, behavior: Behavior, downscale: timedelta, now: datetime
) -> Stabilized:
    """Keep the current count within the lowest recent wish to grow and the highest recent wish to shrink."""
    rise = now - (behavior.up.window or timedelta(0))
    fall = now - (downscale if behavior.down.window is None else behavior.down.window)
    low = high = wanted
    lowest = highest = None
    stale = -1
    for index, held in enumerate(past):
        when, replicas = held.timestamp, held.replicas
        if when > rise and replicas < low:
            low, lowest = replicas, held
        if when > fall and replicas > high:
            high, highest = replicas, held
        if when < rise and when < fall:
            stale = index
    replicas = min(max(current, low), high)
    held_by = lowest if wanted >= current else highest
    return Stabilized(replicas, _remember(past, stale, Recommendation(now, wanted)), held_by)


def stabilize_down(wanted: int, past: Past, downscale: timedelta, now: datetime) -> Stabilized:
    """Without spec.behavior: take the highest recommendation of the daemon's downscale window."""
    cutoff = now - downscale
    high, highest, stale = wanted, None, -1
    for index, held in enumerate(past):
        if held.timestamp < cutoff:
            stale = index
        elif held.replicas > high:
            high, highest = held.replicas, held
    return Stabilized(high, _remember(past, stale, Recommendation(now, wanted)), highest)


def _remember(past: Past, stale: int, latest: Recommendation) -> Past:
    """The latest takes the place of the last stale one, or goes to the end."""
    if stale < 0:
        return (*past, latest)
    return (*past[:stale], latest, *past[stale + 1 :])
