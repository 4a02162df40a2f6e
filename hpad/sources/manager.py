"""All metric sources together: opens them, sends each query to its source, and replaces them on a reload."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from hpad import settings
from hpad.adapter import Adapter, AdapterError, Answer, Asker, Context, Query
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.engine.fallback_policy import Fallback
from hpad.sources import limits, plugins, report
from hpad.sources.call import BLOCKING_SECONDS
from hpad.sources.redact import Redactor
from hpad.sources.routes import Offer, Plan
from hpad.sources.source import Observer, Source


class _Opened(msgspec.Struct, frozen=True):
    """A source after start(): working, or broken with a reason."""

    settings: settings.SourceSettings
    offer: Offer
    source: Source | None
    context: Context | None
    error: AdapterError | None


def _unobserved(source: str, seconds: float, error: AdapterError | None, /) -> None:
    """Observes nothing."""


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
        observer: Observer = _unobserved,
        period: float = limits.PERIOD,
    ) -> None:
        self._settings = tuple(sources)
        self._routes = tuple(routes)
        self._contexts = contexts
        self._observer = observer
        self._period = period
        self._opened: dict[str, _Opened] = {}
        self._plan = Plan(self._routes, ())
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
        opened = await asyncio.gather(*(self._enter(source) for source in (*self._settings, *implicit)))
        self._opened = {each.offer.source: each for each in opened}  # in the order of the configuration
        self._plan = Plan(self._routes, [each.offer for each in opened])

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

    def reports(self) -> list[report.Report]:
        """Returns state and counts of each source, in the order of the configuration."""
        return [_reported(each) for each in self._opened.values()]

    def fallback(self, query: Query) -> Fallback | None:
        """Returns the configured fallback of the query's source, if it has one."""
        if not self._has_fallbacks:
            return None
        try:
            return self._opened[self._plan.source(query)].settings.fallback
        except AdapterError:
            return None

    async def gather(
        self, hpa: Key, queries: Sequence[Query | AdapterError], *, deadline: float, asker: Asker | None = None
    ) -> list[Answer]:
        """Returns one answer per query, in order; an error among the queries is its own answer.

        Only adapters whose answers depend on the asking HPA are told `asker`. Waits at most `deadline` seconds; a query
        without an answer by then gets an error. Raises nothing but CancelledError; a cancellation does not end the
        calls, which other HPAs share.
        """
        asked = [self._ask(query, asker) for query in queries]
        pending = {future for future in asked if isinstance(future, asyncio.Future)}
        if pending:
            await asyncio.wait(pending, timeout=deadline)
        return [
            future if isinstance(future, AdapterError) else self._read(query, asker, future, deadline)
            for query, future in zip(queries, asked, strict=True)
        ]

    def _ask(self, query: Query | AdapterError, asker: Asker | None) -> asyncio.Future[Answer] | AdapterError:
        if isinstance(query, AdapterError):
            return query
        try:
            opened = self._opened[self._plan.source(query)]
        except AdapterError as error:
            return error
        if opened.source is None:
            return opened.error or AdapterError(f'source "{opened.offer.source}" is not open', "bug")
        return opened.source.ask(query, asker)

    def _read(
        self, query: Query | AdapterError, asker: Asker | None, asked: asyncio.Future[Answer], deadline: float
    ) -> Answer:
        """Returns the answer, or the reason why there is none: the source's rate limit, or the deadline."""
        if asked.done():
            return asked.result()
        if isinstance(query, AdapterError):
            return query
        opened = self._opened.get(self._plan.source(query))
        late = AdapterError(
            f'no answer to "{query.name}" within the {deadline:g}s that a reconcile may wait for metrics'
        )
        if opened is None or opened.source is None:
            return late
        return opened.source.rate_limit_error(query, asker) or late

    @staticmethod
    def _built(source: settings.SourceSettings, adapter: type[Adapter], context: Context) -> Adapter:
        """Builds the adapter; logs it if that blocks the event loop."""
        began = context.clock.monotonic()
        built = plugins.instance(source, adapter, context)
        seconds = context.clock.monotonic() - began
        if seconds >= BLOCKING_SECONDS:
            message = "setting up the source blocked the event loop"
            context.log.error(message, source=source.name, seconds=round(seconds, 1))
        return built

    async def _enter(self, source: settings.SourceSettings) -> _Opened:
        opened = self._opened[source.name] = await self._open(source)
        return opened

    async def _open(self, source: settings.SourceSettings) -> _Opened:
        context: Context | None = None
        offer = Offer(
            source=source.name,
            match=source.match,
            namespaces=source.namespaces,
            implicit=source not in self._settings,
        )
        redact = Redactor(source.settings)
        try:
            adapter = await plugins.load(source.adapter)
            offer = _offer(offer, adapter.serves, plugins.offered(source.name, adapter))
            context = self._contexts(source.name, source.adapter)
            built = self._built(source, adapter, context)
            offer = _offer(offer, adapter.serves, plugins.offered(source.name, built))
        except AdapterError as error:
            if context is not None:
                await context.http.close()
            return _broken(source, offer, AdapterError(redact(error.message), error.blame))
        working = Source(
            source.name,
            built,
            clock=context.clock,
            log=context.log,
            observer=self._observer,
            limits=limits.of(source, self._period),
            redact=redact,
            plain=offer.implicit,
        )
        return _Opened(source, offer, working, context, None)


def _offer(offer: Offer, serves: frozenset[str], metrics: tuple[str, ...] | Mapping[str, tuple[str, ...]]) -> Offer:
    return msgspec.structs.replace(offer, serves=serves, metrics=metrics)


def _broken(source: settings.SourceSettings, offer: Offer, error: AdapterError) -> _Opened:
    named = f'source "{offer.source}"'
    message = error.message if error.message.startswith(named) else f"{named}: {error.message}"
    reason = message.removeprefix(f"{named}").lstrip(": ")
    return _Opened(
        source, msgspec.structs.replace(offer, problem=reason), None, None, AdapterError(message, error.blame)
    )


def _reported(opened: _Opened) -> report.Report:
    name, adapter = opened.offer.source, opened.settings.adapter
    if opened.source is not None:
        return opened.source.report(adapter)
    why = None if opened.error is None else opened.error.message
    return report.Report(name=name, adapter=adapter, state=report.BROKEN, last_error=why)


class SourcesRejected(ValueError):
    """A reload is rejected because of sources that do not work; the message has a line for each."""


class Sources:
    """The Gatherer in use, which a reload replaces. Call start() and aclose() in the same event loop."""

    def __init__(self, gatherer: Gatherer, clock: Clock) -> None:
        self._gatherer = gatherer
        self._clock = clock
        self._retiring: dict[asyncio.Task[None], Gatherer] = {}

    async def start(self) -> None:
        """Imports and builds the adapters; never fails (see `problems`)."""
        await self._gatherer.start()

    async def aclose(self) -> None:
        """Closes the sources, including those that were replaced a moment ago."""
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        for gatherer in (*retiring.values(), self._gatherer):  # a task that never ran has closed nothing
            await gatherer.aclose()

    async def replace(self, new: Gatherer, *, patience: float) -> None:
        """Starts `new` and uses it from now on; closes the old one after `patience` seconds, when no HPA waits for it.

        Raises SourcesRejected, closes `new` and keeps the old one, if a source of `new` does not work for a reason that
        the old one did not have.
        """
        try:
            await new.start()
            self._check(new)
        except BaseException:
            await new.aclose()
            raise
        old, self._gatherer = self._gatherer, new
        task = asyncio.create_task(self._retire(old, patience), name="old sources")
        self._retiring[task] = old
        task.add_done_callback(self._retiring.pop)

    def _check(self, new: Gatherer) -> None:
        before = {(name, error.message) for name, error in self.problems().items()}
        problems = [
            f"{new.origin(name) or 'built in'}: {error.message}"
            for name, error in new.problems().items()
            if (name, error.message) not in before
        ]
        if problems:
            raise SourcesRejected("\n".join(problems))

    async def gather(
        self, hpa: Key, queries: Sequence[Query | AdapterError], *, deadline: float, asker: Asker | None = None
    ) -> list[Answer]:
        """As Gatherer.gather."""
        return await self._gatherer.gather(hpa, queries, deadline=deadline, asker=asker)

    def fallback(self, query: Query) -> Fallback | None:
        """As Gatherer.fallback."""
        return self._gatherer.fallback(query)

    def problems(self) -> dict[str, AdapterError]:
        """Returns the sources that could not be built, and why."""
        return self._gatherer.problems()

    def origin(self, name: str) -> str:
        """As Gatherer.origin."""
        return self._gatherer.origin(name)

    def reports(self) -> list[report.Report]:
        """As Gatherer.reports."""
        return self._gatherer.reports()

    async def _retire(self, old: Gatherer, patience: float) -> None:
        try:
            await self._clock.sleep(patience)
        finally:
            await old.aclose()
