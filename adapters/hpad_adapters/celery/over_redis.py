"""Celery over Redis: a list for each queue and priority, and one hash of all tasks that workers have fetched.

A queue without waiting tasks counts only if the application has declared it. Source: kombu/transport/redis.py,
Channel._put and Channel._q_for_pri.
"""

from collections.abc import Sequence

from hpad.adapter import AdapterError, Answer, Context, ExternalSample, or_error, shown
from hpad_adapters.celery.bindings import Bindings, Replies
from hpad_adapters.celery.fetched import Attribution
from hpad_adapters.celery.settings import RedisBroker, Settings
from hpad_adapters.celery.wanted import TO_CLEAR, UNACKED, WAITING, Wanted
from hpad_adapters.redis_servers import Reply, ReplyError, Request, servers

_NO_RATES = f"Redis keeps no rates of messages: {TO_CLEAR} needs RabbitMQ; scale by celery_tasks"
_NO_MEMBERS = "Redis does not say which worker has fetched a task"


class OverRedis:
    """Counts tasks in Redis. A batch reads each key once, and the fetched tasks where it asks for some queues."""

    def __init__(self, settings: Settings, broker: RedisBroker, context: Context) -> None:
        self._settings = settings
        self._broker = broker
        self._clock = context.clock
        self._servers = servers(broker, context)
        self._bindings = Bindings(broker, settings.default_queue)
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
        """Returns the requests for waiting tasks, for the declared queues and for fetched tasks."""
        if wanted.query.name == TO_CLEAR or wanted.query.members is not None:
            return []
        queues = self._queues(wanted)
        found = [request for queue in queues for request in self._lists(queue)]
        found += self._bindings.requests(queues)
        return found if wanted.query.name == WAITING else [*found, self._fetched(wanted)]

    def _lists(self, queue: str) -> list[Request]:
        return [_length(key) for key in self._broker.lists(queue)]

    def _queues(self, wanted: Wanted) -> tuple[str, ...]:
        return wanted.queues or tuple(self._settings.queues)

    def _fetched(self, wanted: Wanted) -> Request:
        """Returns the request for the size of the hash; for the tasks themselves, where other queues share it."""
        return self._size if self._settings.known <= set(self._queues(wanted)) else self._entries

    def _answer(self, wanted: Wanted, replies: Replies) -> Answer:
        if wanted.query.members is not None:
            return AdapterError(_NO_MEMBERS, "spec")
        if wanted.query.name == TO_CLEAR:
            return AdapterError(_NO_RATES, "spec")
        try:
            total = self._total(wanted, replies)
        except AdapterError as error:
            return AdapterError(f"{self._servers.name}: {error.message}", error.blame)
        return ExternalSample((total * 1000,), self._clock.now())

    def _total(self, wanted: Wanted, replies: Replies) -> int:
        """Returns the number of tasks; raises AdapterError."""
        waiting = [self._waiting(queue, replies) for queue in self._queues(wanted)]
        fetched = 0 if wanted.query.name == WAITING else self._count_fetched(wanted, replies)
        return fetched if wanted.query.name == UNACKED else sum(waiting) + fetched

    def _waiting(self, queue: str, replies: Replies) -> int:
        """Returns the number of waiting tasks of a queue; raises AdapterError if it does not exist."""
        count = sum(_size(request.key, "list", replies[request]) for request in self._lists(queue))
        if not count and self._broker.on_missing_queue == "error":
            self._bindings.check(queue, replies)
        return count

    def _count_fetched(self, wanted: Wanted, replies: Replies) -> int:
        request, queues = self._fetched(wanted), self._queues(wanted)
        if request is self._size:
            return _size(request.key, "hash", replies[request])
        entries = _checked(request.key, "hash", replies[request], absent=[])
        bindings = self._bindings.read(queues, replies)
        return Attribution(self._settings.known | set(queues), bindings).count(entries, queues)


def _length(key: str) -> Request:
    return Request(key, (("TYPE", key), ("LLEN", key)))


def _size(key: str, expected: str, replies: list[Reply] | AdapterError) -> int:
    """Returns the number of elements; raises AdapterError."""
    found = _checked(key, expected, replies, absent=0)
    if not isinstance(found, int) or found < 0:
        raise AdapterError(f"the size of the key {shown(key)} is {shown(str(found))}, not a number")
    return found


def _checked(key: str, expected: str, replies: list[Reply] | AdapterError, absent: Reply) -> Reply:
    """Returns the reply behind that to TYPE, `absent` where there is no key; raises AdapterError for another type."""
    if isinstance(replies, AdapterError):
        raise replies
    kind, found = replies
    if isinstance(kind, ReplyError):
        raise AdapterError(f"TYPE of the key {shown(key)}: {kind}")
    if kind == "none":  # Redis removes a list or hash with its last element
        return absent
    if kind != expected:
        raise AdapterError(f"the key {shown(key)} is a {kind}, not a {expected}", "spec")
    if isinstance(found, ReplyError):
        raise AdapterError(f"the key {shown(key)}: {found}")
    return found
