"""What windows, policies and bounds will make of a recommendation after a decision: the next step, and its time.

Everything follows from the trace of the decision and is computed by the stage that decides (`hpad.engine.restrain`).
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.engine import trace
from hpad.engine.behavior import (
    SCALE_DOWN_LIMIT,
    SCALE_UP_LIMIT,
    TOO_FEW,
    TOO_MANY,
    Behavior,
    DirectionRules,
    Policy,
    limit,
    limit_without_behavior,
)
from hpad.engine.history import History, PastRecommendation, Rescale
from hpad.engine.restrain import stabilize, stabilize_down
from hpad.engine.trace.behavior import after

WINDOW: Final = "window"
POLICIES: Final = "policies"
MAXIMUM: Final = "maximum"
MINIMUM: Final = "minimum"
"""What keeps the count from following a recommendation."""

_LIMITS: Final = {
    SCALE_UP_LIMIT: POLICIES,
    SCALE_DOWN_LIMIT: POLICIES,
    TOO_MANY: MAXIMUM,
    TOO_FEW: MINIMUM,
}
_MOMENT: Final = timedelta(microseconds=1)
_LAST: Final = datetime.max.replace(tzinfo=UTC) - _MOMENT


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The state after a decision: the count, its bounds, the rules, and the past that they look at.

    `downscale` is the stabilization window for scaling down where there is no `behavior`.
    """

    count: int
    low: int
    high: int
    now: datetime
    history: History
    behavior: Behavior | None
    downscale: timedelta


class Step(NamedTuple):
    """The next change: the count, the time after which it comes, and what keeps it until then.

    `at` is None where the change comes with the next reconcile.
    """

    replicas: int
    at: datetime | None = None
    held_by: str = ""


def course(made: trace.Trace) -> Course | None:
    """Returns the state after the decision of a trace; None where no metric was measured."""
    if made.behavior is None or made.past is None:
        return None
    written = made.write is not None and (made.write.outcome == trace.WRITTEN or made.replicas.target is not None)
    behavior = _behavior(made.behavior)
    return Course(
        count=made.replicas.desired if written else made.replicas.current,
        low=made.replicas.min,
        high=made.replicas.max,
        now=made.time,
        history=_history(made, made.past, written and behavior is not None),
        behavior=behavior,
        downscale=timedelta(seconds=made.behavior.down.window_seconds),
    )


def _behavior(rules: trace.BehaviorTrace) -> Behavior | None:
    return None if rules.up is None else Behavior(up=_direction(rules.up), down=_direction(rules.down))


def _direction(rules: trace.DirectionTrace) -> DirectionRules:
    policies = tuple(
        Policy(policy.type, policy.value, timedelta(seconds=policy.period_seconds)) for policy in rules.policies
    )
    return DirectionRules(
        window=timedelta(seconds=rules.window_seconds),
        select=rules.select,
        policies=policies,
        longest=max((policy.period for policy in policies), default=timedelta(0)),
        tolerance=None,
    )


def _history(made: trace.Trace, past: trace.PastTrace, rescaled: bool) -> History:
    """Returns the history with the recommendation of this decision and, where `rescaled`, with its rescale."""
    step = made.stabilization
    known = past.recommendations if step is None else step.recommendations
    recommendations = [PastRecommendation(each.time, each.replicas, each.uncertain) for each in known]
    if step is not None:
        recommendations.append(PastRecommendation(made.time, step.recommended))
    ups, downs = _rescales(past.scale_ups), _rescales(past.scale_downs)
    change = made.replicas.desired - made.replicas.current
    if rescaled and change > 0:
        ups = (*ups, Rescale(made.time, change))
    elif rescaled:
        downs = (*downs, Rescale(made.time, -change))
    return History(tuple(recommendations), ups, downs)


def _rescales(past: tuple[trace.RescaleTrace, ...]) -> tuple[Rescale, ...]:
    return tuple(Rescale(each.time, each.change, uncertain=each.uncertain) for each in past)


def next_step(state: Course, recommended: int) -> Step | None:
    """Returns the next change of the count while the metrics keep asking for `recommended`; None: there is none.

    Windows and policies decide differently only after a recommendation has left its window, or a rescale its period.
    """
    held_by = ""
    for at in (None, *_times(state)):
        found = _decided(state, recommended, at)
        if found.replicas != state.count:
            return Step(found.replicas, at, held_by)
        held_by = found.held_by
    return None


def step_at(state: Course, recommended: int, at: datetime) -> Step | None:
    """Returns the change just after `at`, where the metrics ask for `recommended` from then on; None: there is none."""
    found = _decided(state, recommended, at)
    return None if found.replicas == state.count else Step(found.replicas, at)


def holder(state: Course, recommended: int) -> str:
    """Returns what keeps the count for good although the metrics ask for `recommended`; "" where nothing does."""
    return _decided(state, recommended, max(_times(state), default=None)).held_by


class _Decided(NamedTuple):
    replicas: int
    held_by: str


def _decided(state: Course, recommended: int, at: datetime | None) -> _Decided:
    """Returns the count of a reconcile just after `at` (None: the next one), and what keeps it from `recommended`."""
    now, past = (at or state.now) + _MOMENT, state.history.recommendations
    count, low, high, rules = state.count, state.low, state.high, state.behavior
    if rules is None:
        steady = stabilize_down(recommended, count, past, state.downscale, now)
        step = limit_without_behavior(steady.replicas, count, low, high)
    else:
        steady = stabilize(recommended, count, past, rules, state.downscale, now)
        step = limit(steady.replicas, count, low, high, rules, state.history, now)
    is_stabilized = steady.replicas == count != recommended
    return _Decided(step.replicas, WINDOW if is_stabilized else _LIMITS.get(step.reason, ""))


def _times(state: Course) -> list[datetime]:
    """Returns the times after which windows or policies may decide differently, in order."""
    return sorted({at for at in _ends(state) if at is not None and state.now < at < _LAST})


def _ends(state: Course) -> Iterator[datetime | None]:
    rules, history = state.behavior, state.history
    up, down = (timedelta(0), state.downscale) if rules is None else (rules.up.window, rules.down.window)
    for entry in history.recommendations:
        yield from (after(entry.timestamp, window) for window in (up, down) if window is not None)
    if rules is not None:
        periods = {policy.period for policy in (*rules.up.policies, *rules.down.policies)}
        for rescale in (*history.scale_ups, *history.scale_downs):
            yield from (after(rescale.timestamp, period) for period in periods)
