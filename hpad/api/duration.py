"""Durations in the format of Go's time.ParseDuration: "15s", "5m0s", "1h30m", "200ms"."""

import re
from datetime import timedelta

from hpad.api.text import shown

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_LONGEST = 2**63 / 1e9  # seconds: Go counts nanoseconds in 64 bits; 292 years, so that dates can be counted from today
_WHOLE = re.compile(rf"([+-]?)((?:{_PART.pattern})+|0)")


def parse(text: str) -> timedelta:
    """Parses a Go duration. Raises ValueError with an example for any other text.

    Parts finer than a microsecond are rounded.
    """
    whole = _WHOLE.fullmatch(text.strip())
    if whole is None:
        raise ValueError(
            f'{shown(text)} is not a duration: write a number with its unit, such as "15s", "5m" or "1h30m"'
        )
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(whole[2]))
    if seconds >= _LONGEST:
        raise ValueError(f"{shown(text)} is too long a duration: the longest is 2562047h")
    return timedelta(seconds=-seconds if whole[1] == "-" else seconds)


def write(duration: timedelta) -> str:
    """Returns the duration as Go prints it: 1m30s, 15s, 200ms, 0s."""
    if duration < timedelta(0):
        return "-" + write(-duration)
    total = duration.seconds * 1_000_000 + duration.microseconds
    if duration < timedelta(seconds=1):
        return f"{total / 1000:g}ms" if total >= 1000 else f"{total}µs" if total else "0s"
    minutes, micros = divmod(total, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    hours += duration.days * 24
    seconds = f"{micros / 1_000_000:.6f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds
