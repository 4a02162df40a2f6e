"""All sources together: each query goes to its own, all at once; each answer is a sample or an error as a value.

The metric sources as a whole, which can be exchanged for others while they are asked.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from hpad import settings
from hpad.adapter import Adapter, AdapterError, Answer, Asker, Context, Query
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.engine.fallback_policy import Fallback
from hpad.sources import limits, plugins, report
from hpad.sources import routes as plan
from hpad.sources.call import HOLDS_UP_SECONDS
from hpad.sources.redact import Redactor
from hpad.sources.source import Observer, Source


class _Opened(msgspec.Struct, frozen=True):
    """A source after start(): at work, or broken with a reason."""

    settings: settings.SourceSettings
    offer: plan.Offer
    source: Source | None
    context: Context | None
    error: AdapterError | None


def _unobserved(source: str, seconds: float, error: AdapterError | None, /) -> None:
    """Nobody watches."""


class Gatherer:
    """Answers the metrics of all HPAs from the configured sources.

    `observer` is called after every call to a source, for telemetry. `period` is the seconds from one reconcile of an
    HPA to the next. Use start() and aclose() in one event loop.
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
        self._plan = plan.Plan(self._routes, ())
        self._has_fallbacks = any(source.fallback is not None for source in sources)

    async def start(self) -> None:
        """Load and build the adapters. Never fails: a source that cannot be built answers with the reason.

        Cancelled half-way, it leaves open what aclose() closes.
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
        self._plan = plan.Plan(self._routes, [each.offer for each in opened])

    async def aclose(self) -> None:
        """Close every source, then its HTTP session."""
        await asyncio.gather(*(each.source.aclose() for each in self._opened.values() if each.source is not None))
        for each in self._opened.values():
            if each.context is not None:
                await each.context.http.close()
        self._opened = {}

    def problems(self) -> dict[str, AdapterError]:
        """The sources that could not be built, and why."""
        return {name: each.error for name, each in self._opened.items() if each.error is not None}

    def origin(self, name: str) -> str:
        """The file or variable that a source was configured in; empty for the built-in ones."""
        return self._opened[name].settings.origin

    def offers(self) -> list[plan.Offer]:
        """What each source can answer, in the order of the configuration."""
        return [each.offer for each in self._opened.values()]

    def source_of(self, query: Query) -> str:
        """The name of the source that answers the query; raises AdapterError where there is none."""
        return self._plan.source(query)

    def reports(self) -> list[report.Report]:
        """How each source fares, in the order of the configuration."""
        return [_reported(each) for each in self._opened.values()]

    def fallback(self, query: Query) -> Fallback | None:
        """What the configuration of the query's source says is to stand in for its metrics while they fail."""
        if not self._has_fallbacks:
            return None
        try:
            return self._opened[self._plan.source(query)].settings.fallback
        except AdapterError:
            return None

    async def gather(
        self, hpa: Key, queries: Sequence[Query | AdapterError], *, deadline: float, asker: Asker | None = None
    ) -> list[Answer]:
        """One answer per query, in order; an error among the queries is its own answer.

        `asker` is told to those adapters alone whose answers depend on it.

        Waits at most `deadline` seconds: what has not come by then is an error, whatever else has come is kept.
        Raises nothing but CancelledError, and a cancellation leaves the calls that others share alone.
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
        """What has come, or why nothing has: the source's rate limit, or the time that it took."""
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
        return opened.source.held_back(query, asker) or late

    @staticmethod
    def _built(source: settings.SourceSettings, adapter: type[Adapter], context: Context) -> Adapter:
        """The adapter's instance; one whose making holds everything up is named in the log."""
        began = context.clock.monotonic()
        built = plugins.instance(source, adapter, context)
        seconds = context.clock.monotonic() - began
        if seconds >= HOLDS_UP_SECONDS:
            context.log.error(
                "setting up the source held up all of hpad", source=source.name, seconds=round(seconds, 1)
            )
        return built

    async def _enter(self, source: settings.SourceSettings) -> _Opened:
        opened = self._opened[source.name] = await self._open(source)
        return opened

    async def _open(self, source: settings.SourceSettings) -> _Opened:
        context: Context | None = None
        offer = plan.Offer(
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


def _offer(
    offer: plan.Offer, serves: frozenset[str], metrics: tuple[str, ...] | Mapping[str, tuple[str, ...]]
) -> plan.Offer:
    return msgspec.structs.replace(offer, serves=serves, metrics=metrics)


def _broken(source: settings.SourceSettings, offer: plan.Offer, error: AdapterError) -> _Opened:
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
    """Sources that do not work were not taken; the message has a line for each."""


class Sources:
    """Asks the Gatherer of the day; start() and aclose() in one event loop."""

    def __init__(self, gatherer: Gatherer, clock: Clock) -> None:
        self._gatherer = gatherer
        self._clock = clock
        self._retiring: dict[asyncio.Task[None], Gatherer] = {}

    async def start(self) -> None:
        """Load and build the adapters; never fails (see `problems`)."""
        await self._gatherer.start()

    async def aclose(self) -> None:
        """Close the sources, those as well that were exchanged a moment ago."""
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        for gatherer in (*retiring.values(), self._gatherer):  # a task that had not begun has closed nothing
            await gatherer.aclose()

    async def replace(self, new: Gatherer, *, patience: float) -> None:
        """Ask the new one from now on; the old one is closed after `patience` seconds, when nobody waits for it.

        Raises SourcesRejected, and keeps the old one, if a source of the new one does not work for a reason that it has
        not had before. Whatever was opened for a new one that is not taken, is closed.
        """
        try:
            await new.start()
            self._refuse(new)
        except BaseException:
            await new.aclose()
            raise
        old, self._gatherer = self._gatherer, new
        task = asyncio.create_task(self._retire(old, patience), name="old sources")
        self._retiring[task] = old
        task.add_done_callback(self._retiring.pop)

    def _refuse(self, new: Gatherer) -> None:
        before = {(name, error.message) for name, error in self.problems().items()}
        faults = [
            f"{new.origin(name) or 'built in'}: {error.message}"
            for name, error in new.problems().items()
            if (name, error.message) not in before
        ]
        if faults:
            raise SourcesRejected("\n".join(faults))

    async def gather(
        self, hpa: Key, queries: Sequence[Query | AdapterError], *, deadline: float, asker: Asker | None = None
    ) -> list[Answer]:
        """As Gatherer.gather."""
        return await self._gatherer.gather(hpa, queries, deadline=deadline, asker=asker)

    def fallback(self, query: Query) -> Fallback | None:
        """As Gatherer.fallback."""
        return self._gatherer.fallback(query)

    def problems(self) -> dict[str, AdapterError]:
        """The sources that could not be built, and why."""
        return self._gatherer.problems()

    def origin(self, name: str) -> str:
        """As Gatherer.origin."""
        return self._gatherer.origin(name)

    def reports(self) -> list[report.Report]:
        """How each source fares."""
        return self._gatherer.reports()

    async def _retire(self, old: Gatherer, patience: float) -> None:
        try:
            await self._clock.sleep(patience)
        finally:
            await old.aclose()
