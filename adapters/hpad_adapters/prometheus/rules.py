"""The rules of a prometheus-adapter configuration: compiled, matched to metrics, and resolved to series.

A rule that names no single series needs the names of the series on the server, which are cached.
"""

import functools
from collections.abc import Iterator, Sequence
from datetime import timedelta

import msgspec

from hpad.adapter import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    PODS,
    RESOURCE,
    AdapterError,
    Context,
    CrossVersionObjectReference,
    Query,
    meant,
    parse_duration,
)
from hpad_adapters.prometheus import queries, template
from hpad_adapters.prometheus.configuration import (
    Configuration,
    DiscoveryRule,
    Labels,
    Naming,
    Place,
    ResourceRules,
    RulesError,
    naming,
)
from hpad_adapters.prometheus.connection import PrometheusConnection
from hpad_adapters.prometheus.queries import QueryEntry, QueryRecipe
from hpad_adapters.prometheus.settings import Settings

_VARIABLES = frozenset({"Series", "LabelMatchers", "LabelValuesByName", "GroupBy", "GroupBySlice"})
_EVERYWHERE = (("node", ""), ("persistentvolume", ""))
_REMEMBERED = 1 << 12
RESOURCES = (RESOURCE, CONTAINER_RESOURCE)
_DEFAULT_SPAN = timedelta(minutes=1)
_Subject = tuple[str, str]
"""A resource in the singular, and its group."""


class Rule(msgspec.Struct, frozen=True, eq=False):
    """A rule for metrics that have series, compiled."""

    recipe: QueryRecipe
    naming: Naming
    labels: Labels
    namespaced: bool


class CompiledRules:
    """The compiled configuration."""

    def __init__(self, configuration: Configuration, settings: Settings) -> None:
        """Raises RulesError naming the rules that are wrong."""
        self._settings = settings
        self._where = settings.rules_file or "rules"
        self._problems: list[tuple[Place, str]] = []
        self._custom = self._all("rules", configuration.rules)
        self._external = self._all("externalRules", configuration.external_rules)
        self._resources = self._of_resources(configuration.resource_rules)
        if self._problems:
            raise RulesError(self._where, self._problems)
        self._found = functools.lru_cache(maxsize=_REMEMBERED)(self._find)

    def find(self, query: Query) -> tuple[Rule, ...]:
        """Returns the rules that may make this Pods, Object or External metric; the first one counts.

        As in prometheus-adapter, a later rule of the file overrides an earlier one.
        """
        return self._found(_subject(query), query.name)

    def resource(self, query: Query, names: frozenset[str]) -> QueryEntry | None:
        """Returns the entry for a Resource or ContainerResource metric, None without a resource rule for it."""
        found = self._resources.get(query.name)
        if found is None:
            return None
        recipe, labels, container = found
        return QueryEntry(
            query=query,
            recipe=recipe,
            exact={labels.label("namespace"): query.namespace},
            texts=(("Series", ""),),
            item=labels.label("pod"),
            container=container,
            names=names,
            by_pod_names=True,
        )

    def _find(self, subject: _Subject | None, metric: str) -> tuple[Rule, ...]:
        rules = self._external if subject is None else self._custom
        found = tuple(rule for rule in reversed(rules) if rule.naming.possible(metric))
        return tuple(rule for rule in found if subject is None or rule.labels.knows(*subject)) or found

    def _all(self, section: str, rules: Sequence[DiscoveryRule]) -> list[Rule]:
        made = []
        for index, rule in enumerate(rules):
            try:
                made.append(self._rule(f"{section}[{index}]", rule))
            except ValueError as error:
                self._problems.append(((section, index), str(error)))
        return made

    def _rule(self, place: str, rule: DiscoveryRule) -> Rule:
        """Compiles a rule; raises ValueError (also as TemplateError)."""
        named, labels = naming(rule), Labels(rule.resources)
        return Rule(self._recipe(place, rule.metrics_query, _DEFAULT_SPAN), named, labels, rule.resources.namespaced)

    def _recipe(self, place: str, query: str, span: timedelta) -> QueryRecipe:
        settings = self._settings
        window = settings.rules_window
        return QueryRecipe(
            origin=f"{self._where}: {place}",
            template=template.compiled(query, _VARIABLES),
            empty=settings.rules_empty,
            reduce=settings.rules_reduce,
            window=window,
            span=window.span if window else span,
        )

    def _of_resources(self, rules: ResourceRules | None) -> dict[str, tuple[QueryRecipe, Labels, str]]:
        if rules is None:
            return {}
        compiled: dict[str, tuple[QueryRecipe, Labels, str]] = {}
        try:
            span = parse_duration(rules.window)
        except ValueError as error:
            self._problems.append((("resourceRules", "window"), str(error)))
            return compiled
        for name, rule in (("cpu", rules.cpu), ("memory", rules.memory)):
            if rule.container_query:
                try:
                    recipe = self._recipe(f"resourceRules: {name}", rule.container_query, span)
                    compiled[name] = recipe, Labels(rule.resources), rule.container_label
                except ValueError as error:
                    self._problems.append((("resourceRules", name), str(error)))
        return compiled


def flaws(configuration: Configuration, settings: Settings) -> Iterator[tuple[Place, str]]:
    """Yields the errors of the rules and of their PromQL, with their places."""
    try:
        CompiledRules(configuration, settings)
    except RulesError as error:
        yield from error.problems
    for place, query in _queries(configuration):
        if wrong := template.promql_error(query):
            yield place, wrong


def _queries(configuration: Configuration) -> Iterator[tuple[Place, str]]:
    for section, rules in (("rules", configuration.rules), ("externalRules", configuration.external_rules)):
        for index, rule in enumerate(rules):
            yield (section, index), rule.metrics_query
    resources = configuration.resource_rules or ResourceRules()
    for name, each in (("cpu", resources.cpu), ("memory", resources.memory)):
        if each.container_query:
            yield ("resourceRules", name), each.container_query


def entry(rule: Rule, series: str, query: Query, names: frozenset[str] | None) -> QueryEntry:
    """Returns the entry for a metric that the rule makes of that series; raises AdapterError (blame "spec")."""
    exact, matchers, listed = queries.selected(query.selector)
    reference, namespace = query.object, _own_namespace(rule, query)
    if namespace:
        queries.confine(exact, namespace, query.namespace)
    item = ""
    subject: tuple[str, ...] = ()
    if query.type == PODS:
        item = rule.labels.label("pod")
    elif reference is not None:
        item = rule.labels.label(*_resource_of(reference))
        queries.confine(exact, item, reference.name)
        subject = tuple(dict.fromkeys(filter(None, (item, namespace))))
    return QueryEntry(
        query=query,
        recipe=rule.recipe,
        exact=exact,
        matchers=matchers,
        listed=listed,
        texts=(("Series", series),),
        item=item,
        subject=subject,
        names=names,
        by_pod_names=query.type == PODS,
    )


def _subject(query: Query) -> _Subject | None:
    """Returns the kind of object that a metric describes; None for an External one."""
    if query.type == EXTERNAL:
        return None
    return ("pod", "") if query.object is None else _resource_of(query.object)


def _own_namespace(rule: Rule, query: Query) -> str:
    """Returns the label that must have the HPA's namespace, "" without one; raises AdapterError.

    `namespaced: false` is for External metrics; prometheus-adapter confines all others (metrics_query.go: Build).
    """
    labels, reference = rule.labels, query.object
    if reference is not None and _resource_of(reference) in _EVERYWHERE:
        _check_no_namespace(labels, query, reference)
        return ""
    by_kind = query.type != EXTERNAL and labels.written and labels.knows("namespace", "")
    return labels.label("namespace") if rule.namespaced or by_kind else ""


def _check_no_namespace(labels: Labels, query: Query, reference: CrossVersionObjectReference) -> None:
    """Raises AdapterError if the selector chooses a namespace for an object that belongs to none."""
    label = labels.label("namespace") if labels.knows("namespace", "") else ""
    for term in query.selector.requirements if query.selector is not None else ():
        if template.label_name(term.key) == label:
            text = f'a {reference.kind} belongs to no namespace, so the selector "{query.selector}" cannot name one'
            raise AdapterError(text, "spec")


def _resource_of(reference: CrossVersionObjectReference) -> _Subject:
    return reference.kind.lower(), reference.api_version.rpartition("/")[0]


_RETRY_SECONDS = 30.0


class _Seen(msgspec.Struct, frozen=True):
    names: frozenset[str]
    at: float


class SeriesDiscovery:
    """The names of the series that rules query, cached for `ttl`, which is also the time range of the lookup.

    For a metric without a series they are read again after 30 seconds, so that a new series is found early.
    """

    def __init__(self, connection: PrometheusConnection, context: Context, ttl: timedelta) -> None:
        self._connection = connection
        self._clock = context.clock
        self._ttl = ttl.total_seconds()
        self._seen: dict[str, _Seen] = {}

    async def choose(self, found: Sequence[Rule], metric: str) -> tuple[Rule, str] | None:
        """Returns the first rule that has a series for the metric; raises AdapterError if the server does not answer.

        A single rule that names its series needs no request.
        """
        if len(found) == 1 and (series := found[0].naming.series) is not None:
            return found[0], series
        for fresh in (self._ttl, _RETRY_SECONDS):
            for rule in found:
                names = await self._names(rule.naming.series_query, min(fresh, self._ttl))
                series = rule.naming.among(names, metric)
                if series is not None:
                    return rule, series
        return None

    async def _names(self, selector: str, fresh: float) -> frozenset[str]:
        now = self._clock.monotonic()
        seen = self._seen.get(selector)
        if seen is None or now - seen.at > fresh:
            until = self._clock.now().timestamp()
            names = frozenset(await self._connection.series_names(selector, until - self._ttl, until))
            seen = self._seen[selector] = _Seen(names, now)
        return seen.names


def unknown_metric(metric: str, kind: str, known: Sequence[str]) -> AdapterError:
    """Returns the error for a metric without a configured query and without a rule that finds a series."""
    listed = ", ".join(known) or "none"
    return AdapterError(
        f'nothing answers {kind} metric "{metric}": no rule makes it of an existing series, '
        f"and the queries of its type are: {listed}{meant(metric, known)}",
        "spec",
    )
