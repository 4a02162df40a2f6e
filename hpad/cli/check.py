"""`hpad check`: validates HPA manifests as the API server does, and configuration as the daemon does."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from hpad.api import hpa as v2
from hpad.api.conversion import older
from hpad.api.fields import INVALID, FieldError, invalid, required
from hpad.cli import inputs
from hpad.engine import fallback_policy
from hpad.engine.spec import compiled_spec
from hpad.manifests import hpas
from hpad.manifests.documents import Document
from hpad.manifests.keda.conversion import PLACEHOLDER

_EPILOG = """\
examples:
  hpad check web.yaml                  every error with file, line and field
  hpad check /etc/hpad/hpas            all *.yaml, *.yml, *.json and *.jsonl of a folder
  hpad check config/hpad.yaml          the daemon's own configuration
  hpad check hpad.yaml hpas            both, with the feature gate HPAScaleToZero of the configuration
  kubectl get hpa -A -o yaml | hpad check -
  hpad check -o json web.yaml          {"file", "document", "name", "errors", "warnings", "defaulted"} a document, one
                                       a line; an error or a warning is {"type", "field", "message", "file", "line"}

A document with `kind: HorizontalPodAutoscaler` is checked as the API server of Kubernetes 1.36 checks it on creation,
unknown fields included, in autoscaling/v1, v2beta1, v2beta2 or v2; its annotations hpad.io/… are checked as the daemon
reads them. A selector may also be text ("queue=orders"): files of --manifests may hold it, an API server refuses it.
A document without kind and apiVersion is checked as the daemon's configuration. If that sets the feature gate
HPAScaleToZero, minReplicas may be 0 in all HPAs checked with it. Other Kubernetes objects are skipped.

A value that holds REPLACE-ME, which hpad convert writes where it knows no value, is an error. An annotation of
autoscaling/v1 that cannot be read is a warning: Kubernetes and hpad ignore it. The exit status is 1 if anything is
wrong, warnings aside.
"""


@dataclass(frozen=True)
class Verdict:
    """The result for one document. `errors` and `warnings` come with their lines; `defaulted` is the object with all
    defaults, None if the document is no object."""

    document: Document
    subject: str
    name: str
    errors: tuple[tuple[int, FieldError], ...]
    defaulted: dict[str, Any] | None = None
    warnings: tuple[tuple[int, FieldError], ...] = ()


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "check",
        help="validate HPA manifests and the daemon's configuration",
        description="Validate HPA manifests, and the daemon's configuration.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a folder, or - for standard input")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
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
    show = _as_json if args.output == "json" else _as_text
    documents = list(inputs.read(args.files))
    scale_to_zero = args.scale_to_zero or any(map(_allows_zero, documents))
    for document in documents:
        verdict = _judge(document, args.namespace, scale_to_zero)
        if verdict is None:
            skipped += 1
            continue
        count += 1
        wrong += bool(verdict.errors)
        show(verdict)
        about_zero += any(hpas.is_about_zero(error) for _, error in verdict.errors)
    if about_zero:
        print(f"hpad: {_ZERO}", file=sys.stderr)
    if skipped:
        print(f"hpad: skipped {_counted(skipped, 'document')} of other kinds", file=sys.stderr)
    if args.output == "text":
        print(f"{_counted(count, 'document')} checked, {wrong or 'none'} with errors")
    return 1 if wrong else 0


_ZERO = (
    "where the feature gate HPAScaleToZero is on (by default from Kubernetes 1.37 on), check with --scale-to-zero, or"
    " together with the configuration that sets it"
)
_MISPLACED = "belongs into a file of its own, for `hpad run --config`: hpad ignores it among manifests"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _allows_zero(document: Document) -> bool:
    """Whether the document is configuration that turns the feature gate HPAScaleToZero on."""
    if not document.parsed or hpas.is_hpa(document.value) or not _can_be_configuration(document):
        return False
    from hpad.cli import config  # imported late, since checking HPAs does not need it

    return config.scale_to_zero(document.value)


def _can_be_configuration(document: Document) -> bool:
    """Whether a document that is no HPA can be configuration: an object without a kind, the first of its file."""
    value = document.value
    if not isinstance(value, dict) or document.index or document.file.endswith(".jsonl"):
        return False
    return not value.keys() & {"kind", "apiVersion", "spec"}


def _judge(document: Document, namespace: str, scale_to_zero: bool) -> Verdict | None:
    """Judges one document; None if it is neither an HPA nor configuration."""
    value = document.value
    if not document.parsed:
        return _without_object(document, "", document.faults)
    if hpas.is_hpa(value):
        return _hpa(document, namespace, scale_to_zero)
    if not isinstance(value, dict):
        return _without_object(document, "", (hpas.not_an_object(document),))
    if "kind" in value or "apiVersion" in value:
        return None
    if not _can_be_configuration(document):
        if _has_only_settings(value):
            return _without_object(document, "configuration", (FieldError(INVALID, "", _MISPLACED),))
        detail = f"an HPA has kind: {v2.KIND} and apiVersion: {v2.API_VERSION}"
        return _without_object(document, "", (*document.faults, required("kind", detail)))
    from hpad.cli import config  # imported late, since checking HPAs does not need it

    unset = ((document.line_at(place), _unset(place)) for place in _placeholders(value))
    errors = (*_placed(document, document.faults), *config.errors(document), *unset)
    return Verdict(document, "configuration", "", errors)


def _has_only_settings(value: dict[str, Any]) -> bool:
    from hpad import settings  # imported late, since checking HPAs does not need it

    return bool(value) and value.keys() <= settings.PARSERS.keys()


def _hpa(document: Document, namespace: str, scale_to_zero: bool) -> Verdict:
    loaded = hpas.load(document, namespace=namespace, scale_to_zero=scale_to_zero)
    errors, defaulted = loaded.errors, None
    if loaded.hpa is not None:
        errors += tuple(_annotation_errors(loaded.hpa))
        defaulted = hpas.with_whole_metadata(hpas.without_empty_policies(v2.to_builtins(loaded.hpa)), document)
    errors += tuple(map(_unset, _placeholders(document.value)))
    warnings = _placed(document, tuple(_ignored_annotations(document.value)))
    return Verdict(document, str(loaded), loaded.name, _placed(document, errors), defaulted, warnings)


def _ignored_annotations(value: dict[str, Any]) -> Iterator[FieldError]:
    """Warns of annotations of autoscaling/v1 that hold fields of v2 and cannot be decoded."""
    metadata = value.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if value.get("apiVersion") != older.V1_VERSION or not isinstance(annotations, dict):
        return
    for name in older.ignored(annotations):
        yield invalid(f"metadata.annotations[{name}]", annotations[name], "it cannot be read, and is ignored")


def _placeholders(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of texts that still hold the placeholder written by `hpad convert`."""
    if isinstance(value, str):
        if PLACEHOLDER in value:
            yield place
        return
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    for step, entry in entries:
        yield from _placeholders(entry, (*place, step if isinstance(step, int) else str(step)))


def _unset(place: tuple[str | int, ...]) -> FieldError:
    field = ""
    for step in place:
        bare = isinstance(step, str) and not set(step) & set("./[]")
        field += f".{step}" if bare else f"[{step}]"
    field = field.removeprefix(".")
    named = next((step for step in reversed(place) if isinstance(step, str)), "value")
    detail = f"holds the placeholder {PLACEHOLDER} of hpad convert: write your own {named} in its place"
    return FieldError(INVALID, field, f"{field}: {detail}")


def _annotation_errors(hpa: v2.HorizontalPodAutoscaler) -> Iterator[FieldError]:
    """Errors in the annotations that the daemon reads; the API server accepts any value."""
    annotations = hpa.metadata.annotations or {}
    if any(name.startswith(fallback_policy.PREFIX) for name in annotations):
        flaws = fallback_policy.annotation_errors(annotations, [metric.name for metric in compiled_spec(hpa).metrics])
        for name, flaw in flaws.items():
            yield invalid(f"metadata.annotations[{name}]", annotations[name], flaw)


def _without_object(document: Document, subject: str, errors: tuple[FieldError, ...]) -> Verdict:
    return Verdict(document, subject, "", _placed(document, errors))


def _placed(document: Document, errors: tuple[FieldError, ...]) -> tuple[tuple[int, FieldError], ...]:
    return tuple((document.line_of(error.field), error) for error in errors)


def _as_text(verdict: Verdict) -> None:
    subject = f"{verdict.subject}: " if verdict.subject else ""
    for line, error in verdict.errors:
        print(f"{inputs.place(verdict.document, line)}: {subject}{error.message}")
    for line, warning in verdict.warnings:
        print(f"{inputs.place(verdict.document, line)}: {subject}warning: {warning.message}")


def _as_json(verdict: Verdict) -> None:
    row = {
        "file": verdict.document.file,
        "document": verdict.document.index,
        "name": verdict.name,
        "errors": _rows(verdict.document, verdict.errors),
        "warnings": _rows(verdict.document, verdict.warnings),
        "defaulted": verdict.defaulted,
    }
    print(msgspec.json.encode(row).decode())


def _rows(document: Document, errors: tuple[tuple[int, FieldError], ...]) -> list[dict[str, Any]]:
    return [{**msgspec.structs.asdict(error), "file": document.file, "line": line} for line, error in errors]
