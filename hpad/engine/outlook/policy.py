"""What the metric policy of an HPA gives with other proposals, computed from the trace."""

from collections.abc import Mapping

from hpad.engine import metric_policy, trace
from hpad.engine.metric_policy import FAILED, LEFT_OUT, Count, Proposed, Standing
from hpad.engine.outlook.estimate import tolerances


def has_policy(made: trace.Trace) -> bool:
    """Whether a metric policy decides."""
    return made.chosen is not None and bool(made.chosen.policy)


def recommended(made: trace.Trace, changes: Mapping[str, int | None], count: int) -> int | None:
    """Returns what the policy gives with these proposals by address (None: the metric is left out).

    `count` is the replica count at that time. None where failed metrics leave the value uncertain.
    """
    assert made.chosen is not None
    policy = metric_policy.of_addresses(made.chosen.policy, [metric.address for metric in made.metrics])
    if policy is None:
        return None
    allowed = next((tolerances(metric) for metric in made.metrics if metric.tolerance is not None), None)
    standing = Standing(count, 0.0, 0.0) if allowed is None else Standing(count, allowed.down, allowed.up)
    found = policy.value([_proposed(metric, changes) for metric in made.metrics], standing)
    if found is None or found.leader is None:
        return None
    replicas = max(0, metric_policy.replicas(found))
    return replicas if found.is_known or replicas >= count else None


def _proposed(metric: trace.MetricTrace, changes: Mapping[str, int | None]) -> Proposed:
    if metric.address in changes:
        proposal = changes[metric.address]
        return LEFT_OUT if proposal is None else Count(proposal, proposal)
    if metric.fallback is not None and metric.fallback.ignored:
        return LEFT_OUT
    if metric.proposal is None:
        return FAILED
    return Count(metric.proposal, metric.proposal if metric.exact is None else metric.exact)
