"""The configuration format of prometheus-adapter: `rules`, `externalRules`, `resourceRules`, and what names they make.

Source: prometheus-adapter, docs/config.md and docs/externalmetrics.md.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hpad.adapter import AdapterError, faults, read_yaml, shown
from hpad_adapters.prometheus import template as template_module
from hpad_adapters.prometheus.settings import Settings
from hpad_adapters.selection import pattern

_PLAIN = "<<.Resource>>"
"""The label where a rule names none, as in some examples of prometheus-adapter."""
_FIELDS = frozenset({"Group", "Resource"})
_UNFIT_IN_LABELS = re.compile(r"[.-]")


Place = tuple[str | int, ...]
"""A place in a configuration of rules: fields, and positions in lists."""


class RulesError(AdapterError):
    """One or more rules are wrong; `problems` holds the place and the text of each fault."""

    def __init__(self, where: str, problems: Sequence[tuple[Place, str]]) -> None:
        texts = (": ".join(filter(None, (where, written(place), text))) for place, text in problems)
        super().__init__("; ".join(texts), "spec")
        self.problems = tuple(problems)


def written(place: Place) -> str:
    """Returns a place as text: rules[0]."""
    return "".join(f"[{step}]" if isinstance(step, int) else f": {step}" for step in place).removeprefix(": ")


class GroupResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of objects as rules write it: singular or plural, the group empty for the core API."""

    resource: str
    group: str = ""


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`template`: the label for any kind; `overrides`: label -> kind; `namespaced` false: of all namespaces."""

    template: str = ""
    overrides: dict[str, GroupResource] = {}
    namespaced: bool = True


class Labels:
    """Determines the label of a rule's series that names objects of a kind: `resources` of the rule."""

    def __init__(self, resources: Resources) -> None:
        """Raises template.TemplateError."""
        self._overrides: Mapping[str, GroupResource] = resources.overrides
        self.written = bool(resources.template or resources.overrides)
        text = resources.template or ("" if resources.overrides else _PLAIN)
        self._template = template_module.compiled(text, _FIELDS) if text else None

    def knows(self, resource: str, group: str) -> bool:
        """Returns whether the rule has a label for such objects."""
        try:
            return bool(self.label(resource, group))
        except AdapterError:
            return False

    def label(self, resource: str, group: str = "") -> str:
        """Returns the label with the names of such objects; `resource` in the singular. Raises AdapterError ("spec").

        Without an override of the group, one of another group applies: Ingresses moved from the group extensions.
        """
        named = {each.group: label for label, each in self._overrides.items() if _same(resource, each.resource)}
        if named:
            return named[group] if group in named else next(iter(named.values()))
        if self._template is None:
            raise AdapterError(f'the rule has no label for the resource "{resource}" (resources: overrides)', "spec")
        return self._template.render({"Group": _UNFIT_IN_LABELS.sub("_", group), "Resource": resource})


def _same(resource: str, written: str) -> bool:
    """Returns whether `written` is this resource in the singular or in one of the English plurals."""
    word = written.lower()
    plurals = {f"{resource}s", f"{resource}es", f"{resource[:-1]}ies"}
    return word == resource or word in plurals


_DEFAULT_QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    is_: str = msgspec.field(default="", name="is")
    is_not: str = ""


class Name(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    matches: str = ""
    as_: str = msgspec.field(default="", name="as")


class DiscoveryRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    series_query: str
    series_filters: list[Filter] = []
    resources: Resources = Resources()
    name: Name = Name()
    metrics_query: str = _DEFAULT_QUERY


class ResourceRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`node_query` is for the nodes of `kubectl top`; HPAs do not use it."""

    container_query: str = ""
    node_query: str = ""
    resources: Resources = Resources()
    container_label: str = "container"


class ResourceRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpu: ResourceRule = ResourceRule()
    memory: ResourceRule = ResourceRule()
    window: str = "1m"


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The content of a prometheus-adapter configuration file."""

    rules: list[DiscoveryRule] = []
    external_rules: list[DiscoveryRule] = []
    resource_rules: ResourceRules | None = None


def read(settings: Settings) -> Configuration:
    """Reads the configuration of `rules` or `rules_file`. Blocks; raises AdapterError (blame "spec")."""
    content: Any = settings.rules
    if settings.rules_file:
        try:
            content = read_yaml(Path(settings.rules_file))
        except ValueError as error:
            raise AdapterError(f"rules_file: {settings.rules_file}: {error}", "spec") from None
    where = settings.rules_file or "rules"
    try:
        content = _without_null({} if content is None else content)
        if found := list(faults(content, Configuration)):
            raise RulesError(where, found)
        return msgspec.convert(content, Configuration)
    except RecursionError:
        raise AdapterError(f"{where}: nested too deeply", "spec") from None


def _without_null(value: Any) -> Any:
    """Returns a value without null fields: for Go, and so for prometheus-adapter, they are absent."""
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    return [_without_null(each) for each in value] if isinstance(value, list) else value


# Names of metrics from names of series.
#
# The rules are those of prometheus-adapter's documentation ("Metrics Discovery and Presentation Configuration"): `as`
# is filled with the groups of `matches` as Go's Regexp.Expand does it, by default with $0, or with $1 if there is one
# group.

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


def naming(rule: DiscoveryRule) -> Naming:
    """Makes the naming of a rule; raises ValueError for invalid or ambiguous patterns."""
    filters = [_filter(each) for each in rule.series_filters]
    matches, as_ = rule.name.matches, rule.name.as_
    matching = _pattern("name: matches", matches or ".*")
    if not as_:
        if matching.groups > 1:
            raise ValueError(f"name: matches {shown(matches)} has several groups, so `as` must name one of them")
        as_ = f"${matching.groups}"
    found = (*filters, NameFilter(matching, True)) if matches else tuple(filters)
    return Naming(rule.series_query, found, matching, as_)


def _filter(written: Filter) -> NameFilter:
    if bool(written.is_) == bool(written.is_not):
        raise ValueError("seriesFilters: give one of is and isNot")
    return NameFilter(_pattern("seriesFilters", written.is_ or written.is_not), bool(written.is_))


def _pattern(field: str, text: str) -> re.Pattern[str]:
    """Compiles a regular expression; raises ValueError naming the field."""
    try:
        return pattern(text)
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
