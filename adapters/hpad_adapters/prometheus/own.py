"""Queries that the operator wrote, each for the metric of its name."""

from collections.abc import Iterator, Mapping, Sequence

from hpad.adapter import CONTAINER_RESOURCE, EXTERNAL, OBJECT, PODS, RESOURCE, AdapterError, Query, parse_duration
from hpad_adapters.prometheus import promql, recipes, template
from hpad_adapters.prometheus.recipes import OF_PODS, Ask, Recipe
from hpad_adapters.prometheus.settings import Metric

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
        wanted, matchers, listed = recipes.selected(query.selector)
        if query.object is not None and metric.object:
            recipes.confine(wanted, metric.object, query.object.name)
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
        found.append(template.unbalanced(metric.query))
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
        texts["PodMatchers"] = ",".join(promql.from_requirement(term, metric.pod_labels) for term in terms)
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
