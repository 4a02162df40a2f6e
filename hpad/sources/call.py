"""One call to an adapter, whatever it does: timeouts, retries, and what is made of exceptions and of nonsense.

How long somebody else's coroutine holds the event loop at a stretch.

Between two of its pauses nobody else is served. What it does in tasks or threads of its own is not seen here.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

from hpad.adapter import Adapter, AdapterError, Answer, Log, Query
from hpad.clock import Clock
from hpad.sources import answers, raised
from hpad.sources.limits import Limits
from hpad.sources.redact import Redactor
from hpad.telemetry.episode import Episode

T = TypeVar("T")


class Stepped(Generic[T]):
    """Awaits a coroutine; `longest` is then the time of its longest step, by the clock `now` in seconds."""

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
            except BaseException as error:  # noqa: BLE001  # a cancellation, most likely: it is the coroutine's to see
                thrown = error


HOLDS_UP_SECONDS = 1.0
"""How long an adapter may keep everybody from being served."""
MOST_ABANDONED = 32
"""Attempts that were given up and do not end, from which on no more are begun: each holds on to what it asked for."""
_BACKOFF_SECONDS = 0.2
_JITTER = random.Random()


class HeldUp(AdapterError):
    """The adapter kept the event loop to itself: a harm to all, and the answer to none."""


class Late(AdapterError):
    """Nothing came in time, for whatever was asked in the call."""


class Caller:
    """Calls one adapter instance and gives one believable answer per query, never an exception (but a cancellation).

    `name` is the source's. `redact` is applied to whatever an error says.
    """

    def __init__(
        self, name: str, adapter: Adapter, *, clock: Clock, log: Log, limits: Limits, redact: Redactor
    ) -> None:
        self._name = name
        self._adapter = adapter
        self._clock = clock
        self._log = log
        self._limits = limits
        self._redact = redact
        self._abandoned: set[asyncio.Task[list[Answer]]] = set()
        begins, ends = "the adapter raised an exception", "the adapter raises no exception any more"
        self._raising = Episode(log, clock, begins, ends, level="error")
        held, freed = "the adapter held up all of hpad", "the adapter holds up hpad no more"
        self._holding = Episode(log, clock, held, freed, level="error")
        self.retries = 0

    @property
    def abandoned(self) -> frozenset[asyncio.Task[list[Answer]]]:
        """Attempts that were given up and have not ended yet."""
        return frozenset(self._abandoned)

    async def call(self, queries: Sequence[Query], *, retries: int) -> list[Answer]:
        """Ask; ask again, soon, what failed through no fault of the HPA. Ends within the limits' budget."""
        end = self._clock.monotonic() + self._limits.budget
        given = await self._attempt(queries, self._limits.timeout)
        for turn in range(retries):
            again = [index for index, answer in enumerate(given) if _passing(answer)]
            pause = _BACKOFF_SECONDS * 2**turn * (0.5 + _JITTER.random())
            left = end - self._clock.monotonic() - pause
            if not again or left <= pause:
                break
            await self._clock.sleep(pause)
            self.retries += 1
            answers_again = await self._attempt([queries[index] for index in again], min(left, self._limits.timeout))
            for index, answer in zip(again, answers_again, strict=True):
                given[index] = answer
        return given

    async def _attempt(self, queries: Sequence[Query], timeout: float) -> list[Answer]:
        """One attempt. An adapter that does not even heed its cancellation is left behind, so that it delays nobody."""
        if len(self._abandoned) >= MOST_ABANDONED:
            what = (
                f"has {len(self._abandoned)} calls that do not end even when they are cancelled, a bug of its adapter"
            )
            return [AdapterError(f'source "{self._name}" {what}', "bug", lasting=True)] * len(queries)
        task = asyncio.create_task(self._answer(queries), name=f"adapter {self._name}")
        try:
            await asyncio.wait({task}, timeout=timeout)
        finally:
            if not task.done():
                self._abandon(task)
        if not task.done():
            late = Late(f'source "{self._name}" did not answer within {self._limits.timeout:g}s', lasting=True)
            return [late] * len(queries)
        if task.cancelled():
            return [AdapterError(f'source "{self._name}" cancelled its own call, a bug of its adapter', "bug")] * len(
                queries
            )
        return [readable(self._name, answer, self._redact) for answer in task.result()]

    async def _answer(self, queries: Sequence[Query]) -> list[Answer]:
        stepped = Stepped(self._ask(queries), self._clock.monotonic)
        try:
            given = await stepped
            self._raising.ended()
            checked = answers.checked(self._name, queries, given, self._clock.now())
        except AdapterError as error:
            checked = [error] * len(queries)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others: whatever it raises ends here
            checked = self._raised(error, queries)
        if stepped.longest >= HOLDS_UP_SECONDS:
            return [self._held_up(stepped.longest)] * len(queries)
        self._holding.ended()
        return checked

    async def _ask(self, queries: Sequence[Query]) -> list[Answer]:
        return await self._adapter.answer(queries)

    def _held_up(self, seconds: float) -> AdapterError:
        what = f'source "{self._name}" held up all of hpad for {seconds:.1f}s, a bug of its adapter'
        self._holding.occurred(source=self._name, seconds=round(seconds, 1))
        return HeldUp(what, "bug", lasting=True)

    def _raised(self, error: BaseException, queries: Sequence[Query]) -> list[Answer]:
        """What users are told; the log says where the bug is."""
        self._raising.occurred(source=self._name, **raised.fields(error))
        raised.trace(self._log, self._name, error)
        return [answers.raised(self._name, query) for query in queries]

    def _abandon(self, task: asyncio.Task[list[Answer]]) -> None:
        task.cancel()
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)


def readable(source: str, answer: Answer, redact: Redactor) -> Answer:
    """An error without secrets, and without where it comes from: it is kept, and frames would keep all that the
    adapter held at that moment, answers as long as they were."""
    if not isinstance(answer, AdapterError):
        return answer
    error = answers.error(source, answer)
    text = redact(error.message)
    bare = error
    if text != error.message:
        bare = AdapterError(text, error.blame, lasting=error.lasting, alive=error.alive)
    bare.__traceback__ = bare.__context__ = bare.__cause__ = None
    return bare


def _passing(answer: Answer) -> bool:
    """Whether the next attempt may well succeed."""
    return isinstance(answer, AdapterError) and answer.blame in ("source", "cluster") and not answer.lasting
