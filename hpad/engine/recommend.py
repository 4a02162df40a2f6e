"""From the proposals of all metrics to one replica count."""

from collections.abc import Sequence

import msgspec

from hpad.engine.propose import Proposal


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """The largest proposal, and the first metric that failed; `invalid` counts those for which nothing stands in.

    Without a `leader` nothing may move: all metrics failed, or some did and the others would shrink.
    """

    replicas: int
    leader: Proposal | None
    invalid: int
    failed: Proposal | None
    error: str | None

    def __str__(self) -> str:
        if self.leader is None:
            return f"nothing: {self.error}"
        some = f" ({self.invalid} invalid)" if self.invalid else ""
        return f"{self.replicas} for {self.leader.metric.label}{some}"


def recommend(proposals: Sequence[Proposal], current: int) -> Recommendation:
    """Take the largest proposal; while any metric is invalid the target may grow, never shrink."""
    leader, replicas, invalid = None, 0, 0
    failed: Proposal | None = None
    relieved: Proposal | None = None
    for proposal in proposals:
        if proposal.error is not None and not proposal.fallback:
            invalid += 1
            failed = failed or proposal
            continue
        if proposal.fallback:
            relieved = relieved or proposal
            if proposal.ignored:
                continue
        if replicas == 0 or proposal.replicas > replicas:
            replicas, leader = proposal.replicas, proposal
    if relieved is not None and failed is None:
        return _relieved(proposals, relieved, leader, replicas)
    if failed is not None:
        error = f"invalid metrics ({invalid} invalid out of {len(proposals)}), first error is: {failed.failure}"
        if leader is None or replicas < current:
            return Recommendation(replicas=-1, leader=None, invalid=invalid, failed=failed, error=error)
        return Recommendation(replicas=replicas, leader=leader, invalid=invalid, failed=failed, error=error)
    empty = None if proposals else "invalid metrics (0 invalid out of 0), first error is: no metrics are specified"
    return Recommendation(replicas=replicas if proposals else -1, leader=leader, invalid=0, failed=None, error=empty)


def _relieved(
    proposals: Sequence[Proposal], relieved: Proposal, leader: Proposal | None, replicas: int
) -> Recommendation:
    """Something stands in for every metric that failed; where all are to be ignored, nobody is left to decide."""
    if leader is None:
        count = len(proposals)
        error = f"invalid metrics ({count} invalid out of {count}), first error is: {relieved.failure}"
        return Recommendation(replicas=-1, leader=None, invalid=count, failed=relieved, error=error)
    error = f"metric fails, but {relieved.fallback}: {relieved.failure}"
    return Recommendation(replicas=replicas, leader=leader, invalid=0, failed=relieved, error=error)
