"""Batches: entries that one PromQL query answers together, and the assignment of its series to them.

`sum(x{queue=~"a|b"}) by (queue)` answers `sum(x{queue="a"})` and `sum(x{queue="b"})`, because the label `queue` keeps
their series apart. For a query that may mix series each entry is a batch of its own.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import promql_parser

from hpad.adapter import OBJECT, AdapterError
from hpad_adapters.prometheus import queries, samples
from hpad_adapters.prometheus.queries import QueryEntry
from hpad_adapters.prometheus.settings import QueryWindow

_MOST_NAMES = 200
MOST_AT_ONCE = {"POST": 2000, "GET": 50}
"""Most entries in one query, by method; more would exceed the limits of proxies."""


class Batch(msgspec.Struct, frozen=True):
    """The entries of one PromQL query; `apart`: the labels that distinguish their series."""

    entries: tuple[QueryEntry, ...]
    apart: tuple[str, ...]

    def expression(self, window: QueryWindow | None = None) -> str:
        """Returns the PromQL, with this window or that of the recipe; raises AdapterError."""
        first, names = self.entries[0], self._names()
        exact = {label: tuple(sorted({entry.exact[label] for entry in self.entries})) for label in first.exact}
        # Beyond some hundreds, all pods of the namespace cost the server less than a longer pattern.
        long = first.by_pod_names and names is not None and len(names) > _MOST_NAMES
        every = long and _is_separable(first, frozenset({*self.apart, first.item}))
        text = queries.rendered(first, exact, names, _grouped_by(first, self.apart), every)
        window = window or first.recipe.window
        return text if window is None else _ranged(text, window)

    def halves(self) -> Iterator["Batch"]:
        """Yields two batches of half the entries; nothing if all entries are one query."""
        if len(_queries(self.entries)) > 1:
            middle = len(self.entries) // 2
            yield Batch(self.entries[:middle], self.apart)
            yield Batch(self.entries[middle:], self.apart)

    def answers(
        self, series: Iterable[samples.PrometheusSeries]
    ) -> Iterator[tuple[QueryEntry, Sequence[samples.SampleRow]]]:
        """Yields each entry with its rows; to one of pods that has none, the rows without a pod, for its error."""
        rows = self._indexed(series)
        for entry in self.entries:
            key = tuple(entry.exact[label] for label in self.apart)
            if entry.names is None:
                yield entry, rows.get(key, ())
            else:
                own = [row for name in entry.names for row in rows.get((*key, name), ())]
                yield entry, own or rows.get(("",) * (len(key) + 1), ())

    def _names(self) -> frozenset[str] | None:
        if self.entries[0].names is None:
            return None
        return frozenset[str]().union(*(entry.names or () for entry in self.entries))

    def _indexed(self, series: Iterable[samples.PrometheusSeries]) -> Mapping[tuple[str, ...], list[samples.SampleRow]]:
        """Returns the rows by the values of `apart`, and by pod where entries have pods, so that no entry reads all."""
        first = self.entries[0]
        labels = self.apart if first.names is None else (*self.apart, first.item)
        window = first.recipe.window
        index: dict[tuple[str, ...], list[samples.SampleRow]] = {}
        for each in series:
            points = each.points
            point = samples.reduced(points, window) if window is not None else points[-1] if points else None
            key = tuple(each.labels.get(label, "") for label in labels)
            index.setdefault(key, []).append(samples.SampleRow(each.labels, point))
        return index


def planned(entries: Iterable[QueryEntry], most: int) -> list[Batch]:
    """Makes few batches, of at most `most` entries, in which no entry changes the answer of another."""
    alike: dict[tuple[object, ...], list[QueryEntry]] = {}
    for entry in entries:
        alike.setdefault(entry.shape, []).append(entry)
    return [batch for group in alike.values() for batch in _batches(group, most)]


def _batches(entries: list[QueryEntry], most: int) -> Iterator[Batch]:
    apart = tuple(label for label in entries[0].exact if len({entry.exact[label] for entry in entries}) > 1)
    kept_apart = set(apart)
    # Only a query that is narrowed to pods by their label differs between targets.
    if entries[0].by_pod_names and len({entry.names for entry in entries}) > 1:
        kept_apart.add(entries[0].item)
    if kept_apart and (entries[0].recipe.own or not _is_separable(entries[0], frozenset(kept_apart))):
        yield from _equal_ones(entries)
        return
    for start in range(0, len(entries), most):
        yield Batch(tuple(entries[start : start + most]), apart)


def _is_separable(entry: QueryEntry, labels: frozenset[str]) -> bool:
    """Returns whether one query may answer for several values of these labels; `<<.GroupBy>>` holds all of them."""
    # A place in the list is another label in the query for one value.
    if "GroupBySlice" in entry.recipe.template.variables:
        return False
    exact = {label: VALUES if label in labels else (value,) for label, value in entry.exact.items()}
    names = frozenset(VALUES if entry.item in labels else ("hpad",))
    try:
        text = queries.rendered(entry, exact, names, _grouped_by(entry, (GROUP,)))
    except AdapterError:
        return False
    return separable(text, labels)


def _grouped_by(entry: QueryEntry, apart: Iterable[str]) -> tuple[str, ...]:
    return (*filter(None, (entry.item, entry.container)), *(label for label in apart if label != entry.item))


def _equal_ones(entries: list[QueryEntry]) -> Iterator[Batch]:
    for group in _queries(entries):
        yield Batch(tuple(group), ())


def _queries(entries: Iterable[QueryEntry]) -> list[list[QueryEntry]]:
    """Returns the entries by the query that each has alone."""
    equal: dict[tuple[object, ...], list[QueryEntry]] = {}
    for entry in entries:
        names = entry.names if entry.by_pod_names else None
        equal.setdefault((tuple(entry.exact.values()), names), []).append(entry)
    return list(equal.values())


def _ranged(expression: str, window: QueryWindow) -> str:
    """Returns the expression that fetches the samples of a window: a range selector, or a subquery if it has a step."""
    if window.step:
        return f"({expression})[{window.fetch}:{window.step}]"
    return f"{expression.rstrip()}[{window.fetch}]"


_OVER_TIME: Final = {"newest": "last"}
_SOMETHING: Final = "0 * count(up)"
"""Zero while the server scrapes anything: its own absence is a gap."""


def past(entry: QueryEntry) -> str:
    """Returns PromQL whose series add up to the value of the entry, or for a metric of pods to their mean.

    Raises AdapterError for an object that only the labels of the answer tell.
    """
    (batch,), recipe = planned([entry], 1), entry.recipe
    text = batch.expression()
    if recipe.window is not None:
        last = msgspec.structs.replace(recipe.window, fetch=recipe.window.last)
        text = f"{_OVER_TIME.get(last.reduce, last.reduce)}_over_time({batch.expression(last)})"
    if entry.subject and not _SELECTING & recipe.template.variables:
        raise AdapterError(f'"{entry.query.name}": only the labels of the answer tell the object', "spec")
    if entry.query.type in queries.OF_PODS:
        return f"avg({text})" if recipe.reduce == "error" else f"avg({recipe.reduce} by ({entry.item}) ({text}))"
    if entry.query.type == OBJECT and recipe.reduce not in ("error", "sum"):
        text = f"{recipe.reduce}({text})"
    return f"sum({text}) or {_SOMETHING}" if recipe.empty == "zero" else text


_SELECTING: Final = frozenset({"LabelMatchers", "LabelValuesByName", "Labels", "Object"})
"""Variables by which a query selects the described object."""


# Whether one PromQL query answers for several values of a label as a query for each value does.
#
# `sum(x{queue=~"a|b"}) by (queue)` answers `sum(x{queue="a"}) by ()` and `sum(x{queue="b"}) by ()`: the label keeps
# their series apart. `sum(x{queue=~"a|b"}) by (queue) / sum(y) by (queue)` does not answer `… / sum(y) by ()`. The
# judgement is made from a parse of the query, and what is not known to keep series apart does not.

VALUES: Final = ("hpad_value_1", "hpad_value_2")
"""Two values that stand for those of each label in a query to be judged."""
GROUP: Final = "hpad_group"
"""The name that stands for the labels in `<<.GroupBy>>`, because a query for one value does not group by them."""
_MATCHED: Final = "|".join(VALUES)
_LONGEST: Final = 4_000
_MOST_LEVELS: Final = 150
"""A query with more is not judged: the parser recurses, and copies each part of its result once per level above it."""
_LEVEL: Final = re.compile(
    r"#[^\n]*|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`|([-+*/%^(<>=!\[]|\b(?:and|or|unless|atan2)\b)",
    re.IGNORECASE,
)
_AGGREGATIONS: Final = frozenset({"sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "quantile"})
_BY_SERIES: Final = re.compile(
    "(avg|count|last|max|min|present|quantile|stddev|stdvar|sum)_over_time|rate|irate|increase|delta|idelta|deriv"
    "|predict_linear|changes|resets|abs|sgn|ceil|floor|round|clamp|clamp_min|clamp_max|exp|ln|log2|log10|sqrt|deg|rad"
    "|a?(sin|cos|tan)h?|timestamp|year|month|day_of_(month|week|year)|days_in_month|hour|minute"
)
"""Functions that make one series of each series, with its labels."""
_BY_BUCKETS: Final = frozenset({"histogram_quantile"})
"""Functions that make one series of all series that agree in every label but `le`."""


class _MixedError(ValueError):
    """The query may mix the series of several values."""


def separable(text: str, labels: frozenset[str]) -> bool:
    """Returns whether the answer for several values of these labels holds, apart, the answers for each value.

    `text` is the query with VALUES for each of the labels, and with GROUP instead of the labels in `<<.GroupBy>>`.
    """
    return "__name__" not in labels and len(text) <= _LONGEST and _separable(text, labels)


@functools.lru_cache(maxsize=1 << 8)
def _separable(text: str, labels: frozenset[str]) -> bool:
    if sum(bool(sign) for sign in _LEVEL.findall(text)) > _MOST_LEVELS:
        return False
    reading = _Reading(labels)
    try:
        if reading.kept(promql_parser.parse(text)) is None:
            return False
    except (ValueError, RecursionError):  # also what the parser does not know, such as an extension of PromQL
        return False
    except BaseException as error:
        # A panic of the library, as for `x @ NaN`: its class cannot be imported, and is not an Exception.
        if type(error).__name__ != "PanicException":
            raise
        return False
    # Any other place, such as a string or a second matcher, makes another query of several values.
    marks = [text.count(value) for value in VALUES]
    return text.count(GROUP) == reading.groups and set(marks) == {reading.matchers}


class _Reading:
    """Reads a query from its root, and counts the places where it names VALUES and GROUP as it should."""

    def __init__(self, labels: frozenset[str]) -> None:
        self._labels = labels
        self.groups = 0
        self.matchers = 0

    def kept(self, expression: object) -> frozenset[str] | None:
        """Returns which of the labels the series have even if the query is for one value; for several they have all.

        Returns None for a number, which is the same whatever series there are. Raises _MixedError for an expression
        that may mix series.
        """
        match expression:
            case promql_parser.NumberLiteral():
                return None
            case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
                return self.kept(expression.expr)
            case promql_parser.VectorSelector():
                return self._selected(expression)
            case promql_parser.MatrixSelector():
                return self._selected(expression.vector_selector)
            case promql_parser.AggregateExpr():
                return self._aggregated(expression)
            case promql_parser.Call():
                return self._called(expression)
            case promql_parser.BinaryExpr():
                return self._combined(expression)
        raise _MixedError

    def _selected(self, selector: promql_parser.VectorSelector) -> frozenset[str]:
        matchers = selector.matchers.matchers
        exact = {each.name: each.value for each in matchers if each.op == promql_parser.MatchOp.Equal}
        # Series of several names may become equal: an error of one value would be the error of all.
        if selector.matchers.or_matchers or not (selector.name or "__name__" in exact):
            raise _MixedError
        matched = [each.name for each in matchers if each.op == promql_parser.MatchOp.Re and each.value == _MATCHED]
        if sorted(matched) != sorted(self._labels):
            raise _MixedError
        self.matchers += len(matched)
        return self._labels

    def _aggregated(self, aggregation: promql_parser.AggregateExpr) -> frozenset[str] | None:
        modifier, parameter = aggregation.modifier, aggregation.param
        if str(aggregation.op) not in _AGGREGATIONS or not (parameter is None or self.kept(parameter) is None):
            raise _MixedError
        if modifier is None or modifier.type != promql_parser.AggModifierType.By:
            raise _MixedError
        by = frozenset(modifier.labels)
        if GROUP not in by and not by >= self._labels:
            raise _MixedError
        self.groups += modifier.labels.count(GROUP)
        kept = self.kept(aggregation.expr)
        return None if kept is None else kept & by

    def _called(self, call: promql_parser.Call) -> frozenset[str]:
        buckets = call.func.name in _BY_BUCKETS and "le" not in self._labels
        if not (buckets or _BY_SERIES.fullmatch(call.func.name)):
            raise _MixedError
        vectors = [each for each in map(self.kept, call.args) if each is not None]
        if len(vectors) != 1:
            raise _MixedError
        return vectors[0]

    def _combined(self, binary: promql_parser.BinaryExpr) -> frozenset[str] | None:
        left, right = self.kept(binary.lhs), self.kept(binary.rhs)
        if left is None or right is None:
            return left if right is None else right
        # Of one value, series with the label would not match series without it; of several all have it.
        if left != right or _matches_by_some_labels(binary.modifier):
            raise _MixedError
        return left


def _matches_by_some_labels(modifier: promql_parser.BinModifier | None) -> bool:
    if modifier is None:
        return False
    filled = modifier.fill_values
    written = modifier.matching, modifier.group_labels, filled.lhs, filled.rhs
    return modifier.card not in _ALL_LABELS or any(each is not None for each in written)


_ALL_LABELS: Final = (promql_parser.VectorMatchCardinality.OneToOne, promql_parser.VectorMatchCardinality.ManyToMany)
