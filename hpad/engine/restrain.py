"""Stage restrain: applies spec.behavior to the recommendation: windows, then policies, minimum and maximum.

Without spec.behavior the older rules of Kubernetes apply. Sources: KEP-853 and Kubernetes 1.36, horizontal.go:
normalizeDesiredReplicasWithBehaviors and normalizeDesiredReplicas.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.behavior import DISABLED, MIN_CHANGE, PERCENT, PODS, CompiledBehavior, CompiledPolicy, DirectionRules
from hpad.api.quantity import MAX_INT32, MIN_INT32, ceil_int32, float_to_int32, int32
from hpad.clock import MICROSECOND, micros
from hpad.engine import zero
from hpad.engine.examine import ZERO_DISABLED
from hpad.engine.history import History, Idleness, PackedRecommendations, PastRecommendation, Rescale, packed
from hpad.engine.recommend import Recommendation
from hpad.engine.view import View


class DecidingRecommendation(msgspec.Struct, frozen=True, gc=False):
    """The past recommendation that decides the stabilized count. It counts while its `age` is less than `window`."""

    recommendation: PastRecommendation
    window: timedelta
    age: timedelta


class Stabilized(msgspec.Struct, frozen=True, gc=False):
    """The count after the windows, the recommendations to store, and the past recommendation that changed the count."""

    replicas: int
    past: PackedRecommendations
    deciding: DecidingRecommendation | None = None


def stabilize(
    recommended: int,
    current: int,
    past: Sequence[PastRecommendation],
    behavior: CompiledBehavior,
    downscale: timedelta,
    now: datetime,
) -> Stabilized:
    """Keeps the count between the lowest recommendation of the up window and the highest of the down window.

    Source: Kubernetes 1.36, horizontal.go: stabilizeRecommendationWithBehaviors.
    """
    upward = behavior.up.window or timedelta(0)
    downward = downscale if behavior.down.window is None else behavior.down.window
    at, known = micros(now), packed(past)
    rise, fall = at - upward // MICROSECOND, at - downward // MICROSECOND
    low = high = recommended
    stale = -1  # the last entry older than both windows, which the new one replaces
    # An entry exactly as old as a window neither counts nor is stale, as in Kubernetes.
    outdated = min(rise, fall)
    for index, (when, count) in enumerate(known.rows):
        if when < outdated:
            stale = index
        replicas = count if count >= 0 else current
        if when > rise and replicas < low:
            low = replicas
        if when > fall and replicas > high:
            high = replicas
    replicas = min(max(current, low), high)
    kept = known.stored(stale, at, recommended)
    if replicas == recommended:
        return Stabilized(replicas, kept)
    window = upward if recommended > current else downward
    return Stabilized(replicas, kept, _deciding(known, current, replicas, recommended, window, now))


def stabilize_down(
    recommended: int, current: int, past: Sequence[PastRecommendation], downscale: timedelta, now: datetime
) -> Stabilized:
    """Without spec.behavior: takes the highest recommendation within `downscale`.

    Source: Kubernetes 1.36, horizontal.go: stabilizeRecommendation.
    """
    at, known = micros(now), packed(past)
    cutoff = at - downscale // MICROSECOND
    high, stale = recommended, -1
    for index, (when, count) in enumerate(known.rows):
        replicas = count if count >= 0 else current
        if when < cutoff:
            stale = index
        elif replicas > high:
            high = replicas
    kept = known.stored(stale, at, recommended)
    if high == recommended:
        return Stabilized(high, kept)
    return Stabilized(high, kept, _deciding(known, current, high, recommended, downscale, now))


def _deciding(
    past: PackedRecommendations, current: int, replicas: int, recommended: int, window: timedelta, now: datetime
) -> DecidingRecommendation:
    """Returns the latest recommendation that keeps the count from `recommended`; `current` stands for uncertain ones.

    Such recommendations are as far from `recommended` as the count, or farther. Once the latest of them leaves the
    window, so have the others.
    """
    grows = recommended > replicas
    known = [entry.with_current(current) for entry in past]
    far = (entry for entry in known if (entry.replicas <= replicas if grows else entry.replicas >= replicas))
    latest = max(far, key=lambda entry: entry.timestamp)
    return DecidingRecommendation(latest, window, now - latest.timestamp)


class Limited(msgspec.Struct, frozen=True, gc=False):
    """The count after the limits. `reason` and `message` belong to the condition ScalingLimited.

    `explanation` names the limit that changed the count; "" where none did.
    """

    replicas: int
    reason: str
    message: str
    explanation: str = ""


SCALE_UP_LIMIT: Final = "ScaleUpLimit"
SCALE_DOWN_LIMIT: Final = "ScaleDownLimit"
TOO_MANY: Final = "TooManyReplicas"
TOO_FEW: Final = "TooFewReplicas"
_WITHIN: Final = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_FAST_UP: Final = (SCALE_UP_LIMIT, "the desired replica count is increasing faster than the maximum scale rate")
_TOO_FAST_DOWN: Final = (SCALE_DOWN_LIMIT, "the desired replica count is decreasing faster than the maximum scale rate")
_TOO_MANY: Final = (TOO_MANY, "the desired replica count is more than the maximum replica count")
_TOO_FEW: Final = (TOO_FEW, "the desired replica count is less than the minimum replica count")


def limit(
    desired: int,
    current: int,
    low: int,
    high: int,
    behavior: CompiledBehavior,
    history: History,
    now: datetime,
    *,
    huge: bool,
) -> Limited:
    """Limits a step by the policies of spec.behavior and by `low` and `high`. `huge`: see `reaches`.

    Source: Kubernetes 1.36, horizontal.go: convertDesiredReplicasWithBehaviorRate.
    """
    if desired > current:
        reachable = allowed(behavior.up, current, history, now, up=True, huge=huge)
        if desired > high <= reachable:
            return _at_most(high)
        if desired > reachable:
            text = f"growth is limited to {reachable}{_by(behavior.up, 'scaleUp')}"
            return Limited(reachable, *_TOO_FAST_UP, text)
    elif desired < current:
        reachable = allowed(behavior.down, current, history, now, up=False, huge=huge)
        if desired < low >= reachable:
            return _at_least(low)
        if desired < reachable:
            text = f"shrinking is limited to {reachable}{_by(behavior.down, 'scaleDown')}"
            return Limited(reachable, *_TOO_FAST_DOWN, text)
    return Limited(desired, *_WITHIN)


def limit_without_behavior(desired: int, current: int, low: int, high: int) -> Limited:
    """Limits a step without spec.behavior: to twice the current count or 4, and to `low` and `high`.

    Source: Kubernetes 1.36, horizontal.go: convertDesiredReplicasWithRules and calculateScaleUpLimit.
    """
    reachable = float_to_int32(max(2.0 * current, 4.0))
    # Shrinking is not limited. The minimum is applied first, so it may exceed twice the current count.
    if desired < low:
        return _at_least(low)
    if desired > high <= reachable:
        return _at_most(high)
    if desired > reachable:
        text = f"growth is limited to {reachable} for now (the larger of twice the count and 4)"
        return Limited(reachable, *_TOO_FAST_UP, text)
    return Limited(desired, *_WITHIN)


def _at_most(high: int) -> Limited:
    return Limited(high, *_TOO_MANY, f"the maximum is {high}")


def _at_least(low: int) -> Limited:
    return Limited(low, *_TOO_FEW, f"the minimum is {low}")


def _by(rules: DirectionRules, direction: str) -> str:
    """Names the rules of one direction as the cause of a limit."""
    if rules.select == DISABLED:
        return f", since {direction} is disabled"
    return f" for now ({direction} policies: {rules.limits or 'none'})"


class Reach(NamedTuple):
    """The count `allows` that one policy permits now, from `start`, the count before the rescales of its period."""

    policy: CompiledPolicy
    start: int
    allows: int


def reaches(
    rules: DirectionRules, current: int, history: History, now: datetime, *, up: bool, huge: bool
) -> list[Reach]:
    """Returns what each policy of one direction allows now; a policy of an unknown type allows as the one before it.

    `huge`: a count beyond an int32 is the largest int32 (HPAHugeProposals), else it wraps around, and nothing may grow.

    Source: Kubernetes 1.36, horizontal.go: calculateScaleUpLimitWithScalingRules, calculateScaleDownLimitWithBehaviors.
    """
    found = []
    # `count` starts outside the loop, as in Kubernetes.
    count, sign = 0, 1 if up else -1
    # An uncertain rescale must not allow a further change in the other direction.
    ups = history.scale_ups if up else _certain(history.scale_ups)
    downs = _certain(history.scale_downs) if up else history.scale_downs
    for policy in rules.policies:
        cutoff = now - policy.period
        start = int32(current - _changed(ups, cutoff) + _changed(downs, cutoff))
        if policy.type == PODS:
            count = start + sign * policy.value
            count = min(MAX_INT32, count) if huge else int32(count)
        elif policy.type == PERCENT:
            exact = float(start) * (1 + sign * float(policy.value) / 100)
            # Rounded down, 1 replica would never grow.
            count = (MAX_INT32 if huge and exact > MAX_INT32 else ceil_int32(exact)) if up else float_to_int32(exact)
        found.append(Reach(policy, start, count))
    return found


def allowed(rules: DirectionRules, current: int, history: History, now: datetime, *, up: bool, huge: bool) -> int:
    """Returns the count that the policies of one direction allow now. `huge`: see `reaches`.

    selectPolicy Max takes the policy that allows the largest change, Min the one that allows the smallest.
    """
    if rules.select == DISABLED:
        return current
    counts = [reach.allows for reach in reaches(rules, current, history, now, up=up, huge=huge)]
    count = max(counts, default=MIN_INT32) if (rules.select != MIN_CHANGE) == up else min(counts, default=MAX_INT32)
    # Rescales inside the period may use up more than the policies allow now; that must not turn the direction.
    return max(current, count) if up else min(current, count)


def _certain(rescales: tuple[Rescale, ...]) -> tuple[Rescale, ...]:
    return tuple(rescale for rescale in rescales if not rescale.uncertain)


def _changed(rescales: tuple[Rescale, ...], cutoff: datetime) -> int:
    """Returns the pods added or removed since `cutoff` (horizontal.go: getReplicasChangePerPeriod)."""
    return sum(rescale.change for rescale in rescales if rescale.timestamp > cutoff)


_READY: Final = ("ReadyForNewScale", "recommended size matches current size")
_STABILIZED_UP: Final = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_STABILIZED_DOWN: Final = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
_SCALE_TO_ZERO_DISABLED: Final = (
    "the desired replica count is less than 1, the minimum while the feature gate HPAScaleToZero is off"
    " (minReplicas is 0)"
)
ZERO_DELAYED: Final = "ZeroDelayed"
"""The reason for a last replica that has to stay for a while."""
_WITHOUT_ZERO: Final = "while the feature gate HPAScaleToZero is off"
_A_DAY: Final = timedelta(days=1)


class Restrained(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The count the target gets, and what limited it.

    `recommended` is the count before the windows, `stabilized` the count after them, `replicas` the count after the
    limits. `able` and `limited` are reason and message of the conditions AbleToScale and ScalingLimited. `limit` says
    which limit changed the count ("": none). `recommendations` is the history to store. `deciding` is set where the
    windows changed the count. `first`: the history was empty, so the current count counted as the only recommendation.
    `idleness` is to be stored as well.
    """

    recommended: int
    stabilized: int
    replicas: int
    able: tuple[str, str]
    limited: tuple[str, str]
    recommendations: PackedRecommendations
    limit: str = ""
    deciding: DecidingRecommendation | None = None
    first: bool = False
    idleness: Idleness | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_limited(self) -> bool:
        """Whether the limits changed anything."""
        return self.replicas != self.stabilized

    @property
    def limits_hold(self) -> bool:
        """Whether the limits keep the count from what the metrics ask for.

        They do not where they only cut what the windows hold: 40 were wanted, 1 is now, and the maximum is 20.
        """
        between = sorted((self.stabilized, self.recommended))
        return not between[0] <= self.replicas <= between[1]

    @property
    def stabilization(self) -> str:
        """The effect of the windows on the count, its reason and its remaining time; "" where they changed nothing."""
        if self.deciding is None:
            return ""
        left = max(0, math.ceil((self.deciding.window - self.deciding.age).total_seconds()))
        since = "no earlier recommendation is known and the present count counts as one"
        if not self.first:
            age = int(self.deciding.age.total_seconds())
            since = f"{self.deciding.recommendation.replicas} was recommended {age} s ago"
        return f"stabilized at {self.stabilized} for {left} s more{_until(self.deciding)}, since {since}"


def _until(deciding: DecidingRecommendation) -> str:
    """Returns the end of the window in UTC."""
    end = deciding.recommendation.timestamp + deciding.window
    return f" (until {end:%H:%M:%S}Z)" if deciding.window < _A_DAY else f" (until {end:%Y-%m-%dT%H:%M:%S}Z)"


def _is_scheduled(view: View, reason: str) -> bool:
    """Whether the bound that limits the count is one of the schedule, and not of the spec."""
    if reason == TOO_MANY:
        return view.bounds.high != view.spec.max_replicas
    return reason == TOO_FEW and view.bounds.low != view.spec.min_replicas


def restrain(view: View, recommendation: Recommendation) -> Restrained:
    """Stabilizes, then limits, the recommendation. A negative count counts as 0."""
    recommended, current, spec = max(0, recommendation.replicas), view.replicas, view.spec
    history, now, downscale = view.history, view.now, view.tunables.downscale_stabilization
    # Source: Kubernetes 1.36, horizontal.go: recordInitialRecommendation. A new HPA cannot scale down at once.
    first = not history.recommendations
    past = (PastRecommendation(now, current),) if first else history.recommendations
    failed = recommendation.failed is not None
    last = zero.judged(view, recommended, failed=failed) if view.keeps_last else zero.FREE
    if last.due:  # also later: without spec.behavior, the window that does not hold the count would wake the target
        past = ()
    (low, high), behavior = view.limits, spec.behavior
    if last.why:
        low = 1
    if behavior is None:
        steady = stabilize_down(recommended, current, past, downscale, now)
        step = limit_without_behavior(steady.replicas, current, low, high)
    else:
        steady = stabilize(recommended, current, past, behavior, downscale, now)
        huge = view.tunables.gates.HPAHugeProposals
        step = limit(steady.replicas, current, low, high, behavior, history, now, huge=huge)
    if current and not low <= step.replicas <= high:  # only a paused HPA gets here with a count outside
        step = _at_most(high) if step.replicas > high else _at_least(low)
    if view.controls.schedule is not None and _is_scheduled(view, step.reason):
        step = msgspec.structs.replace(step, explanation=f"{step.explanation} by its schedule")
    if view.scale_to_zero_disabled and step.reason == TOO_FEW and step.replicas == 1:
        step = Limited(step.replicas, ZERO_DISABLED, _SCALE_TO_ZERO_DISABLED, f"{step.explanation} {_WITHOUT_ZERO}")
    if last.why and step.reason == TOO_FEW:
        step = Limited(step.replicas, ZERO_DELAYED, last.message, last.why)
    if steady.replicas == recommended:
        able = _READY
    elif behavior is not None and recommended >= current:
        able = _STABILIZED_UP
    else:
        able = _STABILIZED_DOWN
    return Restrained(
        recommended=recommended,
        stabilized=steady.replicas,
        replicas=step.replicas,
        able=able,
        limited=(step.reason, step.message),
        recommendations=steady.past,
        limit=step.explanation,
        deciding=steady.deciding,
        first=first,
        idleness=last.idleness,
    )
