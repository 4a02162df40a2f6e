"""Celery over RabbitMQ: a queue of Celery is a queue of the broker, which the adapter rabbitmq reads.

Queries are translated and passed on, so that batching, rates, the work of each pod and errors are those of rabbitmq.
"""

import fnmatch
from collections.abc import Hashable, Mapping, Sequence

import msgspec

from hpad.adapter import Answer, Context, Operator, Query, Requirement, Selector
from hpad_adapters.celery.settings import Settings, is_glob
from hpad_adapters.celery.wanted import TASKS, TO_CLEAR, UNACKED, WAITING, Wanted
from hpad_adapters.rabbitmq import Metric, Mode, RabbitMQ
from hpad_adapters.rabbitmq import Settings as RabbitMQSettings

_MODES: Mapping[str, Mode] = {TASKS: "messages", WAITING: "ready", UNACKED: "unacked", TO_CLEAR: "workers_to_clear"}
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
        named = {name: Metric(mode=mode) for name, mode in _MODES.items()}
        patterns = {
            name + _EVERY: Metric(queue_regex=every, exclude_regex=_OTHERS, mode=mode) for name, mode in _MODES.items()
        }
        self._queues = () if any(map(is_glob, settings.queues)) else tuple(settings.queues)
        self._inner = RabbitMQ(msgspec.structs.replace(broker, metrics=named | patterns), context)

    @staticmethod
    def lacks(broker: RabbitMQSettings) -> str:
        """Returns what the adapter rabbitmq lacks; "" if nothing."""
        return RabbitMQ.lacks(broker)

    async def answer(self, asked: Sequence[Wanted]) -> list[Answer]:
        """Returns one answer per query; raises AdapterError."""
        return await self._inner.answer([self._translated(each) for each in asked])

    def group(self, wanted: Wanted) -> Hashable:
        """Returns what the adapter rabbitmq groups the query by."""
        return self._inner.group(self._translated(wanted))

    async def aclose(self) -> None:
        """Closes the adapter rabbitmq."""
        await self._inner.aclose()

    def _translated(self, wanted: Wanted) -> Query:
        """Returns the query with the queues by name, or that of all queues which match the patterns."""
        queues = wanted.queues or self._queues
        terms = [Requirement(name, Operator.EQUALS, (value,)) for name, value in wanted.goal.items()]
        terms += [Requirement("queue", Operator.IN, queues)] if queues else []
        selector = Selector(tuple(sorted(terms, key=lambda term: term.key)))
        name = wanted.query.name if queues else wanted.query.name + _EVERY
        return msgspec.structs.replace(wanted.query, name=name, selector=selector)
