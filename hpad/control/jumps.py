"""Noticing that the wall clock was set, by an administrator or a first answer of NTP.

Histories hold wall times, since they outlive processes; windows are lengths of time. Where the wall clock and the
monotonic one disagree about how long ago an HPA was looked at, the wall clock was set meanwhile: its history has to
move along, or windows would end at once (a scale-down nobody wants) or not for as long as the clock was set back. Each
memory holds its time by both clocks, so that this is noticed after a restart as well, within one boot of the machine.
"""

from datetime import timedelta
from typing import Final

import msgspec

from hpad.clock import Moment
from hpad.engine.history import shifted
from hpad.store.memory import Begun, Memory

SLIGHT: Final = timedelta(seconds=1)
"""What NTP corrects without a jump, and what two readings of clocks may be apart."""


def caught_up(memory: Memory, now: Moment) -> Memory:
    """The memory as it would be had the wall clock always been what it is; the same where it was not set."""
    if memory.at is None or memory.validity is None or not memory.validity.comparable(now):
        return memory
    jump = (now.wall - memory.at) - timedelta(seconds=now.monotonic - memory.validity.ticks)
    if abs(jump) <= SLIGHT:
        return memory
    begun = None if memory.begun is None else _shifted(memory.begun, jump)
    return msgspec.structs.replace(memory, history=memory.history.shifted(jump), at=memory.at + jump, begun=begun)


def _shifted(begun: Begun, by: timedelta) -> Begun:
    ups, downs = shifted(begun.scale_ups, by), shifted(begun.scale_downs, by)
    return msgspec.structs.replace(begun, scale_ups=ups, scale_downs=downs)
