"""`hpad advise --check FILE`: whether HPAs as a file has them would do worse than those that stand there."""

import argparse
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from hpad.api import hpa as v2
from hpad.api.hpa import HorizontalPodAutoscaler, kind_of
from hpad.api.metadata import Key
from hpad.cli import advise_output, manifest, moments
from hpad.cli.advise_past import PastSource
from hpad.cli.output import Failure
from hpad.engine.styled import BAD, GOOD, WARN, Line, Span, line, table
from hpad.manifests import hpas as loading
from hpad.manifests.documents import Document
from hpad.settings import Settings
from hpad.simulation.advice.assess import spread
from hpad.simulation.advice.assessment import AdviceOptions, Figures
from hpad.simulation.advice.choosing import comparison
from hpad.simulation.advice.choosing.comparison import ChangedPast, ChangeOutcome, Compared, unknown
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.words import figures

WORSE: Final = 1
UNKNOWN: Final = 3
_STYLES: Final = {ChangeOutcome.WORSE: BAD, ChangeOutcome.NOT_WORSE: GOOD, ChangeOutcome.UNKNOWN: WARN}


class Changes:
    """The documents of a file: HPAs as they are to become, or patches of them. Raises Failure."""

    def __init__(self, file: str, args: argparse.Namespace, settings: Settings) -> None:
        self._settings = settings
        self._documents: dict[Key, Document] = {}
        for each in manifest.loaded([file], settings, args.namespace or loading.DEFAULT_NAMESPACE):
            document, key = each.document, each.key
            if key is None or key in self._documents:
                wrong = f"{key} is there twice" if key else "an HPA has no name"
                raise Failure(f"{document.file}, line {document.line}: {wrong}")
            self._documents[key] = document
        if not self._documents:
            raise Failure(f"--check {file}: there is no HPA")

    @property
    def keys(self) -> Sequence[Key]:
        return sorted(self._documents)

    def of(self, now: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
        """Returns an HPA as it is to become. Raises Failure if the API server would refuse it."""
        document, key = self._documents[now.key], now.key
        spec = document.value.get("spec")
        is_patch = isinstance(spec, dict) and "scaleTargetRef" not in spec
        if is_patch:
            document = _patched(document, now)
        zero = self._settings.tunables.gates.HPAScaleToZero
        loaded = loading.load(document, namespace=key.namespace, scale_to_zero=zero)
        if loaded.hpa is None or loaded.errors:
            raise Failure(f"{document.file}: {'; '.join(loading.explained(each).text for each in loaded.errors)}")
        if is_patch:
            made = msgspec.structs.replace(loaded.hpa.spec, queries=now.spec.queries)
            return msgspec.structs.replace(now, spec=made)
        return manifest.configured(loaded.hpa, self._settings)


def _patched(document: Document, now: HorizontalPodAutoscaler) -> Document:
    """Returns the document of the HPA with a merge patch, such as --patches writes."""
    from hpad.lab.cluster import patches  # imported late: few files have patches

    spec = v2.to_builtins(msgspec.structs.replace(now.spec, queries=()))
    whole = {
        "apiVersion": document.value.get("apiVersion"),
        "kind": kind_of(now.key),
        "metadata": {"name": now.key.name, "namespace": now.key.namespace},
        "spec": patches.apply(patches.MERGE, spec, document.value["spec"]),
    }
    return Document(document.file, document.index, document.line, whole)


def results(changes: Changes, source: PastSource, options: AdviceOptions, workers: int) -> list[Compared]:
    """Returns a comparison for each HPA of the file. Raises what reading raises."""
    found = {each.key: unknown(each.key, each.problem) for each in source.unread}
    one = functools.partial(comparison.safely, options=options)
    for each in spread(_pairs(changes, source.pasts), one, workers):
        found[each.key] = each
    return [found.get(key) or unknown(key, "there is no such HPA, or no past of it") for key in changes.keys]


def _pairs(changes: Changes, pasts: Iterator[HpaPast]) -> Iterator[ChangedPast]:
    for past in pasts:
        yield ChangedPast(past, changes.of(past.hpa))


def status(found: Sequence[Compared]) -> int:
    """Returns the exit status: 1 if a change is worse, else 3 if one cannot be judged, else 0."""
    outcomes = {each.outcome for each in found}
    if ChangeOutcome.WORSE in outcomes:
        return WORSE
    return UNKNOWN if ChangeOutcome.UNKNOWN in outcomes else 0


def lines(found: Sequence[Compared], price: float | None) -> Iterator[Line]:
    """Yields a sentence for each HPA, and its figures with the settings of now and with the new ones."""
    for each in found:
        head = f"{each.key}: "
        yield line(Span(head), Span(each.outcome.value, _STYLES[each.outcome]), f": {'; '.join(each.reasons)}", hang=2)
        if each.before is None or each.after is None:
            continue
        rows = [[name, write(each.before), write(each.after)] for name, write in figures(price)]
        yield from table([["", "now", "changed"], *rows], 2)
        if each.trust is not None:
            yield line(f"  trust: {each.trust.level.value}: {each.trust.text}", hang=9)


def as_json(found: Sequence[Compared], span: tuple[Any, Any], price: float | None) -> dict[str, Any]:
    """Returns the comparisons in JSON; outcome is worse, notWorse or unknown."""
    names = {ChangeOutcome.WORSE: "worse", ChangeOutcome.NOT_WORSE: "notWorse", ChangeOutcome.UNKNOWN: "unknown"}

    def written(figures: Figures | None) -> Mapping[str, Any] | None:
        return None if figures is None else advise_output.figures_json(figures, price)

    items = [
        {
            **advise_output.named(each.key),
            "outcome": names[each.outcome],
            "reasons": list(each.reasons),
            "trust": None if each.trust is None else advise_output.trust_json(each.trust),
            "before": written(each.before),
            "after": written(each.after),
        }
        for each in found
    ]
    return {"begin": moments.written(span[0]), "end": moments.written(span[1]), "items": items}
