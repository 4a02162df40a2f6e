"""One reconcile of one HPA: what is asked, decided, written and settled, in which order, and the record of it.

`turn` is a generator that waits for nothing and writes nothing. Its driver asks and writes: the controller in a
cluster; replay, simulation and backtest with answers that are at hand (`run`). A driver that is told of an edit closes
the generator, and starts another one with the answers that still fit.
"""

from collections.abc import Callable, Generator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from hpad.api.sample import AdapterError, Answer, Query
from hpad.engine import busy, metric_policy, shadow, share, spare
from hpad.engine.budget import BudgetMember, Shares
from hpad.engine.decision import Decision
from hpad.engine.examine import BELOW_MINIMUM, Clamp, Halt, Proceed, Queries, Verdict, examine
from hpad.engine.propose import Proposal, propose
from hpad.engine.recommend import Recommendation, apply_fallback, combine, policy_name, recommend
from hpad.engine.restrain import Restrained, restrain
from hpad.engine.settle import Outcome, Settlement, sentence, settle
from hpad.engine.view import View, Withheld, yields_to

_SPARE: Final = "spare replicas"
"""The reason of a rescale for which the metrics ask for nothing else."""


class TimingTrace(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The seconds of each stage, and how much later than planned the turn began.

    `observe`: reading scale and pods; `gather`: reading the metrics; `act`: deciding and writing the scale; `publish`:
    writing status and events.
    """

    late: float
    observe: float
    gather: float
    act: float
    publish: float


class Reconcile(msgspec.Struct, frozen=True, gc=False):
    """One reconcile: its inputs, the decision, the outcome of the write, and the results.

    `view` and `answers` are what the decision was made on: `view.now` is the moment when the answers were there, and in
    shadow mode both are those of the shadow. `answers` has one entry per query; `work` the answers about the unfinished
    work of pods, None where they were not asked. `shares` is what the HPA shares of its budget, None without one.
    `outcome` is None where nothing was to be written.
    """

    view: View
    answers: Sequence[Answer]
    decision: Decision
    outcome: Outcome | None
    settlement: Settlement
    work: Sequence[Answer] | None = None
    shares: Shares | None = None
    timing: TimingTrace | None = None

    @property
    def queries(self) -> Queries:
        """The queries that `answers` belong to."""
        return self.decision.verdict.queries

    @property
    def sentence(self) -> str:
        """The decision as one sentence, with the reason why it was not written."""
        return sentence(self.decision, self.outcome)

    @property
    def error(self) -> str | None:
        """What failed, with all causes; None where nothing did."""
        if not self.settlement.error:
            return None
        failed = None if self.outcome is None else self.outcome.error
        return failed or self.decision.cause or self.settlement.error

    @property
    def withheld(self) -> int | None:
        """The count that was decided but not written, None where nothing was withheld.

        Each count of a shadow is decided once, and then belongs to it.
        """
        if self.view.shadow is not None or self.outcome is None or self.outcome.withheld is None:
            return None
        return self.decision.scale_to

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """The labels of the metrics for which a fallback is in force."""
        return tuple([proposal.metric.label for proposal in self.decision.proposals if proposal.fallback])


class Answered(NamedTuple):
    """The reply to an Ask. `now` is the moment to decide at, None: that of the View."""

    answers: Sequence[Answer]
    now: datetime | None = None


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Asks for one answer per query of the verdict, in their order; there may be no queries."""

    verdict: Verdict

    def __iter__(self) -> Generator["Ask", Answered, Answered]:
        return (yield self)


class AskWork(msgspec.Struct, frozen=True, gc=False):
    """Asks what the pods of a scale-down are working on. The reply None spares no pod."""

    queries: Queries

    def __iter__(self) -> Generator["AskWork", Sequence[Answer] | None, Sequence[Answer] | None]:
        return (yield self)


class AskBudget(msgspec.Struct, frozen=True, gc=False):
    """Asks what the HPA shares of its budget. The reply None limits nothing.

    `own` is what the HPA has and wants, with its cost in millicores (0: unknown). `decided`: whether it wants that;
    else the metrics do not say. `withheld` is why no count will be written, None if one may be.
    """

    budget: str
    own: BudgetMember
    decided: bool
    withheld: Withheld | None

    def __iter__(self) -> Generator["AskBudget", Shares | None, Shares | None]:
        return (yield self)


class Write(msgspec.Struct, frozen=True, gc=False):
    """Asks for the write of the decided count. The reply is its outcome, None where `to` is None.

    `outcome` and `settlement` are those of a write that succeeds, or of a turn that writes nothing: what a crash during
    the write must not lose can be stored before it.
    """

    view: View
    decision: Decision
    outcome: Outcome | None
    settlement: Settlement

    @property
    def to(self) -> int | None:
        """The count to write; None where nothing is to be written."""
        return None if self.outcome is None or self.outcome.withheld is not None else self.decision.scale_to

    def __iter__(self) -> Generator["Write", Outcome | None, Outcome | None]:
        return (yield self)


Effect = Ask | AskBudget | AskWork | Write
Reply = Answered | Shares | Sequence[Answer] | Outcome | None
Steps = Generator[Effect, Reply, Reconcile]


def turn(view: View, held: Withheld | None = None) -> Steps:
    """Reconciles once. `held`: why no count may be written (`held_back`), None if it may."""
    verdict = examine(view)
    answers, now = yield from Ask(verdict)
    if now is not None and now != view.now:
        view = msgspec.structs.replace(view, now=now)
    view, answers = shadow.applied(view, verdict, answers)
    held, work = _withheld(view, held), None
    decision, shares = yield from _within_budget(view, decide(view, verdict, answers), held)
    if busy.applies(view, decision):
        work = yield from AskWork(busy.queries(view))
        if work is not None:
            decision = busy.spare(view, decision, work)
    outcome = _expected(decision, held)
    settlement = settle(view, decision, outcome)
    sent = yield from Write(view, decision, outcome, settlement)
    if sent is not None:
        outcome = sent
        settlement = settlement if sent.written else settle(view, decision, sent)
    return Reconcile(view, answers, decision, outcome, settlement, work, shares)


def decide(view: View, verdict: Verdict, answers: Sequence[Answer]) -> Decision:
    """Returns the replica count the target should have, and why.

    `verdict` is that of `examine(view)`, and `answers[i]` the answer to `verdict.queries[i]`. Raises ValueError where
    their numbers differ.
    """
    current = view.replicas
    unchanged = Decision(name=view.hpa.metadata.name, verdict=verdict, current=current, desired=current)
    if isinstance(verdict, Halt):
        return unchanged
    if isinstance(verdict, Clamp):
        count = verdict.replicas
        return msgspec.structs.replace(unchanged, desired=count, scale_to=count, reason=verdict.reason)
    return _measured(view, unchanged, verdict, answers)


def _measured(view: View, unchanged: Decision, verdict: Proceed, answers: Sequence[Answer]) -> Decision:
    """Returns the decision by the metrics; `unchanged` is the decision that keeps the current count."""
    if len(answers) != len(verdict.metrics):
        raise ValueError(f"there are {len(verdict.metrics)} metrics, but {len(answers)} answers")
    current = unchanged.current
    own, answers = spare.without(view, answers)
    proposals = tuple([propose(own, metric, answer) for metric, answer in zip(verdict.metrics, answers, strict=True)])
    if view.fallback_policies:
        proposals = apply_fallback(own, proposals)
    recommendation = recommended(own, proposals)
    if recommendation.leader is None:
        return msgspec.structs.replace(unchanged, proposals=proposals, recommendation=recommendation)
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
        unchanged,
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


def _within_budget(
    view: View, decision: Decision, held: Withheld | None
) -> Generator[Effect, Any, tuple[Decision, Shares | None]]:
    """Returns the decision within the budget of the HPA, if it has one, and what it shares.

    Where nothing was decided, the count stays.
    """
    name = view.controls.budget
    if name is None or view.scale is None:
        return decision, None
    decided = not isinstance(decision.verdict, Halt) and not decision.undecided
    shares = yield from AskBudget(name, share.member(view, decision), decided, held)
    return (share.within(view, decision, shares) if decided and shares is not None else decision), shares


def _withheld(view: View, held: Withheld | None) -> Withheld | None:
    """Returns why no count is written in this turn; None if one may be."""
    return view.shadow.withheld if view.shadow is not None else view.paused or held


def _expected(decision: Decision, held: Withheld | None) -> Outcome | None:
    """Returns the outcome of a write that succeeds, or says why there is none; None where the count stays."""
    if decision.scale_to is None:
        return None
    return written(decision.scale_to) if held is None else Outcome((), withheld=held)


def held_back(view: View, *, dry_run: bool, yields: bool) -> Withheld | None:
    """Returns why no count may be written for this HPA, whatever is decided, unless it is paused; None if it may.

    `yields`: a target that another HPA scales is left to it.
    """
    return shadow.mode(view, dry_run=dry_run) or (yields_to(view.competitors) if yields else None)


def written(count: int) -> Outcome:
    """Returns the outcome of a write that succeeds at once."""
    return Outcome((count,))


def run(
    view: View,
    answer: Callable[[Sequence[Query | AdapterError]], Sequence[Answer]],
    write: Callable[[int], Outcome] = written,
    *,
    work: Sequence[Answer] | None = None,
    shares: Callable[[AskBudget], Shares | None] = lambda _: None,
    held: Withheld | None = None,
) -> Reconcile:
    """Drives a turn with answers that are at hand. Raises what `answer`, `write` and `shares` raise."""

    def reply(step: Effect) -> Reply:
        if isinstance(step, Ask):
            return Answered(answer(step.verdict.queries))
        if isinstance(step, AskWork):
            return work
        if isinstance(step, AskBudget):
            return shares(step)
        return None if step.to is None else write(step.to)

    steps = turn(view, held)
    try:
        step = next(steps)
        while True:
            step = steps.send(reply(step))
    except StopIteration as end:
        done: Reconcile = end.value
        return done
