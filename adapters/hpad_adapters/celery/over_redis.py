"""Celery over Redis: a list for each queue and priority, and one hash of all tasks that workers have fetched.

A queue without waiting tasks counts only if the application has declared it. Source: kombu/transport/redis.py,
Channel._put and Channel._q_for_pri.
"""

from collections.abc import Sequence

from hpad.adapter import AdapterError, Answer, Context, ExternalSample, or_error, shown
from hpad_adapters.celery import fetched
from hpad_adapters.celery.bindings import Bindings, Replies
from hpad_adapters.celery.settings import RedisBroker, Settings
from hpad_adapters.celery.wanted import TO_CLEAR, UNACKED, WAITING, Wanted
from hpad_adapters.redis_servers import Reply, ReplyError, Request, ServerError, servers

_NO_RATES = f"Redis keeps no rates of messages: {TO_CLEAR} needs RabbitMQ; scale by celery_tasks"
_NO_MEMBERS = "Redis does not say which worker has fetched a task"


class OverRedis:
    """Counts tasks in Redis. A batch reads each key once, and the fetched tasks if there are any."""

    def __init__(self, settings: Settings, broker: RedisBroker, context: Context) -> None:
        self._settings = settings
        self._broker = broker
        self._clock = context.clock
        self._servers = servers(broker)
        self._bindings = Bindings(broker, settings.default_queue)
        self._size = Request(broker.unacked, (("TYPE", broker.unacked), ("HLEN", broker.unacked)))

    async def answer(self, asked: Sequence[Wanted]) -> list[Answer]:
        """Returns one answer per query; raises AdapterError if Redis does not answer."""
        requests = list(dict.fromkeys(request for each in asked for request in self._requests(each)))
        replies = dict(zip(requests, await self._servers.ask(requests), strict=True)) if requests else {}
        # That the fetched tasks cannot be read is no error of queries for waiting ones.
        found = await or_error(self._fetched(replies)) if self._size in replies else fetched.Fetched()
        return [self._answer(each, replies, found) for each in asked]

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
        return found if wanted.query.name == WAITING else [*found, self._size]

    def _lists(self, queue: str) -> list[Request]:
        return [_length(key) for key in self._broker.lists(queue)]

    def _queues(self, wanted: Wanted) -> tuple[str, ...]:
        return wanted.queues or tuple(self._settings.queues)

    async def _fetched(self, replies: Replies) -> fetched.Fetched:
        """Returns the fetched tasks; raises AdapterError."""
        size = _size(self._size.key, "hash", replies[self._size])
        return await fetched.read(self._servers, self._size.key, size, self._bindings) if size else fetched.Fetched()

    def _answer(self, wanted: Wanted, replies: Replies, found: fetched.Fetched | AdapterError) -> Answer:
        if wanted.query.members is not None:
            return AdapterError(_NO_MEMBERS, "spec")
        if wanted.query.name == TO_CLEAR:
            return AdapterError(_NO_RATES, "spec")
        try:
            total = self._total(wanted, replies, found)
        except ServerError as error:
            return error
        except AdapterError as error:
            text = f"{self._servers.name}: {error.message}"
            return AdapterError(text, error.blame, lasting=error.lasting, alive=error.alive)
        return ExternalSample((total * 1000,), self._clock.now())

    def _total(self, wanted: Wanted, replies: Replies, found: fetched.Fetched | AdapterError) -> int:
        """Returns the number of tasks; raises AdapterError."""
        waiting = sum(self._waiting(queue, replies) for queue in self._queues(wanted))
        if wanted.query.name == WAITING:
            return waiting
        if isinstance(found, AdapterError):
            raise found
        held = found.count(self._queues(wanted), every=self._settings.known <= set(self._queues(wanted)))
        return held if wanted.query.name == UNACKED else waiting + held

    def _waiting(self, queue: str, replies: Replies) -> int:
        """Returns the number of waiting tasks of a queue; raises AdapterError if it does not exist."""
        count = sum(_size(request.key, "list", replies[request]) for request in self._lists(queue))
        if not count and self._broker.on_missing_queue == "error":
            self._bindings.check(queue, replies)
        return count


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
