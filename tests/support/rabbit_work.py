"""Work on a broker whose every step is known: messages published, held and acknowledged by consumers of named pods.

For each type of queue there are three queues:

| queue | what is done |
| --- | --- |
| still | 12 published at SENT; pod-a has acknowledged 2 and, by its prefetch limit, holds 3; nothing moves any more |
| held | 2 published; pod-a holds one of them, pod-b has acknowledged the other one, and pod-c is not connected |
| flow | PUBLISHED messages per second; pod-a has a prefetch limit of 1 and acknowledges DONE per second |
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import yarl

from hpad.adapter import Member

PODS = (Member("pod-a", "127.0.0.2"), Member("pod-b", "127.0.0.3"), Member("pod-c", "127.0.0.4"))
PUBLISHED, DONE = 10, 5
OLD = 100
"""Seconds by which SENT is earlier than the start of the work."""


def queue_of(what: str, kind: str) -> str:
    """The name of one of the queues, such as "still-quorum"."""
    return f"{what}-{kind}"


class RabbitWork:
    """The work, in a thread with an event loop of its own. `addresses`: each connection goes to the next node."""

    def __init__(self, addresses: Sequence[str], kinds: Sequence[str]) -> None:
        self.aiormq = pytest.importorskip("aiormq", reason="needs the extra amqp")
        self.sent = time.time() - OLD
        self.published: dict[str, int] = dict.fromkeys(kinds, 0)
        self.done: dict[str, int] = dict.fromkeys(kinds, 0)
        self._addresses = itertools.cycle(addresses)
        self._kinds = kinds
        self._ready = threading.Event()
        self._end = threading.Event()
        self._failure: BaseException | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator["RabbitWork"]:
        """Starts the work; it goes on until the end."""
        thread = threading.Thread(target=self._run, name="work")
        thread.start()
        try:
            assert self._ready.wait(120)
            if self._failure is not None:
                raise self._failure
            yield self
        finally:
            self._end.set()
            thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001  # the test shows it
            self._failure = error
        finally:
            self._ready.set()

    async def _work(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for kind in self._kinds:
                await self._still(stack, queue_of("still", kind), kind)
                await self._held(stack, queue_of("held", kind), kind)
            flows = [asyncio.create_task(self._flow(stack, kind)) for kind in self._kinds]
            self._ready.set()
            ended = asyncio.create_task(asyncio.to_thread(self._end.wait))
            await asyncio.wait([ended, *flows], return_when=asyncio.FIRST_COMPLETED)
            for flow in flows:
                flow.cancel()
            for found in await asyncio.gather(*flows, return_exceptions=True):
                if isinstance(found, Exception):
                    raise found

    async def _still(self, stack: contextlib.AsyncExitStack, queue: str, kind: str) -> None:
        publisher = await self._declared(stack, queue, kind)
        await self._publish(publisher, queue, 12, datetime.fromtimestamp(self.sent, UTC))
        channel, got = await self._consumer(stack, queue, PODS[0], 3)
        for _ in range(2):
            await channel.basic_ack((await got.get()).delivery.delivery_tag)
        for _ in range(3):
            await got.get()

    async def _held(self, stack: contextlib.AsyncExitStack, queue: str, kind: str) -> None:
        publisher = await self._declared(stack, queue, kind)
        await self._publish(publisher, queue, 2)
        _, first = await self._consumer(stack, queue, PODS[0], 1)
        await first.get()
        channel, second = await self._consumer(stack, queue, PODS[1], 1)
        await channel.basic_ack((await second.get()).delivery.delivery_tag)

    async def _flow(self, stack: contextlib.AsyncExitStack, kind: str) -> None:
        queue = queue_of("flow", kind)
        publisher = await self._declared(stack, queue, kind)
        channel, got = await self._consumer(stack, queue, PODS[0], 1)
        begin = asyncio.get_running_loop().time()
        for step in itertools.count(1):
            if step % (PUBLISHED // DONE) == 0:
                await channel.basic_ack((await got.get()).delivery.delivery_tag)
                self.done[kind] += 1
            await self._publish(publisher, queue, 1)
            self.published[kind] += 1
            await asyncio.sleep(max(0.0, begin + step / PUBLISHED - asyncio.get_running_loop().time()))

    async def _declared(self, stack: contextlib.AsyncExitStack, queue: str, kind: str) -> Any:
        channel = await self._channel(stack, "127.0.0.1")
        await channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        return channel

    async def _publish(self, channel: Any, queue: str, count: int, sent: datetime | None = None) -> None:
        properties = self.aiormq.spec.Basic.Properties(delivery_mode=2, timestamp=sent)
        for _ in range(count):
            await channel.basic_publish(b"work", routing_key=queue, properties=properties)

    async def _consumer(
        self, stack: contextlib.AsyncExitStack, queue: str, pod: Member, prefetch: int
    ) -> tuple[Any, asyncio.Queue[Any]]:
        channel = await self._channel(stack, pod.address)
        got: asyncio.Queue[Any] = asyncio.Queue()
        await channel.basic_qos(prefetch_count=prefetch)
        await channel.basic_consume(queue, got.put)
        return channel, got

    async def _channel(self, stack: contextlib.AsyncExitStack, source: str) -> Any:
        url = yarl.URL(next(self._addresses))
        connection = self.aiormq.Connection(url, transport_factory=_From(source))
        await connection.connect()
        stack.push_async_callback(connection.close)
        return await connection.channel()


class _From:
    """Connects from an address of loopback, as a pod does from its own."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def create(self, url: Any, **_: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(url.host, url.port, local_addr=(self._address, 0))
