"""The calls to one adapter: timeouts, retries, and answers instead of exceptions and nonsense.

An adapter runs in hpad's event loop, so nothing else runs between two of its awaits. The longest such step is measured,
and an adapter that blocks the loop is reported. Steps of its own tasks and threads are not measured.

An answer that breaks the contract becomes an error with the blame "bug". Users see its text in conditions and events,
so it names source and metric, and nothing of Python.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator, Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import msgspec

from hpad.adapter import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    Adapter,
    AdapterError,
    Answer,
    ExternalSample,
    Log,
    ObjectSample,
    PodSample,
    PodValue,
    Query,
    Sample,
)
from hpad.api.sample import LONGEST_NOTE
from hpad.api.text import begin, shown
from hpad.clock import Clock
from hpad.sources import redact
from hpad.sources.limits import CallLimits
from hpad.sources.redact import Redactor
from hpad.telemetry.episode import Episode

BLOCKING_SECONDS = 1.0
"""An adapter that runs this long without an await blocks the event loop."""
MOST_ABANDONED = 32
"""With this many attempts that ignore their cancellation, no more are started: each keeps its memory."""
_CLOSE_SECONDS = 2.0
_BACKOFF_SECONDS = 0.2
_SAMPLE_OF: Mapping[str, type[PodSample] | type[ObjectSample] | type[ExternalSample]] = {
    RESOURCE: PodSample,
    CONTAINER_RESOURCE: PodSample,
    PODS: PodSample,
    OBJECT: ObjectSample,
    EXTERNAL: ExternalSample,
}
_WORDS: Mapping[type, str] = {
    PodSample: "values of pods",
    ObjectSample: "the value of an object",
    ExternalSample: "a list of values",
    type(None): "nothing",
}
_BLAMES = ("spec", "source", "cluster", "bug")
_NO_TIME = "a timestamp that is not a time with a time zone"
_OTHER = "fields of other types than the contract of adapters has"
_TOO_LARGE = "a value that does not fit into 64 bits of thousandths"
"""Not a bug of the adapter: each number that its server gives may fit, and their sum not."""
_INT64 = range(-(2**63), 2**63)
_AHEAD = timedelta(minutes=5)
"""How far the clock of a source may be ahead. A window is hardly longer, so that a limited time still is after it."""

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
        for attempt in range(retries):
            again = [index for index, answer in enumerate(found) if _may_succeed_now(answer)]
            pause = _BACKOFF_SECONDS * 2**attempt * (0.5 + random.random())
            remaining = end - self._clock.monotonic() - pause
            if not again or remaining <= pause:
                break
            await self._clock.sleep(pause)
            self.retries += 1
            answers_again = await self._attempt(
                [queries[index] for index in again], min(remaining, self._limits.timeout)
            )
            for index, answer in zip(again, answers_again, strict=True):
                found[index] = _without_answer(found[index]) if isinstance(answer, TimedOut) else answer
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
        found: list[Answer]
        timer = StepTimer(self._ask(queries), self._clock.monotonic)
        try:
            with self._redact.active():
                returned = await timer
            self._raising.ended(source=self._name)
            found = checked(self._name, queries, returned, self._clock.now())
        except AdapterError as error:
            found = [error] * len(queries)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
            found = self._raised(error, queries)
        if timer.longest >= BLOCKING_SECONDS:
            return [self._blocked(timer.longest)] * len(queries)
        self._blocking.ended(source=self._name)
        return found

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
        return [raised_error(self._name, query) for query in queries]

    async def _close_adapter(self) -> None:
        try:
            await self._adapter.aclose()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything
            self._log.warning("the adapter failed to close", source=self._name, exception=type(error).__name__)


def _may_succeed_now(answer: Answer) -> bool:
    """Whether the query is worth another attempt."""
    return isinstance(answer, AdapterError) and answer.blame in ("source", "cluster") and not answer.lasting


def _without_answer(first: Any) -> TimedOut:
    """Returns the answer to a query whose retry timed out: what the first attempt said, which is more exact."""
    return TimedOut(first.message, first.blame, lasting=True)


def readable(source: str, answer: Answer, redactor: Redactor) -> Answer:
    """Returns the answer without secrets; an error without its traceback, whose frames keep whole responses."""
    if isinstance(answer, ExternalSample) and answer.note:
        return msgspec.structs.replace(answer, note=begin(redactor(answer.note), LONGEST_NOTE))
    if not isinstance(answer, AdapterError):
        return answer
    error = valid_error(source, answer)
    text = redactor(error.message)
    if text != error.message:
        error = AdapterError(text, error.blame, lasting=error.lasting, alive=error.alive, late=error.late)
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def checked(source: str, queries: Sequence[Query], answers: Any, now: datetime | None = None) -> list[Answer]:
    """Returns one answer per query: the adapter's if it keeps the contract, else an error (blame "bug").

    With `now`, values of pods that are dated more than five minutes ahead are dated five minutes ahead, and a sample
    that has no others is an error (blame "source"). Kubernetes uses such values as they are: a wrong clock of a node
    says nothing about the usage. A time after the whole window counts the same there, however far it is ahead
    (replica_calculator.go: groupPods).
    """
    if not isinstance(answers, list | tuple):
        kind = _WORDS.get(type(answers), "something else")
        return [_bug(source, f'answered {kind} instead of a list when it was asked for "{q.name}"') for q in queries]
    if len(answers) != len(queries):
        count = f"{len(answers)} {'answer' if len(answers) == 1 else 'answers'} to {len(queries)} queries"
        return [_bug(source, f'gave {count} when it was asked for "{query.name}"') for query in queries]
    latest = None if now is None else now + _AHEAD
    return [_checked_one(source, query, answer, latest) for query, answer in zip(queries, answers, strict=True)]


def valid_error(source: str, answer: AdapterError) -> AdapterError:
    """Returns the error itself if it keeps the contract: a text, and a known blame."""
    message, blame = getattr(answer, "message", None), getattr(answer, "blame", None)
    if not isinstance(message, str):
        return _bug(source, "gave an error without a text")
    if blame not in _BLAMES:
        return AdapterError(
            f'source "{source}" gave an error whose blame is none of {", ".join(_BLAMES)}: {message}', "bug"
        )
    return answer


def raised_error(source: str, query: Query) -> AdapterError:
    """Returns the answer to a query for which the adapter raised an exception other than AdapterError."""
    what = "its adapter raised an exception, a bug of the adapter; the log says where"
    return AdapterError(f'source "{source}" cannot answer "{query.name}": {what}', "bug")


def _checked_one(source: str, query: Query, answer: Any, latest: datetime | None) -> Answer:
    if isinstance(answer, AdapterError):
        return answer
    expected = _SAMPLE_OF[query.type] if query.members is None else PodSample
    if type(answer) is not expected:
        kind, needed = _WORDS.get(type(answer), "something else"), _WORDS[expected]
        return _bug(source, f'answered {kind} where the {query.type} metric "{query.name}" needs {needed}')
    fault = _fault(answer)
    if fault == _TOO_LARGE:
        return AdapterError(f'source "{source}" answered {fault} for "{query.name}"', alive=True)
    if fault is not None:
        return _bug(source, f'answered {fault} for "{query.name}"')
    return answer if latest is None else _dated(source, query, answer, latest)


def _fault(answer: Any) -> str | None:
    """Returns what is wrong inside a sample of the right type, since Python does not check the types of fields."""
    if not _is_time(answer.timestamp):
        return _NO_TIME
    if isinstance(answer, ObjectSample):
        return _value_fault(answer.value)
    if isinstance(answer, PodSample):
        return _pods_fault(answer)
    if not isinstance(answer.values, list | tuple) or not isinstance(answer.note, str):
        return _OTHER
    if not answer.values:
        return "no values at all (which would read as zero) instead of an AdapterError"
    return next(filter(None, map(_value_fault, answer.values)), None)


def _dated(source: str, query: Query, answer: Sample, latest: datetime) -> Answer:
    """Returns the sample with no time after `latest`, an error if all of its times are."""
    values = answer.values if isinstance(answer, PodSample) else {}
    ahead = [pod for pod, value in values.items() if value.timestamp > latest]
    if not ahead and answer.timestamp <= latest:
        return answer
    if len(ahead) < len(values):
        limited = {pod: msgspec.structs.replace(values[pod], timestamp=latest) for pod in ahead}
        dated = {"values": {**values, **limited}, "timestamp": min(answer.timestamp, latest)}
        return msgspec.structs.replace(answer, **dated)
    return AdapterError(
        f'source "{source}": each value of "{query.name}" has a timestamp more than five minutes in the future: '
        "correct the clock of the source, of its nodes, or of hpad's machine",
        alive=True,
    )


def _pods_fault(answer: Any) -> str | None:
    most = answer.most_busy
    if not isinstance(answer.values, Mapping) or (most is not None and (type(most) is not int or most < 0)):
        return _OTHER
    for pod, value in answer.values.items():  # no calls of functions: there are many pods
        if not isinstance(pod, str) or not isinstance(value, PodValue) or not isinstance(value.window, timedelta):
            return _OTHER
        at, number = value.timestamp, value.value
        if not isinstance(at, datetime) or at.tzinfo is None:
            return _NO_TIME
        if type(number) is not int or number not in _INT64:
            return _value_fault(number)
    return None


def _value_fault(value: Any) -> str | None:
    if type(value) is not int:  # a bool is an int, too
        number = value if isinstance(value, str | bool | int | float | None) else "something else"
        return f"the value {shown(number)}, which is not a whole number of thousandths"
    return None if value in _INT64 else _TOO_LARGE


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _bug(source: str, what: str) -> AdapterError:
    return AdapterError(f'source "{source}" {what}, a bug of its adapter', "bug")
