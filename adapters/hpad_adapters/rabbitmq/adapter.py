"""External metrics from queues."""

import asyncio
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import ClassVar

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query
from hpad_adapters.rabbitmq import settings
from hpad_adapters.rabbitmq.amqp import Amqp
from hpad_adapters.rabbitmq.broker import Broker
from hpad_adapters.rabbitmq.detailed import Detailed
from hpad_adapters.rabbitmq.management import Management
from hpad_adapters.rabbitmq.modes import ANY_VHOST
from hpad_adapters.rabbitmq.queue import NotAsAWhole, Queue, Reader, Sought
from hpad_adapters.rabbitmq.values import METRICS, Values, Wanted, wanted

_Place = tuple[str, bool]
"""A vhost, and whether its statistics are needed: counts alone are fresher and cheaper."""
_Found = dict[str, list[Queue]] | AdapterError


class RabbitMQ:
    """External metrics `queue_messages`, `queue_messages_ready`, `queue_messages_unacknowledged`, and the operator's.

    The metric's selector says which queue, unless the configuration does: `queue=worker_tasks` or `queue in (a,b)`,
    with `vhost=`, `mode=` and `aggregate=` if need be.
    """

    serves: ClassVar[frozenset[str]] = frozenset({EXTERNAL})
    metrics: Sequence[str] = tuple(METRICS)
    Settings: ClassVar[type[settings.Settings]] = settings.Settings

    def __init__(self, configured: settings.Settings, context: Context) -> None:
        self.metrics = (*METRICS, *configured.metrics)
        self._settings = configured
        self._clock = context.clock
        self._values = Values(configured)
        self._reader, self._named = _reader(configured, context)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """One answer per query; each vhost of the batch is read once, and once more if statistics are needed."""
        plans = [self._wanted(query) for query in queries]
        sought = _sought(plan for plan in plans if isinstance(plan, Wanted))
        read = await asyncio.gather(*(self._read(vhost, each) for (vhost, _), each in sought.items()))
        vhosts = dict(zip(sought, read, strict=True))
        return [plan if isinstance(plan, AdapterError) else self._answer(plan, vhosts) for plan in plans]

    def group(self, query: Query) -> Hashable:
        """The queues of a vhost are read together; None for a query that is wrong."""
        plan = self._wanted(query)
        return None if isinstance(plan, AdapterError) else (plan.vhosts, plan.statistics)

    async def aclose(self) -> None:
        """Close what connections of its own there are."""
        await self._reader.aclose()

    def _wanted(self, query: Query) -> Wanted | AdapterError:
        try:
            return wanted(query, self._settings)
        except AdapterError as error:
            return error

    async def _read(self, vhost: str, sought: Sought) -> dict[re.Pattern[str] | None, _Found]:
        """The queues by name, for each pattern, and for names (None): all at once, if that can be."""
        whole = await self._found(vhost, sought)
        if isinstance(whole, NotAsAWhole) and len(sought.parts) > 1:
            return {part: await self._found(vhost, each) for part, each in sought.parts.items()}
        return dict.fromkeys(sought.parts, whole)

    async def _found(self, vhost: str, sought: Sought) -> _Found:
        """The queues by name: one each, unless "*" stands for several vhosts."""
        try:
            found: dict[str, list[Queue]] = {}
            for queue in await self._reader.read(vhost, sought):
                found.setdefault(queue.name, []).append(queue)
            return found
        except AdapterError as error:
            kind = NotAsAWhole if isinstance(error, NotAsAWhole) else AdapterError
            return kind(error.message, error.blame, lasting=error.lasting)

    def _answer(self, plan: Wanted, vhosts: Mapping[_Place, Mapping[re.Pattern[str] | None, _Found]]) -> Answer:
        queues: list[Queue] = []
        absent: list[str] = []
        for vhost in plan.vhosts:
            found = vhosts[vhost, plan.statistics][plan.pattern]
            if isinstance(found, AdapterError):
                return found
            if plan.pattern is None:
                absent += (name for name in plan.queues if name not in found)
                queues += (queue for name in plan.queues for queue in found.get(name, ()))
            else:
                queues += (queue for name, each in found.items() if plan.matches(name) for queue in each)
        try:
            return ExternalSample(self._values.of(plan, queues, absent, self._where(plan)), self._clock.now())
        except AdapterError as error:
            return error

    def _where(self, plan: Wanted) -> str:
        if ANY_VHOST in plan.vhosts:
            return f"any vhost of {self._named}"
        names = ", ".join(f'"{vhost}"' for vhost in plan.vhosts)
        return f"vhost{'s' if len(plan.vhosts) > 1 else ''} {names} of {self._named}"


def _reader(configured: settings.Settings, context: Context) -> tuple[Reader, object]:
    """The way to read, and what is called by its present name in errors."""
    if configured.source == "amqp":
        amqp = Amqp(configured, context)
        return amqp, amqp
    broker = Broker(configured, context)
    if configured.source == "prometheus":
        return Detailed(broker, configured, context), broker
    return Management(broker, configured), broker


def _sought(plans: Iterable[Wanted]) -> dict[_Place, Sought]:
    """What a batch asks of each vhost."""
    found: dict[_Place, tuple[set[str], set[re.Pattern[str]]]] = {}
    for plan in plans:
        for vhost in plan.vhosts:
            names, patterns = found.setdefault((vhost, plan.statistics), (set(), set()))
            names.update(plan.queues)
            if plan.pattern is not None:
                patterns.add(plan.pattern)
    return {
        place: Sought(frozenset(names), frozenset(patterns), place[1]) for place, (names, patterns) in found.items()
    }
