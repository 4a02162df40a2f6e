"""Runs the stages measure to restrain and returns the decision: the replica count of the target, and why."""

from collections.abc import Sequence
from typing import Final

import msgspec

from hpad.api.sample import Answer
from hpad.engine import explain, metric_policy, spare, stage
from hpad.engine.budget import Budgeted
from hpad.engine.deletion_costs import Spared
from hpad.engine.examine import BELOW_MINIMUM, DISABLED, Clamp, Halt, Proceed, Verdict
from hpad.engine.propose import Proposal, propose
from hpad.engine.recommend import Recommendation, apply_fallback, combine, policy_name, recommend
from hpad.engine.restrain import Restrained, restrain
from hpad.engine.spare import WithSpare
from hpad.engine.stage import BOUNDS, INVALID_METRICS, METRICS, SPARE, Stage
from hpad.engine.view import View

_SPARE: Final = "spare replicas"
"""The reason of a rescale for which the metrics ask for nothing else."""


class Decision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The result of one reconcile. `str()` of it is one sentence for logs, tables and tests.

    `scale_to` is the count to write, None where nothing is written. `desired` is the count the target should have; the
    current one where nothing could be decided. `reason` is that of the rescale event. `proposals` has one entry per
    metric of the spec. `recommendation` and `restrained` are set where the metrics decided. `spare` is set where the
    HPA has spare replicas: then `proposals` and `recommendation` are without them. `budgeted` is set for an HPA that
    shares a budget (`hpad.engine.share`), `spared` for a scale-down of one that spares busy pods (`hpad.engine.busy`).
    """

    name: str
    verdict: Verdict
    current: int
    desired: int
    scale_to: int | None = None
    reason: str = ""
    proposals: tuple[Proposal, ...] = ()
    recommendation: Recommendation | None = None
    spare: WithSpare | None = None
    restrained: Restrained | None = None
    budgeted: Budgeted | None = None
    spared: Spared | None = None

    @property
    def limited(self) -> int:
        """The count within all limits, before the budget, and before busy pods are kept."""
        if self.budgeted is not None:
            return self.budgeted.wanted
        return self.desired if self.spared is None else self.spared.wanted

    @property
    def counted(self) -> int:
        """The present count that the metrics decided for: without its spare replicas."""
        return self.current if self.spare is None else self.spare.counted

    @property
    def undecided(self) -> bool:
        """Whether the engine could not decide; False for a target that was set to zero."""
        if isinstance(self.verdict, Halt):
            return self.verdict.kind != DISABLED
        return self.recommendation is not None and self.recommendation.leader is None

    @property
    def stages(self) -> list[Stage]:
        """The stages that were reached, in order; `hpad.engine.holds` has them with the write."""
        if isinstance(self.verdict, Halt):
            return [stage.halted(self.verdict)]
        found = [Stage(BOUNDS, self.limited, str(self.verdict))] if isinstance(self.verdict, Clamp) else self._measured
        if self.budgeted is not None:
            found = [*found, stage.budgeted(self.budgeted, self._asked)]
        return found if self.spared is None else [*found, stage.spared(self.spared)]

    @property
    def _asked(self) -> int | None:
        """What the metrics ask for, with spare replicas; None where they do not decide."""
        if self.spare is not None:
            return self.spare.replicas
        return None if self.recommendation is None else self.recommendation.replicas

    @property
    def _measured(self) -> list[Stage]:
        if self.recommendation is None or self.restrained is None:
            return [Stage(METRICS, None, holds=INVALID_METRICS)]
        first = [Stage(METRICS, self.recommendation.replicas)]
        if self.spare is not None:
            first.append(Stage(SPARE, self.spare.replicas, self.spare.clause))
        return [*first, *stage.restraints(self.restrained, self.limited)]

    @property
    def clauses(self) -> list[str]:
        """What decided the count, then what changed it; [] where nothing was decided."""
        later = [clause for each in self.stages if (clause := each.clause)]
        if self.recommendation is None:
            return later
        return [*explain.wanted(self.proposals, self.recommendation, self.counted), *later]

    @property
    def held(self) -> str:
        """The clause on what changed the count that the metrics ask for; "" where nothing but spare replicas did."""
        clauses = self.clauses
        only_spare = self.spare is not None and clauses[1:] == [self.spare.clause]
        return "" if only_spare else self._held(clauses)

    def _held(self, clauses: Sequence[str]) -> str:
        if self.recommendation is None or len(clauses) < 2:
            return ""
        but = "," if self.spare is not None and clauses[1] == self.spare.clause else " but"
        return f"{explain.count_of(self.recommendation)} wanted{but} {'; '.join(clauses[1:])}"

    @property
    def cause(self) -> str | None:
        """The causes of all failures, including metrics replaced by a fallback; None where there are none."""
        if isinstance(self.verdict, Halt):
            return None if self.verdict.kind == DISABLED else self.verdict.text
        failing = [f"{proposal.metric.label}: {proposal.cause}" for proposal in self.proposals if proposal.error]
        return "; ".join(failing) or ("there is no metric" if self.undecided else None)

    @property
    def why(self) -> str:
        """The clause that gives the reasons for `desired`; "" where nothing was decided."""
        clauses, order = self.clauses, "" if self.spared is None else self.spared.order
        if clauses and self.recommendation is not None:
            clauses = [clauses[0], self._held(clauses), *explain.other_metrics(self.proposals, self.recommendation)]
        return "; ".join(filter(None, [*clauses, order]))

    def __str__(self) -> str:
        if isinstance(self.verdict, Halt):
            return str(self.verdict)
        why = self.why
        if not why:
            return f"cannot decide: {self.recommendation and explain.undecided(self.proposals, self.recommendation)}"
        if self.scale_to is None:
            return f"keep {self.current}: {why}"
        return f"scale {self.name} from {self.current} to {self.desired}: {why}"


def decide(view: View, verdict: Verdict, answers: Sequence[Answer]) -> Decision:
    """Returns the replica count the target should have, and why.

    `verdict` is that of `examine(view)`, and `answers[i]` the answer to `verdict.queries[i]`. Raises ValueError where
    their numbers differ.
    """
    current = view.replicas
    kept = Decision(name=view.hpa.metadata.name, verdict=verdict, current=current, desired=current)
    if isinstance(verdict, Halt):
        return kept
    if isinstance(verdict, Clamp):
        count = verdict.replicas
        return msgspec.structs.replace(kept, desired=count, scale_to=count, reason=verdict.reason)
    return _measured(view, kept, verdict, answers)


def _measured(view: View, kept: Decision, verdict: Proceed, answers: Sequence[Answer]) -> Decision:
    """Returns the decision by the metrics; `kept` is the decision that keeps the current count."""
    if len(answers) != len(verdict.metrics):
        raise ValueError(f"there are {len(verdict.metrics)} metrics, but {len(answers)} answers")
    current = kept.current
    own, answers = spare.without(view, answers)
    proposals = tuple([propose(own, metric, answer) for metric, answer in zip(verdict.metrics, answers, strict=True)])
    if view.fallback_policies:
        proposals = apply_fallback(own, proposals)
    recommendation = recommended(own, proposals)
    if recommendation.leader is None:
        return msgspec.structs.replace(kept, proposals=proposals, recommendation=recommendation)
    more = spare.added(view, recommendation.replicas, uncertain=recommendation.invalid > 0)
    asked = recommendation if more is None else msgspec.structs.replace(recommendation, replicas=more.replicas)
    restrained, reason = restrain(view, asked), _reason(recommendation, recommendation.leader, own.replicas)
    desired = counted(view, restrained)
    if more is not None and more.replicas != current:
        reason = reason or _SPARE
    if desired != restrained.replicas:
        reason = reason or BELOW_MINIMUM
    scale_to = desired if desired != current else None
    return msgspec.structs.replace(
        kept,
        desired=desired,
        scale_to=scale_to,
        reason=reason,
        proposals=proposals,
        recommendation=recommendation,
        spare=more,
        restrained=restrained,
    )


def recommended(view: View, proposals: Sequence[Proposal]) -> Recommendation:
    """Returns what these proposals, one for each metric, ask for: by the metric policy of the HPA, if it has one."""
    written = view.controls.metric_policy
    policy = None if written is None else metric_policy.of_spec(written, view.spec.metrics)
    return recommend(proposals, view.replicas) if policy is None else combine(view, proposals, policy)


def counted(view: View, restrained: Restrained) -> int:
    """Returns the count within all limits: from zero, policies may allow less than the minimum.

    Source: Kubernetes 1.36, horizontal.go: reconcileAutoscaler.
    """
    low = view.min_replicas if view.replicas == 0 else 0
    return max(low, restrained.replicas)


def _reason(recommendation: Recommendation, leader: Proposal, current: int) -> str:
    recommended = max(0, recommendation.replicas)
    if recommendation.combined or (recommendation.policy is not None and recommended < current):
        side = "above" if recommended > current else "below"
        return f"{policy_name(recommendation.policy)} {side} target" if recommended != current else ""
    if leader.fallback and recommended != current:
        return f"{leader.metric.description} {leader.fallback}"
    if recommended > current:
        return f"{leader.metric.description} above target"
    return "All metrics below target" if recommended < current else ""
