"""Rescales of a recorded replica count: flaps, sawteeth, and replicas that were removed and needed again."""

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from hpad.simulation.advice.assessment import Sawtooth
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.history import REPLICAS, Column
from hpad.simulation.outcome import FLAP

TOOTH: Final = timedelta(minutes=15)
"""In a sawtooth each turn begins within this time after the one before.

That is three times the default stabilization window: with it a scale-down comes five minutes after the load has gone,
so that a whole tooth, up and down again, takes longer than a flap. Slower turns are those of a load that is served.
"""
REGRET: Final = timedelta(minutes=10)
"""A scale-down that is followed by a scale-up within this time, twice the default window, had better not happened."""
SUBSTANCE: Final = 0.15
"""A scale-down by a smaller share of the replicas is one that noise around the tolerance of 10 % makes."""
_MOSTLY: Final = 0.9


class Leg(NamedTuple):
    """A rescale, or several in one direction, each within TOOTH of the one before.

    `begin` and `end` are the first times with the new counts of the first and the last one, in seconds since 1970.
    """

    begin: float
    end: float
    before: int
    after: int

    @property
    def up(self) -> bool:
        return self.after > self.before


def rescales(past: HpaPast) -> list[Leg]:
    """Returns the rescales, in order.

    They are those of the desired count where the past has it: the current count includes the pods that a rollout adds
    for a while. A change within a gap counts once, at its end.
    """
    current = past.load.columns.get(REPLICAS, ())
    column = past.desired if _known(past.desired) >= _MOSTLY * _known(current) else current
    known = [(time, round(count)) for time, count in zip(past.load.times, column, strict=False) if count is not None]
    return [Leg(at, at, before, after) for (_, before), (at, after) in itertools.pairwise(known) if before != after]


def _known(column: Column) -> int:
    return sum(value is not None for value in column)


def flaps(found: Sequence[Leg]) -> int:
    """Returns the number of rescales within FLAP after one in the other direction."""
    within = FLAP.total_seconds()
    return sum(one.up != two.up and two.begin - one.begin <= within for one, two in itertools.pairwise(found))


def legs(found: Sequence[Leg]) -> list[Leg]:
    """Returns the legs, in order."""
    made: list[Leg] = []
    for each in found:
        last = made[-1] if made else None
        if last is not None and last.up == each.up and each.begin - last.end <= TOOTH.total_seconds():
            made[-1] = last._replace(end=each.end, after=each.after)
        else:
            made.append(each)
    return made


def series(found: Sequence[Leg]) -> Iterator[list[Leg]]:
    """Yields the series of three or more legs in turn up and down, each begun within TOOTH of the one before."""
    current: list[Leg] = []
    for leg in found:
        if current and (leg.up == current[-1].up or leg.begin - current[-1].begin > TOOTH.total_seconds()):
            if len(current) > 2:
                yield current
            current = []
        current.append(leg)
    if len(current) > 2:
        yield current


def sawtooth(found: Sequence[Leg]) -> Sawtooth | None:
    """Returns the longest series; None if there is none."""
    longest = max(series(found), key=len, default=None)
    if longest is None:
        return None
    counts = [count for leg in longest for count in (leg.before, leg.after)]
    return Sawtooth(
        begin=datetime.fromtimestamp(longest[0].begin, UTC),
        end=datetime.fromtimestamp(longest[-1].end, UTC),
        rescales=len(longest),
        lowest=min(counts),
        highest=max(counts),
    )


def scale_downs(found: Sequence[Leg]) -> list[Leg]:
    """Returns the scale-downs that a window might have kept back.

    Those of less than SUBSTANCE are left out, and those to zero: the load was gone, and no window keeps replicas for
    none.
    """
    return [leg for leg in found if not leg.up and leg.after > 0 and leg.before - leg.after >= SUBSTANCE * leg.before]


def regretted(found: Sequence[Leg]) -> int:
    """Returns the number of scale-downs that were followed by a scale-up within REGRET, both by their beginnings."""
    within, downs = REGRET.total_seconds(), {*scale_downs(found)}
    return sum(one in downs and two.up and two.begin - one.begin <= within for one, two in itertools.pairwise(found))
