"""Facts from the past of one HPA, without a model."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from hpad.api.sample import CONTAINER_RESOURCE, RESOURCE
from hpad.engine.spec import CompiledMetric
from hpad.simulation.advice import rescales
from hpad.simulation.advice.assessment import Facts
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.record import PastRecord
from hpad.simulation.history import is_total, metrics_of

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
        flaps=rescales.flaps(found),
        sawtooth=rescales.sawtooth(legs),
        failing={reason: record.time(moments) for reason, moments in record.reasons.items() if any(moments)},
        idle=_idle(record),
        peak=max(asked, default=None),
        measured=record.time([each is not None for each in record.asked]),
        starved=record.time(record.starved) if told else None,
        held_back=record.time(record.with_reaction(record.held_back)) if told else None,
        unread=record.time(record.failing),
        regretted=rescales.regretted(legs),
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
