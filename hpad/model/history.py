"""What is remembered of one HPA from decision to decision."""

from datetime import timedelta

import msgspec

from hpad.model.moment import Moment


class Recommendation(msgspec.Struct, frozen=True, gc=False):
    """A replica count that was wanted before stabilization, and when."""

    timestamp: Moment
    replicas: int


class Rescale(msgspec.Struct, frozen=True, gc=False):
    """A change of the replica count that was written: how many pods, always positive, and when.

    `outdated` marks one that was older than every policy's period when a later change was remembered: its place is
    taken by the next change, even if a policy has become longer since.
    """

    timestamp: Moment
    change: int
    outdated: bool = False


class Heard(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one metric last said: when and how many replicas it wanted, and since when it fails (None: it does not).

    `metric` is the label of its goal.
    """

    metric: str
    failing_since: Moment | None = None
    good_at: Moment | None = None
    replicas: int = 0


NEVER_HEARD = Heard("")


class History(msgspec.Struct, frozen=True):
    """Recommendations feed the stabilization windows, rescales the rate policies. Empty for a new HPA.

    `heard` is kept for HPAs with terms of their own about metrics that fail (see `hpad.model.terms`).
    """

    recommendations: tuple[Recommendation, ...] = ()
    scale_ups: tuple[Rescale, ...] = ()
    scale_downs: tuple[Rescale, ...] = ()
    heard: tuple[Heard, ...] = ()

    def of(self, metric: str) -> Heard:
        """What was heard of the metric of that label, NEVER_HEARD if nothing was."""
        return next((known for known in self.heard if known.metric == metric), NEVER_HEARD)

    def shifted(self, by: timedelta) -> "History":
        """The same history, so much later."""
        moved = msgspec.structs.replace
        return History(
            tuple(moved(held, timestamp=held.timestamp + by) for held in self.recommendations),
            tuple(moved(held, timestamp=held.timestamp + by) for held in self.scale_ups),
            tuple(moved(held, timestamp=held.timestamp + by) for held in self.scale_downs),
            tuple(
                moved(
                    held,
                    failing_since=None if held.failing_since is None else held.failing_since + by,
                    good_at=None if held.good_at is None else held.good_at + by,
                )
                for held in self.heard
            ),
        )


EMPTY = History()
