"""How far the model of a load can be trusted: whether it gives the replica curve that was.

Three things are compared, each of which the others are blind to: the area between both curves (where the count was),
the number of rescales (a flat line has the area of a sawtooth around it), and the highest count. Moments in which the
HPA could not read a metric are left out: the model has values there that the HPA had not.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hpad.engine.words import percent
from hpad.simulation.advice.assessment import Level, ModelTrust
from hpad.simulation.advice.model.rerun import Rerun
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.words import days, per_day
from hpad.simulation.history import DAY, REPLICAS, STALE_STEPS

GOOD: Final = 0.9
"""The agreement from which on the model is good; the usual difference is the time at which a replica came or went."""
FAIR: Final = 0.75
"""The agreement below which there is no advice: a saving of a quarter could be an error of the model."""
_LEAST: Final = 6 * 3600.0
"""Seconds that have to be compared at least."""
_FEW: Final = 4.0
"""Rescales a day by which both may differ, whatever their number."""
_SEVERAL: Final = 12.0
_PEAK: Final = 0.25


class CurveComparison(NamedTuple):
    """Both curves over the time in which both are known, at the times of the past.

    `area` is the replica-seconds between them; `own` are those below the recorded one.
    """

    seconds: float
    area: float
    own: float
    rescales: tuple[int, int]
    """Recorded and modelled, and so below."""
    highest: tuple[int, int]
    lowest: tuple[int, int]
    skipped: float = 0.0
    """Seconds before the bounds were last changed."""

    @property
    def agreement(self) -> float | None:
        return max(0.0, 1 - self.area / self.own) if self.own else None

    @property
    def per_day(self) -> tuple[float, float]:
        recorded, modelled = (count * DAY / self.seconds for count in self.rescales)
        return recorded, modelled


def judged(past: HpaPast, now: Rerun | None) -> ModelTrust:
    """Returns how well the spec of now gives the recorded curve. `now` is its run; None: there is no load to run it."""
    if past.is_paused:
        return ModelTrust(None, Level.UNKNOWN, "it is paused: its replica curve says nothing about its settings")
    if now is None and past.queues:
        text = "its past does not show how many messages per second a replica does; per_replica in the file of --series"
        return ModelTrust(None, Level.UNKNOWN, f"{text} gives them")
    if now is None:
        return ModelTrust(None, Level.UNKNOWN, "no metric has values, so there is no load to try other settings on")
    found = compared(past, now)
    if found.seconds < _LEAST or found.agreement is None:
        known = days(found.seconds)
        text = f"{known} with replica counts and readable metrics are too short to judge the model"
        return ModelTrust(found.agreement, Level.UNKNOWN, f"{text}, which takes {days(_LEAST)}; the facts are exact")
    return _judged(found, found.agreement)


def _judged(found: CurveComparison, agreement: float) -> ModelTrust:
    level, why = _level(found, agreement)
    since = f", over the {_long(found.seconds)} since its bounds changed" if found.skipped else ""
    text = f"the model gives {percent(agreement)} of the recorded replica curve{since}"
    if level is Level.POOR:
        why = f"{why}: no advice" if why else "too little for advice"
    elif found.lowest[0] == found.highest[0]:
        level = Level.FAIR
        why = why or f"but that stood at {found.highest[0]} all the time and does not show how replicas share the load"
    return ModelTrust(agreement, level, f"{text}, {why}" if why else text)


def _level(found: CurveComparison, agreement: float) -> tuple[Level, str]:
    """Returns the level, and what speaks against the model; "" where nothing but the area does."""
    recorded, modelled = found.per_day
    apart = abs(recorded - modelled)
    if agreement < FAIR:
        return Level.POOR, ""
    rescales = f"but {_often(found, 1)} rescales a day where {_often(found, 0)} were recorded"
    if apart > _SEVERAL and max(recorded, modelled) > 4 * min(recorded, modelled):
        return Level.POOR, rescales
    if apart > _FEW and max(recorded, modelled) > 2 * min(recorded, modelled):
        return Level.FAIR, rescales
    if agreement < GOOD:
        return Level.FAIR, ""
    high, own = found.highest[1], found.highest[0]
    if abs(high - own) > max(1.0, _PEAK * own):
        return Level.FAIR, f"but a peak of {high} where {own} was recorded"
    return Level.GOOD, ""


def _long(seconds: float) -> str:
    return days(seconds) if seconds >= 2 * DAY else f"{seconds / 3600:.0f} hours"


def _often(found: CurveComparison, side: int) -> str:
    return per_day(found.rescales[side], found.seconds)


def compared(past: HpaPast, now: Rerun) -> CurveComparison:
    """Compares the curves: since the bounds were last changed, if that is a day or more, else over the whole time."""
    begin = _unchanged_since(past)
    end = past.load.times[-1]
    skipped = begin - past.load.times[0] if end - begin >= DAY else 0.0
    moments = list(_moments(past, now, past.load.times[0] + skipped))
    ours = [count for _, count, _ in moments]
    theirs = [count for _, _, count in moments]
    return CurveComparison(
        seconds=sum(length for length, _, _ in moments),
        area=sum(length * abs(own - other) for length, own, other in moments),
        own=sum(length * own for length, own, _ in moments),
        rescales=(_changes(ours), _changes(theirs)),
        highest=(max(ours, default=0), max(theirs, default=0)),
        lowest=(min(ours, default=0), min(theirs, default=0)),
        skipped=skipped,
    )


def _unchanged_since(past: HpaPast) -> float:
    """Returns the first time from which on minimum and maximum were what they are at the end."""
    since = past.load.times[0]
    for column in (past.minimum, past.maximum):
        known = [(time, value) for time, value in zip(past.load.times, column, strict=False) if value is not None]
        changes = [later for (_, before), (later, after) in itertools.pairwise(known) if before != after]
        since = max(since, changes[-1]) if changes else since
    return since


def _moments(past: HpaPast, now: Rerun, begin: float) -> Iterator[tuple[float, int, int]]:
    """Yields for each time its seconds, the recorded count, and the modelled one."""
    times, counts = past.load.times, past.load.columns[REPLICAS]
    longest = STALE_STEPS * past.load.step
    starts = [time for time, _ in now.curve]
    for index in range(bisect_right(times, begin - 1e-6), len(times) - 1):
        count, place = counts[index], bisect_right(starts, times[index] + past.load.step / 2) - 1
        if count is None or place < 0 or _fails(past, index):
            continue
        yield min(times[index + 1] - times[index], longest), round(count), now.curve[place][1]


def _fails(past: HpaPast, index: int) -> bool:
    return any(index < len(column) and column[index] for column in past.failing.values())


def _changes(counts: Sequence[int]) -> int:
    return sum(before != after for before, after in itertools.pairwise(counts))
