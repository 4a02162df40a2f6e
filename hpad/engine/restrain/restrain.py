"""Apply spec.behavior, or the older rules where there is none."""

from datetime import timedelta
from typing import Final

import msgspec

from hpad.engine.examine import View
from hpad.engine.recommend import Recommended
from hpad.engine.restrain.limit import Limited, limit, limit_plainly
from hpad.engine.restrain.stabilize import Stabilized, stabilize, stabilize_down
from hpad.model.history import Recommendation

_READY: Final = ("ReadyForNewScale", "recommended size matches current size")
_HELD_UP: Final = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_HELD_DOWN: Final = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
_IN_SHORT: Final = {
    "TooManyReplicas": "the maximum is {}",
    "TooFewReplicas": "the minimum is {}",
    "ScaleUpLimit": "growth is limited to {} for now",
    "ScaleDownLimit": "shrinking is limited to {} for now",
}


class Restrained(msgspec.Struct, frozen=True, kw_only=True):
    """The count the target gets, and what held it back.

    `wanted` is the recommendation, `stabilized` what the windows made of it, `replicas` what the limits left.
    `able` and `limited` are reason and message of the conditions AbleToScale and ScalingLimited; `recommendations`
    is the history to remember.
    """

    wanted: int
    stabilized: int
    replicas: int
    able: tuple[str, str]
    limited: tuple[str, str]
    recommendations: tuple[Recommendation, ...]
    held_by: Recommendation | None = None
    held_for: timedelta = timedelta(0)

    @property
    def is_limited(self) -> bool:
        """Whether the limits changed anything."""
        return self.replicas != self.stabilized

    @property
    def limit(self) -> str:
        """What the limits said, in short."""
        return _IN_SHORT.get(self.limited[0], self.limited[1]).format(self.replicas)

    def __str__(self) -> str:
        if self.is_limited:
            return f"{self.stabilized} wanted but {self.limit}"
        if self.stabilized != self.wanted and self.held_by is not None:
            ago = f"{self.held_for.total_seconds():.0f} s ago"
            return f"stabilized, {self.wanted} wanted but {self.held_by.replicas} recommended {ago}"
        return f"{self.replicas}: within all limits"


def restrain(view: View, recommended: Recommended) -> Restrained:
    """Stabilize, then limit, what the metrics recommend (negative counts as zero)."""
    wanted, current, intent = max(0, recommended.replicas), view.replicas, view.intent
    history, now, downscale = view.history, view.now, view.tunables.downscale_stabilization
    past = history.recommendations or (Recommendation(now, current),)
    low, high, behavior = intent.min_replicas, intent.max_replicas, intent.behavior
    if behavior is None:
        steady = stabilize_down(wanted, past, downscale, now)
        step = limit_plainly(steady.replicas, current, low, high)
    else:
        steady = stabilize(wanted, current, past, behavior, downscale, now)
        step = limit(steady.replicas, current, low, high, behavior, history, now)
    if steady.replicas == wanted:
        able = _READY
    else:
        able = _HELD_UP if behavior is not None and wanted >= current else _HELD_DOWN
    return _restrained(view, wanted, steady, step, able)


def _restrained(view: View, wanted: int, steady: Stabilized, step: Limited, able: tuple[str, str]) -> Restrained:
    held_by = None if steady.replicas == wanted else steady.held_by
    return Restrained(
        wanted=wanted,
        stabilized=steady.replicas,
        replicas=step.replicas,
        able=able,
        limited=(step.reason, step.message),
        recommendations=steady.past,
        held_by=held_by,
        held_for=timedelta(0) if held_by is None else view.now - held_by.timestamp,
    )
