"""What is remembered of one HPA from decision to decision."""

from datetime import timedelta
from typing import TypeVar

import msgspec

from hpad.api.metadata import Moment


class PastRecommendation(msgspec.Struct, frozen=True, gc=False):
    """A replica count that was wanted before stabilization, and when.

    `uncertain` marks one that may hide others, which were lost: it stands for whatever count the target has.
    """

    timestamp: Moment
    replicas: int
    uncertain: bool = False

    def standing_for(self, current: int) -> "PastRecommendation":
        """What it says of a target with so many replicas."""
        return PastRecommendation(self.timestamp, current) if self.uncertain else self


class Rescale(msgspec.Struct, frozen=True, gc=False):
    """A change of the replica count that was written: how many pods, always positive, and when.

    `outdated` marks one that was older than every policy's period when a later change was remembered: its place is
    taken by the next change, even if a policy has become longer since. `uncertain` marks one that nothing proves: it
    holds further changes in its own direction back, but allows none in the other.
    """

    timestamp: Moment
    change: int
    outdated: bool = False
    uncertain: bool = False


Dated = TypeVar("Dated", PastRecommendation, Rescale)


class LastSample(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one metric last said: when and how many replicas it wanted, and since when it fails (None: it does not).

    `metric` is the label of its goal.
    """

    metric: str
    failing_since: Moment | None = None
    good_at: Moment | None = None
    replicas: int = 0


NO_SAMPLE = LastSample("")


def shifted(past: tuple[Dated, ...], by: timedelta) -> tuple[Dated, ...]:
    """The same recommendations or rescales, so much later."""
    return tuple(msgspec.structs.replace(held, timestamp=held.timestamp + by) for held in past)


class History(msgspec.Struct, frozen=True):
    """Recommendations feed the stabilization windows, rescales the rate policies. Empty for a new HPA.

    `last_samples` is kept for HPAs with terms of their own about metrics that fail (see `hpad.engine.fallback_policy`).
    """

    recommendations: tuple[PastRecommendation, ...] = ()
    scale_ups: tuple[Rescale, ...] = ()
    scale_downs: tuple[Rescale, ...] = ()
    last_samples: tuple[LastSample, ...] = ()

    def of(self, metric: str) -> LastSample:
        """What was heard of the metric of that label, NEVER_HEARD if nothing was."""
        return next((known for known in self.last_samples if known.metric == metric), NO_SAMPLE)

    def shifted(self, by: timedelta) -> "History":
        """The same history, so much later."""
        return History(
            shifted(self.recommendations, by),
            shifted(self.scale_ups, by),
            shifted(self.scale_downs, by),
            tuple(
                msgspec.structs.replace(
                    held,
                    failing_since=None if held.failing_since is None else held.failing_since + by,
                    good_at=None if held.good_at is None else held.good_at + by,
                )
                for held in self.last_samples
            ),
        )


EMPTY = History()
