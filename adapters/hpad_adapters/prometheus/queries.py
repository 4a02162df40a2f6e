"""Queries that the operator wrote, each for the metric of its name.

How a metric is asked for, whether the operator wrote the query or a prometheus-adapter rule did.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import msgspec

from hpad.adapter import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    AdapterError,
    Query,
    Requirement,
    Selector,
    parse_duration,
)
from hpad_adapters.prometheus import template
from hpad_adapters.prometheus import template as promql
from hpad_adapters.prometheus.settings import Empty, Metric, Reduce, Window
from hpad_adapters.prometheus.template import Template, Value

OF_PODS = (PODS, RESOURCE, CONTAINER_RESOURCE)
_EXACT = ("=", "==")
_MOST_NAMES = 200


class Recipe(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A compiled query and how its answer is read. `origin` is where it stands in the configuration."""

    origin: str
    template: Template
    empty: Empty
    reduce: Reduce
    window: Window | None
    span: timedelta


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one HPA, ready to be asked.

    `wanted`: label -> the value it must have; `matchers`: what else the series must match; `listed`: the values that
    go with those, for templates; `texts`: the other variables of the template; `whose`: the labels of the HPA among
    them. `item` and `container` are the labels
    of the answer that tell objects (or pods) and containers apart, empty where nothing does. `names`: the pods that
    are meant, None where the query itself sees to that; `narrow`: whether these names go into the query.
    """

    query: Query
    recipe: Recipe
    wanted: Mapping[str, str]
    matchers: tuple[str, ...] = ()
    listed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    whose: tuple[tuple[str, str], ...] = ()
    item: str = ""
    container: str = ""
    names: frozenset[str] | None = None
    narrow: bool = False

    @property
    def shape(self) -> tuple[object, ...]:
        """What questions must have in common to be asked in one query."""
        kind = self.query.type in OF_PODS, self.item, self.container, self.names is None, self.narrow
        return self.recipe, *kind, tuple(self.wanted), self.matchers, self.listed, self.texts, self.whose


def selected(
    selector: Selector | None,
) -> tuple[dict[str, str], tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]:
    """A metric's selector as (label -> value, other matchers, label -> values of those); raises AdapterError."""
    wanted: dict[str, str] = {}
    others: list[Requirement] = []
    for term in selector.requirements if selector is not None else ():
        label = promql.label_name(term.key)
        if term.operator.value in _EXACT and wanted.setdefault(label, term.values[0]) == term.values[0]:
            continue
        others.append(term)
    if selector is not None and not selector.selectable:
        raise AdapterError("the metric's selector matches nothing", "spec")
    listed = tuple((promql.label_name(term.key), term.values) for term in others if term.values)
    return wanted, tuple(map(promql.from_requirement, others)), listed


def confine(wanted: dict[str, str], label: str, value: str) -> None:
    """A selector cannot ask for another namespace or object than the HPA's own; raises AdapterError."""
    if wanted.setdefault(label, value) != value:
        raise AdapterError(
            f'the selector asks for {label}="{wanted[label]}", but this metric is of {label}="{value}" only', "spec"
        )


def rendered(ask: Ask, wanted: Mapping[str, tuple[str, ...]], names: frozenset[str] | None, by: tuple[str, ...]) -> str:
    """The query for all of `wanted` (label -> values) and pods at once, grouped `by` labels; raises AdapterError."""
    matchers = [*ask.matchers, *(promql.one_of(label, values) for label, values in wanted.items())]
    listed: dict[str, tuple[str, ...]] = {**dict(ask.listed), **wanted}
    if ask.narrow and names is not None:
        matchers.append(_narrowed(ask.item, names))
        listed[ask.item] = tuple(sorted(names))
    variables: dict[str, Value] = {
        "LabelMatchers": ",".join(matchers),
        "LabelValuesByName": listed,
        "Labels": listed,
        "GroupBy": ",".join(by),
        "GroupBySlice": by,
        "HPALabels": {label: (value,) for label, value in ask.whose},
        **dict(ask.texts),
    }
    return ask.recipe.template.render(variables)


def _narrowed(label: str, names: frozenset[str]) -> str:
    """Beyond some hundreds of pods, asking for all of the namespace is cheaper than a longer pattern."""
    if len(names) > _MOST_NAMES:
        return promql.matcher(label, promql.NOT_EQUAL, "")
    return promql.one_of(label, sorted(names))


_RESOURCES = ("cpu", "memory")
_OF_THE_OBJECT = frozenset({"Object", "Kind"})
_OF_THE_PODS = frozenset({"PodMatchers", "Container"})
_OF_THE_HPA = frozenset({"HPA", "HPALabels", "Target", "TargetKind"})
_VARIABLES = (
    _OF_THE_OBJECT
    | _OF_THE_PODS
    | _OF_THE_HPA
    | {"Namespace", "Metric", "LabelMatchers", "Labels", "LabelValuesByName", "GroupBy"}
)


class Own:
    """The compiled queries."""

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        """Raises AdapterError for a template that is wrong."""
        self._recipes = {name: (metric, _compiled(name, metric)) for name, metric in metrics.items()}

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """The metrics there are, by type."""
        names: dict[str, tuple[str, ...]] = {}
        for name, (metric, _) in self._recipes.items():
            for kind in _types(name, metric):
                names[kind] = (*names.get(kind, ()), name)
        return names

    def ask(self, query: Query, names: frozenset[str] | None) -> Ask | None:
        """The question for this metric, None if there is none of that name; raises AdapterError (blame "spec")."""
        found = self._recipes.get(query.name)
        if found is None or query.type not in _types(query.name, found[0]):
            return None
        metric, recipe = found
        wanted, matchers, listed = selected(query.selector)
        if query.object is not None and metric.object:
            confine(wanted, metric.object, query.object.name)
        _check_variables(query, recipe.template.variables)
        _check_labels(query, recipe, wanted, dict(listed))
        of_pods = query.type in OF_PODS
        return Ask(
            query=query,
            recipe=recipe,
            wanted=wanted,
            matchers=matchers,
            listed=listed,
            texts=_texts(query, metric, recipe),
            whose=_whose(query, recipe),
            item=metric.pod if of_pods else "",
            container=metric.container if of_pods and query.type != PODS else "",
            names=None if "PodMatchers" in recipe.template.variables else names,
        )

    def personal(self, query: Query) -> bool:
        """Whether its query is made of what is known of the HPA alone."""
        found = self._recipes.get(query.name)
        return found is not None and bool(_OF_THE_HPA & found[1].template.variables)

    def needs_pods(self, query: Query) -> bool:
        """Whether it takes the names of the target's pods, since the query does not select by their labels."""
        found = self._recipes.get(query.name)
        return found is None or "PodMatchers" not in found[1].template.variables


def _types(name: str, metric: Metric) -> Sequence[str]:
    return metric.types or ((RESOURCE, CONTAINER_RESOURCE) if name in _RESOURCES else (PODS, OBJECT, EXTERNAL))


def flaws(metrics: Mapping[str, Metric]) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is wrong with the queries, each with its place."""
    for name, metric in metrics.items():
        found: list[str | None] = []
        try:
            _query(metric)
        except template.UnknownVariableError as error:
            found.append(str(error))
        except template.TemplateError as error:
            yield ("metrics", name, "query"), str(error)
            continue
        found.append(template.unbalanced_template(metric.query))
        yield from ((("metrics", name, "query"), wrong) for wrong in found if wrong)


def _query(metric: Metric) -> template.Template:
    """The compiled query; raises template.TemplateError."""
    compiled = template.compiled(metric.query, _VARIABLES)
    if "None" in compiled.keys("HPALabels"):
        raise template.TemplateError('<<.HPALabels>> names no label: <<index .HPALabels "team">> is the value of one')
    return compiled


def _compiled(name: str, metric: Metric) -> Recipe:
    try:
        compiled = _query(metric)
    except template.TemplateError as error:
        raise AdapterError(f'metrics: "{name}": query: {error}', "spec") from None
    return Recipe(
        origin=f'metrics: "{name}"',
        template=compiled,
        empty=metric.empty,
        reduce=metric.reduce,
        window=metric.window,
        span=parse_duration(metric.span),
    )


def _check_labels(query: Query, recipe: Recipe, wanted: Mapping[str, str], listed: Mapping[str, object]) -> None:
    """A value that the query is made of must be there: an empty one would ask for another thing."""
    needed = recipe.template.keys("Labels") | recipe.template.keys("LabelValuesByName")
    missing = sorted(needed - set(wanted) - set(listed))
    if missing:
        raise AdapterError(
            f'metric "{query.name}" needs a selector that says which {missing[0]}: "{missing[0]}=…"', "spec"
        )


def _texts(query: Query, metric: Metric, recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """The variables that the template uses; others would only keep equal questions apart."""
    reference = query.object
    texts = {
        "Namespace": query.namespace,
        "Metric": query.name,
        "Object": reference.name if reference is not None else "",
        "Kind": reference.kind if reference is not None else "",
        "Container": query.container,
        "PodMatchers": "",
    }
    if query.asker is not None:
        asker = query.asker
        texts |= {"HPA": asker.name, "Target": asker.target_name, "TargetKind": asker.target_kind}
    used = recipe.template.variables
    if "PodMatchers" in used and query.pods is not None:
        terms = query.pods.requirements
        texts["PodMatchers"] = ",".join(template.from_requirement(term, metric.pod_labels) for term in terms)
    return tuple((name, text) for name, text in texts.items() if name in used)


def _whose(query: Query, recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """The labels of the HPA that the template uses; raises AdapterError for one that the HPA does not have."""
    needed = recipe.template.keys("HPALabels")
    if not needed or query.asker is None:
        return ()
    labels = dict(query.asker.labels)
    missing = sorted(needed - set(labels))
    if missing:
        raise AdapterError(
            f'the query for "{query.name}" takes the label "{missing[0]}" of the HPA, '
            f'which HPA "{query.asker.name}" does not have',
            "spec",
        )
    return tuple((label, labels[label]) for label in sorted(needed))


def _check_variables(query: Query, used: frozenset[str]) -> None:
    """A query about an object or about pods answers no other metric, one about the HPA nobody unknown."""
    other = used & _OF_THE_PODS if query.type in (EXTERNAL, OBJECT) else frozenset[str]()
    other |= used & _OF_THE_OBJECT if query.object is None else frozenset[str]()
    if other:
        raise AdapterError(
            f'the query for "{query.name}" is made of .{min(other)}, so it answers no {query.type} metric', "spec"
        )
    if query.asker is None and used & _OF_THE_HPA:
        what = min(used & _OF_THE_HPA)
        raise AdapterError(f'the query for "{query.name}" is made of .{what}: only an HPA can ask for it', "spec")
