"""All metric sources together: opens them, sends each query to its source, and replaces them on a reload."""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hpad import settings
from hpad.adapter import Adapter, AdapterError, Answer, Context, HPAIdentity, Query
from hpad.clock import Clock
from hpad.engine.fallback_policy import Fallback
from hpad.sources import limits, own_queries, plugins
from hpad.sources.call import BLOCKING_SECONDS
from hpad.sources.limits import BROKEN, SourceReport
from hpad.sources.offers import Offer
from hpad.sources.redact import Redactor
from hpad.sources.routes import RoutePlan
from hpad.sources.source import Observer, QueriedSource


class _Opened(msgspec.Struct, frozen=True):
    """A source after start(): it works (`source` and `context`), or it could not be set up (`error`)."""

    settings: settings.SourceSettings
    offer: Offer
    source: QueriedSource | None = None
    context: Context | None = None
    error: AdapterError | None = None

    def report(self) -> SourceReport:
        name, adapter = self.settings.name, self.settings.adapter
        if self.source is not None:
            return self.source.report(adapter)
        why = None if self.error is None else self.error.message
        return SourceReport(name=name, adapter=adapter, state=BROKEN, last_error=why)


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    """A query that a source will answer, as it was asked and as its adapter gets it (`handed`)."""

    query: Query
    handed: Query
    source: QueriedSource
    answer: asyncio.Future[Answer]


class Gatherer:
    """Answers the metrics of all HPAs from the configured sources.

    `observer` is called after every call to a source. `period` is the sync period in seconds. Call start() and aclose()
    in the same event loop.
    """

    def __init__(
        self,
        sources: Sequence[settings.SourceSettings] = (),
        routes: Sequence[settings.Route] = (),
        *,
        contexts: plugins.Contexts,
        observer: Observer = lambda *_: None,
        period: float = limits.PERIOD,
    ) -> None:
        self._settings = tuple(sources)
        self._routes = tuple(routes)
        self._contexts = contexts
        self._observer = observer
        self._period = period
        self._opened: dict[str, _Opened] = {}
        self._plan = RoutePlan(self._routes, ())
        self._has_fallbacks = any(source.fallback is not None for source in sources)

    async def start(self) -> None:
        """Imports and builds the adapters. Never fails: a source that cannot be built answers with the reason.

        After a cancellation, aclose() closes what was opened.
        """
        configured = {source.name for source in self._settings}
        installed = await asyncio.to_thread(plugins.names)
        implicit = [
            settings.SourceSettings(name=name, adapter=name)
            for name in settings.BUILT_IN_SOURCES
            if name in installed and name not in configured
        ]
        configured_first = (*self._settings, *implicit)
        await asyncio.gather(*map(self._enter, configured_first))
        self._opened = {source.name: self._opened[source.name] for source in configured_first}
        self._plan = RoutePlan(self._routes, self.offers())

    async def aclose(self) -> None:
        """Closes every source, then its HTTP session."""
        await asyncio.gather(*(each.source.aclose() for each in self._opened.values() if each.source is not None))
        for each in self._opened.values():
            if each.context is not None:
                await each.context.http.close()
        self._opened = {}

    def problems(self) -> dict[str, AdapterError]:
        """Returns the sources that could not be built, and why."""
        return {name: each.error for name, each in self._opened.items() if each.error is not None}

    def origin(self, name: str) -> str:
        """Returns the file or variable that configures a source; empty for the built-in ones."""
        return self._opened[name].settings.origin

    def offers(self) -> list[Offer]:
        """Returns what each source can answer, in the order of the configuration."""
        return [each.offer for each in self._opened.values()]

    def source_of(self, query: Query) -> str:
        """Returns the name of the source that answers the query; raises AdapterError if there is none."""
        return self._plan.source(query)

    def handed(self, query: Query) -> Query:
        """Returns the query as the adapter of its source gets it; raises AdapterError if there is no source."""
        return self._plan.handed(query, self._plan.source(query))

    def reports(self) -> list[SourceReport]:
        """Returns state and counts of each source, in the order of the configuration."""
        return [each.report() for each in self._opened.values()]

    def fallback(self, query: Query) -> Fallback | None:
        """Returns the configured fallback of the query's source, if it has one."""
        if not self._has_fallbacks:
            return None
        try:
            return self._opened[self._plan.source(query)].settings.fallback
        except AdapterError:
            return None

    async def gather(
        self, queries: Sequence[Query | AdapterError], *, deadline: float, identity: HPAIdentity | None = None
    ) -> list[Answer]:
        """Returns one answer per query, in order; an error among the queries is its own answer.

        Only adapters whose answers depend on the HPA receive `identity`. Waits at most `deadline` seconds; a query
        without an answer by then gets an error. Raises nothing but CancelledError; a cancellation does not end the
        calls, which other HPAs share.
        """
        asked = self.ask(queries, deadline=deadline, identity=identity)
        await asked.wait()
        return asked.answers()

    def ask(
        self,
        queries: Sequence[Query | AdapterError],
        *,
        deadline: float,
        identity: HPAIdentity | None = None,
        period: float | None = None,
    ) -> "Asked":
        """Asks the queries; `gather` describes the answers. `period`: the HPA's own sync period in seconds, if any."""
        return Asked([self._ask(query, identity, period) for query in queries], deadline, identity)

    def announce(self, queries: Sequence[Query | AdapterError], identity: HPAIdentity) -> None:
        """Notes queries that will probably be asked, so that an earlier call to their source answers them as well."""
        for query in queries:
            found = query if isinstance(query, AdapterError) else self._source(query)
            if not isinstance(found, AdapterError):
                source, handed = found
                source.announce(handed, identity)

    def _ask(
        self, query: Query | AdapterError, identity: HPAIdentity | None, period: float | None
    ) -> _Waiting | AdapterError:
        if isinstance(query, AdapterError):
            return query
        found = self._source(query)
        if isinstance(found, AdapterError):
            return own_queries.named(query, found)
        source, handed = found
        return _Waiting(query, handed, source, source.ask(handed, identity, period))

    def _source(self, query: Query) -> tuple[QueriedSource, Query] | AdapterError:
        """Returns the source that answers the query, and the query as its adapter gets it.

        Returns the error if there is no source, if it does not work, or if it cannot read the query.
        """
        try:
            name = self._plan.source(query)
            opened = self._opened[name]
            if opened.source is None:
                return opened.error or AdapterError(f'source "{opened.offer.source}" is not open', "bug")
            return opened.source, self._plan.handed(query, name)
        except AdapterError as error:
            return error

    async def _enter(self, source: settings.SourceSettings) -> None:
        # Each source is kept as soon as it is open: aclose() closes it even if a slower one is cancelled.
        self._opened[source.name] = await self._open(source)

    async def _open(self, source: settings.SourceSettings) -> _Opened:
        offer = Offer(
            source=source.name,
            match=source.match,
            namespaces=source.namespaces,
            opened=source.queries.namespaces,
            implicit=source not in self._settings,
        )
        redactor = Redactor(source.settings)
        try:
            adapter = await plugins.load(source.adapter)
        except AdapterError as error:
            return _broken(source, offer, redactor, f'source "{source.name}": {error.message}', error.blame)
        redactor.mark(source.settings, adapter.Settings)
        context = redactor.guarded(self._contexts(source.name, source.adapter))
        try:
            offer = replace(offer, serves=adapter.serves, metrics=plugins.offered(source.name, adapter))
            with redactor.active():
                built = _built(source, adapter, context)
            offered, parameters = plugins.offered(source.name, built), plugins.parameters(source.name, built)
            schema = plugins.query_schema(source, adapter)
            offer = replace(offer, metrics=offered, parameters=parameters, query_schema=schema)
        except AdapterError as error:
            await context.http.close()
            return _broken(source, offer, redactor, error.message, error.blame)
        working = QueriedSource(
            source.name,
            built,
            clock=context.clock,
            log=context.log,
            observer=self._observer,
            limits=limits.of(source, self._period),
            redact=redactor,
            plain=offer.implicit,
        )
        return _Opened(source, offer, working, context)


def _built(source: settings.SourceSettings, adapter: type[Adapter], context: Context) -> Adapter:
    """Builds the adapter; logs an error if that blocks the event loop."""
    began = context.clock.monotonic()
    built = plugins.instance(source, adapter, context)
    seconds = context.clock.monotonic() - began
    if seconds >= BLOCKING_SECONDS:
        context.log.error("setting up the source blocked the event loop", source=source.name, seconds=round(seconds, 1))
    return built


def _broken(source: settings.SourceSettings, offer: Offer, redactor: Redactor, text: str, blame: str) -> _Opened:
    message = redactor(text)
    return _Opened(source, replace(offer, problem=message), error=AdapterError(message, blame))


class Asked:
    """Queries that were asked, and their answers (see `Gatherer.gather`)."""

    __slots__ = ("_asked", "_deadline", "_identity")

    def __init__(self, asked: Sequence[_Waiting | AdapterError], deadline: float, identity: HPAIdentity | None) -> None:
        self._asked = asked
        self._deadline = deadline
        self._identity = identity

    @property
    def done(self) -> bool:
        """Whether all answers are known."""
        for each in self._asked:  # noqa: SIM110  # all() takes three times as long, in each reconcile
            if not isinstance(each, AdapterError) and not each.answer.done():
                return False
        return True

    async def wait(self) -> None:
        """Waits until all answers are known, or the deadline has passed."""
        pending = {each.answer for each in self._asked if isinstance(each, _Waiting) and not each.answer.done()}
        if pending:
            await asyncio.wait(pending, timeout=self._deadline)

    def answers(self) -> list[Answer]:
        """Returns one answer per query; for one without an answer, the reason."""
        return [
            each if isinstance(each, AdapterError) else _read(each, self._identity, self._deadline)
            for each in self._asked
        ]


def _read(waiting: _Waiting, identity: HPAIdentity | None, deadline: float) -> Answer:
    """Returns the answer, or the reason why there is none: the source's rate limit, or the deadline."""
    query, answer = waiting.query, waiting.answer
    if answer.done():
        return own_queries.named(query, answer.result())
    limited = waiting.source.rate_limit_error(waiting.handed, identity)
    late = f'no answer to "{query.name}" within the {deadline:g}s that a reconcile may wait for metrics'
    return own_queries.named(query, limited or AdapterError(late))


class SourcesRejected(ValueError):
    """A reload is rejected because of sources that do not work; the message has a line for each."""


class Sources:
    """The Gatherer in use, `current`, which a reload replaces. Call start() and aclose() in the same event loop."""

    def __init__(self, gatherer: Gatherer, clock: Clock) -> None:
        self.current = gatherer
        self._clock = clock
        self._retiring: dict[asyncio.Task[None], Gatherer] = {}

    async def start(self) -> None:
        """Imports and builds the adapters; never fails (see `Gatherer.problems`)."""
        await self.current.start()

    async def aclose(self) -> None:
        """Closes the sources, including those that were replaced a moment ago."""
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        for gatherer in (*retiring.values(), self.current):  # a task that never ran has closed nothing
            await gatherer.aclose()

    def source_of(self, query: Query) -> str:
        """Returns the name of the source that answers the query now; "" if there is none."""
        try:
            return self.current.source_of(query)
        except AdapterError:
            return ""

    async def replace(self, new: Gatherer, *, patience: float) -> None:
        """Starts `new` and uses it from now on; closes the old one after `patience` seconds, when no HPA waits for it.

        Raises SourcesRejected, closes `new` and keeps the old one, if a source of `new` does not work for a reason that
        the old one did not have.
        """
        try:
            await new.start()
            self._check(new)
        except BaseException:  # also a cancellation: the adapters of `new` hold connections
            await new.aclose()
            raise
        old, self.current = self.current, new
        task = asyncio.create_task(self._retire(old, patience), name="old sources")
        self._retiring[task] = old
        task.add_done_callback(self._retiring.pop)

    def _check(self, new: Gatherer) -> None:
        before = {(name, error.message) for name, error in self.current.problems().items()}
        problems = [
            f"{new.origin(name) or 'built in'}: {error.message}"
            for name, error in new.problems().items()
            if (name, error.message) not in before
        ]
        if problems:
            raise SourcesRejected("\n".join(problems))

    def ask(
        self,
        queries: Sequence[Query | AdapterError],
        *,
        deadline: float,
        identity: HPAIdentity | None = None,
        period: float | None = None,
    ) -> Asked:
        """Calls Gatherer.ask of the current sources."""
        return self.current.ask(queries, deadline=deadline, identity=identity, period=period)

    def announce(self, queries: Sequence[Query | AdapterError], identity: HPAIdentity) -> None:
        """Calls Gatherer.announce of the current sources."""
        self.current.announce(queries, identity)

    def fallback(self, query: Query) -> Fallback | None:
        """Calls Gatherer.fallback of the current sources."""
        return self.current.fallback(query)

    def reports(self) -> list[SourceReport]:
        """Calls Gatherer.reports of the current sources."""
        return self.current.reports()

    async def _retire(self, old: Gatherer, patience: float) -> None:
        try:
            await self._clock.sleep(patience)
        finally:
            await old.aclose()
