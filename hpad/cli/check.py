"""`hpad check`: validates HPA manifests as the API server does, and configuration as the daemon does."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hpad import settings
from hpad.api import decode
from hpad.api import hpa as v2
from hpad.api.metadata import Key
from hpad.api.problem import Problem, path_of, required
from hpad.cli import check_configuration, check_hpas, output
from hpad.cli.check_configuration import Given, may_be_configuration
from hpad.manifests import autoscalers, documents, hpas
from hpad.manifests.documents import Document
from hpad.manifests.keda.conversion import PLACEHOLDER

if TYPE_CHECKING:
    from hpad.manifests.prometheus_adapter import FoundRules

HELP: Final = "validate HPA manifests and the daemon's configuration"
DESCRIPTION: Final = "Validate HPA manifests, and the daemon's configuration."
EPILOG: Final = """\
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(args: argparse.Namespace) -> int:
    """Prints the errors of all documents; 0 if there are none, else 1."""
    count = wrong = skipped = about_zero = 0
    lacking: list[str] = []
    found: dict[Key, v2.HorizontalPodAutoscaler] = {}
    defined: dict[tuple[Path, Key], Document] = {}
    show = _as_json if args.output == "json" else _as_text
    read = list(documents.read_all(args.files))  # all are read first: the configuration may follow the HPAs
    configurations = [document for document in read if may_be_configuration(document)]
    given = Given(args.namespace, args.scale_to_zero).beside(configurations)
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
        lacking += [checked.name] if check_hpas.lacks_behavior(checked.defaulted) else []
        if checked.hpa is not None:
            found[checked.hpa.key] = checked.hpa
    if about_zero:
        print(f"hpad: {_ZERO}", file=sys.stderr)
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        print(f"hpad: {lacking[0]}{more}: {_NO_BEHAVIOR}", file=sys.stderr)
    for text in check_configuration.short_budgets(configurations, found.values()):
        print(f"hpad: {text}", file=sys.stderr)
    if skipped:
        print(f"hpad: skipped {output.counted(skipped, 'document')} of other kinds", file=sys.stderr)
    if args.output == "text":
        print(f"{output.counted(count, 'document')} checked, {wrong or 'none'} with errors")
    return 1 if wrong else 0


def _check(document: Document, given: Given) -> Checked | None:
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
    if may_be_configuration(document):
        errors = (*_placed(document, (*document.faults, *_unset(value))), *check_configuration.errors(document))
        warnings = tuple(check_configuration.warnings(document))
        return Checked(document, "configuration", "", errors, warnings=warnings)
    if value and value.keys() <= settings.TABLE.keys():
        return _only_errors(document, "configuration", (Problem("", _MISPLACED),))
    detail = f"an HPA has kind: {v2.KIND} and apiVersion: {v2.API_VERSION}, an Autoscaler {v2.AUTOSCALER_VERSION}"
    return _only_errors(document, "", (*document.faults, required("kind", detail)))


def _check_hpa(document: Document, given: Given) -> Checked:
    loaded = hpas.load(document, namespace=given.namespace, scale_to_zero=given.scale_to_zero)
    errors, defaulted, warnings = loaded.errors, None, [*check_hpas.ignored_annotations(document.value)]
    if loaded.hpa is not None:
        errors += tuple(check_hpas.errors(loaded.hpa, document.value, given))
        defaulted = _defaulted(loaded.hpa, document)
        warnings += check_hpas.warnings(loaded.hpa, document.value, given)
    errors += tuple(_unset(document.value))
    placed = _placed(document, errors), defaulted, _placed(document, tuple(warnings))
    return Checked(document, str(loaded), loaded.name, *placed, loaded.hpa)


def _defaulted(hpa: v2.HorizontalPodAutoscaler, document: Document) -> dict[str, Any]:
    whole = hpas.with_whole_metadata(v2.to_builtins(hpa), document)
    built = autoscalers.to_document(hpa, whole["metadata"]) if hpa.kind == v2.AUTOSCALER else whole
    return hpas.without_empty_policies(built)


def _unset(value: Any) -> Iterator[Problem]:
    """Yields an error for each text with the placeholder that `hpad convert` writes."""
    for place, leaf in check_hpas.leaves(value):
        if isinstance(leaf, str) and PLACEHOLDER in leaf:
            field = path_of(place)
            named = next((step for step in reversed(place) if isinstance(step, str)), "value")
            detail = f"is the placeholder {PLACEHOLDER} of hpad convert: replace it with your {named}"
            yield Problem(field, f"{field}: {detail}")


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
