"""Runs the stages measure to restrain and returns the decision: the replica count of the target, and why.

The trace of a decision names the result of each stage, for logs and the status page.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from hpad.api.sample import AdapterError, Sample
from hpad.engine import explain
from hpad.engine.examine import DISABLED, Clamp, Halt, Proceed, Verdict
from hpad.engine.propose import Proposal, propose
from hpad.engine.recommend import Recommendation, apply_fallback, recommend
from hpad.engine.restrain import Restrained, restrain
from hpad.engine.view import View


class Step(msgspec.Struct, frozen=True, gc=False):
    """One stage (examine, measure, propose, recommend, restrain, decide) and its result as a sentence."""

    stage: str
    verdict: str

    def __str__(self) -> str:
        return f"{self.stage}: {self.verdict}"


Trace = tuple[Step, ...]


_BELOW_MINIMUM: Final = "Current number of replicas below Spec.MinReplicas"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one reconcile. `str()` of it is one sentence for logs, tables and tests.

    `scale_to` is the count to write, None where nothing is written. `desired` is the count the target should have; the
    current one where nothing could be decided. `reason` is that of the rescale event. `proposals` has one entry per
    metric of the spec. `recommendation` and `restrained` are set where the metrics decided.
    """

    name: str
    verdict: Verdict
    current: int
    desired: int
    scale_to: int | None = None
    reason: str = ""
    proposals: tuple[Proposal, ...] = ()
    recommendation: Recommendation | None = None
    restrained: Restrained | None = None

    @property
    def undecided(self) -> bool:
        """Whether the engine could not decide; False for a target that was set to zero."""
        if isinstance(self.verdict, Halt):
            return self.verdict.kind != DISABLED
        return self.recommendation is not None and self.recommendation.leader is None

    @property
    def trace(self) -> Trace:
        """The result of each stage, in order."""
        steps = [Step("examine", str(self.verdict))]
        for proposal in self.proposals:
            if proposal.usage is not None:
                steps.append(Step("measure", f"{proposal.metric.label}: {proposal.usage}"))
            steps.append(Step("propose", str(proposal)))
        if self.recommendation is not None:
            steps.append(Step("recommend", str(self.recommendation)))
        if self.restrained is not None:
            steps.append(Step("restrain", str(self.restrained)))
        return (*steps, Step("decide", str(self)))

    @property
    def stages(self) -> tuple[explain.Stage, ...]:
        """The stages that determined the count, in order; () where the metrics did not decide."""
        if self.recommendation is None or self.restrained is None:
            return ()
        return explain.stages(self.proposals, self.recommendation, self.restrained, self.current, self.desired)

    @property
    def trouble(self) -> str | None:
        """The causes of all failures, those behind a fallback included; None where there are none."""
        if isinstance(self.verdict, Halt):
            return None if self.verdict.kind == DISABLED else self.verdict.text
        failing = [f"{proposal.metric.label}: {proposal.cause}" for proposal in self.proposals if proposal.error]
        return "; ".join(failing) or ("there is no metric" if self.undecided else None)

    def __str__(self) -> str:
        if isinstance(self.verdict, Halt):
            return str(self.verdict)
        move = f"scale {self.name} from {self.current} to {self.desired}"
        if isinstance(self.verdict, Clamp):
            return f"{move}: {self.verdict}"
        if self.recommendation is None or self.restrained is None or self.recommendation.leader is None:
            return f"cannot decide: {self.recommendation and explain.undecided(self.proposals, self.recommendation)}"
        why = explain.joined(self.stages) + explain.other_metrics(self.proposals, self.recommendation.leader)
        return f"keep {self.current}: {why}" if self.scale_to is None else f"{move}: {why}"


def decide(view: View, verdict: Verdict, answers: Sequence[Sample | AdapterError]) -> Decision:
    """Returns the replica count the target should have, and why.

    `verdict` is that of `examine(view)`, and `answers[i]` the answer to `verdict.queries[i]`. Raises ValueError where
    their numbers differ.
    """
    name, current = view.hpa.metadata.name, view.replicas
    if isinstance(verdict, Halt):
        return Decision(name=name, verdict=verdict, current=current, desired=current)
    if isinstance(verdict, Clamp):
        count = verdict.replicas
        return Decision(
            name=name, verdict=verdict, current=current, desired=count, scale_to=count, reason=verdict.reason
        )
    return _measured(view, verdict, answers)


def _measured(view: View, verdict: Proceed, answers: Sequence[Sample | AdapterError]) -> Decision:
    if len(answers) != len(verdict.metrics):
        raise ValueError(f"{len(verdict.metrics)} metrics take as many answers, not {len(answers)}")
    name, current = view.hpa.metadata.name, view.replicas
    proposals = tuple(propose(view, metric, answer) for metric, answer in zip(verdict.metrics, answers, strict=True))
    if view.fallback_policies:
        proposals = apply_fallback(view, proposals)
    recommendation = recommend(proposals, current)
    if recommendation.leader is None:
        return Decision(
            name=name,
            verdict=verdict,
            current=current,
            desired=current,
            proposals=proposals,
            recommendation=recommendation,
        )
    restrained = restrain(view, recommendation)
    desired, reason = restrained.replicas, _reason(recommendation.leader, restrained.recommended, current)
    low = view.min_replicas
    if current == 0 and desired < low:
        desired, reason = low, reason or _BELOW_MINIMUM
    return Decision(
        name=name,
        verdict=verdict,
        current=current,
        desired=desired,
        scale_to=desired if desired != current else None,
        reason=reason,
        proposals=proposals,
        recommendation=recommendation,
        restrained=restrained,
    )


def _reason(leader: Proposal, recommended: int, current: int) -> str:
    if leader.fallback and recommended != current:
        return f"{leader.metric.description} {leader.fallback}"
    if recommended > current:
        return f"{leader.metric.description} above target"
    return "All metrics below target" if recommended < current else ""
