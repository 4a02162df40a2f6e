"""The calls to one adapter: timeouts, retries, and answers instead of exceptions and nonsense.

An adapter runs in hpad's event loop, so nothing else runs between two of its awaits. The longest such step is measured,
and an adapter that blocks the loop is reported. Steps of its own tasks and threads are not measured.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator, Hashable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from hpad.adapter import PODS, Adapter, AdapterError, Answer, ExternalSample, Log, Query
from hpad.api.sample import LONGEST_NOTE
from hpad.api.text import begin
from hpad.clock import Clock
from hpad.sources import answers, redact
from hpad.sources.limits import CallLimits
from hpad.sources.redact import Redactor
from hpad.telemetry.episode import Episode

BLOCKING_SECONDS = 1.0
"""An adapter that runs this long without an await blocks the event loop."""
MOST_ABANDONED = 32
"""With this many attempts that ignore their cancellation, no more are started: each keeps its memory."""
_CLOSE_SECONDS = 2.0
_BACKOFF_SECONDS = 0.2

T = TypeVar("T")


class StepTimer(Generic[T]):
    """Awaits a coroutine and measures its longest step, `longest`, by the clock `now` in seconds."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], now: Callable[[], float]) -> None:
        self._coroutine = coroutine
        self._now = now
        self.longest = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        thrown: BaseException | None = None
        while True:
            began = self._now()
            try:
                awaited = self._coroutine.send(None) if thrown is None else self._coroutine.throw(thrown)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self.longest = max(self.longest, self._now() - began)
            thrown = None
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001  # such as a cancellation: the coroutine handles it
                thrown = error


class LoopBlocked(AdapterError):
    """The adapter blocked the event loop."""


class TimedOut(AdapterError):
    """The call did not return in time."""


class Caller:
    """Calls one adapter instance; returns one valid answer per query and raises nothing but CancelledError.

    `name` is the source's. `redact` is applied to the text of every error.
    """

    def __init__(
        self, name: str, adapter: Adapter, *, clock: Clock, log: Log, limits: CallLimits, redact: Redactor
    ) -> None:
        self._name = name
        self._adapter = adapter
        self._grouping: Callable[[Query], Hashable] | None = getattr(adapter, "group", None)
        self._personal: Callable[[Query], bool] | None = getattr(adapter, "personal", None)
        self._ignores_containers = getattr(adapter, "ignores_containers", False) is True
        self._knows_members = getattr(adapter, "knows_members", False) is True
        self._clock = clock
        self._log = log
        self._limits = limits
        self._redact = redact
        self._abandoned: set[asyncio.Task[list[Answer]]] = set()
        begins, ends = "the adapter raised an exception", "the adapter no longer raises exceptions"
        self._raising = Episode(log, clock, begins, ends, level="error")
        begins, ends = "the adapter blocked the event loop", "the adapter no longer blocks the event loop"
        self._blocking = Episode(log, clock, begins, ends, level="error")
        self.retries = 0

    def group(self, query: Query) -> Hashable | None:
        """Returns the adapter's group of the query, which shares calls; None without one."""
        if self._grouping is None:
            return None
        try:
            group: Hashable = self._grouping(query)
            hash(group)
        except Exception:  # noqa: BLE001 - foreign code: then nothing shares its call
            return None
        return group

    def unsupported(self, query: Query) -> AdapterError | None:
        """Returns the error of a query with a field that the adapter does not know; None for others."""
        if query.members is not None and not self._knows_members:
            text = f'the adapter of source "{self._name}" does not know what each pod is working on'
            return AdapterError(f'no answer to "{query.name}" by pod: {text}', "spec")
        if not query.ignored_containers or self._ignores_containers:
            return None
        names = ", ".join(query.ignored_containers)
        text = f'the adapter of source "{self._name}" cannot leave out the usage of containers ({names})'
        return AdapterError(f'no answer to "{query.name}": {text}', "spec")

    def understood(self, query: Query) -> Query:
        """Returns a query of type Pods without the members, if the adapter does not know them."""
        if query.members is None or self._knows_members or query.type != PODS:
            return query
        return msgspec.structs.replace(query, members=None)

    def is_personal(self, query: Query) -> bool:
        """Returns whether the answer depends on the HPA, by the adapter's `personal`; True if that call fails."""
        if self._personal is None:
            return False
        try:
            return bool(self._personal(query))
        except Exception:  # noqa: BLE001 - foreign code: no HPA may get an answer meant for another one
            return True

    async def call(self, queries: Sequence[Query], *, retries: int) -> list[Answer]:
        """Makes an attempt, and further ones for the queries that may succeed then. Ends within the limits' budget."""
        end = self._clock.monotonic() + self._limits.budget
        found = await self._attempt(queries, self._limits.timeout)
        for turn in range(retries):
            errors = ((index, answer) for index, answer in enumerate(found) if isinstance(answer, AdapterError))
            again = [index for index, error in errors if error.blame in ("source", "cluster") and not error.lasting]
            pause = _BACKOFF_SECONDS * 2**turn * (0.5 + random.random())
            remaining = end - self._clock.monotonic() - pause
            if not again or remaining <= pause:
                break
            await self._clock.sleep(pause)
            self.retries += 1
            answers_again = await self._attempt(
                [queries[index] for index in again], min(remaining, self._limits.timeout)
            )
            for index, answer in zip(again, answers_again, strict=True):
                found[index] = answer
        return found

    async def aclose(self) -> None:
        """Ends abandoned attempts and closes the adapter, in at most two seconds."""
        for task in self._abandoned:
            task.cancel()
        closing = asyncio.create_task(self._close_adapter())
        await asyncio.wait({*self._abandoned, closing}, timeout=_CLOSE_SECONDS)
        if not closing.done():
            closing.cancel()
            self._log.warning("the adapter did not close in time", source=self._name)

    async def _attempt(self, queries: Sequence[Query], timeout: float) -> list[Answer]:
        """Makes one attempt. An attempt that ignores its cancellation is abandoned, so that it delays nothing."""
        if len(self._abandoned) >= MOST_ABANDONED:
            what = (
                f"has {len(self._abandoned)} calls that do not end even when they are cancelled, a bug of its adapter"
            )
            return [AdapterError(f'source "{self._name}" {what}', "bug", lasting=True)] * len(queries)
        task = asyncio.create_task(self._answer(queries), name=f"adapter {self._name}")
        try:
            # Not wait_for: it waits until the adapter has handled its cancellation.
            await asyncio.wait({task}, timeout=timeout)
        finally:
            if not task.done():
                task.cancel()
                self._abandoned.add(task)
                task.add_done_callback(self._abandoned.discard)
        if not task.done():
            late = TimedOut(f'source "{self._name}" did not answer within {self._limits.timeout:g}s', lasting=True)
            return [late] * len(queries)
        if task.cancelled():  # by the adapter itself, such as through a cancelled task that it awaits
            cancelled = AdapterError(f'source "{self._name}" cancelled its own call, a bug of its adapter', "bug")
            return [cancelled] * len(queries)
        return [readable(self._name, answer, self._redact) for answer in task.result()]

    async def _answer(self, queries: Sequence[Query]) -> list[Answer]:
        timer = StepTimer(self._ask(queries), self._clock.monotonic)
        try:
            with self._redact.active():
                returned = await timer
            self._raising.ended()
            checked = answers.checked(self._name, queries, returned, self._clock.now())
        except AdapterError as error:
            checked = [error] * len(queries)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
            checked = self._raised(error, queries)
        if timer.longest >= BLOCKING_SECONDS:
            return [self._blocked(timer.longest)] * len(queries)
        self._blocking.ended()
        return checked

    async def _ask(self, queries: Sequence[Query]) -> list[Answer]:
        # StepTimer needs a coroutine; `answer` may also return another awaitable.
        return await self._adapter.answer(queries)

    def _blocked(self, seconds: float) -> AdapterError:
        self._blocking.occurred(source=self._name, seconds=round(seconds, 1))
        what = f'source "{self._name}" blocked the event loop for {seconds:.1f}s, a bug of its adapter'
        return LoopBlocked(what, "bug", lasting=True)

    def _raised(self, error: BaseException, queries: Sequence[Query]) -> list[Answer]:
        """Logs where the adapter raised an exception; returns the answers for users, without it."""
        self._raising.occurred(source=self._name, **redact.exception_fields(error))
        redact.log_traceback(self._log, self._name, error)
        return [answers.raised(self._name, query) for query in queries]

    async def _close_adapter(self) -> None:
        try:
            await self._adapter.aclose()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
            self._log.warning("the adapter failed to close", source=self._name, exception=type(error).__name__)


def readable(source: str, answer: Answer, redactor: Redactor) -> Answer:
    """Returns the answer without secrets; an error without its traceback, whose frames keep whole responses."""
    if isinstance(answer, ExternalSample) and answer.note:
        return msgspec.structs.replace(answer, note=begin(redactor(answer.note), LONGEST_NOTE))
    if not isinstance(answer, AdapterError):
        return answer
    error = answers.error(source, answer)
    text = redactor(error.message)
    if text != error.message:
        error = AdapterError(text, error.blame, lasting=error.lasting, alive=error.alive)
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error
