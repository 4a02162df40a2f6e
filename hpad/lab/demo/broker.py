"""The demo's connection to the broker: publishes tasks, and counts messages and consumers."""

import asyncio
from collections.abc import Callable
from typing import Self, TypeVar

from hpad.clock import Clock
from hpad.lab.demo import DemoError
from hpad.lab.demo.workloads import amqp

COUNT_SECONDS = 0.3
T = TypeVar("T")


class Broker:
    """The broker's counts of one queue, updated every COUNT_SECONDS while the context is open.

    Entering the context raises DemoError, and so does `check` once counting has failed. The AMQP client blocks, so its
    calls run in a thread, one at a time.
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
        """Returns True; raises DemoError when counting has failed."""
        if self._counting is not None and self._counting.done():
            self._counting.result()
        return True

    async def publish(self, messages: int) -> None:
        """Publishes a number of messages to the queue; raises DemoError."""
        await self.send([f"task {number}".encode() for number in range(1, messages + 1)])

    async def send(self, bodies: list[bytes]) -> None:
        """Publishes messages to the queue; raises DemoError."""
        await self._call(lambda connection: connection.publish(self._queue, bodies))

    async def _keep_counting(self) -> None:
        while True:
            await self._clock.sleep(COUNT_SECONDS)
            await self._count()

    async def _count(self) -> None:
        self.ready, self.consumers = await self._call(lambda connection: connection.count(self._queue))
        self.most_consumers = max(self.most_consumers, self.consumers)

    async def _call(self, function: Callable[[amqp.Connection], T]) -> T:
        def call() -> T:
            if self._connection is None:
                self._connection = amqp.Connection(self._url)
            return function(self._connection)

        async with self._lock:
            try:
                return await asyncio.to_thread(call)
            except (OSError, amqp.AmqpError) as error:
                raise DemoError(f"the broker does not answer: {error}") from None
