"""The adapter `sqs`: how many messages queues of Amazon SQS have.

Source: Amazon SQS API Reference, GetQueueAttributes: the counts are approximate, and reach consistency within a minute
after the last message was sent. KEDA 2.21, "AWS SQS Queue", counts visible messages and those in flight.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Query
from hpad_adapters import extras
from hpad_adapters.selection import attempt, labels, no_metric
from hpad_adapters.sqs.settings import ATTRIBUTES, Metric, SqsSettings

# A thread with an event loop of its own, for a library with asyncio that reads files in coroutines.
#
# The AWS SDK reads service descriptions, configuration files and tokens that way; in hpad's loop they would block it.

T = TypeVar("T")


class LoopThread:
    """Runs coroutines on its thread, which starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a coroutine that runs on the thread, where a cancellation reaches it too."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._started()))

    async def aclose(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a last coroutine and ends the thread; does nothing if there is none (any more)."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            await self.run(last())
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
            self._thread.start()
        return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:  # at its end it cancels what is left
        runner.get_loop().run_forever()


_BUILT_IN: Mapping[str, Metric] = {
    "sqs_messages": Metric(),
    "sqs_messages_visible": Metric(counts=["visible"]),
    "sqs_messages_in_flight": Metric(counts=["in_flight"]),
    "sqs_messages_delayed": Metric(counts=["delayed"]),
}


class Sqs:
    """Messages of Amazon SQS queues; a batch has one request for each queue."""

    serves = frozenset({EXTERNAL})
    metrics: tuple[str, ...] = tuple(_BUILT_IN)
    parameters = ("queue",)
    Settings = SqsSettings

    @staticmethod
    def lacks(settings: SqsSettings) -> str:
        """Returns the package that is missing; "" if none is."""
        return extras.lacks("aiobotocore", "sqs")

    def __init__(self, settings: SqsSettings, context: Context) -> None:
        extras.require("aiobotocore", "sqs")
        self._client: Any = None
        self._context = context
        self._metrics = {**_BUILT_IN, **settings.metrics}
        self.metrics = tuple(self._metrics)
        self._settings = settings
        self._clock = context.clock
        self._worker = LoopThread(f"sqs {context.name}")

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; raises AdapterError if there are no credentials."""
        queues = [attempt(self._queue, query) for query in queries]
        wanted = dict.fromkeys(queue for queue in queues if isinstance(queue, str))
        found = await self._worker.run(self._counts(wanted)) if wanted else {}
        return [
            queue if isinstance(queue, AdapterError) else self._sample(query, found[queue])
            for query, queue in zip(queries, queues, strict=True)
        ]

    async def aclose(self) -> None:
        """Closes the connections and ends the thread."""
        await self._worker.aclose(self._close)

    async def _counts(self, queues: Iterable[str]) -> dict[str, dict[str, int] | AdapterError]:
        """Runs on the worker, as `_close` does: even the import of the SDK reads files."""
        if self._client is None:
            self._client = extras.load("hpad_adapters.sqs.client", "sqs").SqsClient(self._settings, self._context)
        found: dict[str, dict[str, int] | AdapterError] = await self._client.counts(queues)
        return found

    async def _close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _queue(self, query: Query) -> str:
        """Returns URL or name of the queue; raises AdapterError."""
        metric = self._metrics.get(query.name)
        if metric is None:
            raise no_metric(query, self._metrics)
        by_label = labels(query, () if metric.queue else ("queue",))
        name = metric.queue or by_label["queue"]
        if not metric.queue and self._settings.only_queues and name not in self._settings.queues:
            raise AdapterError(f'the queue "{name}" is not one of the queues that the configuration allows', "spec")
        if not metric.queue and name not in self._settings.queues and "/" in name:
            raise AdapterError(f'the queue "{name}" is a URL, which the configuration alone may name', "spec")
        return self._settings.queues.get(name, name)

    def _sample(self, query: Query, found: Mapping[str, int] | AdapterError) -> Answer:
        if isinstance(found, AdapterError):
            return found
        total = sum(found[ATTRIBUTES[count]] for count in self._metrics[query.name].counts)
        return ExternalSample((total * 1000,), self._clock.now())
