"""The history of one HPA: what later decisions need of earlier ones."""

from datetime import timedelta
from typing import TypeVar

import msgspec

from hpad.api.metadata import Moment


class PastRecommendation(msgspec.Struct, frozen=True, gc=False):
    """A replica count that was recommended before stabilization, and when (horizontal.go: timestampedRecommendation).

    `uncertain` marks an entry that may stand for lost ones: it counts as whatever count the target has now.
    """

    timestamp: Moment
    replicas: int
    uncertain: bool = False

    def with_current(self, current: int) -> "PastRecommendation":
        """Returns the entry with its count; with `current` where it is uncertain."""
        return PastRecommendation(self.timestamp, current) if self.uncertain else self


class Rescale(msgspec.Struct, frozen=True, gc=False):
    """A written change of the replica count: how many pods, always positive, and when (timestampedScaleEvent).

    `outdated` marks an entry that was older than the period of every policy when a later change was stored. The next
    change replaces it, even if a policy has become longer since (horizontal.go: storeScaleEvent). `uncertain` marks a
    change that may not have happened: it limits changes in its own direction, and allows none in the other.
    """

    timestamp: Moment
    change: int
    outdated: bool = False
    uncertain: bool = False


Dated = TypeVar("Dated", PastRecommendation, Rescale)


class LastSample(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The last successful proposal of one metric and its time, and since when the metric fails (None: it does not).

    `metric` is the label of the compiled metric.
    """

    metric: str
    failing_since: Moment | None = None
    good_at: Moment | None = None
    replicas: int = 0

    def shifted(self, by: timedelta) -> "LastSample":
        """Returns the entry with its times moved by `by`."""
        return msgspec.structs.replace(
            self,
            failing_since=None if self.failing_since is None else self.failing_since + by,
            good_at=None if self.good_at is None else self.good_at + by,
        )


NO_SAMPLE = LastSample("")


def shifted(past: tuple[Dated, ...], by: timedelta) -> tuple[Dated, ...]:
    """Returns the entries with their times moved by `by`."""
    return tuple(msgspec.structs.replace(entry, timestamp=entry.timestamp + by) for entry in past)


class History(msgspec.Struct, frozen=True):
    """Recommendations feed the stabilization windows, rescales the scaling policies. Empty for a new HPA.

    `last_samples` is kept only for HPAs with fallback policies (see `hpad.engine.fallback_policy`).
    """

    recommendations: tuple[PastRecommendation, ...] = ()
    scale_ups: tuple[Rescale, ...] = ()
    scale_downs: tuple[Rescale, ...] = ()
    last_samples: tuple[LastSample, ...] = ()

    def last_sample(self, metric: str) -> LastSample:
        """Returns the entry of the metric with that label, NO_SAMPLE if there is none."""
        return next((known for known in self.last_samples if known.metric == metric), NO_SAMPLE)

    def shifted(self, by: timedelta) -> "History":
        """Returns the history with all times moved by `by`."""
        return History(
            shifted(self.recommendations, by),
            shifted(self.scale_ups, by),
            shifted(self.scale_downs, by),
            tuple(sample.shifted(by) for sample in self.last_samples),
        )


EMPTY = History()
