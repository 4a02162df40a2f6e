"""How fast and how soon: windows, policies, minimum and maximum.

Apply spec.behavior, or the older rules where there is none.

Stabilization windows: a recommendation holds only once the recent ones agree.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from hpad.engine.behavior import TOO_FEW, Behavior, Limited, limit, limit_plainly
from hpad.engine.examine import ZERO_DISABLED
from hpad.engine.history import PastRecommendation
from hpad.engine.recommend import Recommendation
from hpad.engine.view import View

Past = tuple[PastRecommendation, ...]


class DecidingRecommendation(msgspec.Struct, frozen=True, gc=False):
    """The recommendation that holds the count, and for how long: it counts while it is within `window`."""

    by: PastRecommendation
    window: timedelta


class Stabilized(msgspec.Struct, frozen=True, gc=False):
    """The count after the windows, the recommendations to remember, and what holds the count back, if anything does."""

    replicas: int
    past: Past
    held: DecidingRecommendation | None = None


def stabilize(
    wanted: int, current: int, past: Past, behavior: Behavior, downscale: timedelta, now: datetime
) -> Stabilized:
    """Keep the current count within the lowest recent wish to grow and the highest recent wish to shrink."""
    upward = behavior.up.window or timedelta(0)
    downward = downscale if behavior.down.window is None else behavior.down.window
    rise, fall = now - upward, now - downward
    low = high = wanted
    stale = -1
    known = [held.standing_for(current) for held in past]
    for index, held in enumerate(known):
        when, replicas = held.timestamp, held.replicas
        if when > rise and replicas < low:
            low = replicas
        if when > fall and replicas > high:
            high = replicas
        if when < rise and when < fall:
            stale = index
    replicas = min(max(current, low), high)
    kept = _remember(past, stale, PastRecommendation(now, wanted))
    if replicas == wanted:
        return Stabilized(replicas, kept)
    return Stabilized(replicas, kept, _holding(known, replicas, wanted, upward if wanted > current else downward))


def stabilize_down(wanted: int, current: int, past: Past, downscale: timedelta, now: datetime) -> Stabilized:
    """Without spec.behavior: take the highest recommendation of the daemon's downscale window."""
    cutoff = now - downscale
    high, stale = wanted, -1
    known = [held.standing_for(current) for held in past]
    for index, held in enumerate(known):
        if held.timestamp < cutoff:
            stale = index
        elif held.replicas > high:
            high = held.replicas
    kept = _remember(past, stale, PastRecommendation(now, wanted))
    return Stabilized(high, kept, None if high == wanted else _holding(known, high, wanted, downscale))


def _holding(
    past: Sequence[PastRecommendation], replicas: int, wanted: int, window: timedelta
) -> DecidingRecommendation:
    """The latest of the recommendations that keep the count from `wanted`: once it is out of the window, they all are.

    Those are the ones as far from `wanted` as the count is, or farther.
    """
    grows = wanted > replicas
    far = (held for held in past if (held.replicas <= replicas if grows else held.replicas >= replicas))
    return DecidingRecommendation(max(far, key=lambda held: held.timestamp), window)


def _remember(past: Past, stale: int, latest: PastRecommendation) -> Past:
    """The latest takes the place of the last stale one, or goes to the end."""
    if stale < 0:
        return (*past, latest)
    return (*past[:stale], latest, *past[stale + 1 :])


_READY: Final = ("ReadyForNewScale", "recommended size matches current size")
_HELD_UP: Final = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_HELD_DOWN: Final = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
_ZERO_IS_OFF: Final = (
    "the desired replica count is less than 1, the minimum while the feature gate HPAScaleToZero is off"
    " (minReplicas is 0)"
)
_WITHOUT_ZERO: Final = "while the feature gate HPAScaleToZero is off"
_A_DAY: Final = timedelta(days=1)


class Restrained(msgspec.Struct, frozen=True, kw_only=True):
    """The count the target gets, and what held it back.

    `wanted` is the recommendation, `stabilized` what the windows made of it, `replicas` what the limits left.
    `able` and `limited` are reason and message of the conditions AbleToScale and ScalingLimited, `limit` says for
    people which limit changed the count ("": none did). `recommendations` is the history to remember. `held` is there
    where the windows changed the count: the recommendation that holds it, given `held_for` ago; `first`: there was none
    yet, so that the present count counts as one.
    """

    wanted: int
    stabilized: int
    replicas: int
    able: tuple[str, str]
    limited: tuple[str, str]
    recommendations: tuple[PastRecommendation, ...]
    limit: str = ""
    held: DecidingRecommendation | None = None
    held_for: timedelta = timedelta(0)
    first: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether the limits changed anything."""
        return self.replicas != self.stabilized

    @property
    def stabilization(self) -> str:
        """What the windows made of the count, why and for how long; "" where they changed nothing."""
        if self.held is None:
            return ""
        left = max(0, math.ceil((self.held.window - self.held_for).total_seconds()))
        since = "the present count counts as recommended at first"
        if not self.first:
            since = f"{self.held.by.replicas} was recommended {int(self.held_for.total_seconds())} s ago"
        return f"stabilized at {self.stabilized} for {left} s more{_until(self.held)}, since {since}"

    def __str__(self) -> str:
        return "; ".join(part for part in (self.stabilization, self.limit) if part) or (
            f"{self.replicas}: within all limits"
        )


def _until(held: DecidingRecommendation) -> str:
    """When the window lets go, in UTC; "" where there is no such date."""
    try:
        end = held.by.timestamp + held.window
    except OverflowError:
        return ""
    return f" (until {end:%H:%M:%S}Z)" if held.window < _A_DAY else f" (until {end:%Y-%m-%dT%H:%M:%S}Z)"


def restrain(view: View, recommendation: Recommendation) -> Restrained:
    """Stabilize, then limit, what the metrics recommend (negative counts as zero)."""
    wanted, current, spec = max(0, recommendation.replicas), view.replicas, view.spec
    history, now, downscale = view.history, view.now, view.tunables.downscale_stabilization
    past = history.recommendations or (PastRecommendation(now, current),)
    low, high, behavior = view.min_replicas, spec.max_replicas, spec.behavior
    if behavior is None:
        steady = stabilize_down(wanted, current, past, downscale, now)
        step = limit_plainly(steady.replicas, current, low, high)
    else:
        steady = stabilize(wanted, current, past, behavior, downscale, now)
        step = limit(steady.replicas, current, low, high, behavior, history, now)
    if view.scale_to_zero_disabled and step.reason == TOO_FEW:
        step = Limited(step.replicas, ZERO_DISABLED, _ZERO_IS_OFF, f"{step.said} {_WITHOUT_ZERO}")
    if steady.replicas == wanted:
        able = _READY
    else:
        able = _HELD_UP if behavior is not None and wanted >= current else _HELD_DOWN
    return _restrained(view, wanted, steady, step, able)


def _restrained(view: View, wanted: int, steady: Stabilized, step: Limited, able: tuple[str, str]) -> Restrained:
    held = steady.held
    return Restrained(
        wanted=wanted,
        stabilized=steady.replicas,
        replicas=step.replicas,
        able=able,
        limited=(step.reason, step.message),
        recommendations=steady.past,
        limit=step.said,
        held=held,
        held_for=timedelta(0) if held is None else view.now - held.by.timestamp,
        first=not view.history.recommendations,
    )


__all__ = ["Restrained", "restrain"]
