"""Finds the series of a metric by its name: the inverse of a rule's `seriesQuery`, `seriesFilters` and `name`.

The rules are those of prometheus-adapter's documentation ("Metrics Discovery and Presentation Configuration"):
`as` is filled with the groups of `matches` as Go's Regexp.Expand does it, by default with $0, or with $1 if there is
one group.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from hpad.adapter import shown

_SERIES = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{|\Z)")
_NAME_MATCHER = re.compile(r"__name__\s*(=~|!~|!=|=)\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`)")
_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+)|(\$))")
_LITERAL = re.compile(r"(?:[A-Za-z0-9_:]|\\[.:])*")
_GROUP = re.compile(r"\((?!\?)([^()|]*)\)")


class NameFilter(msgspec.Struct, frozen=True):
    """A series passes if its name contains the pattern (`positive`), or if it does not (not `positive`)."""

    pattern: re.Pattern[str]
    positive: bool

    def passes(self, series: str) -> bool:
        """Returns whether a series of that name passes."""
        return bool(self.pattern.search(series)) == self.positive


class Naming(msgspec.Struct, frozen=True):
    """How one rule derives metric names from names of series."""

    series_query: str
    filters: tuple[NameFilter, ...]
    matches: re.Pattern[str]
    as_: str

    @property
    def series(self) -> str | None:
        """The series that `seriesQuery` names, None if it may select several."""
        if match := _SERIES.match(self.series_query):
            return match[1]
        exact = [text for sign, text in self._name_matchers() if sign == "="]
        return exact[0] if exact else None

    def metric(self, series: str) -> str | None:
        """Returns the metric name of a series, None if the rule excludes the series."""
        if not all(each.passes(series) for each in self.filters):
            return None
        match = self.matches.search(series)
        return None if match is None else _expanded(self.as_, match)

    def backwards(self, metric: str) -> str | None:
        """Returns the series of that metric, None if it depends on the series that the server has."""
        candidate = self.series or _unmatched(self.matches.pattern, self.as_, metric)
        if candidate is None or not self._queried(candidate):
            return None
        # The inversion ignores filters and `as` with several references: applying the rule forwards verifies it.
        return candidate if self.metric(candidate) == metric else None

    def possible(self, metric: str) -> bool:
        """Returns whether the rule can make a metric of that name from some series."""
        if self.series is not None:
            return self.metric(self.series) == metric
        return bool(_shape(self.as_).fullmatch(metric))

    def among(self, series: Iterable[str], metric: str) -> str | None:
        """Returns the first of the series, by name, that has this metric name."""
        return next((name for name in sorted(series) if self.metric(name) == metric), None)

    def _name_matchers(self) -> list[tuple[str, str]]:
        return [(sign, _unquoted(text)) for sign, text in _NAME_MATCHER.findall(self.series_query)]

    def _queried(self, series: str) -> bool:
        """Returns whether `seriesQuery` allows a series of that name; its patterns are anchored, as in PromQL."""
        for sign, text in self._name_matchers():
            same = text == series if sign in ("=", "!=") else bool(re.fullmatch(text, series))
            if same != (sign in ("=", "=~")):
                return False
        return True


def made(series_query: str, filters: Sequence[NameFilter], matches: str, as_: str) -> Naming:
    """Makes the naming of a rule; raises ValueError for invalid or ambiguous patterns."""
    matching = pattern("name: matches", matches or ".*")
    if not as_:
        if matching.groups > 1:
            raise ValueError(f"name: matches {shown(matches)} has several groups, so `as` must name one of them")
        as_ = f"${matching.groups}"
    found = (*filters, NameFilter(matching, True)) if matches else tuple(filters)
    return Naming(series_query, found, matching, as_)


def pattern(field: str, text: str) -> re.Pattern[str]:
    """Compiles a regular expression; raises ValueError naming the field."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{field}: {shown(text)} is no regular expression: {error}") from None


def _expanded(as_: str, match: re.Match[str]) -> str:
    """Expands as Go's Regexp.Expand: an unknown group is empty, and `$1_x` refers to a group named "1_x"."""

    def group(reference: re.Match[str]) -> str:
        if reference[3]:
            return "$"
        try:
            name = reference[1] or reference[2]
            return match[int(name) if name.isdigit() else name] or ""
        except IndexError:
            return ""

    return _REFERENCE.sub(group, as_)


def _shape(as_: str) -> re.Pattern[str]:
    """Returns a pattern that matches every metric name of this `as`."""
    pieces, position = [], 0
    for reference in _REFERENCE.finditer(as_):
        pieces += [re.escape(as_[position : reference.start()]), ".*"]
        position = reference.end()
    return re.compile("".join([*pieces, re.escape(as_[position:])]), re.DOTALL)


def _unmatched(pattern: str, as_: str, metric: str) -> str | None:
    """Returns the text that `pattern` matches and that `as_` expands to this metric, None if it is not unique.

    It is unique if the pattern is anchored or absent, and everything outside of its groups is literal.
    """
    whole = _REFERENCE.fullmatch(as_)
    if whole and (whole[1] or whole[2]) == "0" and (pattern == ".*" or _anchored(pattern)):
        return metric
    pieces = _pieces(pattern)
    groups = None if pieces is None else _groups(as_, metric)
    if pieces is None or groups is None:
        return None
    text, number = "", 0
    for literal, is_group in pieces:
        number += is_group
        if is_group and str(number) not in groups:
            return None
        text += groups[str(number)] if is_group else literal
    return text


def _anchored(pattern: str) -> bool:
    """Returns whether the pattern matches all of a name or nothing."""
    return pattern.startswith("^") and pattern.endswith("$") and "|" not in pattern


def _pieces(pattern: str) -> list[tuple[str, bool]] | None:
    """Splits an anchored pattern into literals and simple groups: (text, whether it is a group); None for others."""
    if not _anchored(pattern) and pattern != "(.*)":
        return None
    body = pattern.removeprefix("^").removesuffix("$")
    pieces: list[tuple[str, bool]] = []
    position = 0
    while position < len(body):
        if group := _GROUP.match(body, position):
            pieces.append((group[1], True))
            position = group.end()
            continue
        literal = _LITERAL.match(body, position)
        if literal is None or not literal[0]:
            return None
        pieces.append((literal[0].replace("\\", ""), False))
        position = literal.end()
    return pieces


def _groups(as_: str, metric: str) -> dict[str, str] | None:
    """Returns the value of the group in an `as` with one reference, taken from the metric's name."""
    references = [found for found in _REFERENCE.finditer(as_) if not found[3]]
    if len(references) != 1:
        return None
    before, after = as_[: references[0].start()], as_[references[0].end() :]
    if "$" in before + after or len(metric) < len(before) + len(after):
        return None
    if not metric.startswith(before) or not metric.endswith(after):
        return None
    return {references[0][1] or references[0][2]: metric[len(before) : len(metric) - len(after)]}


def _unquoted(text: str) -> str:
    body = text[1:-1]
    return body if text[0] == "`" else re.sub(r"\\(.)", r"\1", body)
