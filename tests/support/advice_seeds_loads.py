"""Shapes of load over a week from Monday, one value for each step of 15 seconds. The noise is of a given generator."""

import math
from random import Random

from support.plain_hpa import PERIOD

DAY = 86_400 // PERIOD
HOUR = 3600 // PERIOD
WEEK = 7 * DAY

Load = list[float]
Surges = list[tuple[int, int]]


def daily(lowest: float, highest: float, peak: float = 14.0, weekend: float = 1.0, days: int = 7) -> Load:
    """Returns a smooth day with its peak at an hour; Saturday and Sunday have this share of the swing."""
    values = []
    for step in range(days * DAY):
        wave = (1 + math.cos((step / HOUR - peak) / 24 * 2 * math.pi)) / 2
        values.append(lowest + (highest - lowest) * wave**1.5 * (weekend if step // DAY >= 5 else 1.0))
    return values


def noisy(load: Load, random: Random, sigma: float, minutes: float = 3.0) -> Load:
    """Multiplies with a noise that forgets itself within this time: an Ornstein-Uhlenbeck process."""
    keep = math.exp(-PERIOD / (minutes * 60))
    fresh, at, values = sigma * math.sqrt(1 - keep * keep), 0.0, []
    for value in load:
        at = keep * at + random.gauss(0.0, fresh)
        values.append(value * max(0.05, 1 + at))
    return values


def surged(load: Load, begins: Surges, factor: float, rise: int = 2) -> Load:
    """Multiplies the load during surges, given as first step and number of steps, which rise over some steps."""
    values = list(load)
    for begin, length in begins:
        for step in range(begin, min(begin + length, len(values))):
            values[step] = load[step] * (1 + (factor - 1) * min(1.0, (step - begin + 1) / rise))
    return values


def at_random(random: Random, hours: tuple[float, float], minutes: tuple[float, float], days: int = 7) -> Surges:
    """Returns surges as `surged` takes them, this far apart and this long."""
    found: Surges = []
    at = 0.0
    while True:
        at += random.uniform(*hours) * HOUR
        if at >= days * DAY:
            return found
        length = random.uniform(*minutes) * 60 / PERIOD
        found.append((int(at), max(1, int(length))))
        at += length


def office(low: float, high: float, random: Random, ramp: float = 8.0) -> Load:
    """Returns days that rise from `low` to `high` within `ramp` minutes in the morning and after lunch."""
    values = []
    mornings = [random.uniform(8.2, 8.6) for _ in range(7)]
    for step in range(WEEK):
        hour, morning = step % DAY / HOUR, mornings[step // DAY]
        lunch = 0.6 * (_ramp(hour, 12.0, 0.25) - _ramp(hour, 13.0, ramp / 60))
        level = min(_ramp(hour, morning, ramp / 60), 1 - lunch)
        values.append(low + (high - low) * min(level, 1 - _ramp(hour, 18.0, 2.5)))
    return values


def _ramp(at: float, begin: float, length: float) -> float:
    return min(1.0, max(0.0, (at - begin) / length))
