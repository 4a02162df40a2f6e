"""Noticing that the wall clock was set, by an administrator or a first answer of NTP.

Histories hold wall times, since they outlive processes; windows are lengths of time. Where the wall clock and the
monotonic one disagree about how long ago an HPA was looked at, the wall clock was set meanwhile: its history has to
move along, or windows would end at once (a scale-down nobody wants) or not for as long as the clock was set back.
"""

from datetime import timedelta
from typing import Final

import msgspec

from hpad.clock import Moment
from hpad.model.key import Key
from hpad.store.memory import Memory

SLIGHT: Final = timedelta(seconds=1)
"""What NTP corrects without a jump, and what two readings of clocks may be apart."""


class Jumps:
    """For each HPA the last look that was remembered, and the last one at all (a reconcile may be cut short)."""

    def __init__(self) -> None:
        self._looks: dict[Key, tuple[Moment | None, Moment]] = {}

    def caught_up(self, key: Key, memory: Memory, now: Moment) -> Memory:
        """The memory as it would be had the clock always been what it is; to be asked at each look, with its time."""
        known = [held for held in self._looks.get(key, ()) if held is not None and held.wall == memory.at]
        self._looks[key] = (known[0] if known else None, now)
        if not known or memory.at is None:
            return memory
        jump = (now.wall - memory.at) - timedelta(seconds=now.monotonic - known[0].monotonic)
        if abs(jump) <= SLIGHT:
            return memory
        return msgspec.structs.replace(memory, history=memory.history.shifted(jump), at=memory.at + jump)

    def forget(self, key: Key) -> None:
        self._looks.pop(key, None)
