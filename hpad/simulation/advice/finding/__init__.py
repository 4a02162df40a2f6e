"""The faults that the record of an HPA shows: causes, not their consequences."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from hpad.simulation.advice.assessment import FoundFault, HpaFault, Severity
from hpad.simulation.advice.finding import broken, calm, shortage, waste
from hpad.simulation.advice.finding.case import Case

_ORDER: Final = tuple(Severity)
_FINDERS: Final[Sequence[Callable[[Case], Iterator[FoundFault]]]] = (
    broken.paused,
    broken.requests_missing,
    broken.metric_failing,
    broken.values_missing,
    broken.equal_bounds,
    broken.goal_below_one_pod,
    broken.not_scaling,
    shortage.at_maximum,
    shortage.too_slow,
    shortage.goal_high,
    calm.restless,
    waste.idle_minimum,
    waste.goal_low,
    waste.window_useless,
)
EXPLAINS: Final[Mapping[HpaFault, frozenset[HpaFault]]] = {
    HpaFault.PAUSED: frozenset(HpaFault) - {HpaFault.REQUESTS_MISSING, HpaFault.METRIC_FAILING},
    # It does not scale at all: counts and goals say nothing about the other settings.
    HpaFault.MINIMUM_IS_MAXIMUM: frozenset(HpaFault) - {HpaFault.REQUESTS_MISSING, HpaFault.METRIC_FAILING},
    HpaFault.NOT_SCALING: frozenset({HpaFault.GOAL_HIGH, HpaFault.IDLE_MINIMUM}),
    # It grows to the maximum and stays there.
    HpaFault.GOAL_BELOW_ONE_POD: frozenset({HpaFault.AT_MAXIMUM, HpaFault.GOAL_HIGH, HpaFault.POLICY_SLOW}),
    # The goal sets the count, the minimum only its end.
    HpaFault.GOAL_LOW: frozenset({HpaFault.IDLE_MINIMUM}),
    # A load above its goal for want of replicas says nothing about the goal.
    HpaFault.AT_MAXIMUM: frozenset({HpaFault.GOAL_HIGH}),
    HpaFault.POLICY_SLOW: frozenset({HpaFault.GOAL_HIGH}),
    HpaFault.QUEUE_SLOW: frozenset({HpaFault.GOAL_HIGH}),
    HpaFault.FLAPPING: frozenset({HpaFault.GOAL_HIGH}),
    HpaFault.WINDOW_SHORT: frozenset({HpaFault.GOAL_HIGH}),
}
"""The faults that are consequences of another one."""


def found(case: Case) -> tuple[FoundFault, ...]:
    """Returns the faults, the most severe first, and of equal ones the cause that leaves the least to judge."""
    return causes(itertools.chain.from_iterable(finder(case) for finder in _FINDERS))


def causes(every: Iterable[FoundFault]) -> tuple[FoundFault, ...]:
    """Returns those that no other one explains, the most severe first, and of each kind the most severe."""
    ordered = sorted(every, key=lambda each: _ORDER.index(each.severity))
    explained: set[HpaFault] = set()
    for each in ordered:
        if each.severity is not Severity.NOTE and each.fault not in explained:
            explained |= EXPLAINS.get(each.fault, frozenset()) - {each.fault}
    kept: dict[HpaFault, FoundFault] = {}
    for each in ordered:
        if each.fault not in explained:
            kept.setdefault(each.fault, each)
    return tuple(kept.values())
