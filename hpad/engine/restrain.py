"""Stage restrain: applies spec.behavior to the recommendation: windows, then policies, minimum and maximum.

Without spec.behavior the older rules of Kubernetes apply. Sources: KEP-853 and Kubernetes 1.36, horizontal.go:
normalizeDesiredReplicasWithBehaviors and normalizeDesiredReplicas.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from hpad.clock import MICROSECOND, micros
from hpad.engine import zero
from hpad.engine.behavior import TOO_FEW, TOO_MANY, CompiledBehavior, Limited, limit, limit_without_behavior
from hpad.engine.examine import ZERO_DISABLED
from hpad.engine.history import Idleness, PackedRecommendations, PastRecommendation, packed
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
    past = history.recommendations or (PastRecommendation(now, current),)
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
        first=not history.recommendations,
        idleness=last.idleness,
    )
