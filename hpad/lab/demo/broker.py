"""The demo's own connection to the broker: to put tasks into the queue, and to ask who consumes it."""

import asyncio
from collections.abc import Callable
from typing import Self, TypeVar

from hpad.clock import Clock
from hpad.lab.demo.errors import DemoError
from hpad.lab.demo.workloads import amqp

COUNT_EVERY = 0.3
T = TypeVar("T")


class Broker:
    """What the broker itself counts of one queue, kept up to date while the context is open.

    Entering it raises DemoError, and so does `check` once counting has failed. The AMQP client blocks, so each call is
    one in a thread, one at a time.
    """

    def __init__(self, url: str, queue: str, clock: Clock) -> None:
        self._url, self._queue, self._clock = url, queue, clock
        self._lock = asyncio.Lock()
        self._connection: amqp.Connection | None = None
        self._counting: asyncio.Task[None] | None = None
        self.ready = 0
        self.consumers = 0
        self.most_consumers = 0

    def __str__(self) -> str:
        return f"the broker counts {self.consumers} consumers and {self.ready} messages not yet delivered"

    async def __aenter__(self) -> Self:
        await self._count()
        self._counting = asyncio.create_task(self._keep_counting())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)
        async with self._lock:
            if self._connection is not None:
                await asyncio.to_thread(self._connection.close)

    def check(self) -> bool:
        """Always True, as long as the counts are up to date."""
        if self._counting is not None and self._counting.done():
            self._counting.result()
        return True

    async def publish(self, messages: int) -> None:
        """Put so many messages into the queue."""
        bodies = [f"task {number}".encode() for number in range(1, messages + 1)]
        await self._ask(lambda connection: connection.publish(self._queue, bodies))

    async def _keep_counting(self) -> None:
        while True:
            await self._clock.sleep(COUNT_EVERY)
            await self._count()

    async def _count(self) -> None:
        self.ready, self.consumers = await self._ask(lambda connection: connection.count(self._queue))
        self.most_consumers = max(self.most_consumers, self.consumers)

    async def _ask(self, question: Callable[[amqp.Connection], T]) -> T:
        def ask() -> T:
            if self._connection is None:
                self._connection = amqp.Connection(self._url)
            return question(self._connection)

        async with self._lock:
            try:
                return await asyncio.to_thread(ask)
            except (OSError, amqp.AmqpError) as error:
                raise DemoError(f"the broker does not answer: {error}") from None
