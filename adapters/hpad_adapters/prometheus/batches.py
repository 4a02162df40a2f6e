"""Batches: entries that one PromQL query answers together, and the assignment of its series to them.

`sum(x{queue=~"a|b"}) by (queue)` answers `sum(x{queue="a"})` and `sum(x{queue="b"})`, because the label `queue` keeps
their series apart. That holds if each aggregation groups by the label, and if no function in the query merges all
series or changes labels. For any other query each entry is a batch of its own. Keywords of PromQL are not
case-sensitive.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hpad_adapters.prometheus import queries, samples
from hpad_adapters.prometheus.queries import Entry
from hpad_adapters.prometheus.settings import Window
from hpad_adapters.prometheus.template import Action, Template

_AGGREGATIONS = frozenset(
    {"sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "bottomk", "topk", "quantile", "limitk"}
)
_LABELS_MIXED = frozenset(
    {"scalar", "vector", "absent", "absent_over_time", "label_replace", "label_join", "without", "on", "ignoring"}
    | {"group_left", "group_right", "time", "info", "or", "count_values", "limit_ratio"}
)
_OPERATORS = frozenset("+-*/%^=!<>")
_SET_OPERATORS = frozenset({"and", "unless", "atan2"})
_TOKEN = re.compile(r"\s+|#[^\n]*|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`|[a-zA-Z_:][a-zA-Z0-9_:]*|.", re.DOTALL)
_GROUPED_BY = "GroupBy"


@functools.lru_cache(maxsize=1 << 10)
def safe(template: Template, labels: frozenset[str]) -> bool:
    """Returns whether the query keeps series apart that differ in these labels; `<<.GroupBy>>` holds all labels."""
    if "LabelMatchers" not in template.variables or "GroupBySlice" in template.variables:
        return False
    if labels & (template.keys("LabelValuesByName") | template.keys("Labels")):
        return False
    tokens = list(_tokens(template))
    if any(token.lower() in _LABELS_MIXED for token in tokens) or not _all_matched(tokens):
        return False
    return all(
        _groups_by(tokens, index) >= labels or _GROUPED_BY in _groups_by(tokens, index)
        for index, token in enumerate(tokens)
        if token.lower() in _AGGREGATIONS and _is_call(tokens, index)
    )


def _tokens(template: Template) -> Iterator[str]:
    """Yields the names and operators of the query, and the names of variables, without strings and comments."""
    text = "".join(f"\0{part.variable}\0" if isinstance(part, Action) else part for part in template.parts)
    for token in re.findall(r"\0\w+\0|" + _TOKEN.pattern, text, re.DOTALL):
        if token.startswith("\0"):
            yield token.strip("\0")
        elif token[0] not in "\"'`#" and not token.isspace():
            yield token


def _all_matched(tokens: list[str]) -> bool:
    """Returns whether both sides of each operator between vectors have the matchers, and therefore the labels."""
    depth, operators = 0, 0
    for index, token in enumerate(tokens):
        depth += (token in "{[") - (token in "}]")
        if depth == 0 and (token in _OPERATORS or token.lower() in _SET_OPERATORS):
            operators += _between_vectors(tokens, index)
    return operators == 0 or tokens.count("LabelMatchers") > operators


def _between_vectors(tokens: list[str], index: int) -> bool:
    """Returns whether there is no number beside the operator."""
    before = tokens[index - 1] if index else "("
    after = tokens[index + 1] if index + 1 < len(tokens) else ")"
    # The second sign of `==`, or the sign of a number.
    if before in _OPERATORS or before in "(,":
        return False
    return not before.isdigit() and not after.isdigit()


def _is_call(tokens: list[str], index: int) -> bool:
    return index + 1 < len(tokens) and tokens[index + 1].lower() in ("(", "by")


def _groups_by(tokens: list[str], index: int) -> frozenset[str]:
    """Returns the labels of the `by` clause of the aggregation at `index`, before or after its arguments."""
    after = index + 1
    if tokens[after].lower() != "by":
        after = _closing(tokens, after) + 1
    if after + 1 >= len(tokens) or tokens[after].lower() != "by" or tokens[after + 1] != "(":
        return frozenset()
    return frozenset(tokens[after + 2 : _closing(tokens, after + 1)]) - {","}


def _closing(tokens: list[str], opening: int) -> int:
    """Returns the index of the closing parenthesis; the number of tokens if there is none."""
    depth = 0
    for position in range(opening, len(tokens)):
        depth += (tokens[position] == "(") - (tokens[position] == ")")
        if depth == 0:
            return position
    return len(tokens)


MOST_AT_ONCE = {"POST": 2000, "GET": 50}
"""Most entries in one query, by method; more would exceed the limits of proxies."""


class Batch(msgspec.Struct, frozen=True):
    """The entries of one PromQL query; `apart`: the labels that distinguish their series."""

    entries: tuple[Entry, ...]
    apart: tuple[str, ...]

    def expression(self, window: Window | None = None) -> str:
        """Returns the PromQL, with this window or that of the recipe; raises AdapterError."""
        first = self.entries[0]
        exact = {label: tuple(sorted({entry.exact[label] for entry in self.entries})) for label in first.exact}
        by = (*filter(None, (first.item, first.container)), *(label for label in self.apart if label != first.item))
        text = queries.rendered(first, exact, self._names(), by)
        window = window or first.recipe.window
        return text if window is None else _ranged(text, window)

    def answers(self, series: Iterable[samples.Series]) -> Iterator[tuple[Entry, Sequence[samples.Row]]]:
        """Yields each entry with its rows."""
        rows = self._indexed(series)
        for entry in self.entries:
            key = tuple(entry.exact[label] for label in self.apart)
            if entry.names is None:
                yield entry, rows.get(key, ())
            else:
                yield entry, [row for name in entry.names for row in rows.get((*key, name), ())]

    def _names(self) -> frozenset[str] | None:
        if self.entries[0].names is None:
            return None
        return frozenset[str]().union(*(entry.names or () for entry in self.entries))

    def _indexed(self, series: Iterable[samples.Series]) -> Mapping[tuple[str, ...], list[samples.Row]]:
        """Returns the rows by the values of `apart`, and by pod where entries have pods, so that no entry reads all."""
        first = self.entries[0]
        labels = self.apart if first.names is None else (*self.apart, first.item)
        window = first.recipe.window
        index: dict[tuple[str, ...], list[samples.Row]] = {}
        for each in series:
            points = each.points
            point = samples.reduced(points, window) if window is not None else points[-1] if points else None
            key = tuple(each.metric.get(label, "") for label in labels)
            index.setdefault(key, []).append(samples.Row(each.metric, point))
        return index


def planned(entries: Iterable[Entry], most: int) -> list[Batch]:
    """Makes few batches, of at most `most` entries, in which no entry changes the answer of another."""
    alike: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        alike.setdefault(entry.shape, []).append(entry)
    return [batch for group in alike.values() for batch in _batches(group, most)]


def _batches(entries: list[Entry], most: int) -> Iterator[Batch]:
    apart = tuple(label for label in entries[0].exact if len({entry.exact[label] for entry in entries}) > 1)
    kept_apart = set(apart)
    # Only a query that is narrowed to pods by their label differs between targets.
    if entries[0].by_pod_names and len({entry.names for entry in entries}) > 1:
        kept_apart.add(entries[0].item)
    if kept_apart and not safe(entries[0].recipe.template, frozenset(kept_apart)):
        yield from _equal_ones(entries)
        return
    for start in range(0, len(entries), most):
        yield Batch(tuple(entries[start : start + most]), apart)


def _equal_ones(entries: list[Entry]) -> Iterator[Batch]:
    equal: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        equal.setdefault((tuple(entry.exact.values()), entry.names), []).append(entry)
    for group in equal.values():
        yield Batch(tuple(group), ())


def _ranged(expression: str, window: Window) -> str:
    """Returns the expression that fetches the samples of a window: a range selector, or a subquery if it has a step."""
    if window.step:
        return f"({expression})[{window.fetch}:{window.step}]"
    return f"{expression.rstrip()}[{window.fetch}]"
