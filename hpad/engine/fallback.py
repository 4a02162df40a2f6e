"""What stands in for a metric that fails, and from which value on a metric counts: the terms beyond the API.

Names and meaning of the fallback to fixed replicas follow KEP-5679; the table is in `hpad.engine.fallback_policy`. A
failure stays a failure: the proposal keeps its error, for conditions, events and series.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from hpad.api import duration
from hpad.api.sample import EXTERNAL, OBJECT
from hpad.engine.fallback_policy import DEFAULT_AFTER, IGNORE, LAST_GOOD, REPLICAS, Fallback
from hpad.engine.history import NO_SAMPLE, LastSample
from hpad.engine.propose import Proposal
from hpad.engine.view import View


def apply_fallback(view: View, proposals: Sequence[Proposal]) -> tuple[Proposal, ...]:
    """The proposals after the HPA's terms; `view.fallback_policies[i]` belongs to `proposals[i]`."""
    return tuple(_relieved(view, proposal, index) for index, proposal in enumerate(proposals))


def last_samples(view: View, proposals: Sequence[Proposal]) -> tuple[LastSample, ...]:
    """What is to be remembered of each metric: since when it fails, and what it wanted last."""
    return tuple(_heard(view, proposal) for proposal in proposals)


def _relieved(view: View, proposal: Proposal, index: int) -> Proposal:
    fallback_policies = view.fallback_policies[index]
    if proposal.error is None:
        return (
            proposal
            if fallback_policies.activation is None
            else _activated(view, proposal, fallback_policies.activation)
        )
    if fallback_policies.fallback is None or not proposal.no_sample:
        return proposal
    return _stood_in(proposal, fallback_policies.fallback, view.history.of(proposal.metric.label), view.now)


def _stood_in(proposal: Proposal, fallback: Fallback, known: LastSample, now: datetime) -> Proposal:
    failing = now - (known.failing_since or now)
    after = fallback.after
    if after is None:
        after = timedelta() if fallback.kind == LAST_GOOD else DEFAULT_AFTER
    if failing < after:
        return proposal
    since = f"failing for {_written(failing)}"
    if fallback.kind == REPLICAS:
        return _with(proposal, fallback.replicas, f"falls back to {_count(fallback.replicas)}, {since}")
    if fallback.kind == IGNORE:
        return msgspec.structs.replace(proposal, fallback=f"is ignored, {since}", ignored=True)
    if fallback.kind == LAST_GOOD and known.good_at is not None and now - known.good_at <= fallback.age:
        age = _written(now - known.good_at)
        return _with(proposal, known.replicas, f"falls back to {_count(known.replicas)}, as wanted {age} ago")
    return proposal


def _with(proposal: Proposal, replicas: int, fallback: str) -> Proposal:
    return msgspec.structs.replace(proposal, replicas=replicas, fallback=fallback)


def _activated(view: View, proposal: Proposal, threshold: int) -> Proposal:
    """Where the target may go to zero: nothing up to the threshold, at least one replica above it."""
    usage, metric = proposal.usage, proposal.metric
    if view.spec.min_replicas != 0 or usage is None or metric.type not in (OBJECT, EXTERNAL):
        return proposal
    value = usage.value if usage.total is None else usage.total
    if value is None:
        return proposal
    wakes = value > threshold
    replicas = (proposal.replicas or 1) if wakes else 0
    if replicas == proposal.replicas:
        return proposal
    return msgspec.structs.replace(proposal, replicas=replicas, measured=proposal.replicas, threshold=threshold)


def _heard(view: View, proposal: Proposal) -> LastSample:
    label = proposal.metric.label
    if proposal.error is None:
        return LastSample(label, good_at=view.now, replicas=proposal.replicas)
    known = view.history.of(label)
    since = known.failing_since or view.now
    if known is NO_SAMPLE:
        return LastSample(label, failing_since=since)
    return msgspec.structs.replace(known, failing_since=since)


def _written(span: timedelta) -> str:
    return duration.write(timedelta(seconds=int(span.total_seconds())))


def _count(replicas: int) -> str:
    return "1 replica" if replicas == 1 else f"{replicas} replicas"
