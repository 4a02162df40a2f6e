"""Where the planned turns of each HPA lie within the period.

HPAs of a namespace share a list of metrics, so they are due close together: one list then serves all of them, and is
fresh when it is used. They are due on the ticks of a grid, so that one wake-up of the process serves several: code and
data are then in the caches of the CPU, and a reconcile among thirty takes a fifth less CPU time than one among seven.
With few HPAs the ticks are therefore longer. A namespace with many HPAs takes a larger part of the period, so that its
turns are no burst.

The place depends on the names, the period and, roughly, the number of HPAs. So a restart, or another replica, finds the
same place again. With more or fewer HPAs it may lie up to `COARSEST` of a period away. It lies elsewhere if a large
namespace has grown beyond a power of two.
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
TICK: Final = 0.1
"""The shortest tick in seconds. Nobody sees it in a reaction, and of 10,000 HPAs in 15 s about 64 share one."""
COARSEST: Final = 1 / 30
"""The longest tick, as a part of the period."""
TOGETHER: Final = 64
"""HPAs of one tick up to which it is doubled: more gain little, and the last of them would be late."""
FINEST: Final = 1 / 100
"""The longest tick of an HPA with a period of its own, as a part of that period."""


def own_place(key: Key, period: float) -> float:
    """Returns the seconds from the start of a period to the turn of an HPA with a period of its own.

    These HPAs are spread over the whole period, each by itself: those of a namespace have no list of metrics that stays
    fresh from one turn to the next.
    """
    tick = _dividing(period, min(TICK, period * FINEST))
    return math.floor(_share(str(key)) * period / tick) * tick


class Grid:
    """The places within a period, in seconds. `tick` is the shortest one."""

    def __init__(self, period: float) -> None:
        self._period = period
        self.tick = _dividing(period, min(TICK, period * COARSEST))

    def place(self, key: Key, neighbours: int, hpas: int) -> float:
        """Returns the seconds from the start of a period to the turn of an HPA.

        Its namespace has `neighbours` HPAs; there are `hpas` in all.
        """
        width = self.width(neighbours)
        begin, offset = _share(key.namespace) * self._period, _share(key.name) * width
        tick = self.tick_for(max(hpas / self._period, neighbours / width))
        # Each by itself: the turns of the namespace lie within its width, whatever the tick is.
        return (math.floor(begin / tick) + math.floor(offset / tick)) * tick % self._period

    def tick_for(self, rate: float) -> float:
        """Returns the tick where so many HPAs are due per second: `tick`, or twice as long, or four times, and so on.

        All places of a longer tick are thus places of the shorter ones.
        """
        tick = self.tick
        while 2 * tick <= COARSEST * self._period and 2 * tick * rate <= TOGETHER:
            tick *= 2
        return tick

    def width(self, neighbours: int) -> float:
        """Returns the seconds within which the HPAs of a namespace are due."""
        many: float = SECONDS_EACH * 2 ** math.ceil(math.log2(max(neighbours, 1)))
        return min(max(many, self._period * NARROWEST), self._period * WIDEST)


def _dividing(period: float, tick: float) -> float:
    """Returns the tick rounded down to a whole fraction of the period."""
    return period / math.ceil(period / tick)


def _share(name: str) -> float:
    # Not hash(): it differs per process, and a restart would move the planned time of every HPA.
    return zlib.crc32(name.encode()) / 2**32
