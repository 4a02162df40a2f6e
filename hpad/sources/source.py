"""One source at work: many HPAs ask, few calls are made, and what goes wrong stays here.

Queries that arrive in one turn of the event loop, or while as many calls are under way or within a second as the source
allows, make up one batch; equal ones are asked once, and what was answered a moment ago is answered again. A source
that keeps failing is left alone for a while. A waiting HPA that is cancelled takes nobody's answer away.
"""

import asyncio
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from hpad.adapter import Adapter, AdapterError, Answer, Asker, Log, Query
from hpad.clock import Clock
from hpad.sources import answers, cache, call, isolation
from hpad.sources import limits as breaker
from hpad.sources import report as report_module
from hpad.sources.limits import Limits
from hpad.sources.redact import Redactor

_FAREWELL_SECONDS = 2.0
_GONE_PERIODS = 10.0
"""Of a metric that nobody asks for so long it is not known any more that it was late."""
_MOST_FAILED = 1 << 14
"""Of so many metrics that fail is it known that they do; of more, those that failed last."""


class Observer(Protocol):
    """Told of every call: the source's name, seconds, and the first error that is not an HPA author's (else None)."""

    def __call__(self, source: str, seconds: float, error: AdapterError | None, /) -> Any: ...


class _Flight(NamedTuple):
    """An answer on its way, and when it was asked for."""

    began: float
    future: asyncio.Future[Answer]


class Source:
    """Batches, limits, remembers and isolates the calls to one adapter instance.

    `plain`: that the source is left alone for a while is not said in its errors, which stay those of its last answers;
    so the metrics APIs of Kubernetes read as Kubernetes has them.
    """

    def __init__(
        self,
        name: str,
        adapter: Adapter,
        *,
        clock: Clock,
        log: Log,
        observer: Observer,
        limits: Limits | None = None,
        redact: Redactor | None = None,
        plain: bool = False,
    ) -> None:
        self.name = name
        self._plain = plain
        self._adapter = adapter
        self._grouping: Callable[[Query], Hashable] | None = getattr(adapter, "group", None)
        self._personal: Callable[[Query], bool] | None = getattr(adapter, "personal", None)
        self._clock = clock
        self._log = log
        self._observer = observer
        self._limits = limits = limits or Limits()
        self._caller = call.Caller(name, adapter, clock=clock, log=log, limits=limits, redact=redact or Redactor({}))
        self._breaker = breaker.Breaker(name, limits.failures, limits.rest)
        self._shelf = cache.Shelf(limits.fresh, limits.period)
        self._pace = breaker.Pace(limits.rate)
        self._stagger = breaker.Stagger(limits.concurrency, limits.budget)
        self._tally = report_module.Tally()
        self._waiting: dict[Query, asyncio.Future[Answer]] = {}
        self._flying: dict[Query, _Flight] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Handle | None = None
        self._next_call = 0.0
        self._called = False
        self._failed: dict[Query, Answer] = {}
        self._laggards = isolation.Laggards(self._group, _GONE_PERIODS * limits.period)
        self._harmful = False
        self._closed = False

    def ask(self, query: Query, asker: Asker | None = None) -> asyncio.Future[Answer]:
        """The answer to come: it is always set in the end, and never to an exception. Wait for it, do not cancel it.

        The asker becomes part of the query only where the adapter says that the answer depends on it.
        """
        query = self._asked_by(query, asker)
        now = self._clock.monotonic()
        self._tally.asked += 1
        if self._closed:
            return _settled(self._closing())
        self._laggards.asked(query, now)
        if self._limits.fresh:
            self._shelf.asked(query, self._group(query), now)
        shared = self._shared(query, now)
        if shared is not None:
            self._tally.hits += 1
            return shared
        refusal = self._refusal(query, now)
        if refusal is not None:
            self._tally.erred(refusal, self._clock.now())
            return _settled(refusal)
        loop = asyncio.get_running_loop()
        if not self._called:
            self._called = True
            loop.call_soon(self._dispatch)
        future = self._waiting.get(query)
        if future is None:
            future = self._waiting[query] = loop.create_future()
        return future

    def held_back(self, query: Query, asker: Asker | None = None) -> AdapterError | None:
        """What to say to the query where it waits because of the rate limit; None where it does not."""
        left = self._next_call - self._clock.monotonic()
        if left <= 0 or self._asked_by(query, asker) not in self._waiting:
            return None
        limit = f'source "{self.name}" is limited to {self._limits.rate:g} calls a second'
        return AdapterError(f'no answer to "{query.name}": {limit}; next call in {math.ceil(left)}s')

    def report(self, adapter: str) -> report_module.Report:
        """How it fares; `adapter` is the adapter's name."""
        self._tally.retries = self._caller.retries
        return self._tally.report(self.name, adapter, self._breaker.state)

    async def aclose(self) -> None:
        """Answer whoever still waits with an error, end all calls, and close the adapter."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_result(self._closing())
        tasks = self._calls | self._caller.abandoned
        for task in tasks:
            task.cancel()
        farewell = asyncio.create_task(self._close_adapter())
        await asyncio.wait({*tasks, farewell}, timeout=_FAREWELL_SECONDS)
        if not farewell.done():
            farewell.cancel()
            self._log.warning("the adapter did not close in time", source=self.name)

    def _shared(self, query: Query, now: float) -> asyncio.Future[Answer] | None:
        """What another HPA got a moment ago, or is about to get."""
        held = self._shelf.get(query, now)
        if held is not None:
            return _settled(answers.not_too_old(self.name, held, self._clock.now(), self._limits.max_age))
        flight = self._flying.get(query)
        return flight.future if flight is not None and self._shelf.is_fresh(flight.began, now) else None

    def _refusal(self, query: Query, now: float) -> AdapterError | None:
        """Why the query is not put now, if it is not. One that has not failed yet, or in the company of others that
        may have kept the call waiting, is: it may be for another metric than all those that fail, unless asking does
        harm. A plain source says again what it said of that metric.
        """
        if (query not in self._failed or self._laggards.suspected(query)) and not self._harmful:
            return None
        refusal = self._breaker.refusal(now)
        said = self._failed.get(query)
        return said if refusal is not None and self._plain and isinstance(said, AdapterError) else refusal

    def _group(self, query: Query) -> Hashable | None:
        """What shares a call with the query, as the adapter sees it; None if the query is on its own."""
        if self._grouping is None:
            return None
        try:
            found: Hashable = self._grouping(query)
            hash(found)
        except Exception:  # noqa: BLE001 - code of others: then the query is on its own
            return None
        return found

    def _asked_by(self, query: Query, asker: Asker | None) -> Query:
        if asker is None or not self._is_personal(query):
            return query
        return msgspec.structs.replace(query, asker=asker)

    def _is_personal(self, query: Query) -> bool:
        """Whether the answer depends on who asks, as the adapter sees it; one that fails to say so gets to know it."""
        if self._personal is None:
            return False
        try:
            return bool(self._personal(query))
        except Exception:  # noqa: BLE001 - code of others: nobody is given an answer that may be another's
            return True

    def _dispatch(self) -> None:
        """Make as many calls for those who wait as the limits let through now."""
        self._called = False
        now = self._clock.monotonic()
        while not self._closed and len(self._calls) < self._limits.concurrency:
            self._refuse(now)
            going = self._laggards.next(self._waiting) if self._waiting else ()
            if not going or len(self._calls) >= self._room(going):
                return
            delay = self._stagger.wait(now) if self._calls else 0.0
            if not delay:
                delay = self._pace.take(now)
                self._next_call = now + delay
            if delay:
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(delay, self._on_time)
                return
            self._depart(going, now)

    def _refuse(self, now: float) -> None:
        """Let nobody wait any longer who is not to be asked for now."""
        refused = {query: refusal for query in self._waiting if (refusal := self._refusal(query, now)) is not None}
        for query, refusal in refused.items():
            self._waiting.pop(query).set_result(refusal)

    def _room(self, going: Sequence[Query]) -> int:
        """How many calls there may be; those that are likely to last leave one for others."""
        most = self._limits.concurrency
        return max(most - 1, 1) if going[0] in self._laggards else most

    def _on_time(self) -> None:
        self._timer = None
        self._dispatch()

    def _depart(self, going: Sequence[Query], now: float) -> None:
        """Make a call for some of those who wait, and for those of their groups who are about to come."""
        self._stagger.departed(now)
        batch = {query: self._waiting.pop(query) for query in going}
        trial = self._breaker.begin()
        if self._limits.fresh and self._grouping is not None and not trial:
            loop = asyncio.get_running_loop()
            for query in self._mates(batch, now):
                batch.setdefault(query, loop.create_future())
        self._flying.update((query, _Flight(now, future)) for query, future in batch.items())
        departed = asyncio.create_task(self._call(batch, now, trial=trial), name=f"source {self.name}")
        self._calls.add(departed)
        departed.add_done_callback(self._arrived)

    def _mates(self, batch: dict[Query, asyncio.Future[Answer]], now: float) -> list[Query]:
        groups = {self._group(query) for query in batch} - {None}
        return [mate for group in groups for mate in self._shelf.mates(group, now) if mate not in self._flying]

    def _arrived(self, departed: asyncio.Task[None]) -> None:
        self._calls.discard(departed)
        self._dispatch()

    async def _call(self, batch: dict[Query, asyncio.Future[Answer]], began: float, *, trial: bool) -> None:
        queries = tuple(batch)
        given: list[Answer] = [self._closing()] * len(batch)
        try:
            given = await self._caller.call(queries, retries=0 if trial else self._limits.retries)
            self._learn(queries, given, began, trial=trial)
        finally:
            for query, answer in zip(queries, given, strict=True):
                flight = self._flying.get(query)
                if flight is not None and flight.future is batch[query]:
                    del self._flying[query]
                batch[query].set_result(answer)

    def _learn(self, queries: Sequence[Query], given: list[Answer], began: float, *, trial: bool) -> None:
        """What a call says of the source; samples are kept, and those that are too old become errors.

        A trial that fails says the same as a call that was not made, so that conditions do not change to and fro.
        """
        now, moment = self._clock.monotonic(), self._clock.now()
        failure = _failure(given)
        self._tally.called(now - began)
        self._observer(self.name, now - began, failure)
        alive = any(not isinstance(answer, AdapterError) or answer.alive for answer in given)
        self._tally.failing = not alive
        self._laggards.learn(queries, given)
        if not any(isinstance(answer, call.Late) for answer in given):
            self._stagger.lasted(now - began)
        self._harmful = isinstance(failure, call.HeldUp)
        if alive:
            self._failed.clear()
        else:
            self._note_failed(queries, given)
        if alive:
            self._breaker.succeeded()
        elif isinstance(failure, call.HeldUp):
            self._breaker.trip(now, failure)
        elif failure is not None:
            self._breaker.failed(began, failure)
            if trial and not self._plain:
                given[:] = [self._breaker.refusal(now) or failure] * len(given)
        for index, (query, answer) in enumerate(zip(queries, given, strict=True)):
            if not isinstance(answer, AdapterError):
                self._shelf.put(query, answer, began)
                given[index] = answer = answers.not_too_old(self.name, answer, moment, self._limits.max_age)
            if isinstance(answer, AdapterError):
                self._tally.erred(answer, moment)

    def _note_failed(self, queries: Sequence[Query], given: Sequence[Answer]) -> None:
        for query, answer in zip(queries, given, strict=True):
            self._failed.pop(query, None)
            self._failed[query] = answer
        for _ in range(len(self._failed) - _MOST_FAILED):
            del self._failed[next(iter(self._failed))]

    async def _close_adapter(self) -> None:
        try:
            await self._adapter.aclose()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others: whatever it raises ends here
            self._log.warning("the adapter failed to close", source=self.name, exception=type(error).__name__)

    def _closing(self) -> AdapterError:
        return AdapterError(f'source "{self.name}" is shutting down')


def _settled(answer: Answer) -> asyncio.Future[Answer]:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


def _failure(given: Sequence[Answer]) -> AdapterError | None:
    return next((answer for answer in given if isinstance(answer, AdapterError) and answer.blame != "spec"), None)
