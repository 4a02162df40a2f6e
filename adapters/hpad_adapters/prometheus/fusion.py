"""Whether one query may answer several questions: told from the query's text, and never guessed.

`sum(x{queue=~"a|b"}) by (queue)` is both `sum(x{queue="a"})` and `sum(x{queue="b"})`: that label keeps them apart. It
does if each aggregation groups by it, and if nothing in the query makes one number of all series or changes labels.
Whatever else there is, each question gets a query of its own. In PromQL, SUM is sum.
"""

import functools
import re
from collections.abc import Iterator

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
