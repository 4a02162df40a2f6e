"""Makes the trace of a reconcile: the inputs and results of each stage.

A reconcile is kept as it is, which costs nothing; the trace is made only when it is asked for or stored.
"""

from typing import Final

import msgspec

from hpad.api.hpa import kind_of
from hpad.engine import holds, schedule, trace
from hpad.engine.addresses import addresses
from hpad.engine.controls import SCHEDULE
from hpad.engine.decide import Decision
from hpad.engine.deletion_costs import Spared
from hpad.engine.examine import Clamp, Halt
from hpad.engine.settle import Outcome, sentence
from hpad.engine.trace import behavior
from hpad.engine.trace.metrics import SourceOf, metrics
from hpad.engine.trace.stages import rows
from hpad.engine.turn import Reconcile
from hpad.engine.view import View

_MOST_NAMES: Final = 100
"""The largest number of pods that a trace names to go first, or with a deletion cost."""


def make_trace(done: Reconcile, source_of: SourceOf | None = None, most_pods: int | None = None) -> trace.Trace:
    """Returns the trace, with at most `most_pods` pods of each metric (None: all). Never raises.

    `source_of` names the metric source of a query. Call it on a thread: it takes long with many pods, or a schedule.
    """
    made = _numbers(done, source_of, most_pods)
    stages = holds.stages(done.view, done.decision, done.outcome)
    return msgspec.structs.replace(made, stages=tuple(rows(made, stages)))


def _numbers(done: Reconcile, source_of: SourceOf | None, most_pods: int | None) -> trace.Trace:
    """Returns the trace without its stages."""
    view, decision, settlement = done.view, done.decision, done.settlement
    verdict, recommendation, restrained = decision.verdict, decision.recommendation, decision.restrained
    scale = view.scale
    made = trace.Trace(
        namespace=view.key.namespace,
        name=view.key.name,
        kind=kind_of(view.key),
        time=view.now,
        sentence=sentence(decision, done.outcome),
        action=settlement.action,
        target=view.hpa.spec.scale_target_ref,
        replicas=trace.ReplicasTrace(
            current=decision.current,
            observed=0 if scale is None else scale.status.replicas,
            min=view.min_replicas,
            max=view.max_replicas,
            desired=decision.desired,
            zero_disabled=view.scale_to_zero_disabled,
            schedule="" if view.controls.schedule is None else str(view.bounds),
            windows=_windows(view),
            next_bounds=next_bounds(view),
            target=None if view.shadow is None else view.shadow.replicas,
        ),
        pause=None if view.paused is None else trace.PauseTrace(until=view.controls.paused_until),
        reason=decision.reason,
        error=settlement.error or "",
        metrics=metrics(view, done.answers, decision.proposals, source_of, most_pods),
        write=_write(done.outcome),
        events=settlement.events,
        timing=done.timing,
        gates=tuple(name for name, on in msgspec.structs.asdict(view.tunables.gates).items() if on),
    )
    if isinstance(verdict, Halt):
        halt = trace.HaltTrace(kind=verdict.kind, reason=verdict.reason, message=verdict.message)
        return msgspec.structs.replace(made, halt=halt)
    if isinstance(verdict, Clamp):
        bounds = behavior.clamped(decision)
        return msgspec.structs.replace(made, bounds=bounds, budgeted=decision.budgeted, spared=_spared(decision))
    if recommendation is not None:
        made = msgspec.structs.replace(
            made,
            chosen=_chosen(view, decision),
            spare=decision.spare,
            behavior=behavior.behavior(view),
            past=behavior.past(view, restrained),
        )
    if restrained is None:
        return made
    return msgspec.structs.replace(
        made,
        stabilization=behavior.stabilization(view, restrained),
        policies=behavior.policies(view, restrained),
        bounds=behavior.bounds(view, restrained, decision.limited),
        budgeted=decision.budgeted,
        spared=_spared(decision),
    )


def _spared(decision: Decision) -> Spared | None:
    """Returns what was spared, with names of some pods."""
    found = decision.spared
    if found is None:
        return None
    return msgspec.structs.replace(found, first=found.first[:_MOST_NAMES], costs=found.costs[:_MOST_NAMES])


def _windows(view: View) -> trace.ScheduleTrace | None:
    if view.controls.schedule is None:
        return None
    return trace.ScheduleTrace(
        text=dict(view.controls.texts)[SCHEDULE], min=_unscheduled_minimum(view), max=view.spec.max_replicas
    )


def _unscheduled_minimum(view: View) -> int:
    return max(1, view.spec.min_replicas) if view.scale_to_zero_disabled else view.spec.min_replicas


def next_bounds(view: View) -> trace.NextBoundsTrace | None:
    """Returns the bounds that the schedule of the HPA sets next; None where they stay.

    Takes up to a fifth of a second.
    """
    if view.controls.schedule is None:
        return None
    low, high = _unscheduled_minimum(view), view.spec.max_replicas
    found = schedule.following(view.controls.schedule, view.now, low, high)
    return None if found is None else trace.NextBoundsTrace(at=found[0], min=found[1].low, max=found[1].high)


def _chosen(view: View, decision: Decision) -> trace.ChosenTrace:
    recommendation = decision.recommendation
    assert recommendation is not None
    leader, error = recommendation.leader, recommendation.error or ""
    policy = "" if recommendation.policy is None else str(recommendation.policy)
    if leader is None:
        return trace.ChosenTrace(invalid=recommendation.invalid, error=error, policy=policy)
    index = next(index for index, proposal in enumerate(decision.proposals) if proposal is leader)
    return trace.ChosenTrace(
        invalid=recommendation.invalid,
        metric=addresses(view.spec.metrics)[index],
        replicas=recommendation.replicas,
        error=error,
        policy=policy,
        combined=recommendation.combined,
    )


def _write(outcome: Outcome | None) -> trace.WriteTrace | None:
    if outcome is None:
        return None
    if outcome.withheld is not None:
        withheld = outcome.withheld
        return trace.WriteTrace(
            outcome=trace.WITHHELD,
            attempts=outcome.attempts,
            reason=f"{withheld.reason}: {withheld.message}",
            withheld=withheld.reason,
        )
    if outcome.error is None:
        return trace.WriteTrace(outcome=trace.WRITTEN, attempts=outcome.attempts)
    kind = trace.UNCERTAIN if outcome.unsure else trace.FAILED
    return trace.WriteTrace(outcome=kind, attempts=outcome.attempts, reason=outcome.error)
