"""Where the planned turns of each HPA lie within the period.

HPAs of a namespace share a list of metrics, so they are due close together: one list then serves all of them, and is
fresh when it is used. They are due on the ticks of a grid, so that one wake-up of the process serves several. A
namespace with many HPAs takes a larger part of the period, so that its turns are no burst.

The place depends on the names, the period and the tick. A restart, and another replica, therefore find the same place
again, unless a large namespace has grown beyond a power of two since.
"""

import math
import zlib
from typing import Final

from hpad.api.metadata import Key

NARROWEST: Final = 1 / 16
"""The part of the period in which the HPAs of a small namespace are due."""
WIDEST: Final = 1 / 3
"""The same for a large namespace: as long as metric sources use an answer again (`sources.limits`)."""
SECONDS_EACH: Final = 0.003
"""Time for each HPA of a namespace; a reconcile takes a fraction of it."""
COARSEST: Final = 1 / 100
"""The longest tick, as a part of the period."""


class Grid:
    """The places within a period, in seconds. `tick` is rounded down to a whole fraction of the period; 0: none."""

    def __init__(self, period: float, tick: float) -> None:
        self._period = period
        tick = min(tick, period * COARSEST)
        self.tick = period / math.ceil(period / tick) if tick > 0 else 0.0

    def place(self, key: Key, neighbours: int) -> float:
        """Returns the seconds from the start of a period to the turn of an HPA; its namespace has `neighbours` HPAs."""
        place = _share(key.namespace) * self._period + _share(key.name) * self.width(neighbours)
        if self.tick:
            place = math.floor(place / self.tick) * self.tick
        return place % self._period

    def width(self, neighbours: int) -> float:
        """Returns the seconds within which the HPAs of a namespace are due."""
        many: float = SECONDS_EACH * 2 ** math.ceil(math.log2(max(neighbours, 1)))
        return min(max(many, self._period * NARROWEST), self._period * WIDEST)


def _share(name: str) -> float:
    # Not hash(): it differs per process, and a restart would move the planned time of every HPA.
    return zlib.crc32(name.encode()) / 2**32
