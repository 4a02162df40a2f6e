"""The decision: what the target is set to, and why.

How a decision came about, stage by stage: evidence for people, the store and the status page.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from hpad.api.sample import AdapterError, Sample
from hpad.engine import explain
from hpad.engine.examine import DISABLED, Clamp, Halt, Proceed, Verdict
from hpad.engine.fallback import apply_fallback
from hpad.engine.propose import Proposal, propose
from hpad.engine.recommend import Recommendation, recommend
from hpad.engine.restrain import Restrained, restrain
from hpad.engine.view import View


class Step(msgspec.Struct, frozen=True, gc=False):
    """One stage (examine, measure, propose, recommend, restrain, decide) and its verdict as a sentence."""

    stage: str
    verdict: str

    def __str__(self) -> str:
        return f"{self.stage}: {self.verdict}"


Trace = tuple[Step, ...]


_BELOW_MINIMUM: Final = "Current number of replicas below Spec.MinReplicas"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What one reconcile decided. `str()` of it is one sentence for logs, tables and tests.

    `scale_to` is the count to write, None where nothing is to be written; `desired` the count the target should have
    (its current one where nothing could be decided). `reason` is Kubernetes' own, part of the rescale event.
    `proposals` are the evidence, one per metric of the spec; `recommendation` and `restrained` are there once metrics
    decided.
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
        """Whether something kept the engine from deciding (a target set to zero is not that)."""
        if isinstance(self.verdict, Halt):
            return self.verdict.kind != DISABLED
        return self.recommendation is not None and self.recommendation.leader is None

    @property
    def trace(self) -> Trace:
        """How it came about, stage by stage."""
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
        """Every stage that had its part in the count, in order; () where metrics did not decide."""
        if self.recommendation is None or self.restrained is None:
            return ()
        return explain.stages(self.proposals, self.recommendation, self.restrained, self.current, self.desired)

    @property
    def trouble(self) -> str | None:
        """What is wrong, by its cause; None where all is well. Fallbacks in force hide no failure."""
        if isinstance(self.verdict, Halt):
            return None if self.verdict.kind == DISABLED else self.verdict.text
        failing = [f"{proposal.metric.label}: {proposal.cause}" for proposal in self.proposals if proposal.error]
        return "; ".join(failing) or ("there is no metric" if self.undecided else None)

    def __str__(self) -> str:
        if isinstance(self.verdict, Halt):
            return str(self.verdict)
        moved = f"scale {self.name} from {self.current} to {self.desired}"
        if isinstance(self.verdict, Clamp):
            return f"{moved}: {self.verdict}"
        if self.recommendation is None or self.restrained is None or self.recommendation.leader is None:
            return f"cannot decide: {self.recommendation and explain.undecided(self.proposals, self.recommendation)}"
        why = explain.joined(self.stages) + explain.beside(self.proposals, self.recommendation.leader)
        return f"keep {self.current}: {why}" if self.scale_to is None else f"{moved}: {why}"


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
    desired, reason = restrained.replicas, _reason(recommendation.leader, restrained.wanted, current)
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


def _reason(leader: Proposal, wanted: int, current: int) -> str:
    if leader.fallback and wanted != current:
        return f"{leader.metric.description} {leader.fallback}"
    if wanted > current:
        return f"{leader.metric.description} above target"
    return "All metrics below target" if wanted < current else ""
