"""`hpad check`: validates HPA manifests as the API server does, and configuration as the daemon does."""

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from hpad import settings
from hpad.api import decode, older
from hpad.api import hpa as v2
from hpad.api import selector as selectors
from hpad.api.autoscaler import PREFIX
from hpad.api.metadata import Key
from hpad.api.problem import Place, Problem, invalid, path_of, required
from hpad.api.selector import LabelSelector
from hpad.api.text import hint
from hpad.cli import check_budgets, output
from hpad.engine import annotations, busy, controls
from hpad.engine.annotations import PLAIN, missing_fields
from hpad.manifests import autoscalers, documents, hpas
from hpad.manifests.documents import Document
from hpad.manifests.keda.conversion import PLACEHOLDER

if TYPE_CHECKING:
    from hpad.manifests.prometheus_adapter import FoundRules

_EPILOG: Final = """\
examples:
  hpad check web.yaml                  every error with file, line and field
  hpad check /etc/hpad/hpas            all *.yaml, *.yml, *.json and *.jsonl of a folder
  hpad check config/hpad.yaml          the daemon's configuration
  hpad check hpad.yaml hpas            both, with the feature gate HPAScaleToZero of the configuration
  kubectl get hpa -A -o yaml | hpad check -
  hpad check -o json web.yaml          {"file", "document", "name", "errors", "warnings", "defaulted"} a document, one
                                       a line; an error or a warning is {"type", "field", "message", "file", "line"}

A document with `kind: HorizontalPodAutoscaler` is checked as the API server of Kubernetes 1.36 checks it on creation,
unknown fields included, in autoscaling/v1, v2beta1, v2beta2 or v2; its annotations hpad.io/… are checked as the daemon
reads them. So is an Autoscaler (hpad.io/v1) with its options. The configuration that is checked with them must have the
sources of an Autoscaler's queries, and the budgets that are named. A selector may also be text ("queue=orders"): files
of --manifests may have it, an API server refuses it. A document without kind and apiVersion is checked as the daemon's
configuration. If that sets the feature gate HPAScaleToZero, minReplicas may be 0 in all HPAs checked with it. Other
Kubernetes objects are skipped.

A value with REPLACE-ME, which hpad convert writes where it knows no value, is an error. An annotation of autoscaling/v1
that cannot be read is a warning: Kubernetes and hpad ignore it. So is hpad.io/scale-down-order on a StatefulSet, where
it has no effect, an annotation that needs another one or minReplicas 0, a field of the spec that Kubernetes up to 1.37
drops, a selector of a metric that no label can match, a query of an Autoscaler that none of its metrics names, a number
with a fraction in an Autoscaler, which an API server takes as text only, a second object of a name in a file or folder,
and a package that a source needs and this installation lacks: the one that runs hpad may have it.
The exit status is 1 if there is an error; warnings do not change it. Last lines name HPAs with an External metric and
no spec.behavior, whose replicas go on doubling on an empty queue, and budgets of replicas that the minima of the HPAs
exceed.
"""
_ZERO: Final = (
    "where the feature gate HPAScaleToZero is on (by default from Kubernetes 1.37 on), check with --scale-to-zero, or"
    " together with the configuration that sets it"
)
_NO_BEHAVIOR: Final = (
    "an External metric without spec.behavior goes on doubling replicas up to the highest count wanted in the last 5"
    " minutes, also once the queue is empty: set one, such as {scaleDown: {stabilizationWindowSeconds: 60}}"
)
_MISPLACED: Final = "belongs into a file of its own, for `hpad run --config`: hpad ignores it among manifests"
_FOREIGN_RULES: Final = "a configuration of prometheus-adapter; `hpad convert` makes a source of hpad of it"


@dataclass(frozen=True)
class Checked:
    """The result for one document. `errors` and `warnings` come with their lines.

    `hpa` is the decoded HPA, and `defaulted` the same object with all defaults; None if the document is no valid HPA.
    """

    document: Document
    subject: str
    name: str
    errors: tuple[Problem, ...]
    defaulted: dict[str, Any] | None = None
    warnings: tuple[Problem, ...] = ()
    hpa: v2.HorizontalPodAutoscaler | None = None


class _Given(NamedTuple):
    """What documents are checked with. `sources`, and the names in `budgets`, are those of the configuration; None if
    there is none among them.
    """

    namespace: str
    scale_to_zero: bool
    sources: Sequence[settings.SourceSettings] | None
    budgets: Sequence[str] | None = None


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "check",
        help="validate HPA manifests and the daemon's configuration",
        description="Validate HPA manifests, and the daemon's configuration.",
        epilog=_EPILOG,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a folder, or - for standard input")
    output.add_format(parser)
    parser.add_argument(
        "-n", "--namespace", default=hpas.DEFAULT_NAMESPACE, help="for HPAs that name none (default: %(default)s)"
    )
    parser.add_argument(
        "--scale-to-zero",
        action="store_true",
        help="allow minReplicas 0, as with the feature gate HPAScaleToZero (or name the configuration that sets it)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the errors of all documents; 0 if there are none, else 1."""
    count = wrong = skipped = about_zero = 0
    lacking: list[str] = []
    found: dict[Key, v2.HorizontalPodAutoscaler] = {}
    defined: dict[tuple[Path, Key], Document] = {}
    show = _as_json if args.output == "json" else _as_text
    read = list(documents.read_all(args.files))  # all are read first: the configuration may follow the HPAs
    configurations = [document for document in read if _may_be_configuration(document)]
    sources = [source for document in configurations for _, source in _known_sources(document.value)]
    given = _Given(
        args.namespace,
        args.scale_to_zero or any(map(_allows_zero, configurations)),
        sources if configurations else None,
        [name for document in configurations for name in _known_budgets(document.value)] if configurations else None,
    )
    for document in read:
        checked = _check(document, given)
        if checked is None:
            skipped += 1
            continue
        count += 1
        if checked.hpa is not None:
            # Other folders may hold the same objects for other clusters.
            place = Path(document.file).parent, checked.hpa.key
            checked = _once(checked, defined.setdefault(place, document))
        wrong += bool(checked.errors)
        show(checked)
        about_zero += any(map(hpas.is_about_zero, checked.errors))
        lacking += [checked.name] if _lacks_behavior(checked.defaulted) else []
        if checked.hpa is not None:
            found[checked.hpa.key] = checked.hpa
    if about_zero:
        print(f"hpad: {_ZERO}", file=sys.stderr)
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        print(f"hpad: {lacking[0]}{more}: {_NO_BEHAVIOR}", file=sys.stderr)
    for text in check_budgets.short(configurations, found.values()):
        print(f"hpad: {text}", file=sys.stderr)
    if skipped:
        print(f"hpad: skipped {output.counted(skipped, 'document')} of other kinds", file=sys.stderr)
    if args.output == "text":
        print(f"{output.counted(count, 'document')} checked, {wrong or 'none'} with errors")
    return 1 if wrong else 0


def _allows_zero(document: Document) -> bool:
    """Returns whether a configuration turns the feature gate HPAScaleToZero on; False if its gates are invalid."""
    try:
        gates = settings.TABLE["feature_gates"].setting.parser(document.value.get("feature_gates", {}))
    except ValueError:
        return False
    return bool(gates.get("HPAScaleToZero", False))


def _check(document: Document, given: _Given) -> Checked | None:
    """Checks one document; None if it is neither an HPA nor configuration."""
    value = document.value
    if not document.parsed:
        return _only_errors(document, "", document.faults)
    if hpas.is_hpa(value):
        return _check_hpa(document, given)
    if not isinstance(value, dict):
        return _only_errors(document, "", decode.read(document.value).errors)
    if "kind" in value or "apiVersion" in value:
        return None
    if (rules := _of_prometheus_adapter(value)) is not None:
        return _only_errors(document, "", tuple(rules.errors) or (Problem("", _FOREIGN_RULES),))
    if _may_be_configuration(document):
        unset = map(_unset, _placeholders(value))
        errors = (*_placed(document, (*document.faults, *unset)), *configuration_errors(document))
        warnings = tuple(configuration_warnings(document))
        return Checked(document, "configuration", "", errors, warnings=warnings)
    if value and value.keys() <= settings.TABLE.keys():
        return _only_errors(document, "configuration", (Problem("", _MISPLACED),))
    detail = f"an HPA has kind: {v2.KIND} and apiVersion: {v2.API_VERSION}, an Autoscaler {v2.AUTOSCALER_VERSION}"
    return _only_errors(document, "", (*document.faults, required("kind", detail)))


def _check_hpa(document: Document, given: _Given) -> Checked:
    loaded = hpas.load(document, namespace=given.namespace, scale_to_zero=given.scale_to_zero)
    errors, defaulted, warnings = loaded.errors, None, [*_ignored_annotations(document.value)]
    if loaded.hpa is not None:
        errors += (*annotation_errors(loaded.hpa, document.value), *_query_errors(loaded.hpa, given.sources))
        errors += (*_budget_errors(loaded.hpa, document.value, given.budgets),)
        defaulted = _defaulted(loaded.hpa, document)
        warnings += _warnings(loaded.hpa, document.value, given)
    errors += tuple(map(_unset, _placeholders(document.value)))
    placed = _placed(document, errors), defaulted, _placed(document, tuple(warnings))
    return Checked(document, str(loaded), loaded.name, *placed, loaded.hpa)


def _warnings(hpa: v2.HorizontalPodAutoscaler, value: dict[str, Any], given: _Given) -> Iterator[Problem]:
    yield from _without_effect(hpa, value)
    yield from _unmatchable(hpa)
    yield from _mistyped(hpa)
    if why := unserved_target(hpa):
        path = "spec.scaleTargetRef.apiVersion"
        yield Problem(path, f"{path}: {why}")
    yield from _unread_queries(hpa)
    if hpa.kind != v2.AUTOSCALER:
        yield from missing_fields(hpa.spec)
        return
    yield from _fractions(value)
    if hpa.spec.min_replicas == 0 and not given.scale_to_zero:
        detail = "counts as 1 unless hpad's configuration sets the feature gate HPAScaleToZero"
        yield invalid("spec.minReplicas", 0, detail)


def _query_errors(
    hpa: v2.HorizontalPodAutoscaler, sources: Sequence[settings.SourceSettings] | None
) -> Iterable[Problem]:
    """Returns what is wrong with the queries of an Autoscaler. Imports adapters if it has some."""
    if not hpa.spec.queries:
        return ()
    from hpad.sources import own_queries  # imported late, since `hpad check` of HPAs alone must start fast

    return own_queries.problems(hpa, sources)


def _budget_errors(
    hpa: v2.HorizontalPodAutoscaler, value: dict[str, Any], budgets: Sequence[str] | None
) -> Iterator[Problem]:
    """An error about a budget that the configuration does not have: the HPA would never grow."""
    named = PLAIN.budget(hpa)
    if named is not None and budgets is not None and named[0] not in budgets:
        text = f"the configuration has no such budget{hint(named[0], tuple(budgets)) if budgets else ''}"
        yield invalid(_place(controls.BUDGET, value), named[0], text)


def _known_budgets(value: dict[str, Any]) -> list[str]:
    budgets = value.get("budgets")
    return [str(name) for name in budgets] if isinstance(budgets, dict) else []


def _defaulted(hpa: v2.HorizontalPodAutoscaler, document: Document) -> dict[str, Any]:
    whole = hpas.with_whole_metadata(v2.to_builtins(hpa), document)
    built = autoscalers.to_document(hpa, whole["metadata"]) if hpa.kind == v2.AUTOSCALER else whole
    return hpas.without_empty_policies(built)


def _ignored_annotations(value: dict[str, Any]) -> Iterator[Problem]:
    """Warnings about annotations of autoscaling/v1 that stand for fields of v2 and cannot be decoded."""
    metadata = value.get("metadata")
    present = metadata.get("annotations") if isinstance(metadata, dict) else None
    if value.get("apiVersion") != older.V1_VERSION or not isinstance(present, dict):
        return
    for name in older.ignored_annotations(present):
        yield invalid(f"metadata.annotations[{name}]", present[name], "it cannot be read, and is ignored")


_NEEDED: Final = {
    controls.PRIORITY: (controls.BUDGET,),
    controls.BUSY_METRIC: (controls.ORDER, controls.KEEP_BUSY),
    annotations.FAILURE_DURATION: (annotations.FALLBACK,),
}
"""Annotations that have an effect beside one of others only."""
_FOR_ZERO: Final = (controls.ZERO_AFTER, controls.INITIAL_DELAY)
"""Annotations that have an effect where minReplicas is 0 only. (So has hpad.io/activation, which may wait for that.)"""


def _without_effect(hpa: v2.HorizontalPodAutoscaler, value: dict[str, Any]) -> Iterator[Problem]:
    """Warnings about annotations that change nothing in this HPA, and about too many spare replicas.

    Idle-first changes nothing on a StatefulSet, which removes its pods by ordinal.
    """
    named = hpa.metadata.annotations or {}
    own = controls.read(named).controls
    if controls.ORDER in named and own.idle_first and busy.by_ordinal(hpa):
        text = "has no effect: a StatefulSet removes the pod with the highest ordinal"
        yield invalid(_place(controls.ORDER, value), named[controls.ORDER], text)
    for name, needed in _NEEDED.items():
        if name in named and not any(each in named for each in needed):
            others = " or ".join([controls.written(each, hpa.kind) for each in needed])
            text = f"has no effect without {others}, unless the configuration gives the HPA one"
            yield invalid(_place(name, value), named[name], text)
    for name in _FOR_ZERO if hpa.spec.min_replicas else ():
        if name in named:
            text = f"has no effect: minReplicas is {hpa.spec.min_replicas}, and not 0"
            yield invalid(_place(name, value), named[name], text)
    most = hpa.spec.max_replicas
    if own.spare is not None and own.spare.on(1) > most:
        text = f"leaves the metrics no choice: with one replica that they want there would be {own.spare.on(1)}"
        yield invalid(_place(controls.SPARE, value), named[controls.SPARE], f"{text}, and maxReplicas is {most}")


def _unmatchable(hpa: v2.HorizontalPodAutoscaler) -> Iterator[Problem]:
    """Warnings about selectors of metrics that no label can match. The API server takes them; their metrics fail."""
    for index, metric in enumerate(hpa.spec.metrics or ()):
        for kind, source in (("external", metric.external), ("object", metric.object), ("pods", metric.pods)):
            selector = None if source is None else source.metric.selector
            if selector is not None and (why := _never(selector)):
                yield Problem(f"spec.metrics[{index}].{kind}.metric.selector", why)


_FIELDS: Final = {"Utilization": "averageUtilization", "Value": "value", "AverageValue": "averageValue"}
"""The field that belongs to each type of a metric target."""


def _mistyped(hpa: v2.HorizontalPodAutoscaler) -> Iterator[Problem]:
    """Warnings about metric targets whose field belongs to another type. The controller looks at the field alone.

    Source: Kubernetes 1.36, horizontal.go: computeStatusForExternalMetric and the others.
    """
    for index, metric in enumerate(v2.to_builtins(hpa.spec.metrics or ())):
        for kind, source in metric.items():
            target = source.get("target", {}) if isinstance(source, dict) else {}
            for type, field in _FIELDS.items():
                if target.get(field) is not None and target["type"] != type:
                    path = f"spec.metrics[{index}].{kind}.target.type"
                    yield Problem(path, f"{path}: {target['type']} has no effect, since {field} is set")


def unserved_target(hpa: v2.HorizontalPodAutoscaler) -> str:
    """Returns why a target of the group `extensions` cannot be scaled; "" for other groups."""
    version = hpa.spec.scale_target_ref.api_version or ""
    served = version.partition("/")[0] != "extensions"
    return "" if served else f'{version} is not served since Kubernetes 1.16: write "apps/v1"'


def _unread_queries(hpa: v2.HorizontalPodAutoscaler) -> Iterator[Problem]:
    """Warnings about queries of an Autoscaler that none of its metrics names."""
    named = {metric.external.metric.name for metric in hpa.spec.metrics or () if metric.external is not None}
    for index, query in enumerate(hpa.spec.queries):
        if query.name not in named:
            text = f"spec.queries[{query.name}]: is not read: no External metric has this name"
            yield Problem(f"spec.queries[{index}].name", text)


def _fractions(value: dict[str, Any]) -> Iterator[Problem]:
    """Warnings about quantities of an Autoscaler with a fraction. A schema knows integers and text (IntOrString)."""
    fields = {name: each for name, each in (value.get("spec") or {}).items() if name != "queries"}
    for place, leaf in _leaves(fields, ("spec",)):
        if isinstance(leaf, float) and not leaf.is_integer():
            yield invalid(path_of(place), leaf, f'an API server takes it as text only: write "{leaf}"')


def _never(selector: LabelSelector) -> str:
    """Returns why no label can match the selector, "" if one can."""
    try:
        found = selectors.from_object(selector)
    except selectors.SelectorError as error:
        return f"no label can match the selector: {error}"
    label = found.contradiction
    return (
        f'no label can match the selector "{found}": what it requires of "{label}" excludes each other' if label else ""
    )


def _lacks_behavior(defaulted: dict[str, Any] | None) -> bool:
    """Returns whether a valid HPA has an External metric, such as the length of a queue, and no spec.behavior.

    Then the highest count of the window is carried out step by step, also once the queue is empty. With a behavior the
    window only delays a scale-down (horizontal.go: normalizeDesiredReplicas, normalizeDesiredReplicasWithBehaviors).
    """
    spec = defaulted["spec"] if defaulted is not None else {}
    return "behavior" not in spec and any(metric["type"] == "External" for metric in spec.get("metrics", ()))


def _placeholders(value: Any) -> Iterator[Place]:
    """Yields the places of texts with the placeholder that `hpad convert` writes."""
    return (place for place, leaf in _leaves(value) if isinstance(leaf, str) and PLACEHOLDER in leaf)


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yields what a value holds beside objects and lists, with its place."""
    match value:
        case dict():
            for key, entry in value.items():
                yield from _leaves(entry, (*place, str(key)))
        case list():
            for index, entry in enumerate(value):
                yield from _leaves(entry, (*place, index))
        case _:
            yield place, value


def _unset(place: Place) -> Problem:
    field = path_of(place)
    named = next((step for step in reversed(place) if isinstance(step, str)), "value")
    detail = f"is the placeholder {PLACEHOLDER} of hpad convert: replace it with your {named}"
    return Problem(field, f"{field}: {detail}")


def annotation_errors(hpa: v2.HorizontalPodAutoscaler, value: dict[str, Any]) -> Iterator[Problem]:
    """Errors in the annotations or options of a document that the daemon reads; the API server accepts most of them."""
    present = hpa.metadata.annotations or {}
    for error in PLAIN.of(hpa).errors:
        if error.path in present:  # else a field of the spec says it, which is validated as such
            yield invalid(_place(error.path, value), present[error.path], error.text)


def _place(annotation: str, value: dict[str, Any]) -> str:
    """Returns the field of a document that holds an annotation of hpad."""
    spec = value.get("spec")
    options = spec.get("options") if value.get("kind") == v2.AUTOSCALER and isinstance(spec, dict) else None
    is_option = isinstance(options, dict) and annotation.removeprefix(PREFIX) in options
    return controls.written(annotation, v2.AUTOSCALER) if is_option else f"metadata.annotations[{annotation}]"


def _may_be_configuration(document: Document) -> bool:
    """Returns whether a document can be configuration: an object without a kind, the first of its file."""
    if not isinstance(document.value, dict) or document.index or document.file.endswith(".jsonl"):
        return False
    return not document.value.keys() & {"kind", "apiVersion", "spec"}


def _of_prometheus_adapter(value: Mapping[str, Any]) -> "FoundRules | None":
    """Returns the rules of prometheus-adapter in an object without a kind; None for one with a setting of hpad."""
    if value.keys() & settings.TABLE.keys():
        return None
    from hpad.manifests import prometheus_adapter  # imported late, since `hpad check` of HPAs alone must start fast

    return prometheus_adapter.find(value)


def _only_errors(document: Document, subject: str, errors: tuple[Problem, ...]) -> Checked:
    return Checked(document, subject, "", _placed(document, errors))


def _once(checked: Checked, first: Document) -> Checked:
    """Adds a warning to a second object of a name."""
    if (first.file, first.index) == (checked.document.file, checked.document.index):
        return checked
    text = f"metadata.name: is already defined in {first.file}:{first.line}: `hpad run --manifests` takes the first one"
    warning = checked.document.placed(Problem("metadata.name", f"{text}, `kubectl apply` leaves the last one"))
    return replace(checked, warnings=(*checked.warnings, warning))


def _placed(document: Document, errors: tuple[Problem, ...]) -> tuple[Problem, ...]:
    return tuple(map(document.placed, errors))


def _as_text(checked: Checked) -> None:
    subject = f"{checked.subject}: " if checked.subject else ""
    for error in checked.errors:
        print(error._replace(text=f"{subject}{error.text}").at(checked.document.file))
    for warning in checked.warnings:
        print(warning._replace(text=f"{subject}warning: {warning.text}").at(checked.document.file))


def _as_json(checked: Checked) -> None:
    row = {
        "file": checked.document.file,
        "document": checked.document.index,
        "name": checked.name,
        "errors": _rows(checked.document, checked.errors),
        "warnings": _rows(checked.document, checked.warnings),
        "defaulted": checked.defaulted,
    }
    print(msgspec.json.encode(row).decode())


def _rows(document: Document, errors: tuple[Problem, ...]) -> list[dict[str, Any]]:
    return [
        {"type": error.reason, "field": error.path, "message": error.text, "file": document.file, "line": error.line}
        for error in errors
    ]


def configuration_errors(document: Document) -> Iterator[Problem]:
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


def configuration_warnings(document: Document) -> Iterator[Problem]:
    """Yields what this installation lacks for valid sources; the one that runs hpad may have it. Imports adapters."""
    from hpad.sources import plugins  # imported late, as above

    for name, source in _known_sources(document.value):
        if lacking := plugins.lacking(source):
            yield document.placed(Problem("", lacking).inside(name).inside("sources"))


def _known_sources(value: dict[str, Any]) -> Iterator[tuple[str, settings.SourceSettings]]:
    """Yields the sources whose adapters are known, even if other fields are invalid."""
    sources = value.get("sources")
    for key, source in (sources if isinstance(sources, dict) else {}).items():
        if isinstance(source, dict) and isinstance(adapter := source.get("adapter", key), str):
            queries = settings.OpenedQueries()
            with contextlib.suppress(ValueError):
                queries = settings.opened_queries(source.get("queries", {}))
            own = settings.of_adapter(source)
            yield str(key), settings.SourceSettings(name=str(key), adapter=adapter, settings=own, queries=queries)
