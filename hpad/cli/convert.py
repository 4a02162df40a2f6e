"""`hpad convert`: rewrites HPAs of any version, and objects of KEDA and prometheus-adapter as HPAs and settings."""

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hpad.api import conversion
from hpad.api import hpa as v2
from hpad.api.fields import INVALID, FieldError
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.cli import config, inputs, output
from hpad.manifests import documents, hpas, prometheus_adapter
from hpad.manifests.documents import Document
from hpad.manifests.keda import scaledobject, unsupported
from hpad.manifests.keda.conversion import ConversionError, Converted, Note, Source, settings_document

_PARTS: Final = ("apiVersion", "kind", "metadata", "spec")
SETTINGS: Final = "hpad.yaml"
LOSSY: Final = 3
"""The exit status if something is lost."""

_EPILOG = """\
examples:
  hpad convert old.yaml > new.yaml        autoscaling/v2, from v1, v2beta1, v2beta2 or v2
  hpad convert --to v1 web.yaml           autoscaling/v1; fields that v1 lacks go into annotations
  hpad convert -o json hpas.jsonl         one object per line
  kubectl get hpa -A -o yaml | hpad convert -

  hpad convert scaledobject.yaml          KEDA: an HPA, then the settings of hpad for it
  kubectl get scaledobjects -A -o yaml | hpad convert --out new -
                                          new/hpas/NAMESPACE.NAME.yaml for each HPA, and new/hpad.yaml
  hpad convert --out new rules.yaml       the configuration of prometheus-adapter, a file or its ConfigMap

With --out a conversion can be repeated: files that exist with the same content stay as they are. If a file exists with
other content, nothing is written.

Of a ScaledObject, the triggers rabbitmq, prometheus, redis, redis-streams, metrics-api, cpu, memory and cron are
carried over. Each loss or change is named on standard error, with file, line, object and field. A paused ScaledObject
is not converted, since its HPA would scale at once. Passwords are never copied. No defaults are filled in, except the
CPU target of 80 % for an autoscaling/v1 object without a metric, and with --to v1 the rules of a behavior, for which v1
has no defaults.

All results are validated: HPAs as the API server of Kubernetes 1.36 validates them (minReplicas may be 0, as with the
feature gate HPAScaleToZero), settings as `hpad check` does.

exit status: 0 everything is carried over, 1 a document has errors and is left out, 2 wrong use, 3 something is lost
(triggers, formulas, ScaledJobs, TriggerAuthentications, …) and --lossy is not given
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "convert",
        help="rewrite HPAs as autoscaling/v2 (or v1), and objects of KEDA as HPAs and settings",
        description="Rewrite HPA manifests as autoscaling/v2, or v1, and objects of KEDA and rules of\n"
        "prometheus-adapter as HPAs and settings of hpad.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a folder, or - for standard input")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="yaml (default) or json")
    parser.add_argument("--to", choices=("v1", "v2"), default="v2", help="the version to write (default: v2)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write DIR/hpas/NAMESPACE.NAME.yaml and DIR/hpad.yaml instead of stdout"
    )
    parser.add_argument("--lossy", action="store_true", help="exit with status 0, not 3, if something is lost")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Converts all documents: 0, 1 if a document or the settings have errors, LOSSY if something is lost."""
    work = _Work(args.to, Output(args.output) if args.out is None else Folder(args.out, args.output))
    for document in inputs.read(args.files):
        work.take(document)
    work.output.settings(work.configuration())
    work.wrong += not work.output.finish()
    if work.skipped:
        noun = "document" if work.skipped == 1 else "documents"
        print(f"hpad: skipped {work.skipped} {noun} of other kinds", file=sys.stderr)
    if work.lost and not work.wrong and not args.lossy:
        print("hpad: something is lost, see above: exit status 3, unless --lossy accepts that", file=sys.stderr)
    return 1 if work.wrong else LOSSY if work.lost and not args.lossy else 0


class Output:
    """Writes to standard output: one document after the other, the settings last."""

    def __init__(self, format: str) -> None:
        self.format = format
        self._first = True

    def hpa(self, built: dict[str, Any], document: Document) -> FieldError | None:
        """Writes an HPA; returns the reason if that is not possible."""
        separator = "---\n" if not self._first and self.format == "yaml" else ""
        output.print_document(separator + self.text(built, document))
        self._first = False
        return None

    def settings(self, settings: dict[str, Any]) -> None:
        """Writes the settings, unless they are empty."""
        if settings:
            head = "" if self.format == "json" else "---\n# for hpad's configuration, hpad.yaml\n"
            output.print_document(f"{head}{dumped(settings, self.format)}")

    def finish(self) -> bool:
        """Called at the end. False if something failed, which was printed to standard error."""
        return True

    def text(self, built: dict[str, Any], document: Document) -> str:
        """The manifest in the usual order: apiVersion first; without a status unless the document had one."""
        if self.format == "json":
            return dumped(built, "json")
        parts = [*_PARTS, *(["status"] if document.value.get("status") else [])]
        return dumped({part: built[part] for part in parts}, "yaml")


class Folder(Output):
    """Writes to a folder: each HPA to a file in `hpas/`, the settings to hpad.yaml.

    Writes nothing if a file exists with other content.
    """

    def __init__(self, folder: Path, format: str) -> None:
        super().__init__(format)
        self._folder = folder
        self._texts: dict[Path, str] = {}

    def hpa(self, built: dict[str, Any], document: Document) -> FieldError | None:
        metadata = built["metadata"]
        name = f"{metadata.get('namespace') or 'default'}.{metadata['name']}.{self.format}"
        path = self._folder / "hpas" / name
        if path in self._texts:
            return FieldError(INVALID, "metadata.name", f"metadata.name: {path} holds an HPA of that name already")
        self._texts[path] = self.text(built, document)
        return None

    def settings(self, settings: dict[str, Any]) -> None:
        if settings:
            self._texts[self._folder / SETTINGS] = dumped(settings, "yaml")

    def finish(self) -> bool:
        try:
            missing = [path for path in self._texts if not path.exists()]
            present = self._texts.keys() - set(missing)
            changed = sorted(path for path in present if path.read_bytes() != self._texts[path].encode())
            for path in changed:
                reason = "exists with other content, so nothing is written: name another folder"
                print(f"hpad: {path} {reason}", file=sys.stderr)
            if changed:
                return False
            for path in missing:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self._texts[path], encoding="utf-8")
        except OSError as error:
            print(f"hpad: {error.filename or self._folder} cannot be written: {error.strerror}", file=sys.stderr)
            return False
        for path in self._texts:
            print(path)
        return True


def dumped(value: dict[str, Any], format: str) -> str:
    """A document as YAML, or as JSON on one line."""
    if format == "json":
        return msgspec.json.encode(value).decode() + "\n"
    return yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, width=120, allow_unicode=True)


def flaws(settings: dict[str, Any], sources: Iterable[Source]) -> list[FieldError]:
    """The errors that `hpad check` reports in the settings; an error that names a metric gets its trigger's field."""
    if not settings:
        return []
    with tempfile.TemporaryDirectory(prefix="hpad-") as folder:
        path = Path(folder) / SETTINGS
        path.write_text(dumped(settings, "yaml"), encoding="utf-8")
        [document] = documents.read(path)
        errors = [error.message.replace(f"{path}: ", "") for _, error in config.errors(document)]
    triggers = {source.entry: source.path for source in sources}
    return [
        FieldError(INVALID, next((path for name, path in triggers.items() if name in text), ""), text)
        for text in errors
    ]


@dataclasses.dataclass
class _Work:
    """Converts documents one after the other; counts those with errors, those skipped, and losses."""

    version: str
    output: Output
    wrong: int = 0
    skipped: int = 0
    lost: int = 0
    converted: list[Converted] = dataclasses.field(default_factory=list)
    rules: list[prometheus_adapter.Rules] = dataclasses.field(default_factory=list)
    names: set[str] = dataclasses.field(default_factory=set)

    def take(self, document: Document) -> None:
        value = document.value
        if not isinstance(value, dict):
            self._complain(document, "", document.faults or (hpas.not_an_object(document),))
        elif scaledobject.is_scaled_object(value):
            self._scaled_object(document)
        elif unsupported.is_unsupported(value):
            self._tell(document, unsupported.identity(value), unsupported.notes(value))
        elif hpas.is_hpa(value):
            self._hpa(document)
        elif rules := prometheus_adapter.find(value):
            self._rules(document, rules)
        else:
            self.skipped += 1

    def configuration(self) -> dict[str, Any]:
        """The settings that all converted objects need; empty if they need none."""
        settings = settings_document(self.converted)
        sources = settings.get("sources", {})
        for index, rules in enumerate(self.rules, start=1):
            name = "prometheus-adapter" if index == 1 else f"prometheus-adapter-{index}"
            sources[name] = prometheus_adapter.source(rules)
        return {**settings, "sources": sources} if sources else settings

    def _hpa(self, document: Document) -> None:
        loaded = hpas.load(document, scale_to_zero=True)
        if loaded.errors:
            self._complain(document, str(loaded), loaded.errors)
        else:
            self._write(document, str(loaded))

    def _scaled_object(self, document: Document) -> None:
        subject = unsupported.identity(document.value)
        if document.faults:
            self._complain(document, subject, document.faults)
            return
        try:
            converted = scaledobject.convert(document.value, self.names)
        except ConversionError as error:
            self._complain(document, subject, [error.error])
            return
        if converted.hpa is not None:
            hpa = dataclasses.replace(document, value=converted.hpa, node=None)
            errors = list(map(_of_scaled_object, hpas.load(hpa, scale_to_zero=True).errors))
            errors += flaws(settings_document([converted]), converted.sources)
            if errors:
                self._complain(document, subject, errors)
                return
        self._tell(document, subject, converted.notes)
        if converted.hpa is not None:
            self.converted.append(converted)
            self._write(hpa, subject)

    def _rules(self, document: Document, rules: list[prometheus_adapter.Rules]) -> None:
        subject = unsupported.identity(document.value) if "kind" in document.value else "prometheus-adapter"
        notes = [Note(field, "is not carried over") for field in prometheus_adapter.lost(document.value, rules)]
        for each in rules:
            if errors := flaws({"sources": {"prometheus-adapter": prometheus_adapter.source(each)}}, ()):
                self._complain(document, subject, errors)
                continue
            self.rules.append(each)
            field = each.field or next(iter(each.content))
            address = f"write the URL of Prometheus into the source, in place of {prometheus_adapter.UNKNOWN_URL}"
            notes.append(Note(field, address, lost=False))
            if "resourceRules" in each.content:
                text = "resourceRules apply once a match or a route sends cpu and memory to the source"
                notes.append(Note(field, text, lost=False))
        self._tell(document, subject, notes)

    def _write(self, document: Document, subject: str) -> None:
        """Writes the HPA of a document that `hpas.load` found valid."""
        hpa = hpas.convert(document).hpa
        assert hpa is not None
        if note := _old_group(hpa):
            self._tell(document, subject, [note])
        versioned = conversion.to_v1(v2.with_behavior(hpa)) if self.version == "v1" else hpa
        built: dict[str, Any] = v2.to_builtins(versioned)
        problem = self.output.hpa(hpas.with_whole_metadata(built, document), document)
        if problem is not None:
            self._complain(document, f"{v2.KIND} {hpa.metadata.namespace}/{hpa.metadata.name}", [problem])

    def _tell(self, document: Document, subject: str, notes: Iterable[Note]) -> None:
        """Prints notes in the order of their lines; counts the losses."""
        placed = sorted(((document.line_of(note.field), note) for note in notes), key=lambda pair: pair[0])
        for line, note in placed:
            self.lost += note.lost
            print(f"{inputs.place(document, line)}: {subject}: {note}", file=sys.stderr)

    def _complain(self, document: Document, subject: str, errors: Iterable[FieldError]) -> None:
        """Prints the errors of a document; counts the document as wrong."""
        self.wrong += 1
        for error in errors:
            place = inputs.place(document, document.line_of(error.field))
            print(f"{place}: {f'{subject}: ' if subject else ''}{error.message}", file=sys.stderr)


def _of_scaled_object(error: FieldError) -> FieldError:
    """An error of the converted HPA, with the field of the ScaledObject that the value comes from."""
    return FieldError(error.type, scaledobject.origin(error.field), f"of the HPA: {error.message}")


def _old_group(hpa: HorizontalPodAutoscaler) -> Note | None:
    """A note on a target of the group `extensions`, which Kubernetes does not serve since 1.16."""
    target = hpa.spec.scale_target_ref
    if (target.api_version or "").partition("/")[0] != "extensions":
        return None
    text = f'{target.api_version} is not served since Kubernetes 1.16, and is left as it is: write "apps/v1"'
    return Note("spec.scaleTargetRef.apiVersion", text, lost=False)
