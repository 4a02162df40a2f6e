"""Remembers the leader of each quorum queue: until a new one has counted, it reports the queue as empty.

This is for brokers that keep no statistics, where nothing else tells such a zero from an empty queue.
"""

from collections.abc import Callable, Iterable

from hpad_adapters.rabbitmq.queues import Queue

COUNTED_SECONDS = 10.0
"""The time after which a leader has counted, which it does every five seconds (quorum_tick_interval)."""
_MOST = 1 << 15
"""Queues that are remembered; beyond, all are forgotten, and known again after the next reading."""
_ALWAYS = float("-inf")


class Leaders:
    """The leaders by vhost and queue. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since: dict[tuple[str, str], tuple[str, float]] = {}

    def note(self, queues: Iterable[Queue]) -> None:
        """Remembers the leaders that these queues have now."""
        for queue in queues:
            leader, _ = self._since.get((queue.vhost, queue.name), ("", _ALWAYS))
            if not queue.leader or queue.leader == leader:
                continue
            if len(self._since) >= _MOST:
                self._since.clear()
            self._since[queue.vhost, queue.name] = (queue.leader, self._monotonic() if leader else _ALWAYS)

    def has_counted(self, queue: Queue) -> bool:
        """Returns whether the leader is not known to be new."""
        _, since = self._since.get((queue.vhost, queue.name), ("", _ALWAYS))
        return self._monotonic() - since >= COUNTED_SECONDS
