"""The queues that a Celery application has declared in Redis.

Redis removes an empty list, so an absent list is an empty queue or one that does not exist. Workers and producers of
Celery declare each queue before they use it, and kombu notes it in a set for each exchange, which stays when the queue
is empty and its workers are gone.

Source: kombu/transport/redis.py, Channel._queue_bind and Channel.get_table: an element of the set is routing key,
pattern and queue.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hpad.adapter import AdapterError, shown
from hpad_adapters.celery.settings import RedisBroker
from hpad_adapters.redis_servers import RedisRequest, Reply, ReplyError

Replies = Mapping[RedisRequest, list[Reply] | AdapterError]
_WILDCARD = re.compile(r"[*#]")
_MOST_COMPARISONS = 100_000


class Binding(NamedTuple):
    """A queue, and the exchange and routing key that lead to it. The routing key of a topic may hold wildcards."""

    exchange: str
    routing_key: str
    queue: str


class Bindings:
    """Reads the bindings of exchanges."""

    def __init__(self, broker: RedisBroker, default_exchange: str) -> None:
        self._broker = broker
        self._default = default_exchange

    def requests(self, queues: Iterable[str]) -> list[RedisRequest]:
        """Returns a request for each exchange that may lead to one of the queues."""
        return self.of(self._exchanges(queues))

    def of(self, exchanges: Iterable[str]) -> list[RedisRequest]:
        """Returns a request for each exchange."""
        return [_request(self._broker.bindings(name)) for name in exchanges]

    def read(self, exchanges: Iterable[str], replies: Replies) -> list[Binding]:
        """Returns the bindings of exchanges; raises AdapterError if they cannot be read."""
        found = []
        for exchange in exchanges:
            request = _request(self._broker.bindings(exchange))
            members = replies[request]
            if isinstance(members, AdapterError):
                raise members
            found += [self._binding(exchange, member) for member in _members(request.key, members[0])]
        return found

    def check(self, queue: str, replies: Replies) -> None:
        """Raises AdapterError if no binding names the queue, or bindings cannot be read."""
        exchanges = self._exchanges((queue,))
        if any(binding.queue == queue for binding in self.read(exchanges, replies)):
            return
        names = ", ".join(map(shown, exchanges))
        raise AdapterError(
            f"queue {shown(queue)} does not exist: it holds no tasks, and no binding of the exchanges {names} "
            "names it; check its spelling, or name its exchange in `exchanges`",
            "spec",
        )

    def _exchanges(self, queues: Iterable[str]) -> list[str]:
        """Returns the exchanges of Celery's defaults and those of the settings, each once.

        A queue that Celery creates by itself has an exchange of its own name, one of task_queues without an exchange
        has the default one (celery/app/amqp.py, Queues).
        """
        return list(dict.fromkeys((*queues, self._default, *self._broker.exchanges)))

    def _binding(self, exchange: str, member: str) -> Binding:
        parts = member.split(self._broker.sep)
        return Binding(exchange, parts[0], parts[-1])


class QueueOwners:
    """Finds the queues of a task by its exchange and routing key, as Celery's transport does.

    Source: kombu/transport/virtual/base.py: Channel._lookup; exchange.py: TopicExchange.
    """

    def __init__(self, bindings: Iterable[Binding]) -> None:
        self._exact: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._wild: defaultdict[str, list[tuple[list[str], str]]] = defaultdict(list)
        self._comparisons = _MOST_COMPARISONS
        for each in bindings:
            self._exact[each.exchange, each.routing_key].add(each.queue)
            if len(pieces := _WILDCARD.split(each.routing_key)) > 1:
                self._wild[each.exchange].append((pieces, each.queue))

    def queues(self, exchange: str, key: str) -> frozenset[str]:
        """Returns the queues that the task may be of; raises AdapterError if bindings with wildcards are too many."""
        wild = self._wild.get(exchange, ())
        self._comparisons -= len(wild)
        if self._comparisons < 0:
            raise AdapterError(f"the exchange {shown(exchange)} has too many bindings with wildcards", "spec")
        found = self._exact.get((exchange, key), set()) | {queue for pieces, queue in wild if _matches(pieces, key)}
        # Celery sends to the queue itself (no exchange, its name as routing key) unless the application names another.
        return frozenset(found) if exchange and found else frozenset({key})


def _matches(pieces: list[str], key: str) -> bool:
    """Returns whether the key consists of these pieces, with any text between them: "*" and "#" of a topic."""
    first, *middle, last = pieces
    if not key.startswith(first) or not key.endswith(last) or len(key) < len(first) + len(last):
        return False
    start, end = len(first), len(key) - len(last)
    for piece in middle:
        if (found := key.find(piece, start, end)) < 0:
            return False
        start = found + len(piece)
    return True


def _request(key: str) -> RedisRequest:
    return RedisRequest(key, (("SMEMBERS", key),))


def _members(key: str, reply: Reply) -> list[str]:
    if isinstance(reply, ReplyError):
        raise AdapterError(f"SMEMBERS of the key {shown(key)}: {reply}")
    if not isinstance(reply, list) or not all(isinstance(each, str) for each in reply):
        raise AdapterError(f"the reply to SMEMBERS of the key {shown(key)} is not a list of texts")
    return [each for each in reply if isinstance(each, str)]
