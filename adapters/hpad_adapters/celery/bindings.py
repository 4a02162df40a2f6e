"""The queues that a Celery application has declared in Redis.

Redis removes an empty list, so an absent list is an empty queue or one that does not exist. Workers and producers of
Celery declare each queue before they use it, and kombu notes it in a set for each exchange, which stays when the queue
is empty and its workers are gone.

Source: kombu/transport/redis.py, Channel._queue_bind and Channel.get_table: an element of the set is routing key,
pattern and queue.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hpad.adapter import AdapterError, shown
from hpad_adapters.celery.settings import RedisBroker
from hpad_adapters.redis_servers import Reply, ReplyError, Request

Replies = Mapping[Request, list[Reply] | AdapterError]


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

    def requests(self, queues: Iterable[str]) -> list[Request]:
        """Returns a request for each exchange that may lead to one of the queues."""
        return [_request(self._broker.bindings(name)) for name in self._exchanges(queues)]

    def read(self, queues: Iterable[str], replies: Replies) -> list[Binding]:
        """Returns the bindings of the exchanges of these queues; raises AdapterError if they cannot be read."""
        found = []
        for exchange in self._exchanges(queues):
            request = _request(self._broker.bindings(exchange))
            members = replies[request]
            if isinstance(members, AdapterError):
                raise members
            found += [self._binding(exchange, member) for member in _members(request.key, members[0])]
        return found

    def check(self, queue: str, replies: Replies) -> None:
        """Raises AdapterError if no binding names the queue, or bindings cannot be read."""
        if any(binding.queue == queue for binding in self.read((queue,), replies)):
            return
        exchanges = ", ".join(map(shown, self._exchanges((queue,))))
        raise AdapterError(
            f"queue {shown(queue)} does not exist: it holds no tasks, and no binding of the exchanges {exchanges} "
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


def _request(key: str) -> Request:
    return Request(key, (("SMEMBERS", key),))


def _members(key: str, reply: Reply) -> list[str]:
    if isinstance(reply, ReplyError):
        raise AdapterError(f"SMEMBERS of the key {shown(key)}: {reply}")
    if not isinstance(reply, list) or not all(isinstance(each, str) for each in reply):
        raise AdapterError(f"the reply to SMEMBERS of the key {shown(key)} is not a list of texts")
    return [each for each in reply if isinstance(each, str)]
