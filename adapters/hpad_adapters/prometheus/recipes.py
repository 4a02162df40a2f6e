"""How a metric is asked for, whether the operator wrote the query or a prometheus-adapter rule did."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from hpad.adapter import CONTAINER_RESOURCE, PODS, RESOURCE, AdapterError, Query, Requirement, Selector
from hpad_adapters.prometheus import promql
from hpad_adapters.prometheus.settings import Empty, Reduce, Window
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
