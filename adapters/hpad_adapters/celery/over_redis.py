"""Celery over Redis: a list for each queue and priority, and one hash of all tasks that workers have fetched.

Source: kombu/transport/redis.py, Channel._put, Channel._q_for_pri and QoS.append: an entry of the hash is the JSON list
of message, exchange and routing key.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hpad.adapter import AdapterError, Answer, Context, ExternalSample, or_error, shown
from hpad_adapters.celery.settings import RedisBroker, Settings
from hpad_adapters.celery.wanted import TO_CLEAR, UNACKED, WAITING, Wanted
from hpad_adapters.redis_servers import Reply, ReplyError, Request, servers

_ENTRY = msgspec.json.Decoder(tuple[msgspec.Raw, str | None, str | None])
_NO_RATES = f"Redis keeps no rates of messages: {TO_CLEAR} needs RabbitMQ; scale by celery_tasks"
_NO_MEMBERS = "Redis does not say which worker has fetched a task"
_Replies = Mapping[Request, list[Reply] | AdapterError]


class OverRedis:
    """Counts tasks in Redis. A batch reads each key once, and the fetched tasks where it asks for some queues."""

    def __init__(self, settings: Settings, broker: RedisBroker, context: Context) -> None:
        self._settings = settings
        self._broker = broker
        self._clock = context.clock
        self._servers = servers(broker, context)
        self._size = Request(broker.unacked, (("TYPE", broker.unacked), ("HLEN", broker.unacked)))
        self._entries = Request(broker.unacked, (("TYPE", broker.unacked), ("HVALS", broker.unacked)))

    async def answer(self, asked: Sequence[Wanted]) -> list[Answer]:
        """Returns one answer per query; raises AdapterError if Redis does not answer."""
        requests = dict.fromkeys(request for each in asked for request in self._requests(each))
        # The tasks themselves may be too long for an answer; that is no error of the other queries.
        entries = {request: None for request in requests if request is self._entries}
        counts = [request for request in requests if request is not self._entries]
        replies = dict(zip(counts, await self._servers.ask(counts), strict=True)) if counts else {}
        for request in entries:
            found = await or_error(self._servers.ask([request]))
            replies[request] = found if isinstance(found, AdapterError) else found[0]
        return [self._answer(each, replies) for each in asked]

    def group(self, wanted: Wanted) -> None:
        """Returns None: each key is a command, whichever queries are asked together."""

    async def aclose(self) -> None:
        """Does nothing: a connection ends with its batch."""

    def _requests(self, wanted: Wanted) -> list[Request]:
        """Returns the requests for waiting tasks, then the one for fetched tasks."""
        if wanted.query.name == TO_CLEAR or wanted.query.members is not None:
            return []
        found = [] if wanted.query.name == UNACKED else [_length(key) for key in self._lists(wanted)]
        return found if wanted.query.name == WAITING else [*found, self._fetched(wanted)]

    def _lists(self, wanted: Wanted) -> Iterable[str]:
        return (key for queue in self._queues(wanted) for key in self._broker.lists(queue))

    def _queues(self, wanted: Wanted) -> tuple[str, ...]:
        return wanted.queues or tuple(self._settings.queues)

    def _fetched(self, wanted: Wanted) -> Request:
        """Returns the request for the size of the hash; for the tasks themselves, where other queues share it."""
        return self._size if self._settings.known <= set(self._queues(wanted)) else self._entries

    def _answer(self, wanted: Wanted, replies: _Replies) -> Answer:
        if wanted.query.members is not None:
            return AdapterError(_NO_MEMBERS, "spec")
        if wanted.query.name == TO_CLEAR:
            return AdapterError(_NO_RATES, "spec")
        try:
            total = sum(self._count(wanted, request, replies[request]) for request in self._requests(wanted))
        except AdapterError as error:
            return AdapterError(f"{self._servers.name}: {error.message}", error.blame)
        return ExternalSample((total * 1000,), self._clock.now())

    def _count(self, wanted: Wanted, request: Request, replies: list[Reply] | AdapterError) -> int:
        """Returns the number of tasks; raises AdapterError."""
        if isinstance(replies, AdapterError):
            raise replies
        kind, found = replies
        expected = "hash" if request.key == self._broker.unacked else "list"
        if isinstance(kind, ReplyError):
            raise AdapterError(f"TYPE of the key {shown(request.key)}: {kind}")
        if kind == "none":  # Redis removes a list or hash with its last element
            return 0
        if kind != expected:
            raise AdapterError(f"the key {shown(request.key)} is a {kind}, not a {expected}", "spec")
        if request is self._entries:
            return self._attributed(found, self._queues(wanted))
        if not isinstance(found, int) or found < 0:
            raise AdapterError(f"the size of the key {shown(request.key)} is {shown(str(found))}, not a number")
        return found

    def _attributed(self, entries: Reply, queues: Sequence[str]) -> int:
        """Returns how many fetched tasks are of these queues; raises AdapterError for one of an unknown queue."""
        known, counts = self._settings.known | set(queues), Counter[str]()
        for entry in entries if isinstance(entries, list) else [entries]:
            try:
                _, exchange, key = _ENTRY.decode(entry if isinstance(entry, str) else "")
            except msgspec.MsgspecError:
                raise AdapterError(f"the key {shown(self._broker.unacked)} holds other entries than Celery's") from None
            queue = next((name for name in (key, exchange) if name in known), None)
            if queue is None:
                raise AdapterError(
                    f"workers have fetched a task with the routing key {shown(str(key))}, which is no queue that "
                    "hpad's configuration names (queues)",
                    "spec",
                )
            counts[queue] += 1
        return sum(counts[queue] for queue in queues)


def _length(key: str) -> Request:
    return Request(key, (("TYPE", key), ("LLEN", key)))
