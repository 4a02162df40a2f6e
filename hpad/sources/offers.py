"""What a source can answer, by its adapter and by the rules of the configuration."""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from hpad.adapter import Operator, Query
from hpad.settings import Match, SourceSettings

_EQUALITY = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)
_WILDCARDS = frozenset("*?[")


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What one source can answer.

    `settings` are those of the configuration; their `match` replaces `metrics`, the patterns of the names that the
    adapter answers without a rule, or such patterns by type, empty for none. `serves` holds metric types. `parameters`
    holds the labels that its adapter reads from selectors, None if the adapter does not say so. `query_schema` is that
    of the queries that Autoscalers may bring along, or why the source takes none. `problem` is the error of a source
    that could not be set up, which names it; None if it works. An `implicit` source is built in and not configured.
    """

    settings: SourceSettings
    serves: frozenset[str] = frozenset()
    metrics: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ("*",)
    parameters: frozenset[str] | None = None
    query_schema: type[msgspec.Struct] | str = "it is closed"
    problem: str | None = None
    implicit: bool = False

    @property
    def source(self) -> str:
        """Its name."""
        return self.settings.name

    @property
    def match(self) -> tuple[Match, ...]:
        """The rules of the configuration."""
        return self.settings.match

    def admits(self, query: Query) -> bool:
        """Returns whether HPAs of the query's namespace may use the source."""
        return one_of(self.settings.namespaces, query.namespace)

    def takes_own(self, query: Query) -> bool:
        """Returns whether Autoscalers of the query's namespace may bring queries along."""
        opened = self.settings.queries.namespaces
        return bool(opened) and one_of(opened, query.namespace) and self.admits(query)

    def takes(self, query: Query) -> bool:
        """Returns whether the source answers a query that no route matches, if it admits the namespace."""
        if self.match:
            return any(matches(rule, query) for rule in self.match)
        offered = self.names(query.type)
        return bool(offered) and one_of(offered, query.name)

    def takes_by_name(self, query: Query) -> bool:
        """Returns whether the source takes the query by the metric's name, not only because it takes every metric."""
        return self.takes(query) and any("*" not in patterns for patterns in self._named(query))

    def names(self, kind: str) -> tuple[str, ...]:
        """Returns names and patterns of the metrics of a type that the source answers without a route."""
        if self.match:
            rules = [rule for rule in self.match if not rule.types or kind in rule.types]
            return tuple(dict.fromkeys(patterns_in(rules)))
        if kind not in self.serves:
            return ()
        return tuple(self.metrics.get(kind, ()) if isinstance(self.metrics, Mapping) else self.metrics)

    def chosen_by(self, rule: Match, query: Query) -> Iterator[tuple[str, str]]:
        """Yields the labels of a rule that choose the source and mean nothing to its adapter, with the query's values.

        Where the adapter does not list its parameters, a label with a pattern stays: its value says more than the rule.
        """
        for label, pattern in rule.labels.items():
            if not set(pattern) & _WILDCARDS if self.parameters is None else label not in self.parameters:
                yield label, next(value for value in _values(query, label) if one_of((pattern,), value))

    def _named(self, query: Query) -> list[Sequence[str]]:
        """Returns each list of patterns that takes the query; ["*"] for any name."""
        if self.match:
            return [rule.metrics or ("*",) for rule in self.match if matches(rule, query)]
        return [self.metrics.get(query.type, ()) if isinstance(self.metrics, Mapping) else self.metrics]


def matches(rule: Match, query: Query) -> bool:
    """Returns whether all fields of the rule fit the query; patterns are shell-style."""
    return (
        one_of(rule.types, query.type)
        and one_of(rule.metrics, query.name)
        and one_of(rule.namespaces, query.namespace)
        and all(_selects(query, label, pattern) for label, pattern in rule.labels.items())
    )


def _selects(query: Query, label: str, pattern: str) -> bool:
    """Returns whether the metric's selector requires exactly one value of the label, which fits the pattern."""
    return any(one_of((pattern,), value) for value in _values(query, label))


def _values(query: Query, label: str) -> list[str]:
    """Returns the value of each requirement that allows one value of the label."""
    terms = query.selector.requirements if query.selector is not None else ()
    found = [term.values for term in terms if term.key == label and term.operator in _EQUALITY]
    return [allowed[0] for allowed in found if len(allowed) == 1]


def one_of(patterns: Sequence[str], text: str) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def patterns_in(rules: Sequence[Match]) -> list[str]:
    return [pattern for rule in rules for pattern in rule.metrics or ("*",)]
