"""External metrics from queue depths."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query
from hpad_adapters.rabbitmq import settings
from hpad_adapters.rabbitmq.broker import Broker
from hpad_adapters.rabbitmq.queues import Queue, Queues
from hpad_adapters.rabbitmq.wanted import METRICS, Wanted, wanted


class RabbitMQ:
    """External metrics `queue_messages`, `queue_messages_ready` and `queue_messages_unacknowledged`.

    The metric's selector names the queue: `queue=worker_tasks`, with `vhost=` and `mode=` if need be.
    """

    serves: ClassVar[frozenset[str]] = frozenset({EXTERNAL})
    metrics: ClassVar[Sequence[str]] = tuple(METRICS)
    Settings: ClassVar[type[settings.Settings]] = settings.Settings

    def __init__(self, configured: settings.Settings, context: Context) -> None:
        self._settings = configured
        self._clock = context.clock
        self._broker = Broker(configured, context)
        self._queues = Queues(self._broker)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """One value per query, the queue's count now; each vhost of the batch is read once."""
        plans = [self._wanted(query) for query in queries]
        names: dict[str, set[str]] = {}
        for plan in plans:
            if isinstance(plan, Wanted):
                names.setdefault(plan.vhost, set()).add(plan.queue)
        read = await asyncio.gather(*(self._read(vhost, queues) for vhost, queues in names.items()))
        vhosts = dict(zip(names, read, strict=True))
        return [plan if isinstance(plan, AdapterError) else self._answer(plan, vhosts[plan.vhost]) for plan in plans]

    async def aclose(self) -> None:
        """Nothing of its own is open."""

    def _wanted(self, query: Query) -> Wanted | AdapterError:
        try:
            return wanted(query, self._settings)
        except AdapterError as error:
            return error

    async def _read(self, vhost: str, names: set[str]) -> dict[str, Queue] | AdapterError:
        try:
            return await self._queues.read(vhost, names)
        except AdapterError as error:
            return AdapterError(error.message, error.blame)

    def _answer(self, plan: Wanted, found: dict[str, Queue] | AdapterError) -> Answer:
        if isinstance(found, AdapterError):
            return found
        queue = found.get(plan.queue)
        where = f'queue "{plan.queue}"', f'vhost "{plan.vhost}" of {self._broker}'
        if queue is None:
            return AdapterError(f"{where[0]} does not exist in {where[1]}", "spec")
        count: int | None = getattr(queue, plan.field)
        if count is None:
            return AdapterError(f"the answer about {where[0]} in {where[1]} has no {plan.field}")
        return ExternalSample((count * 1000,), self._clock.now())
