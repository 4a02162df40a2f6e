"""How long ago a message was published, by the time that its publisher wrote, whatever the unit."""

from datetime import UTC, datetime

_AHEAD_SECONDS = 300.0
"""How far clocks may differ. What is further ahead is no time of publication."""
_UNITS = ((10**11, 1), (10**14, 10**3), (10**17, 10**6))
"""Timestamps below -> how many make a second; beyond, nanoseconds. AMQP 0-9-1 says seconds, but clients send others.

Each unit covers the years 2001 (10**9 seconds) to 5138, and no two of them overlap.
"""
_FINEST = 10**9
_EARLIEST = 10**9


def age(stamp: float, now: datetime) -> float:
    """Returns the seconds since a time of publication, never below zero; raises ValueError for what is no such time.

    A publisher's clock that is somewhat ahead gives no age below zero.
    """
    seconds = stamp / next((unit for below, unit in _UNITS if stamp < below), _FINEST)
    if not seconds >= _EARLIEST:
        raise ValueError("is no time since 2001 in seconds, milliseconds, microseconds or nanoseconds")
    if (ahead := seconds - now.timestamp()) > _AHEAD_SECONDS:
        moment = f"({datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}) is {ahead:.0f}s ahead of hpad's clock"
        raise ValueError(f"{moment}: check the clock and the time zone of its publisher")
    return max(0.0, now.timestamp() - seconds)
