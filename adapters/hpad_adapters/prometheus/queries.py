"""Entries of PromQL batches, and the queries that the operator writes for metrics.

An entry is one metric of one HPA with its compiled query, from the operator or from a prometheus-adapter rule.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from weakref import WeakKeyDictionary

import msgspec

from hpad.adapter import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    AdapterError,
    Query,
    QueryDefinition,
    Requirement,
    Selector,
    parse_duration,
)
from hpad_adapters.prometheus import template
from hpad_adapters.prometheus.settings import (
    OF_THE_HPA,
    OF_THE_OBJECT,
    OF_THE_PODS,
    VARIABLES,
    Empty,
    Metric,
    QueryWindow,
    Reduce,
)
from hpad_adapters.prometheus.template import Template, Value

OF_PODS = (PODS, RESOURCE, CONTAINER_RESOURCE)
_EXACT = ("=", "==")


class QueryRecipe(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A compiled query and how its answer is read. `origin` is its place in the configuration, for errors.

    `own`: the query is from an Autoscaler. It is never parsed in order to be joined with other queries, since its
    author is not the operator.
    """

    origin: str
    template: Template
    empty: Empty
    reduce: Reduce
    window: QueryWindow | None
    span: timedelta
    own: bool = False


class QueryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one HPA, with everything that its PromQL needs.

    `exact`: label -> the value that the series must have; `matchers`: other PromQL matchers; `listed`: the values of
    these, for templates; `texts`: the other variables of the template; `hpa_labels`: the labels of the HPA among them.
    `item` and `container`: the labels of the answer that name the object (or pod) and the container, "" without one.
    `subject`: the labels in `exact` that name the described object: its name first, then its namespace.
    `names`: the pods of the target, None where the query itself selects them. `by_pod_names`: whether the query
    selects pods by their names.
    """

    query: Query
    recipe: QueryRecipe
    exact: Mapping[str, str]
    matchers: tuple[str, ...] = ()
    listed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    hpa_labels: tuple[tuple[str, str], ...] = ()
    item: str = ""
    container: str = ""
    subject: tuple[str, ...] = ()
    names: frozenset[str] | None = None
    by_pod_names: bool = False

    @property
    def shape(self) -> tuple[object, ...]:
        """The properties that all entries of a batch share."""
        kind = self.query.type in OF_PODS, self.item, self.container, self.names is None, self.by_pod_names
        return self.recipe, *kind, tuple(self.exact), self.matchers, self.listed, self.texts, self.hpa_labels


def selected(
    selector: Selector | None,
) -> tuple[dict[str, str], tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]:
    """Splits a metric's selector into label -> value, other matchers, and label -> values of these.

    Raises AdapterError for a selector that PromQL cannot express, or that matches nothing.
    """
    exact: dict[str, str] = {}
    others: list[Requirement] = []
    for term in selector.requirements if selector is not None else ():
        label = template.label_name(term.key)
        if term.operator.value in _EXACT and exact.setdefault(label, term.values[0]) == term.values[0]:
            continue
        others.append(term)
    if selector is not None and not selector.selectable:
        raise AdapterError("the metric's selector matches nothing", "spec")
    listed = tuple((template.label_name(term.key), term.values) for term in others if term.values)
    return exact, tuple(map(template.from_requirement, others)), listed


def confine(exact: dict[str, str], label: str, value: str) -> None:
    """Restricts a selector to the HPA's own namespace or object; raises AdapterError if it names another."""
    if exact.setdefault(label, value) != value:
        raise AdapterError(
            f'the selector names {label}="{exact[label]}", but this metric is of {label}="{value}" only', "spec"
        )


def rendered(
    entry: QueryEntry,
    exact: Mapping[str, tuple[str, ...]],
    names: frozenset[str] | None,
    by: tuple[str, ...],
    every: bool = False,
) -> str:
    """Returns the query for all of `exact` (label -> values) and pods at once, grouped `by` labels.

    With `every`, the pods of other names are part of the answer. Raises AdapterError for a value that is not allowed at
    its place in the template.
    """
    matchers = [*entry.matchers, *(template.one_of(label, values) for label, values in exact.items())]
    listed: dict[str, tuple[str, ...]] = {**dict(entry.listed), **exact}
    if entry.by_pod_names and names is not None:
        pods = listed[entry.item] = tuple(sorted(names))
        named = template.one_of(entry.item, pods)
        matchers.append(template.matcher(entry.item, template.NOT_EQUAL, "") if every else named)
    variables: dict[str, Value] = {
        "LabelMatchers": ",".join(matchers),
        "LabelValuesByName": listed,
        "Labels": listed,
        "GroupBy": ",".join(by),
        "GroupBySlice": by,
        "HPALabels": {label: (value,) for label, value in entry.hpa_labels},
        **dict(entry.texts),
    }
    return entry.recipe.template.render(variables)


_RESOURCES = ("cpu", "memory")


class ConfiguredQueries:
    """The compiled queries of the setting `metrics`."""

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        self._recipes = {name: (metric, _recipe(f'metrics: "{name}"', metric)) for name, metric in metrics.items()}
        self._own: WeakKeyDictionary[QueryDefinition, tuple[Metric, QueryRecipe]] = WeakKeyDictionary()

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """The names of the metrics, by type."""
        names: dict[str, tuple[str, ...]] = {}
        for name, (metric, _) in self._recipes.items():
            for kind in _types(name, metric):
                names[kind] = (*names.get(kind, ()), name)
        return names

    def entry(self, query: Query, names: frozenset[str] | None) -> QueryEntry | None:
        """Returns the entry for this metric, None without a query of its name; raises AdapterError (blame "spec")."""
        found = self._found(query)
        if found is None or query.type not in _types(query.name, found[0]):
            return None
        metric, recipe = found
        exact, matchers, listed = selected(query.selector)
        subject: tuple[str, ...] = ()
        if query.object is not None and metric.object:
            confine(exact, metric.object, query.object.name)
            subject = (metric.object,)
        _check_variables(query, recipe.template.variables)
        _check_labels(query, recipe, exact, dict(listed))
        of_pods = query.type in OF_PODS
        return QueryEntry(
            query=query,
            recipe=recipe,
            exact=exact,
            matchers=matchers,
            listed=listed,
            texts=_texts(query, metric, recipe),
            hpa_labels=_hpa_labels(query, recipe),
            item=metric.pod if of_pods else "",
            container=metric.container if of_pods and query.type != PODS else "",
            subject=subject,
            names=None if "PodMatchers" in recipe.template.variables else names,
        )

    def personal(self, query: Query) -> bool:
        """Returns whether the PromQL depends on the HPA."""
        found = self._found(query)
        return found is not None and bool(OF_THE_HPA & found[1].template.variables)

    def needs_pods(self, query: Query) -> bool:
        """Returns whether the query needs the names of the target's pods, because its PromQL ignores their labels."""
        found = self._recipes.get(query.name)
        return found is None or "PodMatchers" not in found[1].template.variables

    def _found(self, query: Query) -> tuple[Metric, QueryRecipe] | None:
        """Returns the metric that answers a query: of the configuration, or that the query brings along."""
        definition = query.definition
        if definition is None:
            return self._recipes.get(query.name)
        known = self._own.get(definition)
        if known is None:
            metric: Metric = definition.metric.as_metric
            known = self._own[definition] = (metric, _recipe("spec.queries", metric, own=True))
        return known


def _types(name: str, metric: Metric) -> Sequence[str]:
    return metric.types or ((RESOURCE, CONTAINER_RESOURCE) if name in _RESOURCES else (PODS, OBJECT, EXTERNAL))


def _recipe(origin: str, metric: Metric, *, own: bool = False) -> QueryRecipe:
    """Compiles the query of a metric, which was checked with it."""
    return QueryRecipe(
        origin=origin,
        template=template.compiled(metric.query, VARIABLES),
        empty=metric.empty,
        reduce=metric.reduce,
        window=metric.window,
        span=parse_duration(metric.span),
        own=own,
    )


def _check_labels(query: Query, recipe: QueryRecipe, exact: Mapping[str, str], listed: Mapping[str, object]) -> None:
    """Raises AdapterError if the selector lacks a label that the template uses."""
    # An empty value would select other series.
    needed = recipe.template.keys("Labels") | recipe.template.keys("LabelValuesByName")
    missing = sorted(needed - set(exact) - set(listed))
    if missing:
        raise AdapterError(f'metric "{query.name}" needs a selector with {missing[0]}=…', "spec")


def _texts(query: Query, metric: Metric, recipe: QueryRecipe) -> tuple[tuple[str, str], ...]:
    """Returns the variables that the template uses, with their values."""
    # Values of unused variables would keep entries apart that can share a query.
    reference = query.object
    texts = {
        "Namespace": query.namespace,
        "Metric": query.name,
        "Object": reference.name if reference is not None else "",
        "Kind": reference.kind if reference is not None else "",
        "Container": query.container,
        "PodMatchers": "",
    }
    if hpa := query.hpa:
        texts |= {"HPA": hpa.name, "Target": hpa.target_name, "TargetKind": hpa.target_kind}
    used = recipe.template.variables
    if "PodMatchers" in used and query.pods is not None:
        requirements = query.pods.requirements
        texts["PodMatchers"] = ",".join(template.from_requirement(term, metric.pod_labels) for term in requirements)
    return tuple((name, text) for name, text in texts.items() if name in used)


def _hpa_labels(query: Query, recipe: QueryRecipe) -> tuple[tuple[str, str], ...]:
    """Returns the labels of the HPA that the template uses; raises AdapterError for an absent label."""
    needed = recipe.template.keys("HPALabels")
    if not needed or query.hpa is None:
        return ()
    labels = dict(query.hpa.labels)
    missing = sorted(needed - set(labels))
    if missing:
        raise AdapterError(
            f'the query for "{query.name}" takes the label "{missing[0]}" of the HPA, '
            f'which HPA "{query.hpa.name}" does not have',
            "spec",
        )
    return tuple((label, labels[label]) for label in sorted(needed))


def _check_variables(query: Query, used: frozenset[str]) -> None:
    """Raises AdapterError if the template uses variables that this metric or this caller does not have."""
    other = used & OF_THE_PODS if query.type in (EXTERNAL, OBJECT) else frozenset[str]()
    other |= used & OF_THE_OBJECT if query.object is None else frozenset[str]()
    if other:
        raise AdapterError(
            f'the query for "{query.name}" uses .{min(other)}, so it answers no {query.type} metric', "spec"
        )
    if query.hpa is None and used & OF_THE_HPA:
        what = min(used & OF_THE_HPA)
        raise AdapterError(f'the query for "{query.name}" uses .{what}: it needs an HPA', "spec")
