"""Facts from the past of one HPA, without a model."""

import itertools
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from hpad.api.sample import CONTAINER_RESOURCE, RESOURCE
from hpad.engine.spec import CompiledMetric
from hpad.simulation.advice.assessment import Facts, Sawtooth
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.record import PastRecord
from hpad.simulation.history import REPLICAS, Column, is_total, metrics_of
from hpad.simulation.outcome import FLAP

_ALWAYS: Final = 0.98
_SPREAD: Final = 1.5
"""Counts differ enough to show whether a value falls with them."""
_FALLS: Final = 0.8
"""A shared value falls to 1 / _SPREAD or less; one that stays above this does not fall."""
_STEADY: Final = 1.3


def facts_of(past: HpaPast, record: PastRecord) -> Facts:
    """Returns the facts of a past and its record."""
    found = rescales(past)
    turned = legs(found)
    full = record.at_maximum
    asked = [count for count in record.asked if count is not None]
    told = any(each is not None for each in record.above)
    return Facts(
        seconds=record.seconds,
        replica_seconds=sum(length * count for length, count in zip(record.lengths, record.counts, strict=True)),
        lowest=min(record.counts, default=0),
        highest=max(record.counts, default=0),
        at_maximum=record.time(full),
        longest_at_maximum=record.longest(full),
        at_minimum=record.time(record.at_minimum),
        above_goal=record.time(record.above) if told else None,
        rescales=len(found),
        flaps=flaps(found),
        sawtooth=sawtooth(turned),
        failing={reason: record.time(moments) for reason, moments in record.reasons.items() if any(moments)},
        idle=_idle(record),
        peak=max(asked, default=None),
        measured=record.time([each is not None for each in record.asked]),
        starved=record.time(record.starved) if told else None,
        held_back=record.time(record.with_reaction(record.held_back)) if told else None,
        unread=record.time(record.failing),
        regretted=regretted(turned),
        exceeded=tuple(_exceeded(past, record)),
        unrequested=past.unrequested,
    )


def _idle(record: PastRecord) -> float | None:
    moments = list(zip(record.lengths, record.counts, record.needed, strict=True))
    idle = [length * max(0, count - needed) for length, count, needed in moments if needed is not None]
    return sum(idle) if idle else None


def _exceeded(past: HpaPast, record: PastRecord) -> Iterator[str]:
    """Yields the metrics that are always above their goal and do not fall with the count.

    Where the count hardly changed that cannot be seen. Then memory counts that is steady at the maximum: what one pod
    needs hardly depends on the others.
    """
    more = 1 + record.tolerated.up
    metrics = metrics_of(past.hpa)
    for address, column in record.ratios.items():
        pairs = [
            (count, ratio) for count, ratio in zip(record.counts, column, strict=True) if ratio is not None and count
        ]
        above = sum(ratio > more for _, ratio in pairs)
        if is_total(metrics[address]) or not pairs or above < _ALWAYS * len(pairs):
            continue
        if _varied(pairs):
            if _stays(pairs):
                yield address
        elif _is_memory(metrics[address]) and any(record.at_maximum) and _is_steady([ratio for _, ratio in pairs]):
            yield address


def _is_memory(metric: CompiledMetric) -> bool:
    return metric.type in (RESOURCE, CONTAINER_RESOURCE) and metric.name == "memory"


def _varied(pairs: Sequence[tuple[int, float]]) -> bool:
    counts = [count for count, _ in pairs]
    return max(counts) >= _SPREAD * min(counts)


def _stays(pairs: Sequence[tuple[int, float]]) -> bool:
    """Whether the values at the higher counts are hardly below those at the lower ones."""
    middle = math.sqrt(min(count for count, _ in pairs) * max(count for count, _ in pairs))
    few = sorted(ratio for count, ratio in pairs if count <= middle)
    many = sorted(ratio for count, ratio in pairs if count > middle)
    return many[len(many) // 2] >= _FALLS * few[len(few) // 2]


def _is_steady(ratios: Sequence[float]) -> bool:
    ordered = sorted(ratios)
    least, most = ordered[len(ordered) // 20], ordered[-1 - len(ordered) // 20]
    return most <= _STEADY * least


# Rescales: flaps, sawteeth, and replicas that were removed and needed again.

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
