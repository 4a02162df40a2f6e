"""All metric sources together: which of them answers a query, and the answers.

Routes of the configuration come first. Then come the `match` rules of the sources and, for sources without rules, what
their adapters serve, in the order of the configuration. The first match wins. A query with a definition names its
source.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from hpad import settings
from hpad.adapter import AdapterError, Answer, HPAIdentity, Query, Selector
from hpad.engine.fallback_policy import Fallback
from hpad.files import Stamps
from hpad.sources import limits, own_queries, plugins
from hpad.sources.limits import SourceReport
from hpad.sources.offers import Offer, matches, patterns_in
from hpad.sources.opening import OpenedSource, open_source, serves
from hpad.sources.own_queries import OwnQueries
from hpad.sources.source import Observer, QueriedSource

_MOST_KNOWN = 4096
"""Names of metrics whose source is remembered. HPAs may name any number."""
_HOW_TO_CONFIGURE = (
    "to configure one, add it under `sources:` of hpad's configuration; a route under `routes:` sends "
    "further metrics to it"
)


class RoutePlan:
    """Routes and offers of all sources. The decision depends on the query alone."""

    def __init__(self, routes: Sequence[settings.Route], offers: Sequence[Offer]) -> None:
        self._routes = tuple(routes)
        self._offers = {offer.source: offer for offer in offers}
        self._own = OwnQueries(offers)
        rules = [*(route.match for route in routes), *(rule for offer in offers for rule in offer.match)]
        self._by_labels = any(rule.labels for rule in rules)
        by_more = self._routes or any(offer.match or offer.settings.namespaces for offer in offers)
        self._known: dict[tuple[str, str], str] | None = None if by_more else {}
        """The sources by type and name, where nothing else decides."""

    def source(self, query: Query) -> str:
        """Returns the name of the source; raises AdapterError (blame "spec") that lists the sources there are."""
        if query.definition is not None:
            return self._own.source(query, query.definition)
        if self._known is None:
            return self._found(query)
        known = self._known.get((query.type, query.name))
        if known is None:
            known = self._found(query)
            if len(self._known) < _MOST_KNOWN:
                self._known[query.type, query.name] = known
        return known

    def handed(self, query: Query, source: str) -> Query:
        """Returns the query that the adapter of its source gets: without the labels that only choose the source.

        Raises AdapterError for a definition with wrong parameters.
        """
        if query.definition is not None:
            return self._own.handed(query, query.definition)
        if not self._by_labels or query.selector is None:
            return query
        offer = self._offers[source]
        route = next((route.match for route in self._routes if matches(route.match, query)), None)
        rules = [*filter(None, [route]), *(rule for rule in offer.match if matches(rule, query))]
        chosen = {label: value for rule in rules for label, value in offer.chosen_by(rule, query)}
        terms = query.selector.requirements
        # A second requirement that the value does not meet stays: the selector selects nothing.
        kept = tuple([term for term in terms if term.key not in chosen or not term.matches(chosen)])
        if len(kept) == len(terms):
            return query
        return replace(query, selector=Selector(kept) if kept else None)

    def _found(self, query: Query) -> str:
        routed = next((route.source for route in self._routes if matches(route.match, query)), None)
        name = routed or self._offered(query)
        if name is None:
            raise AdapterError(self._unserved(query), "spec")
        offer = self._offers.get(name)
        if offer is None:
            raise AdapterError(f'a route sends {_named(query)} to source "{name}", which is not configured', "spec")
        if not offer.admits(query):
            raise AdapterError(f'source "{name}" is not offered to HPAs of namespace "{query.namespace}"', "spec")
        if offer.problem is None and query.type not in offer.serves:
            serves = ", ".join(sorted(offer.serves))
            raise AdapterError(f'source "{name}" serves {serves} metrics, it cannot answer {_named(query)}', "spec")
        return name

    def _offered(self, query: Query) -> str | None:
        """Returns the first source that takes and admits the query; else the first that takes it, for the error text.

        A metric that a source takes by name does not go to an implicit source instead.
        """
        takers = [offer for offer in self._offers.values() if offer.takes(query)]
        admitted = next((offer for offer in takers if offer.admits(query)), None)
        confined = next((offer for offer in takers if offer.takes_by_name(query)), None)
        if confined is not None and (admitted is None or admitted.implicit):
            return confined.source
        chosen = admitted or next(iter(takers), None)
        return None if chosen is None else chosen.source

    def _unserved(self, query: Query) -> str:
        sources = "; ".join(_described(offer) for offer in self._offers.values()) or "none"
        where = f' in namespace "{query.namespace}"'
        return f"no source serves {_named(query)}{where}: configured sources: {sources}; {_HOW_TO_CONFIGURE}"


def _named(query: Query) -> str:
    return f'{query.type} metric "{query.name}"'


def _described(offer: Offer) -> str:
    if offer.problem is not None:
        return offer.problem
    if offer.match:
        return f"{offer.source} (metrics: {', '.join(patterns_in(offer.match))})"
    if isinstance(offer.metrics, Mapping):
        listed = (f"{kind}: {', '.join(patterns)}" for kind, patterns in sorted(offer.metrics.items()) if patterns)
        return f"{offer.source} ({'; '.join(listed) or 'nothing without a rule'})"
    if not offer.metrics:
        return f"{offer.source} (nothing without a rule)"
    names = "" if "*" in offer.metrics else f": {', '.join(offer.metrics)}"
    return f"{offer.source} ({', '.join(sorted(offer.serves))}{names})"


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
        self._opened: dict[str, OpenedSource] = {}
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

    def shares(self, opened: OpenedSource) -> bool:
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
        self._opened[source.name] = shared or await open_source(
            source, self._contexts, self._observer, period=self._period, implicit=source not in self._settings
        )

    async def _shared(self, source: settings.SourceSettings, former: "Gatherer") -> OpenedSource | None:
        """Returns the open source of `former` if it serves these settings. The sync period limits all calls."""
        opened, implicit = former._opened.get(source.name), source not in self._settings
        if opened is None or former._period != self._period or opened.offer.implicit != implicit:
            return None
        if not await serves(opened, source):
            return None
        return replace(opened, offer=replace(opened.offer, settings=source))


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
