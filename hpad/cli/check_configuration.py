"""The daemon's configuration among the documents of `hpad check`: its errors, and what HPAs beside it need of it."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hpad import settings
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.problem import Problem
from hpad.cli.output import counted
from hpad.engine.annotations import AnnotationReader
from hpad.engine.budget import REPLICA, REPLICAS, amount_text
from hpad.engine.spec import compiled_spec
from hpad.manifests.documents import Document
from hpad.settings import hpas as section


class Given(NamedTuple):
    """What HPAs are checked with. `sources`, and the names in `budgets`, are those of the configuration.

    None: there is no configuration among the documents.
    """

    namespace: str
    scale_to_zero: bool
    sources: Sequence[settings.SourceSettings] | None = None
    budgets: Sequence[str] | None = None

    def beside(self, configurations: Sequence[Document]) -> "Given":
        """Returns the same with what the configurations say, as far as it is valid."""
        if not configurations:
            return self
        return self._replace(
            scale_to_zero=self.scale_to_zero or any(map(_allows_zero, configurations)),
            sources=[source for each in configurations for _, source in _known_sources(each.value)],
            budgets=[str(name) for each in configurations for name in _mapping(each.value, "budgets")],
        )


def may_be_configuration(document: Document) -> bool:
    """Returns whether a document can be configuration: an object without a kind, the first of its file."""
    if not isinstance(document.value, dict) or document.index or document.file.endswith(".jsonl"):
        return False
    return not document.value.keys() & {"kind", "apiVersion", "spec"}


def errors(document: Document) -> Iterator[Problem]:
    """Yields all errors of a configuration file and of its sources, each with its line.

    Blocks: imports adapters, and reads the files that sources name.
    """
    from hpad.sources import plugins  # imported late, since `hpad check` of HPAs alone must start fast

    file = Path(document.file)
    if not file.is_file():
        text = "configuration is checked from a file, not from standard input"
        yield Problem("", text, document.line)
        return
    try:
        if not document.faults:  # for these `load` refuses the file as a whole
            settings.load(file, {}, {})
    except settings.SettingsError as error:
        for problem in error.problems:
            yield document.placed(problem._replace(text=problem.text.removeprefix(f"{file}: ")))
    # Sources are checked even if the settings have errors: one run of the command shows all problems.
    for name, source in _known_sources(document.value):
        for problem in plugins.check_settings(source):
            yield document.placed(problem.inside(name).inside("sources"))


def warnings(document: Document) -> Iterator[Problem]:
    """Yields what this installation lacks for valid sources; the one that runs hpad may have it. Imports adapters."""
    from hpad.sources import plugins  # imported late, as above

    for name, source in _known_sources(document.value):
        if lacking := plugins.lacking(source):
            yield document.placed(Problem("", lacking).inside(name).inside("sources"))


def short_budgets(configurations: Sequence[Document], found: Collection[HorizontalPodAutoscaler]) -> Iterator[str]:
    """Yields a text for each budget of replicas that is smaller than the minima of its HPAs.

    Such a budget never holds what it promises. What a replica costs of a budget of cores, no HPA says.
    """
    for document in configurations:
        own = AnnotationReader(defaults=section.defaults(_parsed(document, "hpas") or ()))
        named = [(budget[0], hpa) for hpa in found if (budget := own.budget(hpa)) is not None]
        for each in _parsed(document, "budgets") or ():
            sharing = [hpa for name, hpa in named if name == each.name and each.is_for(hpa.metadata.namespace)]
            needed = sum(REPLICA * compiled_spec(hpa).min_replicas for hpa in sharing)
            if each.unit == REPLICAS and needed > each.amount:
                whole = f"the minima of {counted(len(sharing), 'HPA')} need {amount_text(needed, each.unit)}"
                amount = amount_text(each.amount, each.unit).partition(" ")[0]
                yield f"budget {each.name}: {whole}; it has {amount}, and the HPAs keep their minima"


def _allows_zero(document: Document) -> bool:
    """Returns whether a configuration turns the feature gate HPAScaleToZero on; False if its gates are invalid."""
    return bool((_parsed(document, "feature_gates") or {}).get("HPAScaleToZero", False))


def _parsed(document: Document, name: str) -> Any:
    """Returns a section of a configuration, parsed; None where it is absent, or has errors, which `errors` reports."""
    try:
        return settings.TABLE[name].setting.parser(document.value[name])
    except (KeyError, ValueError):
        return None


def _mapping(value: dict[str, Any], name: str) -> dict[Any, Any]:
    """Returns a section of a configuration as it is written, empty where it is no object."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _known_sources(value: dict[str, Any]) -> Iterator[tuple[str, settings.SourceSettings]]:
    """Yields the sources whose adapters are known, even if other fields are invalid."""
    for key, source in _mapping(value, "sources").items():
        if isinstance(source, dict) and isinstance(adapter := source.get("adapter", key), str):
            queries = settings.OpenedQueries()
            with contextlib.suppress(ValueError):
                queries = settings.opened_queries(source.get("queries", {}))
            own = settings.of_adapter(source)
            yield str(key), settings.SourceSettings(name=str(key), adapter=adapter, settings=own, queries=queries)
