"""One source at work: many HPAs ask, few calls are made, and what goes wrong stays here.

Queries that arrive in one turn of the event loop, or while as many calls are under way as the source allows, make up
one batch; equal ones are asked once. A waiting HPA that is cancelled takes nobody's answer away.
"""

import asyncio
from collections.abc import Callable, Sequence

from hpad.adapter import Adapter, AdapterError, Answer, Log, Query
from hpad.clock import Clock
from hpad.gather import answers

Observer = Callable[[str, float, AdapterError | None], None]
"""Told of every call: the source's name, seconds, and the first error that is not an HPA author's (None: all well)."""

TIMEOUT_SECONDS = 10.0
CONCURRENCY = 4
_FAREWELL_SECONDS = 2.0


class Source:
    """Batches, limits and isolates the calls to one adapter instance. `timeout` is seconds per call."""

    def __init__(
        self,
        name: str,
        adapter: Adapter,
        *,
        clock: Clock,
        log: Log,
        observer: Observer,
        timeout: float = TIMEOUT_SECONDS,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self.name = name
        self._adapter = adapter
        self._clock = clock
        self._log = log
        self._observer = observer
        self._timeout = timeout
        self._concurrency = concurrency
        self._waiting: dict[Query, asyncio.Future[Answer]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._abandoned: set[asyncio.Task[list[Answer]]] = set()
        self._closed = False

    def ask(self, query: Query) -> asyncio.Future[Answer]:
        """The answer to come: it is always set in the end, and never to an exception. Wait for it, do not cancel it."""
        loop = asyncio.get_running_loop()
        if self._closed:
            closed: asyncio.Future[Answer] = loop.create_future()
            closed.set_result(self._closing())
            return closed
        if not self._waiting:
            loop.call_soon(self._dispatch)
        future = self._waiting.get(query)
        if future is None:
            future = self._waiting[query] = loop.create_future()
        return future

    async def aclose(self) -> None:
        """Answer whoever still waits with an error, end all calls, and close the adapter."""
        self._closed = True
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_result(self._closing())
        tasks = self._calls | self._abandoned
        for task in tasks:
            task.cancel()
        farewell = asyncio.create_task(self._close_adapter())
        await asyncio.wait({*tasks, farewell}, timeout=_FAREWELL_SECONDS)
        if not farewell.done():
            farewell.cancel()
            self._log.warning("the adapter did not close in time", source=self.name)

    def _dispatch(self) -> None:
        if not self._waiting or len(self._calls) >= self._concurrency:
            return
        batch, self._waiting = self._waiting, {}
        call = asyncio.create_task(self._call(batch), name=f"source {self.name}")
        self._calls.add(call)
        call.add_done_callback(self._finished)

    def _finished(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._dispatch()

    async def _call(self, batch: dict[Query, asyncio.Future[Answer]]) -> None:
        started = self._clock.monotonic()
        given: list[Answer] = [self._closing()] * len(batch)
        try:
            given = await self._attempt(tuple(batch))
            self._observer(self.name, self._clock.monotonic() - started, _failure(given))
        finally:
            for future, answer in zip(batch.values(), given, strict=True):
                future.set_result(answer)

    async def _attempt(self, queries: Sequence[Query]) -> list[Answer]:
        """One call. An adapter that does not even heed its cancellation is left behind, so that it delays nobody."""
        task = asyncio.create_task(self._answer(queries), name=f"adapter {self.name}")
        try:
            await asyncio.wait({task}, timeout=self._timeout)
        finally:
            if not task.done():
                self._abandon(task)
        if not task.done():
            return [AdapterError(f'source "{self.name}" did not answer within {self._timeout:g}s')] * len(queries)
        if task.cancelled():
            return [AdapterError(f'source "{self.name}" cancelled its own call', "bug")] * len(queries)
        return task.result()

    async def _answer(self, queries: Sequence[Query]) -> list[Answer]:
        try:
            return answers.checked(self.name, queries, await self._adapter.answer(queries))
        except AdapterError as error:
            return [error] * len(queries)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others: whatever it raises ends here
            return [self._raised(error)] * len(queries)

    def _raised(self, error: BaseException) -> AdapterError:
        """Where the bug is, without the exception's own text: it may hold a URL with a password in it."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
        kind = type(error).__name__
        self._log.error("the adapter raised an exception", source=self.name, exception=kind, at=place)
        return AdapterError(f'source "{self.name}" failed with {kind}, a bug of its adapter', "bug")

    def _abandon(self, task: asyncio.Task[list[Answer]]) -> None:
        task.cancel()
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    async def _close_adapter(self) -> None:
        try:
            await self._adapter.aclose()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others: whatever it raises ends here
            self._log.warning("the adapter failed to close", source=self.name, exception=type(error).__name__)

    def _closing(self) -> AdapterError:
        return AdapterError(f'source "{self.name}" is shutting down')


def _failure(given: Sequence[Answer]) -> AdapterError | None:
    return next((answer for answer in given if isinstance(answer, AdapterError) and answer.blame != "spec"), None)
