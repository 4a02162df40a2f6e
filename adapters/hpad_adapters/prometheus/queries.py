"""Entries: metrics with their PromQL; and the queries that the operator writes for metrics.

An entry is one metric of one HPA with its compiled query, from the operator or from a prometheus-adapter rule.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from hpad.adapter import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    AdapterError,
    HPAIdentity,
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

    `own`: the query is from an Autoscaler.
    """

    origin: str
    template: Template
    empty: Empty
    reduce: Reduce
    window: QueryWindow | None
    span: timedelta
    own: bool = False


class QueryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one HPA: its PromQL, and what tells which rows of the answer are its own.

    `exact`: label -> the value that the series must have. `item` and `container`: the labels of the answer that name
    the object (or pod) and the container, "" without one. `subject`: the labels in `exact` that name the described
    object: its name first, then its namespace. `names`: the pods of the target, None where the query itself selects
    them.
    """

    query: Query
    recipe: QueryRecipe
    vector: str
    exact: Mapping[str, str]
    item: str = ""
    container: str = ""
    subject: tuple[str, ...] = ()
    names: frozenset[str] | None = None

    def expression(self, window: QueryWindow | None = None) -> str:
        """Returns the PromQL, with this window or that of the recipe."""
        window = window or self.recipe.window
        if window is None:
            return self.vector
        if window.step:
            return f"({self.vector})[{window.fetch}:{window.step}]"
        return f"{self.vector.rstrip()}[{window.fetch}]"


class SeriesSelector:
    """The selector of a metric in PromQL.

    `exact`: label -> the value that the series must have; `listed`: the values of each label, for templates.
    """

    def __init__(self, selector: Selector | None) -> None:
        """Raises AdapterError for a selector that PromQL cannot express, or that matches nothing."""
        self.exact: dict[str, str] = {}
        self._pods: dict[str, Sequence[str]] = {}
        others: list[Requirement] = []
        for term in selector.requirements if selector is not None else ():
            label = template.label_name(term.key)
            if term.operator.value in _EXACT and self.exact.setdefault(label, term.values[0]) == term.values[0]:
                continue
            others.append(term)
        if selector is not None and not selector.selectable:
            raise AdapterError("the metric's selector matches nothing", "spec")
        self._matchers = list(map(template.from_requirement, others))
        self._listed = {template.label_name(term.key): term.values for term in others if term.values}

    @property
    def listed(self) -> dict[str, Sequence[str]]:
        """The values of each label."""
        return {**self._listed, **{label: (value,) for label, value in self.exact.items()}, **self._pods}

    def confine(self, label: str, value: str) -> None:
        """Restricts it to the HPA's own namespace or object; raises AdapterError if it names another."""
        if self.exact.setdefault(label, value) != value:
            own = f'this metric is of {label}="{value}" only'
            raise AdapterError(f'the selector names {label}="{self.exact[label]}", but {own}', "spec")

    def confine_to_pods(self, label: str, names: Iterable[str]) -> None:
        """Restricts it to the pods of these names."""
        self._pods[label] = sorted(names)

    def variables(self, *by: str) -> dict[str, Value]:
        """Returns the variables of a template, grouped `by` labels, of which some may be empty."""
        matchers = [*self._matchers, *(template.one_of(label, (value,)) for label, value in self.exact.items())]
        matchers += [template.one_of(label, names) for label, names in self._pods.items()]
        grouped = tuple(filter(None, by))
        return {
            "LabelMatchers": ",".join(matchers),
            "LabelValuesByName": self.listed,
            "Labels": self.listed,
            "GroupBy": ",".join(grouped),
            "GroupBySlice": grouped,
        }


_OVER_TIME: Final = {"newest": "last"}
_SOMETHING: Final = "0 * count(up)"
"""Zero while the server scrapes anything: its own absence is a gap."""


def past(entry: QueryEntry) -> str:
    """Returns PromQL whose series add up to the value of the entry, or for a metric of pods to their mean.

    Raises AdapterError for an object that only the labels of the answer tell.
    """
    recipe, text = entry.recipe, entry.expression()
    if recipe.window is not None:
        last = msgspec.structs.replace(recipe.window, fetch=recipe.window.last)
        text = f"{_OVER_TIME.get(last.reduce, last.reduce)}_over_time({entry.expression(last)})"
    if entry.subject and not _SELECTING & recipe.template.variables:
        raise AdapterError(f'"{entry.query.name}": only the labels of the answer tell the object', "spec")
    if entry.query.type in OF_PODS:
        return f"avg({text})" if recipe.reduce == "error" else f"avg({recipe.reduce} by ({entry.item}) ({text}))"
    if entry.query.type == OBJECT and recipe.reduce not in ("error", "sum"):
        text = f"{recipe.reduce}({text})"
    return f"sum({text}) or {_SOMETHING}" if recipe.empty == "zero" else text


_SELECTING: Final = frozenset({"LabelMatchers", "LabelValuesByName", "Labels", "Object"})
"""Variables by which a query selects the described object."""


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
        if found is None:
            return None
        metric, recipe = found
        selected = SeriesSelector(query.selector)
        subject: tuple[str, ...] = ()
        if query.object is not None and metric.object:
            selected.confine(metric.object, query.object.name)
            subject = (metric.object,)
        _check_variables(query, recipe.template.variables)
        _check_labels(query, recipe, selected)
        item = metric.pod if query.type in OF_PODS else ""
        container = metric.container if item and query.type != PODS else ""
        values = {**selected.variables(item, container), **_texts(query, metric, recipe)}
        return QueryEntry(
            query=query,
            recipe=recipe,
            vector=recipe.template.render(values),
            exact=selected.exact,
            item=item,
            container=container,
            subject=subject,
            names=None if "PodMatchers" in recipe.template.variables else names,
        )

    def personal(self, query: Query) -> bool:
        """Returns whether the PromQL depends on the HPA."""
        found = self._found(query)
        return found is not None and bool(OF_THE_HPA & found[1].template.variables)

    def needs_pods(self, query: Query) -> bool:
        """Returns whether the query needs the names of the target's pods, because its PromQL ignores their labels."""
        found = self._found(query)
        return found is None or "PodMatchers" not in found[1].template.variables

    def answers(self, query: Query) -> bool:
        """Returns whether `entry` has an entry for this metric."""
        return self._found(query) is not None

    def _found(self, query: Query) -> tuple[Metric, QueryRecipe] | None:
        """Returns the metric that answers a query: of the configuration, or that the query brings along."""
        definition = query.definition
        if definition is None:
            found = self._recipes.get(query.name)
            return None if found is None or query.type not in _types(query.name, found[0]) else found
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


def _check_labels(query: Query, recipe: QueryRecipe, selected: SeriesSelector) -> None:
    """Raises AdapterError if the selector lacks a label that the template uses."""
    # An empty value would select other series.
    needed = recipe.template.keys("Labels") | recipe.template.keys("LabelValuesByName")
    missing = sorted(needed - set(selected.listed))
    if missing:
        raise AdapterError(f'metric "{query.name}" needs a selector with {missing[0]}=…', "spec")


def _texts(query: Query, metric: Metric, recipe: QueryRecipe) -> dict[str, Value]:
    """Returns the variables of a template that no selector gives; raises AdapterError."""
    reference = query.object
    texts: dict[str, Value] = {
        "Namespace": query.namespace,
        "Metric": query.name,
        "Object": reference.name if reference is not None else "",
        "Kind": reference.kind if reference is not None else "",
        "Container": query.container,
        "PodMatchers": "",
    }
    if hpa := query.hpa:
        labels = _hpa_labels(query, hpa, recipe)
        texts |= {"HPA": hpa.name, "Target": hpa.target_name, "TargetKind": hpa.target_kind, "HPALabels": labels}
    if "PodMatchers" in recipe.template.variables and query.pods is not None:
        requirements = query.pods.requirements
        texts["PodMatchers"] = ",".join(template.from_requirement(term, metric.pod_labels) for term in requirements)
    return texts


def _hpa_labels(query: Query, hpa: HPAIdentity, recipe: QueryRecipe) -> dict[str, Sequence[str]]:
    """Returns the labels of the HPA; raises AdapterError if one is absent that the template uses."""
    labels = dict(hpa.labels)
    if missing := sorted(recipe.template.keys("HPALabels") - set(labels)):
        raise AdapterError(
            f'the query for "{query.name}" takes the label "{missing[0]}" of the HPA, '
            f'which HPA "{hpa.name}" does not have',
            "spec",
        )
    return {label: (value,) for label, value in labels.items()}


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
