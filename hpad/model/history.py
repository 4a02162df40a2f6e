"""What is remembered of one HPA from decision to decision."""

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


class History(msgspec.Struct, frozen=True):
    """Recommendations feed the stabilization windows, rescales the rate policies. Empty for a new HPA."""

    recommendations: tuple[Recommendation, ...] = ()
    scale_ups: tuple[Rescale, ...] = ()
    scale_downs: tuple[Rescale, ...] = ()


EMPTY = History()
