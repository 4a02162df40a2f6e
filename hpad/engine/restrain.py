"""Fifth stage: applies spec.behavior to the recommendation: stabilization windows, then policies, minimum and maximum.

Without spec.behavior the older rules of Kubernetes apply. Sources: KEP-853 and Kubernetes 1.36, horizontal.go:
normalizeDesiredReplicasWithBehaviors and normalizeDesiredReplicas.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from hpad.engine.behavior import TOO_FEW, TOO_MANY, Behavior, Limited, limit, limit_without_behavior
from hpad.engine.examine import ZERO_DISABLED
from hpad.engine.history import PastRecommendation
from hpad.engine.recommend import Recommendation
from hpad.engine.view import View

Past = tuple[PastRecommendation, ...]


class DecidingRecommendation(msgspec.Struct, frozen=True, gc=False):
    """The past recommendation that decides the stabilized count. It counts while it is younger than `window`."""

    recommendation: PastRecommendation
    window: timedelta


class Stabilized(msgspec.Struct, frozen=True, gc=False):
    """The count after the windows, the recommendations to store, and the past recommendation that changed the count."""

    replicas: int
    past: Past
    deciding: DecidingRecommendation | None = None


def stabilize(
    recommended: int, current: int, past: Past, behavior: Behavior, downscale: timedelta, now: datetime
) -> Stabilized:
    """Keeps the count between the lowest recommendation of the up window and the highest of the down window.

    Source: Kubernetes 1.36, horizontal.go: stabilizeRecommendationWithBehaviors.
    """
    upward = behavior.up.window or timedelta(0)
    downward = downscale if behavior.down.window is None else behavior.down.window
    rise, fall = now - upward, now - downward
    low = high = recommended
    stale = -1  # the last entry older than both windows, which the new one replaces
    for index, entry in enumerate(past):
        when, replicas = entry.timestamp, current if entry.uncertain else entry.replicas
        if when > rise and replicas < low:
            low = replicas
        if when > fall and replicas > high:
            high = replicas
        # An entry exactly as old as a window neither counts nor is stale, as in Kubernetes.
        if when < rise and when < fall:
            stale = index
    replicas = min(max(current, low), high)
    kept = _stored(past, stale, PastRecommendation(now, recommended))
    if replicas == recommended:
        return Stabilized(replicas, kept)
    known = [entry.with_current(current) for entry in past]
    return Stabilized(
        replicas, kept, _deciding(known, replicas, recommended, upward if recommended > current else downward)
    )


def stabilize_down(recommended: int, current: int, past: Past, downscale: timedelta, now: datetime) -> Stabilized:
    """Without spec.behavior: takes the highest recommendation within `downscale`.

    Source: Kubernetes 1.36, horizontal.go: stabilizeRecommendation.
    """
    cutoff = now - downscale
    high, stale = recommended, -1
    for index, entry in enumerate(past):
        if entry.timestamp < cutoff:
            stale = index
            continue
        replicas = current if entry.uncertain else entry.replicas
        if replicas > high:
            high = replicas
    kept = _stored(past, stale, PastRecommendation(now, recommended))
    if high == recommended:
        return Stabilized(high, kept)
    known = [entry.with_current(current) for entry in past]
    return Stabilized(high, kept, _deciding(known, high, recommended, downscale))


def _deciding(
    past: Sequence[PastRecommendation], replicas: int, recommended: int, window: timedelta
) -> DecidingRecommendation:
    """Returns the latest recommendation that keeps the count from `recommended`.

    Such recommendations are as far from `recommended` as the count, or farther. Once the latest of them leaves the
    window, so have the others.
    """
    grows = recommended > replicas
    far = (entry for entry in past if (entry.replicas <= replicas if grows else entry.replicas >= replicas))
    return DecidingRecommendation(max(far, key=lambda entry: entry.timestamp), window)


def _stored(past: Past, stale: int, latest: PastRecommendation) -> Past:
    """Replaces the last outdated entry by the latest one, or appends it."""
    if stale < 0:
        return (*past, latest)
    return (*past[:stale], latest, *past[stale + 1 :])


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
_WITHOUT_ZERO: Final = "while the feature gate HPAScaleToZero is off"
_A_DAY: Final = timedelta(days=1)


class Restrained(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The count the target gets, and what limited it.

    `recommended` is the count before the windows, `stabilized` the count after them, `replicas` the count after the
    limits. `able` and `limited` are reason and message of the conditions AbleToScale and ScalingLimited. `limit` says
    which limit changed the count ("": none). `recommendations` is the history to store. `deciding` is set where the
    windows changed the count: the recommendation that decided, and its age. `first`: the history was empty, so the
    current count counted as the only recommendation.
    """

    recommended: int
    stabilized: int
    replicas: int
    able: tuple[str, str]
    limited: tuple[str, str]
    recommendations: tuple[PastRecommendation, ...]
    limit: str = ""
    deciding: DecidingRecommendation | None = None
    deciding_age: timedelta = timedelta(0)
    first: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether the limits changed anything."""
        return self.replicas != self.stabilized

    @property
    def stabilization(self) -> str:
        """The effect of the windows on the count, its reason and its remaining time; "" where they changed nothing."""
        if self.deciding is None:
            return ""
        left = max(0, math.ceil((self.deciding.window - self.deciding_age).total_seconds()))
        since = "no earlier recommendation is known and the present count counts as one"
        if not self.first:
            age = int(self.deciding_age.total_seconds())
            since = f"{self.deciding.recommendation.replicas} was recommended {age} s ago"
        return f"stabilized at {self.stabilized} for {left} s more{_until(self.deciding)}, since {since}"


def _until(deciding: DecidingRecommendation) -> str:
    """Returns the end of the window in UTC; "" where datetime has no such date."""
    try:
        end = deciding.recommendation.timestamp + deciding.window
    except OverflowError:
        return ""
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
    (low, high), behavior = view.limits, spec.behavior
    if behavior is None:
        steady = stabilize_down(recommended, current, past, downscale, now)
        step = limit_without_behavior(steady.replicas, current, low, high)
    else:
        steady = stabilize(recommended, current, past, behavior, downscale, now)
        step = limit(steady.replicas, current, low, high, behavior, history, now)
    if view.controls.schedule is not None and _is_scheduled(view, step.reason):
        step = msgspec.structs.replace(step, explanation=f"{step.explanation} by its schedule")
    if view.scale_to_zero_disabled and step.reason == TOO_FEW and step.replicas == 1:
        step = Limited(step.replicas, ZERO_DISABLED, _SCALE_TO_ZERO_DISABLED, f"{step.explanation} {_WITHOUT_ZERO}")
    if steady.replicas == recommended:
        able = _READY
    elif behavior is not None and recommended >= current:
        able = _STABILIZED_UP
    else:
        able = _STABILIZED_DOWN
    return _restrained(view, recommended, steady, step, able)


def _restrained(view: View, recommended: int, steady: Stabilized, step: Limited, able: tuple[str, str]) -> Restrained:
    deciding = steady.deciding
    return Restrained(
        recommended=recommended,
        stabilized=steady.replicas,
        replicas=step.replicas,
        able=able,
        limited=(step.reason, step.message),
        recommendations=steady.past,
        limit=step.explanation,
        deciding=deciding,
        deciding_age=timedelta(0) if deciding is None else view.now - deciding.recommendation.timestamp,
        first=not view.history.recommendations,
    )
