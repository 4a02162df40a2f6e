"""`hpad convert`: rewrites HPAs of any version, and objects of KEDA and prometheus-adapter, as HPAs or Autoscalers.

What objects of KEDA and prometheus-adapter need besides goes into settings.
"""

import argparse
import dataclasses
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hpad.api import decode, older, yaml_reader
from hpad.api import hpa as v2
from hpad.api.problem import Invalid, Problem
from hpad.cli import check_configuration, check_hpas, output
from hpad.cli.output import WrongUse
from hpad.manifests import autoscalers, documents, hpas, prometheus_adapter
from hpad.manifests.documents import Document
from hpad.manifests.keda import authentication, scaledobject, unsupported
from hpad.manifests.keda.authentication import Known
from hpad.manifests.keda.conversion import Converted, ConvertedSource, settings_document
from hpad.manifests.keda.fields import Note
from hpad.settings import SourceSettings

_PARTS: Final = ("apiVersion", "kind", "metadata", "spec")
AUTOSCALER: Final = "autoscaler"
SETTINGS: Final = "hpad.yaml"
LOSSY: Final = 3
"""The exit status if something is lost."""

_EXPECTED: Final = (
    "expected are HPAs, objects of KEDA, and rules of prometheus-adapter: its configuration (rules, externalRules, "
    "resourceRules), the ConfigMap with it, or the values of its chart"
)

HELP: Final = "rewrite HPAs as autoscaling/v2 (or v1), and objects of KEDA as HPAs and settings"
DESCRIPTION: Final = (
    "Rewrite HPA manifests as autoscaling/v2, or v1, and objects of KEDA and rules of\n"
    "prometheus-adapter as HPAs and settings of hpad."
)
EPILOG: Final = f"""\
examples:
  hpad convert old.yaml > new.yaml        autoscaling/v2, from v1, v2beta1, v2beta2 or v2
  hpad convert --to v1 web.yaml           autoscaling/v1; fields that v1 lacks go into annotations
  hpad convert --to autoscaler web.yaml   an Autoscaler, the kind of hpad; annotations hpad.io/… become options
  hpad convert -o json hpas.jsonl         one object per line
  kubectl get hpa -A -o yaml | hpad convert -
  kubectl get hpa -A -o yaml | hpad convert --to autoscaler --shadow - > autoscalers.yaml
  kubectl get autoscalers -A -o yaml | hpad convert --to hpa - > hpas.yaml

  hpad convert scaledobject.yaml          KEDA: an HPA, then the settings of hpad for it
  kubectl get scaledobjects,triggerauthentications,clustertriggerauthentications,deployments,configmaps -A -o yaml |
      hpad convert --out new -            new/hpas/NAMESPACE.NAME.yaml for each HPA (of Autoscalers new/autoscalers/…),
                                          and new/hpad.yaml
  hpad convert --out new rules.yaml       the configuration of prometheus-adapter: a file, its ConfigMap, or the values
                                          of its Helm chart

With --out a conversion can be repeated: files that exist with the same content stay as they are. If a file exists with
other content, nothing is written.

Of a ScaledObject, these triggers are carried over:
{textwrap.fill(", ".join(scaledobject.TRIGGERS), 118, break_on_hyphens=False)}.
Others are named with what to use instead. Each loss or change is named on standard error, with file, line, object and
field. A paused ScaledObject becomes a paused HPA. Parameters of a TriggerAuthentication, and variables of the target's
containers (of its Deployment or StatefulSet, if it is given), are read where no Secret holds them. Secrets are never
copied: hpad reads each from a file, and standard error says what to mount there (--secrets DIR). docs/from-keda.md
says which fields get another form.

No defaults are filled in, except the CPU target of 80 % for an autoscaling/v1 object without a metric, and with --to v1
the rules of a behavior, for which v1 has no defaults.

All results are validated: HPAs as the API server of Kubernetes 1.36 validates them (minReplicas may be 0, as with the
feature gate HPAScaleToZero), settings as `hpad check` does.

exit status: 0 everything is carried over (objects of kinds that have no part in scaling are skipped), 1 a document has
errors and is left out, or there is nothing to convert, 2 wrong use, 3 something is lost
(triggers, formulas, ScaledJobs, secrets of a vault, …) and --lossy is not given
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a folder, or - for standard input")
    output.add_format(parser, "yaml", "json")
    parser.add_argument(
        "--to",
        choices=("hpa", "v2", "v1", AUTOSCALER),
        default="v2",
        help="HPAs of this version (hpa: v2, the default), or Autoscalers in their place",
    )
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="write Autoscalers in shadow mode, which leave their targets alone (those that are paused stay paused)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write DIR/hpas/NAMESPACE.NAME.yaml (or DIR/autoscalers/…) and DIR/hpad.yaml instead of stdout",
    )
    parser.add_argument(
        "--secrets",
        metavar="DIR",
        default=authentication.FOLDER,
        help="the folder in which hpad will find the files with secrets (default: %(default)s)",
    )
    parser.add_argument("--lossy", action="store_true", help="exit with status 0, not 3, if something is lost")


def run(args: argparse.Namespace) -> int:
    """Converts all documents: 0, 1 if a document or the settings have errors, LOSSY if something is lost."""
    if args.shadow and args.to != AUTOSCALER:
        raise WrongUse("--shadow is for Autoscalers: add --to autoscaler")
    found = list(documents.read_all(args.files))
    known = authentication.collect((document.value for document in found), args.secrets)
    folder = "autoscalers" if args.to == AUTOSCALER else "hpas"
    work = _Work(args.to, args.output, None if args.out is None else args.out / folder, known, args.shadow)
    for document in found:
        work.convert(document)
    for document in work.authentications:
        work.note_authentication(document)
    settings = work.settings()
    if args.out is None:
        _print(work.manifests.values(), settings, args.output)
    else:
        own = {args.out / SETTINGS: dumped(settings, "yaml")} if settings else {}
        work.wrong += not _write({**work.manifests, **own})
    if work.skipped:
        kinds = ", ".join(sorted(set(work.skipped)))
        print(f"hpad: skipped {output.counted(len(work.skipped), 'document')} of other kinds: {kinds}", file=sys.stderr)
    if not (work.manifests or settings or work.wrong or work.lost):
        print(f"hpad: nothing to convert: {_EXPECTED}", file=sys.stderr)
        return 1
    if work.lost and not work.wrong and not args.lossy:
        print("hpad: something is lost, see above: exit status 3, unless --lossy accepts that", file=sys.stderr)
    return 1 if work.wrong else LOSSY if work.lost and not args.lossy else 0


def _print(manifests: Iterable[str], settings: dict[str, Any], format: str) -> None:
    """Prints the manifests and then the settings to standard output."""
    output.print_document(("" if format == "json" else "---\n").join(manifests))
    if settings:
        head = "" if format == "json" else "---\n# for hpad's configuration, hpad.yaml\n"
        output.print_document(f"{head}{dumped(settings, format)}")


def _write(texts: Mapping[Path, str]) -> bool:
    """Writes files, and prints their paths. Writes nothing and returns False if a file exists with other content."""
    try:
        missing = [path for path in texts if not path.exists()]
        present = texts.keys() - set(missing)
        changed = sorted(path for path in present if path.read_bytes() != texts[path].encode())
        for path in changed:
            reason = "exists with other content, so nothing is written: name another folder"
            print(f"hpad: {path} {reason}", file=sys.stderr)
        if changed:
            return False
        for path in missing:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path], encoding="utf-8")
    except OSError as error:
        print(f"hpad: {error.filename or 'the output'} cannot be written: {error.strerror}", file=sys.stderr)
        return False
    for path in texts:
        print(path)
    return True


def dumped(value: dict[str, Any], format: str) -> str:
    """Returns a document as YAML, or as JSON on one line."""
    if format == "json":
        return msgspec.json.encode(value).decode() + "\n"
    return yaml.dump(value, Dumper=yaml_reader.Dumper, sort_keys=False, width=120, allow_unicode=True)


def settings_errors(settings: dict[str, Any], sources: Iterable[ConvertedSource]) -> list[Problem]:
    """Returns the errors of `hpad check` in the settings; an error that names a metric gets its trigger's field."""
    if not settings:
        return []
    # The checks read a file, and report the lines of its fields.
    with tempfile.TemporaryDirectory(prefix="hpad-") as folder:
        path = Path(folder) / SETTINGS
        path.write_text(dumped(settings, "yaml"), encoding="utf-8")
        [document] = documents.read(path)
        errors = [error.text.replace(f"{path}: ", "") for error in check_configuration.errors(document)]
    triggers = {source.entry: source.path for source in sources}
    return [Problem(next((path for name, path in triggers.items() if name in text), ""), text) for text in errors]


def _rule_errors(rules: prometheus_adapter.WrittenRules) -> list[Problem]:
    """Returns the errors of `hpad check` in rules, with their places in the document. Imports the adapter."""
    from hpad.sources import plugins  # imported late, since the conversion of HPAs must start fast

    content = prometheus_adapter.source(rules)
    source = SourceSettings(name="prometheus-adapter", adapter=content.pop("adapter"), settings=content)
    errors = []
    for error in plugins.check_settings(source):
        path = rules.origin(error.path.removeprefix("rules").removeprefix("."))
        errors.append(Problem(path, f"{path}: {error.text.removeprefix(f'{error.path}: ')}"))
    return errors


@dataclasses.dataclass
class _Work:
    """Converts documents one after the other; counts wrong and skipped documents, and losses.

    `folder`: of the manifests; None if they go to standard output. `known`: what ScaledObjects may refer to. `shadow`:
    Autoscalers get the mode shadow. `authentications`: to be noted once it is known which were used.
    """

    version: str
    format: str
    folder: Path | None
    known: Known
    shadow: bool = False
    authentications: list[Document] = dataclasses.field(default_factory=list)
    manifests: dict[Path, str] = dataclasses.field(default_factory=dict)
    wrong: int = 0
    skipped: list[str] = dataclasses.field(default_factory=list)
    lost: int = 0
    converted: list[Converted] = dataclasses.field(default_factory=list)
    rules: list[prometheus_adapter.WrittenRules] = dataclasses.field(default_factory=list)
    names: set[str] = dataclasses.field(default_factory=set)

    def convert(self, document: Document) -> None:
        value = document.value
        if not isinstance(value, dict):
            self._print_errors(document, "", document.faults or decode.read(document.value).errors)
        elif scaledobject.is_scaled_object(value):
            self._scaled_object(document)
        elif authentication.is_authentication(value):
            self.authentications.append(document)
        elif unsupported.is_unsupported(value):
            self._print_notes(document, unsupported.identity(value), unsupported.notes(value))
        elif hpas.is_hpa(value):
            self._hpa(document)
        elif (found := prometheus_adapter.find(value)) is not None:
            self._rules(document, found)
        elif (kind := value.get("kind") or _kind_of_file(document.file)) is None:
            self._print_errors(document, "", (*document.faults, Problem("", f"has no kind: {_EXPECTED}")))
        elif kind not in authentication.WORKLOADS:
            self.skipped.append(str(kind))

    def note_authentication(self, document: Document) -> None:
        """Prints the notes on a TriggerAuthentication."""
        subject, key = unsupported.identity(document.value), authentication.key_of(document.value)
        if key in self.known.errors:
            self._print_errors(document, subject, self.known.errors[key].problems)
        elif key not in self.known.used:
            unused = Note("kind", "is left out: no trigger that is carried over refers to it", lost=False)
            self._print_notes(document, subject, [unused])
        else:
            self._print_notes(document, subject, self.known.authentications[key].notes)

    def settings(self) -> dict[str, Any]:
        """Returns the settings that all converted objects need; empty if they need none."""
        settings = settings_document(self.converted)
        sources = settings.get("sources", {})
        for index, rules in enumerate(self.rules, start=1):
            name = "prometheus-adapter" if index == 1 else f"prometheus-adapter-{index}"
            sources[name] = prometheus_adapter.source(rules)
        return {**settings, "sources": sources} if sources else settings

    def _hpa(self, document: Document) -> None:
        loaded = hpas.load(document, scale_to_zero=True)
        if loaded.errors:
            self._print_errors(document, str(loaded), loaded.errors)
        else:
            self._write(document, str(loaded))

    def _scaled_object(self, document: Document) -> None:
        subject = unsupported.identity(document.value)
        if document.faults:
            self._print_errors(document, subject, document.faults)
            return
        try:
            converted = scaledobject.convert(document.value, self.names, self.known)
        except Invalid as error:
            self._print_errors(document, subject, error.problems)
            return
        if converted.hpa is not None:
            hpa = dataclasses.replace(document, value=converted.hpa, node=None)
            errors = [
                # The user knows the fields of the ScaledObject, not those of the HPA.
                error._replace(path=scaledobject.origin(error.path), text=f"of the HPA: {error.text}")
                for error in hpas.load(hpa, scale_to_zero=True).errors
            ]
            errors += settings_errors(settings_document([converted]), converted.sources)
            if errors:
                self._print_errors(document, subject, errors)
                return
        self._print_notes(document, subject, converted.notes)
        if converted.hpa is not None:
            self.converted.append(converted)
            self._write(hpa, subject)

    def _rules(self, document: Document, found: prometheus_adapter.FoundRules) -> None:
        subject = unsupported.identity(document.value) if "kind" in document.value else "prometheus-adapter"
        if errors := [*document.faults, *found.errors]:
            self._print_errors(document, subject, errors)
            return
        notes = list(found.notes)
        for each in found.rules:
            if errors := _rule_errors(each):
                self._print_errors(document, subject, errors)
                continue
            self.rules.append(each)
            field = each.field or next(iter(each.content))
            if each.url == prometheus_adapter.UNKNOWN_URL:
                address = f"write the URL of Prometheus into the source, in place of {prometheus_adapter.UNKNOWN_URL}"
                notes.append(Note(field, address, lost=False))
            if "resourceRules" in each.content:
                text = "resourceRules apply once a match or a route sends cpu and memory to the source"
                notes.append(Note(field, text, lost=False))
        self._print_notes(document, subject, notes)

    def _write(self, document: Document, subject: str) -> None:
        """Writes the HPA or Autoscaler of a document that `hpas.load` found valid."""
        hpa = decode.read(document.value).hpa
        assert hpa is not None
        if why := check_hpas.unserved_target(hpa):
            self._print_notes(document, subject, [Note("spec.scaleTargetRef.apiVersion", why, lost=False)])
        kind = v2.AUTOSCALER if self.version == AUTOSCALER else v2.KIND
        if kind != hpa.kind:
            metadata = document.value.get("metadata") or {}
            self._print_notes(document, subject, autoscalers.notes(hpa, metadata, kind))
        if kind == v2.AUTOSCALER:
            # The API server refuses many an option that an annotation may have.
            if errors := list(check_hpas.annotation_errors(hpa, document.value)):
                self._print_errors(document, subject, errors)
                return
            whole = hpas.with_whole_metadata(v2.to_builtins(hpa), document)["metadata"]
            self._add(document, autoscalers.to_document(hpa, whole, shadow=self.shadow))
            return
        moved = hpa.kind == v2.AUTOSCALER
        hpa = autoscalers.to_hpa(hpa) if moved else hpa
        versioned = older.to_v1(v2.with_behavior(hpa)) if self.version == "v1" else hpa
        built: dict[str, Any] = hpas.with_whole_metadata(v2.to_builtins(versioned), document)
        if moved:
            built["metadata"] = autoscalers.moved_metadata(built["metadata"])
        if self.format == "yaml" or moved:  # the usual order; JSON is for programs
            parts = [*_PARTS, *(["status"] if document.value.get("status") and not moved else [])]
            built = {part: built[part] for part in parts}
        self._add(document, built)

    def _add(self, document: Document, built: dict[str, Any]) -> None:
        """Adds a manifest, unless one of the same file is there."""
        metadata = built["metadata"]
        path = self._path(metadata)
        if path in self.manifests:
            problem = Problem("metadata.name", f"metadata.name: {path} holds an object of that name already")
            self._print_errors(document, f"{built['kind']} {metadata.get('namespace')}/{metadata['name']}", [problem])
        else:
            self.manifests[path] = dumped(built, self.format)

    def _path(self, metadata: dict[str, Any]) -> Path:
        """Returns the file of an HPA; on standard output, where HPAs may have the same name, its number."""
        if self.folder is None:
            return Path(str(len(self.manifests)))
        return self.folder / f"{metadata.get('namespace') or 'default'}.{metadata['name']}.{self.format}"

    def _print_notes(self, document: Document, subject: str, notes: Iterable[Note]) -> None:
        """Prints notes in the order of their lines; counts the losses."""
        placed = sorted(((document.line_of(note.field), note) for note in notes), key=lambda pair: pair[0])
        for line, note in placed:
            self.lost += note.lost
            print(Problem(note.field, f"{subject}: {note}", line).at(document.file), file=sys.stderr)

    def _print_errors(self, document: Document, subject: str, errors: Iterable[Problem]) -> None:
        """Prints the errors of a document; counts the document as wrong."""
        self.wrong += 1
        for error in errors:
            text = f"{subject}: {error.text}" if subject else error.text
            print(document.placed(error)._replace(text=text).at(document.file), file=sys.stderr)


def _kind_of_file(file: str) -> str | None:
    """Returns the kind of a file that needs to name none; None for other files."""
    return "Kustomization" if Path(file).stem == "kustomization" else None
