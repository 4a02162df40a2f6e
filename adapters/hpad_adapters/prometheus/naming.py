"""Derives the names of metrics from names of series, by a rule's `seriesQuery`, `seriesFilters` and `name`.

The rules are those of prometheus-adapter's documentation ("Metrics Discovery and Presentation Configuration"):
`as` is filled with the groups of `matches` as Go's Regexp.Expand does it, by default with $0, or with $1 if there is
one group.
"""

import re
from collections.abc import Iterable, Sequence

import msgspec

from hpad.adapter import shown

_SERIES = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{|\Z)")
_NAME_MATCHER = re.compile(r"__name__\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`)")
_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+)|(\$))")


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
        exact = _NAME_MATCHER.search(self.series_query)
        return _unquoted(exact[1]) if exact else None

    def metric(self, series: str) -> str | None:
        """Returns the metric name of a series, None if the rule excludes the series."""
        if not all(each.passes(series) for each in self.filters):
            return None
        match = self.matches.search(series)
        return None if match is None else _expanded(self.as_, match)

    def possible(self, metric: str) -> bool:
        """Returns whether the rule can make a metric of that name from some series."""
        if self.series is not None:
            return self.metric(self.series) == metric
        return bool(_shape(self.as_).fullmatch(metric))

    def among(self, series: Iterable[str], metric: str) -> str | None:
        """Returns the first of the series, by name, that has this metric name."""
        return next((name for name in sorted(series) if self.metric(name) == metric), None)


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


def _unquoted(text: str) -> str:
    body = text[1:-1]
    return body if text[0] == "`" else re.sub(r"\\(.)", r"\1", body)
