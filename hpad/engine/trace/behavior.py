"""The windows, policies and bounds in a trace."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from hpad.engine import trace
from hpad.engine.behavior import DirectionRules, allowed, reaches
from hpad.engine.decide import Decision
from hpad.engine.history import PastRecommendation, Rescale
from hpad.engine.restrain import Restrained
from hpad.engine.stage import BOUNDS, LAST_REPLICA, MAXIMUM, MINIMUM, POLICIES, limit_of
from hpad.engine.view import View


def behavior(view: View) -> trace.BehaviorTrace:
    """Returns the rules of both directions."""
    rules, downscale = view.spec.behavior, view.tunables.downscale_stabilization
    if rules is None:
        return trace.BehaviorTrace(down=trace.DirectionTrace(window_seconds=downscale.total_seconds()))
    return trace.BehaviorTrace(down=_direction(rules.down, downscale), up=_direction(rules.up, timedelta(0)))


def _direction(rules: DirectionRules, window: timedelta) -> trace.DirectionTrace:
    """Returns the rules of one direction; `window` is the stabilization window where the spec has none."""
    return trace.DirectionTrace(
        window_seconds=(window if rules.window is None else rules.window).total_seconds(),
        select=rules.select,
        policies=tuple(
            trace.ScalingPolicyTrace(type=policy.type, value=policy.value, period_seconds=policy.period.total_seconds())
            for policy in rules.policies
        ),
    )


def past(view: View, restrained: Restrained | None) -> trace.PastTrace:
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


def stabilization(view: View, restrained: Restrained) -> trace.StabilizationTrace:
    """Returns the counts before and after the windows, and the recommendations that they look at."""
    rules, deciding = behavior(view), restrained.deciding
    return trace.StabilizationTrace(
        recommended=restrained.recommended,
        stabilized=restrained.stabilized,
        down_window_seconds=rules.down.window_seconds,
        up_window_seconds=None if rules.up is None else rules.up.window_seconds,
        recommendations=_recommendations(view),
        held_by=None if deciding is None else _deciding(deciding.recommendation),
        frees_at=None if deciding is None else after(deciding.recommendation.timestamp, deciding.window),
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


def after(moment: datetime, span: timedelta) -> datetime | None:
    """Returns the end of a span; None where datetime has no such date."""
    try:
        return moment + span
    except OverflowError:
        return None


def policies(view: View, restrained: Restrained) -> trace.PoliciesTrace | None:
    """Returns the policies of the direction in which the count moves; None where it does not move."""
    current, count, rules = view.replicas, restrained.stabilized, view.spec.behavior
    if count == current or (rules is None and count < current):
        return None
    up = count > current
    limited = limit_of(restrained).stage == POLICIES
    if rules is None:
        return trace.PoliciesTrace(direction=trace.UP, allows=max(2 * current, 4), limited=limited)
    direction = rules.up if up else rules.down
    found = tuple(_rule(view, direction, index, up=up) for index in range(len(direction.policies)))
    return trace.PoliciesTrace(
        direction=trace.UP if up else trace.DOWN,
        allows=allowed(direction, current, view.history, view.now, up=up, huge=view.tunables.gates.HPAHugeProposals),
        limited=limited,
        select=direction.select,
        rules=found,
    )


def _rule(view: View, rules: DirectionRules, index: int, *, up: bool) -> trace.PolicyTrace:
    huge = view.tunables.gates.HPAHugeProposals
    policy, start, allows = reaches(rules, view.replicas, view.history, view.now, up=up, huge=huge)[index]
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
        frees_at=None if oldest is None else after(oldest, policy.period),
    )


def bounds(view: View, restrained: Restrained, desired: int) -> trace.BoundsTrace:
    """Returns what minimum and maximum changed."""
    if desired != restrained.replicas:  # from zero, the minimum comes after the policies
        return trace.BoundsTrace(before=restrained.replicas, after=desired, applied=MINIMUM)
    found = limit_of(restrained)
    if found.stage != BOUNDS:
        return trace.BoundsTrace(before=restrained.replicas, after=restrained.replicas)
    why = restrained.limit if found.reason == LAST_REPLICA else ""
    return trace.BoundsTrace(before=restrained.stabilized, after=restrained.replicas, applied=found.reason, why=why)


def clamped(decision: Decision) -> trace.BoundsTrace:
    """Returns the bounds of a count that was outside them, and was decided without metrics."""
    applied = MAXIMUM if decision.limited < decision.current else MINIMUM
    return trace.BoundsTrace(before=decision.current, after=decision.limited, applied=applied)
