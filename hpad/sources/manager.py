"""All metric sources together: opens them, and sends each query to its source."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from hpad import settings
from hpad.adapter import Adapter, AdapterError, Answer, Context, HPAIdentity, Query
from hpad.engine.fallback_policy import Fallback
from hpad.files import Stamps, stamps
from hpad.sources import limits, own_queries, plugins
from hpad.sources.call import BLOCKING_SECONDS
from hpad.sources.limits import BROKEN, SourceReport
from hpad.sources.offers import Offer
from hpad.sources.redact import Redactor
from hpad.sources.routes import RoutePlan
from hpad.sources.source import Observer, QueriedSource

_NOT_BUILT: Final[dict[str, Any]] = {
    "match": (),
    "namespaces": (),
    "queries": settings.OpenedQueries(),
    "fallback": None,
    "origin": "",
}
"""Fields of a source's settings that its adapter is not built of: they take effect in the one that is open."""


class _Opened(msgspec.Struct, frozen=True):
    """A source after start(): it works (`source` and `context`), or it could not be set up (`error`).

    `files` are those whose content its adapter keeps, as they were before they were read.
    """

    offer: Offer
    source: QueriedSource | None = None
    context: Context | None = None
    error: AdapterError | None = None
    files: Stamps = {}

    @property
    def settings(self) -> settings.SourceSettings:
        return self.offer.settings

    def report(self) -> SourceReport:
        name, adapter = self.settings.name, self.settings.adapter
        if self.source is not None:
            return self.source.report(adapter)
        why = None if self.error is None else self.error.message
        return SourceReport(name=name, adapter=adapter, state=BROKEN, last_error=why)


async def _serves(opened: _Opened, source: settings.SourceSettings) -> bool:
    """Returns whether a source works, and would be built of these settings and of the present files in the same way."""
    if opened.source is None or replace(opened.settings, **_NOT_BUILT) != replace(source, **_NOT_BUILT):
        return False
    return not opened.files or await asyncio.to_thread(stamps, opened.files) == opened.files


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

    async def start(self, former: "Gatherer | None" = None) -> None:
        """Imports and builds the adapters. Never fails: a source that cannot be built answers with the reason.

        Shares the sources of `former` that are still as configured here, with their connections and answers, until one
        of the two releases them. After a cancellation, aclose() closes what was opened.
        """
        configured = {source.name for source in self._settings}
        installed = await asyncio.to_thread(plugins.names)
        implicit = [
            settings.SourceSettings(name=name, adapter=name)
            for name in settings.BUILT_IN_SOURCES
            if name in installed and name not in configured
        ]
        configured_first = (*self._settings, *implicit)
        await asyncio.gather(*(self._enter(source, former) for source in configured_first))
        self._opened = {source.name: self._opened[source.name] for source in configured_first}
        self._plan = RoutePlan(self._routes, self.offers())

    async def aclose(self) -> None:
        """Closes every source, then its HTTP session."""
        await asyncio.gather(*(each.source.aclose() for each in self._opened.values() if each.source is not None))
        for each in self._opened.values():
            if each.context is not None:
                await each.context.http.close()
        self._opened = {}

    def release(self, other: "Gatherer") -> None:
        """Leaves the sources that `other` shares to it."""
        self._opened = {name: each for name, each in self._opened.items() if not other.shares(each)}

    def shares(self, opened: _Opened) -> bool:
        """Returns whether the source is one of these."""
        own = self._opened.get(opened.settings.name)
        return own is not None and own.source is not None and own.source is opened.source

    def changed(self, former: "Gatherer") -> Iterator[settings.SourceSettings]:
        """Yields the configured sources that work, and whose settings or files are not those of `former`."""
        for name, each in self._opened.items():
            known = former._opened.get(name)
            same = known is not None and (known.settings, known.files) == (each.settings, each.files)
            if each.source is not None and not each.offer.implicit and not same:
                yield each.settings

    def kept_files(self) -> Stamps:
        """Returns the files whose content the adapters keep, as they were before they were read."""
        return {path: stamp for each in self._opened.values() for path, stamp in each.files.items()}

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

    async def _enter(self, source: settings.SourceSettings, former: "Gatherer | None") -> None:
        # Each source is kept as soon as it is open: aclose() closes it even if a slower one is cancelled.
        shared = None if former is None else await self._shared(source, former)
        self._opened[source.name] = shared or await self._open(source)

    async def _shared(self, source: settings.SourceSettings, former: "Gatherer") -> _Opened | None:
        """Returns the open source of `former` if it serves these settings. The sync period limits all calls."""
        opened, implicit = former._opened.get(source.name), source not in self._settings
        if opened is None or former._period != self._period or opened.offer.implicit != implicit:
            return None
        if not await _serves(opened, source):
            return None
        return replace(opened, offer=replace(opened.offer, settings=source))

    async def _open(self, source: settings.SourceSettings) -> _Opened:
        offer = Offer(settings=source, implicit=source not in self._settings)
        redactor = Redactor(source.settings)
        try:
            adapter = await plugins.load(source.adapter)
        except AdapterError as error:
            return _broken(offer, redactor, f'source "{source.name}": {error.message}', error.blame)
        redactor.mark(source.settings, adapter.Settings)
        calls = limits.of(source, self._period)
        context = replace(redactor.guarded(self._contexts(source.name, source.adapter)), timeout=calls.timeout)
        try:
            offer = replace(offer, serves=adapter.serves, metrics=plugins.offered(source.name, adapter))
            with redactor.active():
                built = _built(source, adapter, context)
            offered, parameters = plugins.offered(source.name, built), plugins.parameters(source.name, built)
            schema = plugins.query_schema(source, adapter)
            offer = replace(offer, metrics=offered, parameters=parameters, query_schema=schema)
            kept = await asyncio.to_thread(stamps, plugins.kept_files(source.name, built))
        except BaseException as error:  # also a cancellation: nobody else knows the session yet
            await context.http.close()
            if not isinstance(error, AdapterError):
                raise
            return _broken(offer, redactor, error.message, error.blame)
        working = QueriedSource(
            source.name,
            built,
            clock=context.clock,
            log=context.log,
            observer=self._observer,
            limits=calls,
            redact=redactor,
            plain=offer.implicit,
        )
        try:
            with redactor.active():
                await plugins.prepare(source, built, context)
        except BaseException as error:
            await working.aclose()
            await context.http.close()
            if not isinstance(error, AdapterError):
                raise
            return replace(_broken(offer, redactor, error.message, error.blame), files=kept)
        return _Opened(offer, working, context, files=kept)


def _built(source: settings.SourceSettings, adapter: type[Adapter], context: Context) -> Adapter:
    """Builds the adapter; logs an error if that blocks the event loop."""
    began = context.clock.monotonic()
    built = plugins.instance(source, adapter, context)
    seconds = context.clock.monotonic() - began
    if seconds >= BLOCKING_SECONDS:
        context.log.error("setting up the source blocked the event loop", source=source.name, seconds=round(seconds, 1))
    return built


def _broken(offer: Offer, redactor: Redactor, text: str, blame: str) -> _Opened:
    message = redactor(text)
    return _Opened(replace(offer, problem=message), error=AdapterError(message, blame))


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
