"""Turns and their plan: the moment that a turn counts as, for how long what it leaves is the whole story, and what one
out of the plan does first.

A turn counts as of its planned moment (`rhythm` says why) while that is at most `IN_TIME` of a period ago when its
metrics have been read. A slower one, and one out of the plan, counts as of the moment at which they have been read, so
that a slow metric source makes no window end early. Kubernetes, too, dates a recommendation after it has read the
metrics (horizontal.go: stabilizeRecommendation). A rescale has the moment of its decision; Kubernetes dates it when it
has been written (storeScaleEvent), which is later by as long as the write takes.

`store.validity` says why a turn out of the plan is noted first.
"""

from datetime import timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.metadata import Key
from hpad.clock import Clock, Moment, boot
from hpad.control.slots import Slot
from hpad.store import validity
from hpad.store.memory import Store, judged
from hpad.store.validity import Validity

IN_TIME: Final = 0.2
"""The part of the period by which a turn may be late, with its metrics read, and still count as the planned one."""


class Plan(NamedTuple):
    """When the HPA's next turn is planned, by the monotonic clock, and how many seconds lie between two."""

    next: float
    period: float


class TooEarly(Exception):
    """A turn out of the plan could not be noted in the store first; it can be made after so many `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not for {seconds:.1f} s")
        self.seconds = seconds


class Timing(NamedTuple):
    """When a turn was planned, or began where it is out of the plan; `tolerance` is in seconds."""

    moment: Moment
    plan: Plan | None
    tolerance: float

    @classmethod
    def of(cls, moment: Moment | None, plan: Plan | None, clock: Clock) -> "Timing":
        """That of a turn planned for `moment`, None: out of the plan."""
        if moment is None:
            return cls(Moment.now(clock), plan, 0.0)
        return cls(moment, plan, 0.0 if plan is None else IN_TIME * plan.period)

    def answered(self, clock: Clock) -> Moment:
        """The moment that the turn counts as if its metrics have been read by now: its own while in time, else now.

        Now by the wall clock as it was at its own: where it was set meanwhile, the next turn notices (`jumps`).
        """
        seconds = clock.monotonic() - self.moment.monotonic
        if seconds <= self.tolerance:
            return self.moment
        return Moment(self.moment.wall + timedelta(seconds=seconds), self.moment.monotonic + seconds)


def valid(moment: Moment, plan: Plan | None) -> Validity:
    """For how long what a turn of this moment leaves is valid; without a plan it is not."""
    if plan is None:
        return Validity(boot(), moment.monotonic)
    return Validity(boot(), moment.monotonic, max(0.0, plan.next - moment.monotonic), plan.period)


async def last(store: Store, key: Key, clock: Clock) -> Moment | None:
    """The moment of the HPA's last turn; None where there was none in this boot of the machine."""
    held = await store.recall(key)
    if held.at is None or held.validity is None or not held.validity.comparable(Moment.now(clock)):
        return None
    return Moment(held.at, held.validity.ticks)


async def announce(store: Store, key: Key, slot: Slot, moment: Moment) -> None:
    """Note a turn before the planned one in the store, so that what is there is not taken as whole any more.

    Otherwise a restart shortly afterwards would not know that a turn is missing. Raises TooEarly where the store cannot
    be written to: the planned turn needs no note.
    """
    held = await store.recall(key)
    left = held.validity_left(moment)
    if held.validity is None or left <= validity.SLIGHT:
        return
    noted = False
    store.put(key, msgspec.structs.replace(judged(held, moment), validity=held.validity.spent()))
    try:
        async with slot.lent():
            noted = await store.secure(key)
    finally:
        if not noted:
            store.put(key, held)
    if not noted:
        raise TooEarly(left)
