"""Decides which source answers a query.

Routes of the configuration come first. Then come the `match` rules of the sources and, for sources without rules, what
their adapters serve, in the order of the configuration. The first match wins.
"""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from hpad import settings
from hpad.adapter import AdapterError, Operator, Query, Selector

_EQUALITY = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)
_WILDCARDS = frozenset("*?[")
_MOST_KNOWN = 4096
"""Names of metrics whose source is remembered. HPAs may name any number."""
_HOW_TO_CONFIGURE = (
    "to configure one, add it under `sources:` of hpad's configuration; a route under `routes:` sends "
    "further metrics to it"
)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What one source can answer.

    `serves` holds metric types. `metrics` holds patterns of the names that its adapter answers without a rule, or such
    patterns by type; `match` holds rules of the configuration, which replace `metrics`. `parameters` holds the labels
    that its adapter reads from selectors, None if the adapter does not say so. `namespaces` holds patterns of the
    namespaces whose HPAs may use it, empty for all. `problem` is the error of a source that could not be set up,
    which names it; None if it works. An `implicit` source is built in and not configured.
    """

    source: str
    serves: frozenset[str] = frozenset()
    metrics: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ("*",)
    match: tuple[settings.Match, ...] = ()
    parameters: frozenset[str] | None = None
    namespaces: tuple[str, ...] = ()
    problem: str | None = None
    implicit: bool = False

    def admits(self, query: Query) -> bool:
        """Returns whether HPAs of the query's namespace may use the source."""
        return _one_of(self.namespaces, query.namespace)

    def takes(self, query: Query) -> bool:
        """Returns whether the source answers a query that no route matches, if it admits the namespace."""
        if self.match:
            return any(matches(rule, query) for rule in self.match)
        if query.type not in self.serves:
            return False
        if isinstance(self.metrics, Mapping):
            return query.type in self.metrics and _one_of(self.metrics[query.type], query.name)
        return _one_of(self.metrics, query.name)

    def takes_by_name(self, query: Query) -> bool:
        """Returns whether the source takes the query by the metric's name, not only because it takes every metric."""
        return self.takes(query) and any("*" not in patterns for patterns in self._named(query))

    def names(self, kind: str) -> tuple[str, ...]:
        """Returns names and patterns of the metrics of a type that the source answers without a route."""
        if self.match:
            rules = [rule for rule in self.match if not rule.types or kind in rule.types]
            return tuple(dict.fromkeys(_patterns(rules)))
        if kind not in self.serves:
            return ()
        return tuple(self.metrics.get(kind, ()) if isinstance(self.metrics, Mapping) else self.metrics)

    def chosen_by(self, rule: settings.Match, query: Query) -> Iterator[tuple[str, str]]:
        """Yields the labels of a rule that choose the source and mean nothing to its adapter, with the query's values.

        Where the adapter does not list its parameters, a label with a pattern stays: its value says more than the rule.
        """
        for label, pattern in rule.labels.items():
            if not set(pattern) & _WILDCARDS if self.parameters is None else label not in self.parameters:
                yield label, next(value for value in _values(query, label) if _one_of((pattern,), value))

    def _named(self, query: Query) -> list[Sequence[str]]:
        """Returns each list of patterns that takes the query; ["*"] for any name."""
        if self.match:
            return [rule.metrics or ("*",) for rule in self.match if matches(rule, query)]
        return [self.metrics.get(query.type, ()) if isinstance(self.metrics, Mapping) else self.metrics]


class RoutePlan:
    """Routes and offers of all sources. The decision depends on the query alone."""

    def __init__(self, routes: Sequence[settings.Route], offers: Sequence[Offer]) -> None:
        self._routes = tuple(routes)
        self._offers = {offer.source: offer for offer in offers}
        self._confines = any(offer.namespaces for offer in offers)
        rules = [*(route.match for route in routes), *(rule for offer in offers for rule in offer.match)]
        self._by_labels = any(rule.labels for rule in rules)
        by_more = self._routes or self._confines or any(offer.match for offer in offers)
        self._known: dict[tuple[str, str], str] | None = None if by_more else {}
        """The sources by type and name, where nothing else decides."""

    def source(self, query: Query) -> str:
        """Returns the name of the source; raises AdapterError (blame "spec") that lists the sources there are."""
        if self._known is None:
            return self._found(query)
        known = self._known.get((query.type, query.name))
        if known is None:
            known = self._found(query)
            if len(self._known) < _MOST_KNOWN:
                self._known[query.type, query.name] = known
        return known

    def handed(self, query: Query, source: str) -> Query:
        """Returns the query that the adapter of its source gets: without the labels that only choose the source."""
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
        if not self._confines:  # the usual case, once per metric and turn: the first match, without lists
            return next((offer.source for offer in self._offers.values() if offer.takes(query)), None)
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


def matches(rule: settings.Match, query: Query) -> bool:
    """Returns whether all fields of the rule fit the query; patterns are shell-style."""
    return (
        _one_of(rule.types, query.type)
        and _one_of(rule.metrics, query.name)
        and _one_of(rule.namespaces, query.namespace)
        and all(_selects(query, label, pattern) for label, pattern in rule.labels.items())
    )


def _selects(query: Query, label: str, pattern: str) -> bool:
    """Returns whether the metric's selector requires exactly one value of the label, which fits the pattern."""
    return any(_one_of((pattern,), value) for value in _values(query, label))


def _values(query: Query, label: str) -> list[str]:
    """Returns the value of each requirement that allows one value of the label."""
    terms = query.selector.requirements if query.selector is not None else ()
    found = [term.values for term in terms if term.key == label and term.operator in _EQUALITY]
    return [allowed[0] for allowed in found if len(allowed) == 1]


def _one_of(patterns: Sequence[str], text: str) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def _named(query: Query) -> str:
    return f'{query.type} metric "{query.name}"'


def _described(offer: Offer) -> str:
    if offer.problem is not None:
        return offer.problem
    if offer.match:
        return f"{offer.source} (metrics: {', '.join(_patterns(offer.match))})"
    if isinstance(offer.metrics, Mapping):
        listed = (f"{kind}: {', '.join(patterns)}" for kind, patterns in sorted(offer.metrics.items()))
        return f"{offer.source} ({'; '.join(listed) or 'nothing without a rule'})"
    names = "" if "*" in offer.metrics else f": {', '.join(offer.metrics)}"
    return f"{offer.source} ({', '.join(sorted(offer.serves))}{names})"


def _patterns(rules: Sequence[settings.Match]) -> list[str]:
    return [pattern for rule in rules for pattern in rule.metrics or ("*",)]
