"""Facts from the past of one HPA, without a model."""

import itertools
import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from hpad.api.sample import CONTAINER_RESOURCE, RESOURCE
from hpad.engine.spec import CompiledMetric
from hpad.simulation.advice import rescales
from hpad.simulation.advice.assessment import Facts
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.record import INSTANT, PastRecord
from hpad.simulation.history import is_total, metrics_of

REACTION: Final = timedelta(minutes=3)
"""Replicas that the metrics ask for are there after this time if nothing holds them back.

That is a minute until a metric shows the load, a few reconciles, and the step of the past.
"""
_ALWAYS: Final = 0.98
_SPREAD: Final = 1.5
"""Counts differ enough to show whether a value falls with them."""
_FALLS: Final = 0.8
"""A shared value falls to 1 / _SPREAD or less; one that stays above this does not fall."""
_STEADY: Final = 1.3


def facts_of(past: HpaPast, record: PastRecord) -> Facts:
    """Returns the facts of a past and its record."""
    found = rescales.rescales(past)
    legs = rescales.legs(found)
    full = at_maximum(record)
    asked = [count for count in record.asked if count is not None]
    told = any(each is not None for each in record.above)
    return Facts(
        seconds=record.seconds,
        replica_seconds=sum(length * count for length, count in zip(record.lengths, record.counts, strict=True)),
        lowest=min(record.counts, default=0),
        highest=max(record.counts, default=0),
        at_maximum=record.time(full),
        longest_at_maximum=record.longest(full),
        at_minimum=record.time(at_minimum(record)),
        above_goal=record.time(record.above) if told else None,
        rescales=len(found),
        flaps=rescales.flaps(found),
        sawtooth=rescales.sawtooth(legs),
        failing={reason: record.time(moments) for reason, moments in record.reasons.items() if any(moments)},
        idle=_idle(record),
        peak=max(asked, default=None),
        measured=record.time([each is not None for each in record.asked]),
        starved=record.time(starved(record)) if told else None,
        held_back=record.time(with_reaction(record, held_back(record))) if told else None,
        unread=record.time(record.failing),
        regretted=rescales.regretted(legs),
        exceeded=tuple(_exceeded(past, record)),
        unrequested=past.unrequested,
    )


def at_maximum(record: PastRecord) -> list[bool]:
    """Returns where the count was at the maximum, while that was above the minimum."""
    return [
        high is not None and count >= high and low != high
        for count, low, high in zip(record.counts, record.lowest, record.highest, strict=True)
    ]


def at_minimum(record: PastRecord) -> list[bool]:
    """Returns where the count was at the minimum."""
    return [low is not None and count <= low for count, low in zip(record.counts, record.lowest, strict=True)]


def starved(record: PastRecord) -> list[bool]:
    """Returns where the count was at the maximum and a metric above its goal beyond the tolerance."""
    return [full and bool(above) for full, above in zip(at_maximum(record), record.above, strict=True)]


def held_back(record: PastRecord) -> list[bool]:
    """Returns where the metrics asked for more replicas than there were during the whole REACTION, below the maximum.

    A moment with a gap or a failing metric within that time is not counted: the metrics were not seen then.
    """
    steps = _steps(record)
    lacking = [
        asked is not None and asked > count and not failing and (high is None or count < high)
        for asked, count, high, failing in zip(record.asked, record.counts, record.highest, record.failing, strict=True)
    ]
    ends = [begin + length + INSTANT for begin, length in zip(record.begins, record.lengths, strict=True)]
    held = [False] * len(lacking)
    for index in itertools.compress(range(len(lacking) - steps), lacking):
        later, asked = range(index + 1, index + steps + 1), record.asked[index] or 0
        held[index] = all(
            lacking[at] and record.counts[at] < asked and record.begins[at] < ends[at - 1] for at in later
        )
    return held


def with_reaction(record: PastRecord, held: Sequence[bool]) -> list[bool]:
    """Returns the whole time in which replicas were held back, given the moments of `held_back`."""
    steps = _steps(record)
    return [any(held[max(0, index - steps) : index + 1]) for index in range(len(held))]


def _steps(record: PastRecord) -> int:
    return max(1, round(REACTION.total_seconds() / record.step)) if record.step else 1


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
        elif _is_memory(metrics[address]) and any(at_maximum(record)) and _is_steady([ratio for _, ratio in pairs]):
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
