"""Makes the trace of a reconcile: the inputs and results of each stage.

A reconcile is kept as it is, which costs nothing; the trace is made only when it is asked for or stored.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from hpad.api.behavior import DirectionRules
from hpad.api.hpa import kind_of
from hpad.engine import holds, schedule, trace
from hpad.engine.addresses import addresses
from hpad.engine.controls import SCHEDULE
from hpad.engine.decision import Decision
from hpad.engine.deletion_costs import Spared
from hpad.engine.examine import Clamp, Halt
from hpad.engine.history import PastRecommendation, Rescale
from hpad.engine.restrain import Reach, Restrained, allowed, reaches
from hpad.engine.settle import Outcome
from hpad.engine.stage import BOUNDS, LAST_REPLICA, MAXIMUM, MINIMUM, POLICIES, limit_of
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
        sentence=done.sentence,
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
        bounds = _clamped(decision)
        return msgspec.structs.replace(made, bounds=bounds, budgeted=decision.budgeted, spared=_spared(decision))
    if recommendation is not None:
        made = msgspec.structs.replace(
            made,
            chosen=_chosen(view, decision),
            spare=decision.spare,
            behavior=_behavior(view),
            past=_past(view, restrained),
        )
    if restrained is None:
        return made
    return msgspec.structs.replace(
        made,
        stabilization=_stabilization(view, restrained),
        policies=_policies(view, restrained),
        bounds=_bounds(view, restrained, decision.limited),
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


def _behavior(view: View) -> trace.BehaviorTrace:
    """Returns the rules of both directions."""
    rules, down = view.spec.behavior, view.window(up=False)
    if rules is None:
        return trace.BehaviorTrace(down=trace.DirectionTrace(window_seconds=down.total_seconds()))
    return trace.BehaviorTrace(down=_direction(rules.down, down), up=_direction(rules.up, view.window(up=True)))


def _direction(rules: DirectionRules, window: timedelta) -> trace.DirectionTrace:
    return trace.DirectionTrace(
        window_seconds=window.total_seconds(),
        select=rules.select,
        policies=tuple(
            trace.ScalingPolicyTrace(type=policy.type, value=policy.value, period_seconds=policy.period.total_seconds())
            for policy in rules.policies
        ),
    )


def _past(view: View, restrained: Restrained | None) -> trace.PastTrace:
    """Returns the past rescales, and the recommendations where there is no stabilization to hold them."""
    return trace.PastTrace(
        scale_ups=_rescales(view.history.scale_ups),
        scale_downs=_rescales(view.history.scale_downs),
        recommendations=_recommendations(view) if restrained is None else (),
    )


def _rescales(found: tuple[Rescale, ...]) -> tuple[trace.RescaleTrace, ...]:
    return tuple(
        trace.RescaleTrace(time=each.timestamp, change=each.change, uncertain=each.uncertain) for each in found
    )


def _stabilization(view: View, restrained: Restrained) -> trace.StabilizationTrace:
    """Returns the counts before and after the windows, and the recommendations that they look at."""
    rules, deciding = _behavior(view), restrained.deciding
    return trace.StabilizationTrace(
        recommended=restrained.recommended,
        stabilized=restrained.stabilized,
        down_window_seconds=rules.down.window_seconds,
        up_window_seconds=None if rules.up is None else rules.up.window_seconds,
        recommendations=_recommendations(view),
        held_by=None if deciding is None else _deciding(deciding.recommendation),
        frees_at=None if deciding is None else end_of(deciding.recommendation.timestamp, deciding.window),
        first=restrained.first,
    )


def _deciding(entry: PastRecommendation) -> trace.RecommendationTrace:
    return trace.RecommendationTrace(time=entry.timestamp, replicas=entry.replicas)


def _recommendations(view: View) -> tuple[trace.RecommendationTrace, ...]:
    known = view.history.recommendations or (PastRecommendation(view.now, view.replicas),)
    return tuple(
        trace.RecommendationTrace(
            time=entry.timestamp, replicas=entry.with_current(view.replicas).replicas, uncertain=entry.uncertain
        )
        for entry in _latest_of_each_count(known)
    )


def _latest_of_each_count(known: Iterable[PastRecommendation]) -> list[PastRecommendation]:
    """Returns the latest recommendation of each count, by time: windows look only at these."""
    latest: dict[int | None, PastRecommendation] = {}
    for entry in known:
        count = None if entry.uncertain else entry.replicas
        if count not in latest or latest[count].timestamp < entry.timestamp:
            latest[count] = entry
    return sorted(latest.values(), key=lambda entry: entry.timestamp)


def end_of(moment: datetime, span: timedelta) -> datetime | None:
    """Returns the end of a span; None where datetime has no such date."""
    try:
        return moment + span
    except OverflowError:
        return None


def _policies(view: View, restrained: Restrained) -> trace.PoliciesTrace | None:
    """Returns the policies of the direction in which the count moves; None where it does not move."""
    current, count, rules = view.replicas, restrained.stabilized, view.spec.behavior
    if count == current or (rules is None and count < current):
        return None
    up = count > current
    limited = limit_of(restrained).stage == POLICIES
    if rules is None:
        return trace.PoliciesTrace(direction=trace.UP, allows=max(2 * current, 4), limited=limited)
    direction = rules.up if up else rules.down
    huge = view.tunables.gates.HPAHugeProposals
    found = reaches(direction, current, view.history, view.now, up=up, huge=huge)
    return trace.PoliciesTrace(
        direction=trace.UP if up else trace.DOWN,
        allows=allowed(direction, current, view.history, view.now, up=up, huge=huge),
        limited=limited,
        select=direction.select,
        rules=tuple([_rule(view, reach, up=up) for reach in found]),
    )


def _rule(view: View, reach: Reach, *, up: bool) -> trace.PolicyTrace:
    policy, start, allows = reach
    rescales = view.history.scale_ups if up else view.history.scale_downs
    own = [each for each in rescales if each.timestamp > view.now - policy.period]
    oldest = min((each.timestamp for each in own), default=None)
    return trace.PolicyTrace(
        type=policy.type,
        value=policy.value,
        period_seconds=policy.period.total_seconds(),
        start=start,
        allows=allows,
        used=sum(each.change for each in own),
        frees_at=None if oldest is None else end_of(oldest, policy.period),
    )


def _bounds(view: View, restrained: Restrained, desired: int) -> trace.BoundsTrace:
    """Returns what minimum and maximum changed."""
    if desired != restrained.replicas:  # from zero, the minimum comes after the policies
        return trace.BoundsTrace(before=restrained.replicas, after=desired, applied=MINIMUM)
    found = limit_of(restrained)
    if found.stage != BOUNDS:
        return trace.BoundsTrace(before=restrained.replicas, after=restrained.replicas)
    why = restrained.limit if found.reason == LAST_REPLICA else ""
    return trace.BoundsTrace(before=restrained.stabilized, after=restrained.replicas, applied=found.reason, why=why)


def _clamped(decision: Decision) -> trace.BoundsTrace:
    """Returns the bounds of a count that was outside them, and was decided without metrics."""
    applied = MAXIMUM if decision.limited < decision.current else MINIMUM
    return trace.BoundsTrace(before=decision.current, after=decision.limited, applied=applied)
