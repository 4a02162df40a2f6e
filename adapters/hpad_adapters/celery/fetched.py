"""Attributes the tasks that workers have fetched to their queues.

Source: kombu/transport/redis.py, QoS.append: the hash `unacked` holds the JSON list of message, exchange and routing
key of each task.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import msgspec

from hpad.adapter import AdapterError, shown
from hpad_adapters.celery.bindings import Binding
from hpad_adapters.redis_servers import Reply

_ENTRY = msgspec.json.Decoder(tuple[msgspec.Raw, str | None, str | None])


class Attribution:
    """Finds the queue of a task by exchange and routing key; `known` are the queues that the configuration names."""

    def __init__(self, known: Collection[str], bindings: Iterable[Binding]) -> None:
        self._known = known
        self._bound: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for binding in bindings:
            self._bound[binding.exchange, binding.routing_key].add(binding.queue)

    def count(self, entries: Reply, queues: Sequence[str]) -> int:
        """Returns how many entries of the hash are of these queues; raises AdapterError for one of an unknown queue."""
        listed = entries if isinstance(entries, list) else [entries]
        return sum(self._queue(entry) in queues for entry in listed)

    def _queue(self, entry: Reply) -> str:
        try:
            _, exchange, key = _ENTRY.decode(entry if isinstance(entry, str) else "")
        except msgspec.MsgspecError:
            raise AdapterError("the hash of fetched tasks holds other entries than Celery's") from None
        # Celery sends to the queue itself (no exchange, its name as routing key) unless an exchange is a topic.
        bound = self._bound.get((exchange, key), ()) if exchange and key else ()
        if len(bound) == 1:
            return next(iter(bound))
        queue = next((name for name in (key, exchange) if name in self._known), None)
        if queue is None:
            raise AdapterError(
                f"workers have fetched a task with the routing key {shown(str(key))}, which is no queue that "
                "hpad's configuration names (queues)",
                "spec",
            )
        return queue
