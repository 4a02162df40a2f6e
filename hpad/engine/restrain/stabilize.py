"""Stabilization windows: a recommendation holds only once the recent ones agree."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from hpad.model.history import Recommendation
from hpad.model.rules import Behavior

Past = tuple[Recommendation, ...]


class Held(msgspec.Struct, frozen=True, gc=False):
    """The recommendation that holds the count, and for how long: it counts while it is within `window`."""

    by: Recommendation
    window: timedelta


class Stabilized(msgspec.Struct, frozen=True, gc=False):
    """The count after the windows, the recommendations to remember, and what holds the count back, if anything does."""

    replicas: int
    past: Past
    held: Held | None = None


def stabilize(
    wanted: int, current: int, past: Past, behavior: Behavior, downscale: timedelta, now: datetime
) -> Stabilized:
    """Keep the current count within the lowest recent wish to grow and the highest recent wish to shrink."""
    upward = behavior.up.window or timedelta(0)
    downward = downscale if behavior.down.window is None else behavior.down.window
    rise, fall = now - upward, now - downward
    low = high = wanted
    stale = -1
    known = [held.standing_for(current) for held in past]
    for index, held in enumerate(known):
        when, replicas = held.timestamp, held.replicas
        if when > rise and replicas < low:
            low = replicas
        if when > fall and replicas > high:
            high = replicas
        if when < rise and when < fall:
            stale = index
    replicas = min(max(current, low), high)
    kept = _remember(past, stale, Recommendation(now, wanted))
    if replicas == wanted:
        return Stabilized(replicas, kept)
    return Stabilized(replicas, kept, _holding(known, replicas, wanted, upward if wanted > current else downward))


def stabilize_down(wanted: int, current: int, past: Past, downscale: timedelta, now: datetime) -> Stabilized:
    """Without spec.behavior: take the highest recommendation of the daemon's downscale window."""
    cutoff = now - downscale
    high, stale = wanted, -1
    known = [held.standing_for(current) for held in past]
    for index, held in enumerate(known):
        if held.timestamp < cutoff:
            stale = index
        elif held.replicas > high:
            high = held.replicas
    kept = _remember(past, stale, Recommendation(now, wanted))
    return Stabilized(high, kept, None if high == wanted else _holding(known, high, wanted, downscale))


def _holding(past: Sequence[Recommendation], replicas: int, wanted: int, window: timedelta) -> Held:
    """The latest of the recommendations that keep the count from `wanted`: once it is out of the window, they all are.

    Those are the ones as far from `wanted` as the count is, or farther.
    """
    grows = wanted > replicas
    far = (held for held in past if (held.replicas <= replicas if grows else held.replicas >= replicas))
    return Held(max(far, key=lambda held: held.timestamp), window)


def _remember(past: Past, stale: int, latest: Recommendation) -> Past:
    """The latest takes the place of the last stale one, or goes to the end."""
    if stale < 0:
        return (*past, latest)
    return (*past[:stale], latest, *past[stale + 1 :])
