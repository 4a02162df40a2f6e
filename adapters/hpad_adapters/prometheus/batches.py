"""Questions that one query can answer, put together and taken apart again.

Whether one query may answer several questions: told from the query's text, and never guessed.

`sum(x{queue=~"a|b"}) by (queue)` is both `sum(x{queue="a"})` and `sum(x{queue="b"})`: that label keeps them apart. It
does if each aggregation groups by it, and if nothing in the query makes one number of all series or changes labels.
Whatever else there is, each question gets a query of its own. In PromQL, SUM is sum.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hpad_adapters.prometheus import queries, wire
from hpad_adapters.prometheus.queries import Ask
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
    """Whether series that differ in these labels stay apart all through the query, `<<.GroupBy>>` holding them all."""
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
    """Names and signs; a variable stands for itself as "<Name>", strings and comments are left out."""
    text = "".join(f"\0{part.variable}\0" if isinstance(part, Action) else part for part in template.parts)
    for token in re.findall(r"\0\w+\0|" + _TOKEN.pattern, text, re.DOTALL):
        if token.startswith("\0"):
            yield token.strip("\0")
        elif token[0] not in "\"'`#" and not token.isspace():
            yield token


def _all_matched(tokens: list[str]) -> bool:
    """Whether both sides of each operator between vectors have the matchers, and so the labels."""
    depth, operators = 0, 0
    for index, token in enumerate(tokens):
        depth += (token in "{[") - (token in "}]")
        if depth == 0 and (token in _OPERATORS or token.lower() in _SET_OPERATORS):
            operators += _between_vectors(tokens, index)
    return operators == 0 or tokens.count("LabelMatchers") > operators


def _between_vectors(tokens: list[str], index: int) -> bool:
    """Whether no number stands beside the operator; its second sign (`==`) and a sign of a number do not count."""
    before = tokens[index - 1] if index else "("
    after = tokens[index + 1] if index + 1 < len(tokens) else ")"
    if before in _OPERATORS or before in "(,":
        return False
    return not before.isdigit() and not after.isdigit()


def _is_call(tokens: list[str], index: int) -> bool:
    return index + 1 < len(tokens) and tokens[index + 1].lower() in ("(", "by")


def _groups_by(tokens: list[str], index: int) -> frozenset[str]:
    """The labels of the `by` clause of the aggregation at `index`, before or after its arguments."""
    after = index + 1
    if tokens[after].lower() != "by":
        after = _closing(tokens, after) + 1
    if after + 1 >= len(tokens) or tokens[after].lower() != "by" or tokens[after + 1] != "(":
        return frozenset()
    return frozenset(tokens[after + 2 : _closing(tokens, after + 1)]) - {","}


def _closing(tokens: list[str], opening: int) -> int:
    """Where the parenthesis that opens there is closed; the end if it never is."""
    depth = 0
    for position in range(opening, len(tokens)):
        depth += (tokens[position] == "(") - (tokens[position] == ")")
        if depth == 0:
            return position
    return len(tokens)


MOST_AT_ONCE = {"POST": 2000, "GET": 50}
"""Questions in one query, by method; more would meet the limits of proxies."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One series of an answer, and its point: None where it has no number (NaN, infinite, a histogram)."""

    labels: dict[str, str]
    point: wire.Point | None


class Batch(msgspec.Struct, frozen=True):
    """Questions for one query; `apart`: the labels that tell their answers apart."""

    asks: tuple[Ask, ...]
    apart: tuple[str, ...]

    def expression(self, window: Window | None = None) -> str:
        """The PromQL, with the recipe's own window unless another is given; raises AdapterError."""
        first = self.asks[0]
        wanted = {label: tuple(sorted({ask.wanted[label] for ask in self.asks})) for label in first.wanted}
        by = (*filter(None, (first.item, first.container)), *(label for label in self.apart if label != first.item))
        text = queries.rendered(first, wanted, self._names(), by)
        window = window or first.recipe.window
        return text if window is None else wire.asked(text, window)

    def answers(self, series: Iterable[wire.Series]) -> Iterator[tuple[Ask, Sequence[Row]]]:
        """Each question with its rows."""
        rows = self._indexed(series)
        for ask in self.asks:
            key = tuple(ask.wanted[label] for label in self.apart)
            if ask.names is None:
                yield ask, rows.get(key, ())
            else:
                yield ask, [row for name in ask.names for row in rows.get((*key, name), ())]

    def _names(self) -> frozenset[str] | None:
        if self.asks[0].names is None:
            return None
        return frozenset[str]().union(*(ask.names or () for ask in self.asks))

    def _indexed(self, series: Iterable[wire.Series]) -> Mapping[tuple[str, ...], list[Row]]:
        """The rows by the values of `apart`, and by pod where pods are meant: no HPA looks at another's rows."""
        first = self.asks[0]
        labels = self.apart if first.names is None else (*self.apart, first.item)
        window = first.recipe.window
        index: dict[tuple[str, ...], list[Row]] = {}
        for each in series:
            points = each.points
            point = wire.reduced(points, window) if window is not None else points[-1] if points else None
            key = tuple(each.metric.get(label, "") for label in labels)
            index.setdefault(key, []).append(Row(each.metric, point))
        return index


def planned(asks: Iterable[Ask], most: int) -> list[Batch]:
    """As few batches as possible, of `most` questions each, without any question changing another's answer."""
    alike: dict[tuple[object, ...], list[Ask]] = {}
    for ask in asks:
        alike.setdefault(ask.shape, []).append(ask)
    return [batch for group in alike.values() for batch in _batches(group, most)]


def _batches(asks: list[Ask], most: int) -> Iterator[Batch]:
    apart = tuple(label for label in asks[0].wanted if len({ask.wanted[label] for ask in asks}) > 1)
    kept_apart = {*apart, *((asks[0].item,) if asks[0].narrow and len({ask.names for ask in asks}) > 1 else ())}
    if not safe(asks[0].recipe.template, frozenset(kept_apart)) and kept_apart:
        yield from _equal_ones(asks)
        return
    for start in range(0, len(asks), most):
        yield Batch(tuple(asks[start : start + most]), apart)


def _equal_ones(asks: list[Ask]) -> Iterator[Batch]:
    equal: dict[tuple[object, ...], list[Ask]] = {}
    for ask in asks:
        equal.setdefault((tuple(ask.wanted.values()), ask.names), []).append(ask)
    for group in equal.values():
        yield Batch(tuple(group), ())
