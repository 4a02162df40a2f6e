"""Turns and their plan: for how long what a turn leaves is the whole story, and what one out of the plan does first.

`store.validity` says why.
"""

from typing import NamedTuple

import msgspec

from hpad.clock import Clock, Moment, boot
from hpad.control.slots import Slot
from hpad.model.key import Key
from hpad.store import validity
from hpad.store.memory import Store, judged
from hpad.store.validity import Validity


class Plan(NamedTuple):
    """When the HPA's next turn is planned, by the monotonic clock, and how many seconds lie between two."""

    next: float
    period: float


class TooEarly(Exception):
    """A turn out of the plan could not be noted in the store first; it can be made after so many `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not for {seconds:.1f} s")
        self.seconds = seconds


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
