"""When which HPA is due: at once when it is new or its spec changed, and once every period in any case.

The moment within the period is fixed by the HPA's key, which spreads any number of HPAs evenly and keeps each one's
rhythm over whatever happens in between.
"""

import zlib
from collections.abc import Callable

from hpad.clock import Clock
from hpad.control.workqueue import DelayingQueue
from hpad.control.world import HpaSource
from hpad.model.hpa import HorizontalPodAutoscaler
from hpad.model.key import Key

_JUST_NOW = 0.02
"""Fraction of the period: a moment this close ahead is the one being served, not the next one."""


class Observer:
    """Turns changes of the source into turns of the queue. `gone` is called with each key that needs forgetting."""

    def __init__(
        self, source: HpaSource, queue: DelayingQueue, clock: Clock, period: float, gone: Callable[[Key], None]
    ) -> None:
        self._source = source
        self._queue = queue
        self._clock = clock
        self._period = period
        self._gone = gone
        self._due: dict[Key, float] = {}

    def start(self, at_once: int) -> None:
        """Begin, once the source has synced: up to that many HPAs at once, more of them spread over the period."""
        known = [hpa.metadata.key for hpa in self._source.values()]
        for key in known:
            if len(known) <= at_once:
                self._queue.add(key)
            else:
                self.schedule(key)
        self._source.subscribe(self._changed)

    def schedule(self, key: Key) -> None:
        """Have the key reconciled at its next moment."""
        delay = self._delay(key)
        self._due[key] = self._clock.monotonic() + delay
        self._queue.add_after(key, delay)

    def lateness(self, key: Key) -> float | None:
        """Seconds since the key's planned moment, None where this turn has another reason; to be asked once a turn."""
        due = self._due.pop(key, None)
        late = self._clock.monotonic() - due if due is not None else -1.0
        return max(late, 0.0) if late > -1e-6 else None

    def forget(self, key: Key) -> None:
        self._due.pop(key, None)
        self._queue.forget(key)

    def _delay(self, key: Key) -> float:
        phase = zlib.crc32(str(key).encode()) / 2**32 * self._period
        delay = (phase - self._clock.monotonic()) % self._period
        return delay if delay > _JUST_NOW * self._period else delay + self._period

    def _changed(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        if new is None:
            self._gone(key)
        elif old is None:
            self._queue.add(key)
        elif old.metadata.uid != new.metadata.uid:
            self._gone(key)
            self._queue.add(key)
        elif old.spec != new.spec:
            self._queue.add(key)
