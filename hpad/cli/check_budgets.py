"""Budgets that the minima of their HPAs exceed, for `hpad check`: such a budget never holds what it promises."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from hpad import settings
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.cli.output import counted
from hpad.engine.annotations import AnnotationReader
from hpad.engine.budget import REPLICA, REPLICAS, amount_text
from hpad.engine.spec import compiled_spec
from hpad.manifests.documents import Document
from hpad.settings import hpas as section


def short(configurations: Iterable[Document], found: Collection[HorizontalPodAutoscaler]) -> Iterator[str]:
    """Yields a text for each budget of replicas that is smaller than the minima of its HPAs.

    What a replica costs of a budget of cores, no HPA says.
    """
    for document in configurations:
        own = AnnotationReader(defaults=section.defaults(_section(document, "hpas")))
        named = [(budget[0], hpa) for hpa in found if (budget := own.budget(hpa)) is not None]
        for each in _section(document, "budgets"):
            sharing = [hpa for name, hpa in named if name == each.name and each.is_for(hpa.metadata.namespace)]
            needed = sum(REPLICA * compiled_spec(hpa).min_replicas for hpa in sharing)
            if each.unit == REPLICAS and needed > each.amount:
                whole = f"the minima of {counted(len(sharing), 'HPA')} need {amount_text(needed, each.unit)}"
                amount = amount_text(each.amount, each.unit).partition(" ")[0]
                yield f"budget {each.name}: {whole}; it has {amount}, and the HPAs keep their minima"


def _section(document: Document, name: str) -> tuple[Any, ...]:
    """Returns a section of a configuration, parsed; () where it has errors, which are reported as such."""
    try:
        return tuple(settings.TABLE[name].setting.parser(document.value[name]))
    except (KeyError, ValueError):
        return ()
