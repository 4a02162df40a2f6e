"""Celery over Redis: a list for each queue and priority, and one hash of all tasks that workers have fetched.

A queue without waiting tasks counts only if the application has declared it. Source: kombu/transport/redis.py,
Channel._put and Channel._q_for_pri.
"""

import asyncio
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from hpad.adapter import AdapterError, Answer, Context, ExternalSample, or_error, shown
from hpad.adapter_http import UNDECODABLE
from hpad_adapters.ages import age
from hpad_adapters.celery.measuring import GoalsOverRedis, goal_of
from hpad_adapters.celery.redis_keys import Bindings, Fetched, Replies, read_fetched
from hpad_adapters.celery.settings import RedisBroker, Settings
from hpad_adapters.celery.wanted import HEAD_AGE, TASKS, TO_CLEAR, UNACKED, WAITING, WantedTasks
from hpad_adapters.celery.workers import CeleryWorkers, Said
from hpad_adapters.clearing.workers import LEAST
from hpad_adapters.redis_servers import RedisRequest, Reply, ReplyError, ServerError, servers
from hpad_adapters.selection import or_raise

_NAMED = 3


class OverRedis:
    """Counts tasks in Redis. A batch reads each key once, and the fetched tasks if there are any.

    `workers` are asked for what a goal in seconds needs to know; None if they may not be, so that no query has one.
    """

    def __init__(
        self, settings: Settings, broker: RedisBroker, context: Context, workers: CeleryWorkers | None
    ) -> None:
        self._settings = settings
        self._broker = broker
        self._clock = context.clock
        self._servers = servers(broker)
        self._workers = workers
        self._goals = GoalsOverRedis(context)
        self._bindings = Bindings(broker, settings.default_queue)
        self._size = RedisRequest(broker.unacked, (("TYPE", broker.unacked), ("HLEN", broker.unacked)))

    async def answer(self, asked: Sequence[WantedTasks]) -> list[Answer]:
        """Returns one answer per query; raises AdapterError if Redis does not answer."""
        requests = list(dict.fromkeys(request for each in asked for request in self._requests(each)))
        goals = [each.query.name == TO_CLEAR for each in asked]
        replies, said = await self._replies(requests, with_workers=any(goals))
        needed = [self._needed(each, replies, said) if goal else None for each, goal in zip(asked, goals, strict=True)]
        # That the fetched tasks cannot be read is no error of queries for waiting ones.
        found = await or_error(self._fetched, replies) if self._counts_fetched(asked, needed) else Fetched()
        answers = [self._answer(each, replies, found, goal) for each, goal in zip(asked, needed, strict=True)]
        return [_noted(each, said) if goal else each for each, goal in zip(answers, goals, strict=True)]

    def group(self, wanted: WantedTasks) -> None:
        """Returns None: each key is a command, whichever queries are asked together."""

    async def aclose(self) -> None:
        """Does nothing: a connection ends with its batch."""

    def _requests(self, wanted: WantedTasks) -> list[RedisRequest]:
        """Returns the requests for waiting tasks, for the declared queues and for fetched tasks."""
        queues = self._queues(wanted)
        found = [request for queue in queues for request in self._lists(queue)]
        found += self._bindings.requests(queues)
        if wanted.query.name == HEAD_AGE:
            return [*found, *(oldest(key) for queue in queues for key in self._broker.lists(queue))]
        return found if wanted.query.name == WAITING else [*found, self._size]

    async def _replies(
        self, requests: Sequence[RedisRequest], *, with_workers: bool
    ) -> tuple[Replies, Said | AdapterError]:
        """Asks Redis, and the workers at the same time; raises AdapterError if Redis does not answer."""
        redis = self._servers.ask(requests)
        said = or_error(self._workers.read) if with_workers and self._workers is not None else _unasked()
        replies, heard = await asyncio.gather(redis, said)
        return dict(zip(requests, replies, strict=True)), heard

    def _needed(self, wanted: WantedTasks, replies: Replies, said: Said | AdapterError) -> float | AdapterError:
        """Returns how many tasks have to be worked on at once."""
        if isinstance(said, AdapterError):
            return said
        queues = self._queues(wanted)
        try:
            waiting = sum(self._waiting(queue, replies) for queue in queues)
            return self._goals.workers(queues, goal_of(wanted.goal), _named(queues), waiting, said)
        except ValueError as error:
            return AdapterError(f"selector of External metric {TO_CLEAR}: {error}", "spec")
        except AdapterError as error:
            return self._placed(error)

    def _counts_fetched(self, asked: Sequence[WantedTasks], needed: Sequence[float | AdapterError | None]) -> bool:
        """Returns whether fetched tasks decide: for a goal, whether a worker is needed at all."""
        return any(each.query.name in (TASKS, UNACKED) for each in asked) or 0.0 in needed

    def _lists(self, queue: str) -> list[RedisRequest]:
        return [_length(key) for key in self._broker.lists(queue)]

    def _queues(self, wanted: WantedTasks) -> tuple[str, ...]:
        return wanted.queues or tuple(self._settings.queues)

    async def _fetched(self, replies: Replies) -> Fetched:
        """Returns the fetched tasks; raises AdapterError."""
        size = _size(self._size.key, "hash", replies[self._size])
        return await read_fetched(self._servers, self._size.key, size, self._bindings) if size else Fetched()

    def _answer(
        self, wanted: WantedTasks, replies: Replies, found: Fetched | AdapterError, needed: float | AdapterError | None
    ) -> Answer:
        if isinstance(needed, AdapterError):
            return needed
        try:
            if needed is not None:
                return self._sample(needed or self._left(wanted, found))
            if wanted.query.name == HEAD_AGE:
                return self._sample(self._head_age(wanted, replies))
            return self._sample(self._total(wanted, replies, found))
        except AdapterError as error:
            return self._placed(error)

    def _sample(self, value: float) -> ExternalSample:
        return ExternalSample((math.ceil(round(value * 1000, 6)),), self._clock.now())

    def _placed(self, error: AdapterError) -> AdapterError:
        """Returns the same error with the name of the server, which a ServerError has."""
        if isinstance(error, ServerError):
            return error
        return AdapterError(
            f"{self._servers.name}: {error.message}", error.blame, lasting=error.lasting, alive=error.alive
        )

    def _left(self, wanted: WantedTasks, found: Fetched | AdapterError) -> float:
        """Returns what a goal needs for tasks that only Redis knows: those of a worker that has gone.

        Redis hands them out again after the visibility timeout, if a worker is there to ask. Raises AdapterError.
        """
        return LEAST if or_raise(found).count(self._queues(wanted), every=False) else 0.0

    def _head_age(self, wanted: WantedTasks, replies: Replies) -> float:
        """Returns the age of the oldest waiting task, 0.0 if none waits; raises AdapterError."""
        queues, now = self._queues(wanted), self._clock.now()
        for queue in queues:
            self._waiting(queue, replies)
        keys = [key for queue in queues for key in self._broker.lists(queue)]
        found = ((key, _checked(key, "list", replies[oldest(key)], absent=None)) for key in keys)
        return max((age_of(key, task, now) for key, task in found if task is not None), default=0.0)

    def _total(self, wanted: WantedTasks, replies: Replies, found: Fetched | AdapterError) -> int:
        """Returns the number of tasks; raises AdapterError."""
        waiting = sum(self._waiting(queue, replies) for queue in self._queues(wanted))
        if wanted.query.name == WAITING:
            return waiting
        held = or_raise(found).count(self._queues(wanted), every=self._settings.known <= set(self._queues(wanted)))
        return held if wanted.query.name == UNACKED else waiting + held

    def _waiting(self, queue: str, replies: Replies) -> int:
        """Returns the number of waiting tasks of a queue; raises AdapterError if it does not exist, or not so."""
        count = sum(_size(request.key, "list", replies[request]) for request in self._lists(queue))
        self._bindings.check_sep(queue, replies)
        if not count and self._broker.on_missing_queue == "error":
            self._bindings.check(queue, replies)
        return count


async def _unasked() -> AdapterError:
    return AdapterError("the workers were not asked")


def _noted(answer: Answer, said: Said | AdapterError) -> Answer:
    """Returns the answer with a remark about workers that do not answer."""
    if isinstance(answer, ExternalSample) and isinstance(said, Said):
        return msgspec.structs.replace(answer, note=said.note)
    return answer


def _named(queues: Sequence[str]) -> str:
    names = ", ".join(map(shown, queues[:_NAMED]))
    return f"{'queues' if len(queues) > 1 else 'queue'} {names}{', …' if len(queues) > _NAMED else ''}"


def _length(key: str) -> RedisRequest:
    return RedisRequest(key, (("TYPE", key), ("LLEN", key)))


def _size(key: str, expected: str, replies: list[Reply] | AdapterError) -> int:
    """Returns the number of elements; raises AdapterError."""
    found = _checked(key, expected, replies, absent=0)
    if not isinstance(found, int) or found < 0:
        raise AdapterError(f"the size of the key {shown(key)} is {shown(str(found))}, not a number")
    return found


def _checked(key: str, expected: str, replies: list[Reply] | AdapterError, absent: Reply) -> Reply:
    """Returns the reply behind that to TYPE, `absent` where there is no key; raises AdapterError for another type."""
    kind, found = or_raise(replies)
    if isinstance(kind, ReplyError):
        raise AdapterError(f"TYPE of the key {shown(key)}: {kind}")
    if kind == "none":  # Redis removes a list or hash with its last element
        return absent
    if kind != expected:
        raise AdapterError(f"the key {shown(key)} is a {kind}, not a {expected}", "spec")
    if isinstance(found, ReplyError):
        raise AdapterError(f"the key {shown(key)}: {found}")
    return found


# `celery_head_age`: how long the oldest waiting task has waited.
#
# A message of Celery has no time by default (celery/app/amqp.py: as_task_v2), so its publisher has to write one: the
# property `timestamp`, as RabbitMQ has it, or a header.
#
# Workers take tasks from the right end of a list (kombu/transport/redis.py: Channel._brpop_start), which is read. The
# times stand behind the body, so that a part of the message is not enough. A script sends none beyond _LONGEST_MESSAGE.

_LONGEST_MESSAGE = 1 << 20
"""The longest message that is read."""
_SCRIPT = (
    "local v = redis.call('LINDEX', KEYS[1], -1) "
    "if v and string.len(v) > tonumber(ARGV[1]) then return string.len(v) end "
    "return v"
)
_WRITE = (
    "the application has to write it, as in "
    "`@before_task_publish.connect def sent(properties, **_): properties['timestamp'] = int(time.time())`"
)


class _Properties(msgspec.Struct, frozen=True):
    timestamp: Any = None


class _Headers(msgspec.Struct, frozen=True, rename={"sentry": "sentry-task-enqueued-time"}):
    """Headers by which applications and libraries say when a task was sent; the first one that a task has counts."""

    timestamp: Any = None
    sent_at: Any = None
    published_at: Any = None
    sentry: Any = None


class _Message(msgspec.Struct, frozen=True):
    headers: _Headers = _Headers()
    properties: _Properties = _Properties()


_DECODER = msgspec.json.Decoder(_Message)


def oldest(key: str) -> RedisRequest:
    """Returns the request for the oldest task of a list."""
    return RedisRequest(key, (("TYPE", key), ("EVAL", _SCRIPT, "1", key, str(_LONGEST_MESSAGE))))


def age_of(key: str, reply: Reply, now: datetime) -> float:
    """Returns the seconds since the task was sent; raises AdapterError where it does not tell, and what to write."""
    if isinstance(reply, ReplyError):
        raise AdapterError(f"EVAL of the key {shown(key)}: {reply}")
    if isinstance(reply, int):
        raise AdapterError(f"{_task(key)} has {reply} bytes, and at most {_LONGEST_MESSAGE} are read", "spec")
    try:
        found = _DECODER.decode(str(reply))
    except UNDECODABLE:
        raise AdapterError(f"{_task(key)} is no message of Celery", "spec") from None
    headers = msgspec.structs.astuple(found.headers)
    stamp = next((each for each in (found.properties.timestamp, *headers) if each is not None), None)
    if stamp is None:
        raise AdapterError(f"{_task(key)} does not tell when it was sent: {_WRITE}", "spec")
    try:
        if not math.isfinite(number := _number(stamp)):
            raise ValueError("is no time")
        return age(number, now)
    except (ValueError, OverflowError) as error:
        raise AdapterError(f"the time {shown(str(stamp))} of {_task(key)} {error}", "spec") from None


def _task(key: str) -> str:
    return f"the oldest task of the list {shown(key)}"


def _number(stamp: Any) -> float:
    """Returns a number as it is, and the seconds since 1970 of a date and time; raises ValueError."""
    if isinstance(stamp, int | float) and not isinstance(stamp, bool):
        return float(stamp)
    if not isinstance(stamp, str):
        raise ValueError("is neither a number nor a text")
    try:
        return float(stamp)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        raise ValueError("is neither a number nor a time such as 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError("has no time zone: write it in UTC, such as 2026-01-31T12:00:00Z")
    return moment.astimezone(UTC).timestamp()
