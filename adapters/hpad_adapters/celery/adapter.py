"""The Celery adapter: parses queries, and counts the tasks of their queues in RabbitMQ or Redis."""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Protocol

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, Query
from hpad_adapters.celery import settings
from hpad_adapters.celery.over_rabbitmq import OverRabbitMQ
from hpad_adapters.celery.over_redis import OverRedis
from hpad_adapters.celery.wanted import METRICS, PARAMETERS, Wanted, wanted
from hpad_adapters.redis_servers import lacks


class Broker(Protocol):
    """Counts the tasks of queues."""

    async def answer(self, asked: Sequence[Wanted]) -> list[Answer]:
        """Returns one answer per query; raises AdapterError."""
        ...

    def group(self, wanted: Wanted) -> Hashable:
        """Returns an equal value for queries that are read together."""
        ...

    async def aclose(self) -> None:
        """Closes the connections."""
        ...


class Celery:
    """Tasks of a Celery application on RabbitMQ or Redis, by queue (`queue=mail`) or by name (`task=mail.send`).

    celery_tasks_waiting: tasks in the queues; celery_tasks_unacknowledged: those that workers have fetched and not
    acknowledged; celery_tasks: both. celery_workers_to_clear (RabbitMQ only): tasks to be worked on at once so that the
    backlog is gone within `goal=60s`. Without a selector, the tasks of all queues of the application.
    """

    serves: ClassVar[frozenset[str]] = frozenset({EXTERNAL})
    metrics = METRICS
    parameters = PARAMETERS
    knows_members = True
    Settings: ClassVar[type[settings.Settings]] = settings.Settings

    @staticmethod
    def lacks(settings: settings.Settings) -> str:
        """Returns the package that is missing; "" if none is."""
        return OverRabbitMQ.lacks(settings.rabbitmq) if settings.rabbitmq is not None else lacks()

    def __init__(self, configured: settings.Settings, context: Context) -> None:
        self._settings = configured
        self._broker: Broker
        if configured.redis is not None:
            self._broker = OverRedis(configured, configured.redis, context)
        else:
            assert configured.rabbitmq is not None
            self._broker = OverRabbitMQ(configured, configured.rabbitmq, context)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns one answer per query; raises AdapterError if the broker does not answer."""
        parsed = [self._wanted(query) for query in queries]
        valid = [each for each in parsed if isinstance(each, Wanted)]
        answers = iter(await self._broker.answer(valid) if valid else ())
        return [each if isinstance(each, AdapterError) else next(answers) for each in parsed]

    def group(self, query: Query) -> Hashable:
        """Returns what the broker groups queries by; None for an invalid query."""
        parsed = self._wanted(query)
        return self._broker.group(parsed) if isinstance(parsed, Wanted) else None

    async def aclose(self) -> None:
        """Closes the connections to the broker."""
        await self._broker.aclose()

    def _wanted(self, query: Query) -> Wanted | AdapterError:
        try:
            return wanted(query, self._settings)
        except AdapterError as error:
            return error
