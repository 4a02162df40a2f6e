"""One metric source: few calls for many HPAs, and a failure that affects no other source.

Queries that arrive in one turn of the event loop, or while the limits allow no further call, form one batch. Equal
queries are asked once, and a recent answer is used again. The circuit breaker stops calls to a source that keeps
failing. An HPA that stops waiting cancels no call that others share.
"""

import asyncio
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace

from hpad.adapter import Adapter, AdapterError, Answer, HPAIdentity, Log, PodSample, Query
from hpad.clock import Clock
from hpad.sources import call
from hpad.sources.limits import OK, Breaker, CallLimits, RateLimit, SlowQueries, SourceReport
from hpad.sources.redact import Redactor

_FORGOTTEN_PERIODS = 3.0
_IN_TIME = 0.9
"""Part of the freshness after which no query is expected: an HPA that comes a little late would find a stale answer."""
_MOST_FAILED = 1 << 14
"""Number of failing queries that are remembered, those that failed last."""


Observer = Callable[[str, float, AdapterError | None], Any]
"""Is called after every call: the source's name, seconds, and the first error that is not a spec's (else None)."""


class AnswerCache:
    """Answers by query, so that several HPAs share a call.

    Reconciles are spread over the period, while one call may serve all HPAs of a namespace. Where an adapter groups its
    queries, a call for one query also contains those of its group that are expected before the answer is stale. A
    sample keeps its own timestamp; its age here counts from the start of the call. `fresh` and `period` are in seconds,
    times those of a monotonic clock.
    """

    def __init__(self, fresh: float, period: float) -> None:
        self._fresh = fresh
        self._period = period
        self._answers: dict[Query, tuple[float, Answer]] = {}
        self._groups: dict[Hashable, dict[Query, float]] = {}
        self._swept = 0.0

    def get(self, query: Query, now: float, fresh: float | None = None) -> Answer | None:
        """Returns the answer, if there is one that is fresh, and at most `fresh` seconds old (None: any fresh one)."""
        began, answer = self._answers.get(query, (0.0, None))
        return answer if self.is_fresh(began, now) and (fresh is None or now - began <= fresh) else None

    def put(self, query: Query, answer: Answer, began: float) -> None:
        """Keeps an answer of a call that began at `began`."""
        if self._fresh:
            self._answers[query] = (began, answer)

    def is_fresh(self, began: float, now: float) -> bool:
        """Returns whether the answer of a call that began at `began` may be used now."""
        return bool(self._fresh) and now - began <= self._fresh

    def expect(self, query: Query, group: Hashable | None, now: float) -> None:
        """Notes a query, which comes again in a period. Queries of a `group` share calls (None: no group).

        A query of an HPA with a period of its own has no group here, since it comes at another time.
        """
        if group is not None:
            self._groups.setdefault(group, {})[query] = now
        self._sweep(now)

    def announce(self, query: Query, group: Hashable | None, now: float) -> None:
        """Expects a query that may come at any time, unless it has come within the last period."""
        if group is not None:
            known = self._groups.setdefault(group, {})
            known[query] = max(known.get(query, -math.inf), now - self._period)

    def expected(self, group: Hashable, now: float) -> Iterator[Query]:
        """Yields the queries of a group without a fresh answer that are expected while an answer of now is fresh."""
        horizon = now + self._fresh * _IN_TIME - self._period
        for query, last in self._groups.get(group, {}).items():
            if last <= horizon and last > now - _FORGOTTEN_PERIODS * self._period and self.get(query, now) is None:
                yield query

    def _sweep(self, now: float) -> None:
        """Drops, once a period, stale answers and the queries that did not come for three periods."""
        if now - self._swept < self._period:
            return
        self._swept = now
        cutoff = now - _FORGOTTEN_PERIODS * self._period
        self._answers = {query: kept for query, kept in self._answers.items() if self.is_fresh(kept[0], now)}
        for group, members in list(self._groups.items()):
            recent = {query: last for query, last in members.items() if last > cutoff}
            self._groups[group] = recent
            if not recent:
                del self._groups[group]


class _InFlight(NamedTuple):
    """An answer that a running call will give, and when that call began."""

    began: float
    future: asyncio.Future[Answer]


class QueriedSource:
    """Batches, limits, caches and isolates the calls to one adapter instance.

    `plain`: errors do not mention the circuit breaker and stay those of the last answers, so that conditions about the
    metrics APIs of Kubernetes read as Kubernetes writes them.
    """

    def __init__(
        self,
        name: str,
        adapter: Adapter,
        *,
        clock: Clock,
        log: Log,
        observer: Observer,
        limits: CallLimits,
        redact: Redactor | None = None,
        plain: bool = False,
    ) -> None:
        self.name = name
        self._plain = plain
        self._clock = clock
        self._observer = observer
        self._limits = limits
        self._caller = call.Caller(name, adapter, clock=clock, log=log, limits=limits, redact=redact or Redactor({}))
        self._breaker = Breaker(name, limits.failures, limits.rest)
        self._cache = AnswerCache(limits.fresh, limits.period)
        self._rate_limit = RateLimit(limits.rate)
        self._slow = SlowQueries(self._caller.group, limits.period)
        self._counts = SourceReport(name=name, adapter="")
        self._waiting: dict[Query, asyncio.Future[Answer]] = {}
        self._in_flight: dict[Query, _InFlight] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Handle | None = None
        self._rate_limited_until = 0.0
        self._dispatch_scheduled = False
        self._failed: dict[int, Answer] = {}
        """The last errors, by the hashes of queries: authors choose how long names and selectors are."""
        self._blocks_loop = False
        self._closed = False

    def ask(
        self, query: Query, identity: HPAIdentity | None = None, period: float | None = None
    ) -> asyncio.Future[Answer]:
        """Returns the future answer. It is always set, and never to an exception. Do not cancel it.

        The identity becomes part of the query only if the adapter says that the answer depends on it. `period` is the
        HPA's own sync period in seconds (None: it has none).
        """
        query = self._with_hpa(query, identity)
        now = self._clock.monotonic()
        self._counts.asked += 1
        by_pod = query.members is not None  # asked only before a scale-down, and then as of now
        if by_pod:
            query = self._caller.understood(query)
        if self._closed:
            return _resolved(self._closing())
        unsupported = self._caller.unsupported(query)
        if unsupported is not None:
            self._counts.erred(unsupported, self._clock.now())
            return _resolved(unsupported)
        if self._limits.fresh:
            planned = period is None and not by_pod
            self._cache.expect(query, self._caller.group(query) if planned else None, now)
        shared = self._shared(query, now, 0.0 if by_pod else self._limits.fresh_for(period))
        if shared is not None:
            self._counts.hits += 1
            return shared
        refusal = self._refusal(query, now)
        if refusal is not None:
            self._counts.erred(refusal, self._clock.now())
            return _resolved(refusal)
        return self._wait(query)

    def announce(self, query: Query, identity: HPAIdentity | None = None) -> None:
        """Notes a query that will probably be asked, so that a call for its group answers it as well."""
        query = self._with_hpa(query, identity)
        if self._limits.fresh and self._caller.unsupported(query) is None:
            self._cache.announce(query, self._caller.group(query), self._clock.monotonic())

    def rate_limit_error(self, query: Query, identity: HPAIdentity | None = None) -> AdapterError | None:
        """Returns the error of a query that still waits because of the rate limit; None if it waits for an answer."""
        is_limited = self._clock.monotonic() < self._rate_limited_until
        if not is_limited or self._with_hpa(query, identity) not in self._waiting:
            return None
        limit = f'source "{self.name}" is limited to {self._limits.rate:g} calls a second'
        return AdapterError(f'no answer to "{query.name}": {limit}')

    def report(self, adapter: str) -> SourceReport:
        """Returns a copy of state and counts; `adapter` is the adapter's name."""
        counts, breaker = self._counts, self._breaker.state
        state = counts.state if breaker == OK else breaker
        errors = dict(counts.errors)
        return replace(counts, adapter=adapter, state=state, retries=self._caller.retries, errors=errors)

    async def aclose(self) -> None:
        """Answers all waiting queries with an error, ends all calls, and closes the adapter."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_result(self._closing())
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._caller.aclose()

    def _with_hpa(self, query: Query, identity: HPAIdentity | None) -> Query:
        if identity is None or not self._caller.is_personal(query):
            return query
        return replace(query, hpa=identity)

    def _shared(self, query: Query, now: float, fresh: float) -> asyncio.Future[Answer] | None:
        """Returns the answer of a call that began at most `fresh` seconds ago, or is running, if there is one.

        A running call is shared even if it began earlier: a slow source would otherwise have several for one query.
        """
        cached = self._cache.get(query, now, fresh)
        if cached is not None:
            return _resolved(not_too_old(self.name, cached, self._clock.now(), self._limits.max_age))
        running = self._in_flight.get(query)
        return running.future if running is not None and self._cache.is_fresh(running.began, now) else None

    def _refusal(self, query: Query, now: float) -> AdapterError | None:
        """Returns why the query may not be asked now; None if it may.

        The circuit breaker does not hold for queries that have not failed yet: all failing queries may be misspelt.
        Nor does it hold for queries that timed out only together with others. It holds for all if calls block the
        event loop. A plain source repeats its last answer to the query.
        """
        if (hash(query) not in self._failed or self._slow.must_be_tried_alone(query)) and not self._blocks_loop:
            return None
        refusal = self._breaker.refusal(now)
        last = self._failed.get(hash(query))
        return last if refusal is not None and self._plain and isinstance(last, AdapterError) else refusal

    def _wait(self, query: Query) -> asyncio.Future[Answer]:
        loop = asyncio.get_running_loop()
        if not self._dispatch_scheduled:
            self._dispatch_scheduled = True
            loop.call_soon(self._dispatch)
        future = self._waiting.get(query)
        if future is None:
            future = self._waiting[query] = loop.create_future()
        return future

    def _dispatch(self) -> None:
        """Begins as many calls for the waiting queries as the limits allow now."""
        self._dispatch_scheduled = False
        now = self._clock.monotonic()
        while not self._closed and len(self._calls) < self._limits.concurrency:
            # In each round: the call begun in the last one may be the only trial of an open breaker.
            self._refuse_waiting(now)
            batch = self._slow.next_batch(self._waiting) if self._waiting else []
            if not batch:
                return
            last = batch[0] in self._slow or batch[0].definition is not None
            if last and len(self._calls) >= max(self._limits.concurrency - 1, 1):
                return  # slow queries, and those of Autoscalers, leave one call to the others
            delay = self._rate_limit.take(now)
            self._rate_limited_until = now + delay
            if delay:
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)
                return
            self._begin_call(batch, now)

    def _refuse_waiting(self, now: float) -> None:
        """Answers the waiting queries that may no longer be asked."""
        refused = {query: refusal for query in self._waiting if (refusal := self._refusal(query, now)) is not None}
        for query, refusal in refused.items():
            self._waiting.pop(query).set_result(refusal)

    def _on_timer(self) -> None:
        self._timer = None
        self._dispatch()

    def _begin_call(self, queries: Sequence[Query], now: float) -> None:
        """Begins a call for waiting queries, and for queries of their groups that are expected soon."""
        batch = {query: self._waiting.pop(query) for query in queries}
        trial = self._breaker.begin()
        if self._limits.fresh and not trial:
            loop = asyncio.get_running_loop()
            groups = {self._caller.group(query) for query in queries} - {None}
            expected = [query for group in groups for query in self._cache.expected(group, now)]
            known, lane = {*batch, *self._in_flight}, self._slow.lane(queries[0])
            also = (query for query in expected if query not in known and self._slow.lane(query) is lane)
            batch |= {query: loop.create_future() for query in also}
        self._in_flight.update((query, _InFlight(now, future)) for query, future in batch.items())
        task = asyncio.create_task(self._call(batch, now, trial=trial), name=f"source {self.name}")
        self._calls.add(task)
        task.add_done_callback(self._call_ended)

    def _call_ended(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._dispatch()

    async def _call(self, batch: dict[Query, asyncio.Future[Answer]], began: float, *, trial: bool) -> None:
        queries = tuple(batch)
        found: list[Answer] = [self._closing()] * len(batch)
        try:
            found = await self._caller.call(queries, retries=0 if trial else self._limits.retries)
            found = self._learn(queries, found, began, trial=trial)
        finally:
            for query, answer in zip(queries, found, strict=True):
                # A later call may have begun for the same query, if this one took longer than answers are fresh.
                running = self._in_flight.get(query)
                if running is not None and running.future is batch[query]:
                    del self._in_flight[query]
                batch[query].set_result(answer)

    def _learn(self, queries: Sequence[Query], found: list[Answer], began: float, *, trial: bool) -> list[Answer]:
        """Updates counts, slow queries, breaker and cache after a call, and returns the answers for the HPAs."""
        now = self._clock.monotonic()
        errors = (answer for answer in found if isinstance(answer, AdapterError))
        failure = next((error for error in errors if error.blame != "spec"), None)
        alive = any(not isinstance(answer, AdapterError) or answer.alive for answer in found)
        self._counts.called(now - began, alive=alive)
        self._observer(self.name, now - began, failure)
        timed_out = [isinstance(answer, call.TimedOut) for answer in found]
        self._slow.learn(dict(zip(queries, timed_out, strict=True)), now)
        late = [isinstance(answer, AdapterError) and answer.late for answer in found]
        self._slow.learn_late(dict(zip(queries, late, strict=True)), now)
        self._blocks_loop = isinstance(failure, call.LoopBlocked)
        if alive:
            # The source works again, so every metric that failed meanwhile is worth a call.
            self._failed.clear()
            self._breaker.succeeded()
        else:
            self._remember_failed(queries, found)
            self._failed_call(failure, began, now)
            if trial and failure is not None and not self._plain and not self._blocks_loop:
                # The same text as for the queries that were not asked: conditions do not change to and fro.
                found = [self._breaker.refusal(now) or failure] * len(found)
        self._cache_samples(queries, found, began)
        return self._without_old(found)

    def _failed_call(self, failure: AdapterError | None, began: float, now: float) -> None:
        """Passes a call that returned nothing to the breaker; errors of specs are no failure of the source."""
        if self._blocks_loop and failure is not None:
            self._breaker.trip(now, failure)
        elif failure is not None:
            self._breaker.failed(began, failure)

    def _cache_samples(self, queries: Sequence[Query], found: Sequence[Answer], began: float) -> None:
        for query, answer in zip(queries, found, strict=True):
            if not isinstance(answer, AdapterError):
                self._cache.put(query, answer, began)

    def _without_old(self, found: Sequence[Answer]) -> list[Answer]:
        """Returns the answers with errors in place of samples that are too old, and counts all errors."""
        moment, oldest = self._clock.now(), self._limits.max_age
        checked = [not_too_old(self.name, answer, moment, oldest) for answer in found]
        for answer in checked:
            if isinstance(answer, AdapterError):
                self._counts.erred(answer, moment)
        return checked

    def _remember_failed(self, queries: Sequence[Query], found: Sequence[Answer]) -> None:
        for query, answer in zip(queries, found, strict=True):
            self._failed.pop(hash(query), None)  # a dict keeps the place of a key: the last to fail shall be at its end
            self._failed[hash(query)] = answer
        for _ in range(len(self._failed) - _MOST_FAILED):
            del self._failed[next(iter(self._failed))]

    def _closing(self) -> AdapterError:
        return AdapterError(f'source "{self.name}" is shutting down')


def _resolved(answer: Answer) -> asyncio.Future[Answer]:
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


def not_too_old(source: str, answer: Answer, now: datetime, max_age: float | None) -> Answer:
    """Returns the answer, or an error if its sample is older than `max_age` seconds (None: any age is accepted).

    A pod whose value is too old counts as a pod without a value, unless all values are too old.
    """
    if max_age is None or isinstance(answer, AdapterError):
        return answer
    oldest = now - timedelta(seconds=max_age)
    if isinstance(answer, PodSample) and answer.values:
        young = {pod: value for pod, value in answer.values.items() if value.timestamp >= oldest}
        if len(young) == len(answer.values):
            return answer
        return replace(answer, values=young) if young else _too_old(source, max_age)
    return answer if answer.timestamp >= oldest else _too_old(source, max_age)


def _too_old(source: str, max_age: float) -> AdapterError:
    # Without the present age: a text that changes would cost a status write in each period.
    return AdapterError(f'source "{source}": sample is older than max_age {max_age:g}s', lasting=True)
