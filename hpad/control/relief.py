"""What stands in for an HPA's metrics while they fail: by its annotations, else by the configuration of the source."""

from collections.abc import Callable

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.sample import Query
from hpad.model import intent, terms

Fallbacks = Callable[[Query], terms.Fallback | None]
"""What the configuration says of the source of a query."""


def terms_of(hpa: HorizontalPodAutoscaler, fallbacks: Fallbacks | None) -> terms.Read:
    """The terms of each metric of the HPA, in order; none at all where neither it nor a source has any."""
    if fallbacks is None and not hpa.metadata.annotations:
        return terms.NOTHING
    goals = intent.of(hpa).goals
    own = terms.of(hpa.metadata.annotations, [goal.name for goal in goals])
    if fallbacks is None:
        return own
    offered = [None if goal.flaw is not None else fallbacks(goal.query) for goal in goals]
    if not any(offered):
        return own
    held = own.terms or (terms.Terms(),) * len(goals)
    merged = tuple(
        each if each.fallback is not None else msgspec.structs.replace(each, fallback=fallback)
        for each, fallback in zip(held, offered, strict=True)
    )
    return terms.Read(merged, own.flaw)
