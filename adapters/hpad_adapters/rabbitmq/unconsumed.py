"""Notices queues whose messages no consumer takes, from the counts that are read for the values."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hpad_adapters.clearing.workers import MOST_QUEUES
from hpad_adapters.rabbitmq.queues import RabbitmqQueue

_LASTING = 5.0
"""Seconds between two counts of one queue: the broker itself counts some queues every five seconds."""
_MOST_NAMED = 2
_LONGEST_NAME = 80


class _Waiting(NamedTuple):
    """The ready messages at the last read, and the monotonic time since which none was held, and none taken."""

    since: float
    ready: int


class Unconsumed:
    """Remembers of each queue since when its messages have waited while no consumer held any.

    A consumer with acknowledgements holds a message as long as one waits. Of others the broker tells nothing but that
    messages get fewer, so that counts.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: dict[tuple[str, str], _Waiting] = {}

    def note(self, queues: Sequence[RabbitmqQueue]) -> str:
        """Returns the note of a sample that was made from a read of these queues; "" where consumers take messages."""
        names = sorted({queue.name for queue in queues if self._stays(queue)})
        if not names:
            return ""
        named = ", ".join(f'"{name[:_LONGEST_NAME]}"' for name in names[:_MOST_NAMED])
        others = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"no consumer holds a message of the queue{'s' if len(names) > 1 else ''} {named}{others}"

    def _stays(self, queue: RabbitmqQueue) -> bool:
        """Whether messages wait, and no consumer takes any."""
        place, ready, held = (queue.vhost, queue.name), queue.messages_ready, queue.messages_unacknowledged
        if not ready or held or queue.consumers or (held is None and queue.consumers is None):
            self._waiting.pop(place, None)
            return False
        return queue.consumers == 0 or self._lasts(place, ready)

    def _lasts(self, place: tuple[str, str], ready: int) -> bool:
        now = self._monotonic()
        before = self._waiting.get(place)
        since = now if before is None or ready < before.ready else before.since
        if before is None and len(self._waiting) >= MOST_QUEUES:
            self._waiting.clear()
        self._waiting[place] = _Waiting(since, ready)
        return now - since >= _LASTING
