"""Stage recommend: reduces the proposals of all metrics to one recommendation.

Fallback and activation are applied first. They go beyond the Kubernetes API: `hpad.engine.fallback_policy` holds the
table of policies. A metric with a fallback keeps its error, for conditions, events and series.

The recommendation of an HPA with a metric policy is the value of its expression (`hpad.engine.metric_policy`).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api import duration
from hpad.api.quantity import MAX_INT32
from hpad.api.sample import EXTERNAL, OBJECT
from hpad.api.text import begin
from hpad.engine import metric_policy, words
from hpad.engine.fallback_policy import (
    AT_LEAST,
    AT_MOST,
    COUNTED,
    DEFAULT_AFTER,
    IGNORE,
    LAST_GOOD,
    Fallback,
    FallbackPolicy,
)
from hpad.engine.history import NO_SAMPLE, LastSample
from hpad.engine.metric_policy import FAILED, LEFT_OUT, Count, MetricPolicy, Proposed, Standing
from hpad.engine.propose import Proposal, tolerances, untolerated
from hpad.engine.view import View

_LONGEST_POLICY: Final = 200
"""Characters of a metric policy in conditions and events."""


class Recommendation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The largest proposal, and the first metric that failed. `invalid` counts failed metrics without a fallback.

    Without a `leader` the count stays: all metrics failed, or some failed and the others propose fewer replicas.

    With a `policy`, the metric policy of the HPA (`combine`), `replicas` is its value. `combined`: that is not
    what the leader proposes, but a sum, a share, or the current count where the metrics disagree.
    """

    replicas: int
    leader: Proposal | None
    invalid: int
    failed: Proposal | None
    error: str | None
    policy: MetricPolicy | None = None
    combined: bool = False

    @property
    def source(self) -> str:
        """What determined the count, for conditions and events; "" without a leader."""
        if self.leader is None:
            return ""
        return policy_name(self.policy) if self.combined else self.leader.metric.description


def policy_name(policy: MetricPolicy | None) -> str:
    """Returns the metric policy for conditions and events, at most about 200 characters."""
    return f"metric policy {begin(str(policy), _LONGEST_POLICY)}"


def recommend(proposals: Sequence[Proposal], current: int) -> Recommendation:
    """Takes the largest proposal. While a metric is invalid the target may grow but not shrink.

    Source: Kubernetes 1.36, horizontal.go: computeReplicasForMetrics. Proposals with a fallback count as valid.
    """
    leader, replicas, invalid = None, 0, 0
    failed: Proposal | None = None
    replaced: Proposal | None = None
    for proposal in proposals:
        if proposal.error is not None and not proposal.fallback:
            invalid += 1
            failed = failed or proposal
            continue
        if proposal.fallback:
            replaced = replaced or proposal
            if proposal.ignored:
                continue
        # While the largest is 0 the next one leads: Kubernetes names the last metric then.
        if replicas == 0 or proposal.replicas > replicas:
            replicas, leader = proposal.replicas, proposal
    if replaced is not None and failed is None:
        return _with_fallback(proposals, replaced, leader, replicas)
    if failed is not None:
        error = _invalid(proposals, failed, invalid)
        if leader is None or replicas < current:
            leader, replicas = None, -1
        return Recommendation(replicas=replicas, leader=leader, invalid=invalid, failed=failed, error=error)
    empty = None if proposals else "invalid metrics (0 invalid out of 0), first error is: no metrics are specified"
    return Recommendation(replicas=replicas if proposals else -1, leader=leader, invalid=0, failed=None, error=empty)


def _with_fallback(
    proposals: Sequence[Proposal], replaced: Proposal, leader: Proposal | None, replicas: int
) -> Recommendation:
    """Every failed metric has a fallback. If all metrics are ignored, none is left to decide."""
    if leader is None:
        count = len(proposals)
        error = _invalid(proposals, replaced, count)
        return Recommendation(replicas=-1, leader=None, invalid=count, failed=replaced, error=error)
    error = f"metric fails, but {replaced.fallback}: {replaced.failure}"
    return Recommendation(replicas=replicas, leader=leader, invalid=0, failed=replaced, error=error)


def apply_fallback(view: View, proposals: Sequence[Proposal]) -> tuple[Proposal, ...]:
    """Returns the proposals after fallback and activation; `view.fallback_policies[i]` belongs to `proposals[i]`."""
    pairs = zip(proposals, view.fallback_policies, strict=True)
    return tuple(_after_policy(view, index, proposal, policy) for index, (proposal, policy) in enumerate(pairs))


def after_fallback(view: View, index: int, proposal: Proposal) -> Proposal:
    """Returns the proposal of one metric after fallback and activation."""
    return _after_policy(view, index, proposal, view.fallback_policies[index]) if view.fallback_policies else proposal


def replaced(proposal: Proposal, replicas: int | None) -> Proposal:
    """Returns a failed proposal with a fallback to that count; None leaves the metric out."""
    return msgspec.structs.replace(proposal, replicas=replicas or 0, fallback="is replaced", ignored=replicas is None)


def last_samples(view: View, proposals: Sequence[Proposal]) -> tuple[LastSample, ...]:
    """Returns what the history keeps of each metric: since when it fails, and its last successful proposal."""
    return tuple(_last_sample(view, index, proposal) for index, proposal in enumerate(proposals))


def _known(view: View, index: int) -> LastSample:
    """Returns what the history keeps of a metric; where it keeps nothing, since when the status says that it fails.

    The time of a fallback goes on after another controller, and after a restart without a store (KEP-5679:
    firstFailureTime).
    """
    name = _name(view, index)
    found = view.history.last_sample(name)
    if found is NO_SAMPLE and (since := _reported_failure(view, index)) is not None:
        return LastSample(name, failing_since=since)
    return found


def _reported_failure(view: View, index: int) -> datetime | None:
    source = view.spec.metrics[index].spec.external
    if source is None or source.fallback is None:
        return None
    statuses = [each.external for each in view.hpa.status.current_metrics or ()]
    found = [each.first_failure_time for each in statuses if each is not None and each.metric == source.metric]
    return next((min(time, view.now) for time in found if time is not None), None)


def _name(view: View, index: int) -> str:
    """Returns the name of a metric in the history: its label, with its index behind if others have the same."""
    labels = [metric.label for metric in view.spec.metrics]
    return labels[index] if labels.count(labels[index]) == 1 else f"{labels[index]} #{index}"


def _after_policy(view: View, index: int, proposal: Proposal, policy: FallbackPolicy) -> Proposal:
    if proposal.error is None:
        return proposal if policy.activation is None else _activated(view, proposal, policy.activation)
    # A spec error or an unusable sample is no failure of the source, and waiting does not mend it.
    if policy.fallback is None or not proposal.no_sample:
        return proposal
    return _replaced(view, proposal, policy.fallback, _known(view, index))


def _replaced(view: View, proposal: Proposal, fallback: Fallback, known: LastSample) -> Proposal:
    """Applies the fallback once the metric has failed for long enough (KEP-5679: failureDurationSeconds)."""
    now = view.now
    failing = now - (known.failing_since or now)
    if failing < _delay(fallback):
        return proposal
    since = f"failing for {_in_seconds(failing)}"
    if fallback.kind in COUNTED:
        count = _bounded(fallback, view.replicas)
        return _with(proposal, count, f"falls back to {words.replicas(count)}, {since}")
    if fallback.kind == IGNORE:
        return msgspec.structs.replace(proposal, fallback=f"is ignored, {since}", ignored=True)
    if fallback.kind == LAST_GOOD and known.good_at is not None and now - known.good_at <= fallback.age:
        age = _in_seconds(now - known.good_at)
        return _with(proposal, known.replicas, f"falls back to {words.replicas(known.replicas)}, as wanted {age} ago")
    return proposal


def _bounded(fallback: Fallback, current: int) -> int:
    """Returns the count of a fallback that has one."""
    if fallback.kind == AT_LEAST:
        return max(fallback.replicas, current)
    return min(fallback.replicas, current) if fallback.kind == AT_MOST else fallback.replicas


def _delay(fallback: Fallback) -> timedelta:
    """Returns for how long the metric has to fail before the fallback begins."""
    if fallback.after is not None:
        return fallback.after
    return timedelta() if fallback.kind == LAST_GOOD else DEFAULT_AFTER


class Upcoming(NamedTuple):
    """The fallback that begins at `at` while the metric fails; `replicas` is None where it leaves the metric out."""

    at: datetime
    replicas: int | None


def next_fallback(view: View, index: int, proposal: Proposal) -> Upcoming | None:
    """Returns the fallback of a failing metric that is still to begin; None where there is none."""
    fallback = view.fallback_policies[index].fallback
    if fallback is None or proposal.fallback or not proposal.no_sample:
        return None
    known = _known(view, index)
    since = known.failing_since or view.now
    at = since + _delay(fallback)
    then = msgspec.structs.replace(view, now=at)
    replaced = _replaced(then, proposal, fallback, msgspec.structs.replace(known, failing_since=since))
    return Upcoming(at, None if replaced.ignored else replaced.replicas) if replaced.fallback else None


def last_good_until(view: View, index: int, proposal: Proposal) -> datetime | None:
    """Returns when the last good count becomes too old to stand in for the metric; None for other fallbacks."""
    fallback, known = view.fallback_policies[index].fallback, _known(view, index)
    if not proposal.fallback or fallback is None or fallback.kind != LAST_GOOD or known.good_at is None:
        return None
    return known.good_at + fallback.age


def _with(proposal: Proposal, replicas: int, fallback: str) -> Proposal:
    return msgspec.structs.replace(proposal, replicas=replicas, fallback=fallback)


def _activated(view: View, proposal: Proposal, threshold: int) -> Proposal:
    """With minReplicas 0: proposes 0 replicas up to the threshold, and at least 1 above it."""
    usage = proposal.usage
    if usage is None or not activates(view, proposal):
        return proposal
    value = usage.value if usage.total is None else usage.total  # the threshold is of the whole metric, not a share
    if value is None:
        return proposal
    replicas = (proposal.replicas or 1) if value > threshold else 0
    if replicas == proposal.replicas:
        return proposal
    return msgspec.structs.replace(proposal, replicas=replicas, measured=proposal.replicas, threshold=threshold)


def activates(view: View, proposal: Proposal) -> bool:
    """Whether an activation threshold applies to the metric: it can be read without pods, and minReplicas is 0."""
    return view.spec.min_replicas == 0 and proposal.usage is not None and proposal.metric.type in (OBJECT, EXTERNAL)


def _last_sample(view: View, index: int, proposal: Proposal) -> LastSample:
    if proposal.error is None:
        return LastSample(_name(view, index), good_at=view.now, replicas=proposal.replicas)
    known = _known(view, index)
    since = known.failing_since or view.now
    if known is NO_SAMPLE:
        return LastSample(_name(view, index), failing_since=since)
    return msgspec.structs.replace(known, failing_since=since)


def _in_seconds(span: timedelta) -> str:
    return duration.write(timedelta(seconds=int(span.total_seconds())))


def combine(view: View, proposals: Sequence[Proposal], policy: MetricPolicy) -> Recommendation:
    """Takes the value of the policy. While failed metrics make it uncertain the target may grow but not shrink."""
    found = policy.value([_proposed(view, proposal) for proposal in proposals], standing(view))
    failures = [each for index, each in enumerate(proposals) if each.error is not None and index in policy.metrics]
    count = 0 if found is None else metric_policy.replicas(found)
    if found is None or found.leader is None or not (found.is_known or count >= view.replicas):
        first = failures[0] if failures else None
        return Recommendation(
            replicas=-1,
            leader=None,
            invalid=len(failures),
            failed=first,
            error=_invalid(proposals, first, len(failures)),
            policy=policy,
        )
    first = next((each for each in (*failures, *proposals) if each.error is not None), None)
    invalid = 0 if found.is_known else sum(_is_failed(each) for each in failures)
    return Recommendation(
        replicas=max(0, min(count, MAX_INT32)),
        leader=proposals[found.leader],
        invalid=invalid,
        failed=first,
        error=_invalid(proposals, first, invalid) if invalid else _spared(policy, first),
        policy=policy,
        combined=found.combined,
    )


def without_tolerance(view: View, proposals: Sequence[Proposal], policy: MetricPolicy) -> int | None:
    """Returns the count that the policy would give if the tolerances were zero; None where all metrics are left out."""
    exact = [untolerated(view, each) if each.error is None else _proposed(view, each) for each in proposals]
    counts = [Count(each, each) if isinstance(each, int) else each for each in exact]
    found = policy.value(counts, Standing(view.replicas, 0.0, 0.0))
    return None if found is None else metric_policy.replicas(found)


def standing(view: View) -> Standing:
    """Returns the current count of the target and the tolerances of the HPA."""
    allowed = tolerances(view)
    return Standing(view.replicas, allowed.down, allowed.up)


def _proposed(view: View, proposal: Proposal) -> Proposed:
    if proposal.error is None:
        return Count(proposal.replicas, untolerated(view, proposal))
    if proposal.ignored:
        return LEFT_OUT
    return Count(proposal.replicas, proposal.replicas) if proposal.fallback else FAILED


def _is_failed(proposal: Proposal) -> bool:
    """Whether the metric has no count; one that its fallback leaves out has none in a sum."""
    return not proposal.fallback or proposal.ignored


def _invalid(proposals: Sequence[Proposal], first: Proposal | None, count: int) -> str:
    cause = "" if first is None else first.failure
    return f"invalid metrics ({count} invalid out of {len(proposals)}), first error is: {cause}"


def _spared(policy: MetricPolicy, failed: Proposal | None) -> str | None:
    """Returns the error of a metric that failed without an effect on the value."""
    if failed is None:
        return None
    return f"metric fails, but {failed.fallback or f'{policy_name(policy)} does without it'}: {failed.failure}"
