"""Budgets that the minima of their HPAs exceed, for `hpad check`: such a budget never holds what it promises."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from hpad import settings
from hpad.api import hpa as v2
from hpad.api import pod
from hpad.cli.output import counted
from hpad.engine.annotations import AnnotationReader
from hpad.engine.budget import REPLICA, REPLICAS, amount_text
from hpad.engine.spec import compiled_spec
from hpad.manifests.documents import Document
from hpad.settings import hpas as section
from hpad.settings.hpas import SharedBudget


class _Target(NamedTuple):
    namespace: str
    kind: str
    name: str


def short(
    configurations: Iterable[Document],
    found: Collection[v2.HorizontalPodAutoscaler],
    documents: Iterable[Document],
    namespace: str,
) -> Iterator[str]:
    """Yields a text for each budget that is smaller than the minima of its HPAs.

    What a replica costs of a budget of cores is read from the targets among the documents; `namespace` is that of
    targets that name none. HPAs without theirs are left out: with them it is more.
    """
    templates = dict(_templates(documents, namespace))
    for document in configurations:
        own = AnnotationReader(defaults=section.defaults(_section(document, "hpas")))
        named = [(budget[0], hpa) for hpa in found if (budget := own.budget(hpa)) is not None]
        for each in _section(document, "budgets"):
            sharing = [hpa for name, hpa in named if name == each.name and each.is_for(hpa.metadata.namespace)]
            costs = [_cost(each, hpa, templates) for hpa in sharing]
            needs = [cost * compiled_spec(hpa).min_replicas for cost, hpa in zip(costs, sharing, strict=True) if cost]
            if sum(needs) > each.amount:
                whole = f"the minima of {counted(len(needs), 'HPA')} need {amount_text(sum(needs), each.unit)}"
                amount = amount_text(each.amount, each.unit).partition(" ")[0]
                yield f"budget {each.name}: {whole}; it has {amount}, and the HPAs keep their minima"


def _section(document: Document, name: str) -> tuple[Any, ...]:
    """Returns a section of a configuration, parsed; () where it has errors, which are reported as such."""
    try:
        return tuple(settings.TABLE[name].setting.parser(document.value[name]))
    except (KeyError, ValueError):
        return ()


def _cost(budget: SharedBudget, hpa: v2.HorizontalPodAutoscaler, templates: Mapping[_Target, Any]) -> int:
    """Returns what a replica costs in milli-units of the budget, 0 where no template tells."""
    if budget.unit == REPLICAS:
        return REPLICA
    ref = hpa.spec.scale_target_ref
    return _millicores(templates.get(_Target(hpa.metadata.namespace, ref.kind.lower(), ref.name)))


def _templates(documents: Iterable[Document], namespace: str) -> Iterator[tuple[_Target, Any]]:
    """Yields the pod templates of all objects that have one, by the object."""
    for document in documents:
        match document.value:
            case {"kind": str(kind), "metadata": {"name": str(name), **more}, "spec": {"template": dict(template)}}:
                yield _Target(str(more.get("namespace") or namespace), kind.lower(), name), template


def _millicores(template: Any) -> int:
    """Returns the CPU that a pod of the template requests; 0 if it requests none, or is no template."""
    from hpad.engine import share  # imported late, since `hpad check` of HPAs alone must start fast

    try:
        return share.millicores([pod.from_wire(msgspec.convert(template, pod.Wire, dec_hook=v2.dec_hook))])
    except (msgspec.ValidationError, ValueError):
        return 0
