"""Decides which source answers a query.

Routes of the configuration come first. Then come the `match` rules of the sources and, for sources without rules, what
their adapters serve, in the order of the configuration. The first match wins. A query with a
definition names its source.
"""

from collections.abc import Mapping, Sequence

import msgspec

from hpad import settings
from hpad.adapter import AdapterError, Query, Selector
from hpad.sources.offers import Offer, matches, patterns_in
from hpad.sources.own_queries import OwnQueries

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
        return msgspec.structs.replace(query, selector=Selector(kept) if kept else None)

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
