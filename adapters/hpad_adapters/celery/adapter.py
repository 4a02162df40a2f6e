"""The Celery adapter: parses queries, and counts the tasks of their queues in RabbitMQ or Redis."""

import fnmatch
from collections.abc import Hashable, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar

import msgspec

from hpad.adapter import (
    EXTERNAL,
    AdapterError,
    Answer,
    Context,
    Operator,
    PastPromQL,
    Query,
    Requirement,
    Selector,
)
from hpad_adapters import extras
from hpad_adapters.celery import settings
from hpad_adapters.celery.by_word import ByWord
from hpad_adapters.celery.over_redis import OverRedis
from hpad_adapters.celery.settings import Settings, is_glob
from hpad_adapters.celery.wanted import (
    ACTIVE,
    HEAD_AGE,
    METRICS,
    PARAMETERS,
    TASKS,
    TO_CLEAR,
    UNACKED,
    WAITING,
    WantedTasks,
    wanted,
)
from hpad_adapters.celery.workers import CeleryWorkers
from hpad_adapters.rabbitmq import Metric, Mode, RabbitMQ
from hpad_adapters.rabbitmq import Settings as RabbitMQSettings
from hpad_adapters.redis_servers import lacks
from hpad_adapters.selection import attempt

# Celery over RabbitMQ: a queue of Celery is a queue of the broker, which the adapter rabbitmq reads.
#
# Queries are translated and passed on, so that batching, rates, the work of each pod and errors are those of rabbitmq.

_MODES: Mapping[str, Mode] = {
    TASKS: "messages",
    WAITING: "ready",
    UNACKED: "unacked",
    TO_CLEAR: "workers_to_clear",
    ACTIVE: "unacked",
    HEAD_AGE: "head_age",
}
_BY_WORD = "workers"
"""The group of queries of pods that the workers answer."""
_EVERY = " of all queues"
_OTHERS = (
    r".*\.celery\.pidbox|celeryev\..*|amq\..*|[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"
    r"|(mqtt|stomp)-subscription-.*"
)
"""Queues without tasks: remote control of each worker and its replies, events, results of the backend rpc, and
subscriptions of MQTT and STOMP, of which those of MQTT with QoS 0 have no counts (rabbit_mqtt_qos0_queue.erl)."""


class OverRabbitMQ:
    """Passes queries on to the adapter rabbitmq."""

    def __init__(self, settings: Settings, broker: RabbitMQSettings, context: Context) -> None:
        every = "|".join(fnmatch.translate(name) for name in settings.queues)
        patterns = {name + _EVERY: Metric(queue_regex=every, exclude_regex=_OTHERS) for name in METRICS}
        self._queues = () if any(map(is_glob, settings.queues)) else tuple(settings.queues)
        self._inner = RabbitMQ(msgspec.structs.replace(broker, metrics=patterns), context)

    async def answer(self, asked: Sequence[WantedTasks]) -> list[Answer]:
        """Returns one answer per query; raises AdapterError."""
        return await self._inner.answer([self._translated(each) for each in asked])

    async def past(self, wanted: WantedTasks, window: timedelta) -> PastPromQL:
        """Returns the PromQL of the queues; raises AdapterError."""
        return await self._inner.past(self._translated(wanted), window)

    def group(self, wanted: WantedTasks) -> Hashable:
        """Returns what the adapter rabbitmq groups the query by."""
        return self._inner.group(self._translated(wanted))

    async def aclose(self) -> None:
        """Closes the adapter rabbitmq."""
        await self._inner.aclose()

    def _translated(self, wanted: WantedTasks) -> Query:
        """Returns the query with the queues by name, or that of all queues which match the patterns."""
        queues = wanted.queues or self._queues
        given = {**wanted.goal, "mode": _MODES[wanted.query.name]}
        terms = [Requirement(name, Operator.EQUALS, (value,)) for name, value in given.items()]
        terms += [Requirement("queue", Operator.IN, queues)] if queues else []
        selector = Selector(tuple(sorted(terms, key=lambda term: term.key)))
        name = wanted.query.name if queues else wanted.query.name + _EVERY
        return msgspec.structs.replace(wanted.query, name=name, selector=selector)


class Celery:
    """Tasks of a Celery application on RabbitMQ or Redis, by queue (`queue=mail`) or by name (`task=mail.send`).

    celery_tasks_waiting: tasks in the queues; celery_tasks_unacknowledged: those that workers have fetched and not
    acknowledged; celery_tasks: both; celery_tasks_active: those in work, which only workers know. With `workers` they
    count by what the workers say. celery_workers_to_clear: tasks to be worked on at once so that the backlog is gone
    within `goal=60s`; over Redis it needs `workers`. celery_head_age: seconds since the oldest task was sent, if it
    tells. Without a selector, the tasks of all queues of the application.
    """

    serves: ClassVar[frozenset[str]] = frozenset({EXTERNAL})
    metrics = METRICS
    parameters = PARAMETERS
    knows_members = True
    Settings: ClassVar[type[settings.Settings]] = settings.Settings

    @staticmethod
    def lacks(settings: settings.Settings) -> str:
        """Returns the package that is missing; "" if none is."""
        if settings.workers is not None and (kombu := extras.lacks("kombu", "celery")):
            return kombu
        return RabbitMQ.lacks(settings.rabbitmq) if settings.rabbitmq is not None else lacks()

    def __init__(self, configured: settings.Settings, context: Context) -> None:
        self._settings = configured
        workers = CeleryWorkers(configured, context) if configured.workers is not None else None
        self._broker: OverRedis | OverRabbitMQ
        if configured.redis is not None:
            self._broker = OverRedis(configured, configured.redis, context, workers)
        else:
            assert configured.rabbitmq is not None
            self._broker = OverRabbitMQ(configured, configured.rabbitmq, context)
        self._word = ByWord(configured, workers) if workers is not None else None

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns one answer per query; raises AdapterError if the broker does not answer."""
        parsed = [attempt(self._wanted, query) for query in queries]
        valid = [each for each in parsed if isinstance(each, WantedTasks)]
        of_pods = [each for each in valid if self._is_by_word(each)]
        pods = iter(await self._word.pods(of_pods) if self._word and of_pods else ())
        others = [each for each in valid if not self._is_by_word(each)]
        counted = await self._broker.answer(others) if others else []
        counts = iter(await self._word.corrected(others, counted) if self._word is not None else counted)
        return [
            each if isinstance(each, AdapterError) else next(pods if self._is_by_word(each) else counts)
            for each in parsed
        ]

    def group(self, query: Query) -> Hashable:
        """Returns what the broker groups queries by; None for an invalid query."""
        parsed = attempt(self._wanted, query)
        if not isinstance(parsed, WantedTasks):
            return None
        return _BY_WORD if self._is_by_word(parsed) else self._broker.group(parsed)

    async def past(self, query: Query, window: timedelta) -> PastPromQL:
        """Returns the PromQL of the queues of RabbitMQ; raises AdapterError, as always for Redis."""
        if not isinstance(self._broker, OverRabbitMQ):
            raise AdapterError("Redis exports no series of its queues: write their PromQL into the series file", "spec")
        return await self._broker.past(self._wanted(query), window)

    async def aclose(self) -> None:
        """Closes the connections to the broker."""
        if self._word is not None:
            await self._word.aclose()
        await self._broker.aclose()

    def _is_by_word(self, wanted: WantedTasks) -> bool:
        return self._word is not None and wanted.query.members is not None

    def _wanted(self, query: Query) -> WantedTasks:
        return wanted(query, self._settings)
