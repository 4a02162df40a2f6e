"""Fourth stage of an HPA with a metric policy: the value of its expression (`hpad.engine.metric_policy`)."""

from collections.abc import Sequence

from hpad.api.quantity import MAX_INT32
from hpad.engine import metric_policy
from hpad.engine.metric_policy import FAILED, LEFT_OUT, Count, Policy, Proposed, Standing
from hpad.engine.propose import Proposal, tolerances, untolerated
from hpad.engine.recommend import Recommendation, policy_name
from hpad.engine.view import View


def combine(view: View, proposals: Sequence[Proposal], policy: Policy) -> Recommendation:
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


def without_tolerance(view: View, proposals: Sequence[Proposal], policy: Policy) -> int | None:
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


def _spared(policy: Policy, failed: Proposal | None) -> str | None:
    """Returns the error of a metric that failed without an effect on the value."""
    if failed is None:
        return None
    return f"metric fails, but {failed.fallback or f'{policy_name(policy)} does without it'}: {failed.failure}"
