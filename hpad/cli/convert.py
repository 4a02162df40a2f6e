"""`hpad convert`: HPAs of any version in another, and what KEDA and prometheus-adapter have as HPAs and settings.

Where converted HPAs and settings go: standard output, or files of a folder; and what is wrong with settings.
"""

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hpad.api import conversion, defaults
from hpad.api import hpa as v2
from hpad.api.fields import INVALID, FieldError
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.cli import configuration, inputs, output
from hpad.manifests import documents, hpas
from hpad.manifests.documents import Document
from hpad.manifests.keda import output as adapter_rules
from hpad.manifests.keda import scaledobject
from hpad.manifests.keda.found import Note, Source, Wrong
from hpad.manifests.keda.scaledobject import Converted

_PARTS: Final = ("apiVersion", "kind", "metadata", "spec")
SETTINGS: Final = "hpad.yaml"


class Output:
    """Standard output: one document after the other, the settings last."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.written = 0

    def hpa(self, built: dict[str, Any], document: Document) -> FieldError | None:
        """Write an HPA; returns why it could not be written."""
        output.print_document(self.text(built, document, first=not self.written))
        self.written += 1
        return None

    def settings(self, needed: dict[str, Any]) -> bool:
        """Write the settings, if any; False where that failed, which was said."""
        if needed:
            head = "" if self.format == "json" else "---\n# for hpad's configuration, hpad.yaml\n"
            output.print_document(f"{head}{dumped(needed, self.format)}")
        return True

    def finish(self) -> bool:
        """Called at the end; False where something failed, which was said."""
        return True

    def text(self, built: dict[str, Any], document: Document, *, first: bool) -> str:
        """A manifest as people write them: apiVersion first, and no status unless there was one."""
        if self.format == "json":
            return dumped(built, "json")
        parts = [*_PARTS, *(["status"] if document.value.get("status") else [])]
        return ("" if first else "---\n") + dumped({part: built[part] for part in parts}, "yaml")


class Folder(Output):
    """A folder: HPAs in `hpas/`, each in a file of its own, and the settings in hpad.yaml.

    No file is overwritten that holds anything else than what would be written.
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
        self._texts[path] = self.text(built, document, first=True)
        return None

    def settings(self, needed: dict[str, Any]) -> bool:
        if needed:
            self._texts[self._folder / SETTINGS] = dumped(needed, "yaml")
        return True

    def finish(self) -> bool:
        try:
            missing = {path: text for path, text in self._texts.items() if not path.exists()}
            there = self._texts.keys() - missing.keys()
            changed = sorted(path for path in there if path.read_bytes() != self._texts[path].encode())
            for path in changed:
                says = "is there already with other content, so nothing is written: name another folder"
                print(f"hpad: {path} {says}", file=sys.stderr)
            if changed:
                return False
            for path, text in missing.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
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
    """What `hpad check` would say about the settings; an error that names a metric is about the trigger it is of."""
    if not settings:
        return []
    with tempfile.TemporaryDirectory(prefix="hpad-") as folder:
        path = Path(folder) / SETTINGS
        path.write_text(dumped(settings, "yaml"), encoding="utf-8")
        [document] = documents.read(path)
        errors = [error.message.replace(f"{path}: ", "") for _, error in configuration.errors(document)]
    triggers = {source.entry: source.path for source in sources}
    return [
        FieldError(INVALID, next((path for name, path in triggers.items() if name in text), ""), text)
        for text in errors
    ]


LOSSY: int = 3
"""The exit status where something is lost."""

_EPILOG = """\
examples:
  hpad convert old.yaml > new.yaml        autoscaling/v2, from v1, v2beta1, v2beta2 or v2
  hpad convert --to v1 web.yaml           autoscaling/v1: what it has no field for goes into annotations
  hpad convert -o json hpas.jsonl         one object a line
  kubectl get hpa -A -o yaml | hpad convert -

  hpad convert scaledobject.yaml          KEDA: an HPA, then the settings that hpad needs for it
  kubectl get scaledobjects -A -o yaml | hpad convert --out new -
                                          new/hpas/NAMESPACE.NAME.yaml for each HPA, and new/hpad.yaml
  hpad convert --out new rules.yaml       the configuration of prometheus-adapter, a file or its ConfigMap

Files that --out finds with the same content stay as they are, so that a conversion can be repeated; where one has other
content, nothing is written.

Of a ScaledObject the triggers rabbitmq, prometheus, redis, redis-streams, metrics-api, cpu, memory and cron are carried
over. What is lost or changed is named on standard error, with file, line, object and field. A paused ScaledObject
becomes no HPA, which would scale at once. Passwords are never copied. Nothing is filled in but the CPU goal of 80 %
that an autoscaling/v1 object without any metric stands for, and, for --to v1, the rules of a behavior, which v1 has no
defaults for.

What is written was validated: HPAs as the API server of Kubernetes 1.36 validates them (with the feature gate
HPAScaleToZero, for minReplicas 0), settings as `hpad check` does.

exit status: 0 all is carried over, 1 a document has errors and is left out, 3 something is lost (triggers, formulas,
ScaledJobs, TriggerAuthentications, old groups, …), which --lossy accepts
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "convert",
        help="rewrite HPAs in autoscaling/v2 (or v1), and objects of KEDA as HPAs and settings",
        description="Rewrite HPA manifests in autoscaling/v2, or v1, and objects of KEDA as HPAs and settings of hpad.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a folder, or - for standard input")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="yaml (default) or json")
    parser.add_argument("--to", choices=("v1", "v2"), default="v2", help="the version to write (default: v2)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write DIR/hpas/NAMESPACE.NAME.yaml and DIR/hpad.yaml, not stdout"
    )
    parser.add_argument("--lossy", action="store_true", help="exit status 0, not 3, where something is lost")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    output = Output(args.output) if args.out is None else Folder(args.out, args.output)
    work = _Work(args.to, output)
    for document in inputs.read(args.files):
        work.take(document)
    work.wrong += not output.settings(work.configuration())
    work.wrong += not output.finish()
    if work.skipped:
        print(
            f"hpad: skipped {work.skipped} document{'' if work.skipped == 1 else 's'} of other kinds", file=sys.stderr
        )
    if work.lost and not work.wrong and not args.lossy:
        print("hpad: something is lost, see above: exit status 3, unless --lossy accepts that", file=sys.stderr)
    return 1 if work.wrong else LOSSY if work.lost and not args.lossy else 0


@dataclasses.dataclass
class _Work:
    """Takes one document after the other; counts those with errors, those skipped, and what is lost."""

    version: str
    output: Output
    wrong: int = 0
    skipped: int = 0
    lost: int = 0
    converted: list[Converted] = dataclasses.field(default_factory=list)
    rules: list[adapter_rules.Rules] = dataclasses.field(default_factory=list)
    names: set[str] = dataclasses.field(default_factory=set)

    def take(self, document: Document) -> None:
        value = document.value
        if not isinstance(value, dict):
            self._complain(document, "", document.faults or (hpas.not_an_object(document),))
        elif scaledobject.is_scaled_object(value):
            self._scaled_object(document)
        elif adapter_rules.is_other(value):
            self._tell(document, adapter_rules.identity(value), adapter_rules.notes(value))
        elif hpas.is_hpa(value):
            self._hpa(document)
        elif rules := adapter_rules.find(value):
            self._rules(document, rules)
        else:
            self.skipped += 1

    def configuration(self) -> dict[str, Any]:
        """The settings that the converted objects need, in one; empty where they need none."""
        needed = adapter_rules.document(self.converted)
        sources = needed.get("sources", {})
        for index, rules in enumerate(self.rules, start=1):
            sources["prometheus-adapter" if index == 1 else f"prometheus-adapter-{index}"] = adapter_rules.source(rules)
        return {**needed, "sources": sources} if sources else needed

    def _hpa(self, document: Document) -> None:
        loaded = hpas.load(document, scale_to_zero=True)
        if loaded.errors:
            self._complain(document, str(loaded), loaded.errors)
            return
        hpa = hpas.convert(document).hpa
        assert hpa is not None  # what loads can be read
        if note := _old_group(hpa):
            self._tell(document, str(loaded), [note])
        self._write(hpa, document)

    def _scaled_object(self, document: Document) -> None:
        subject = adapter_rules.identity(document.value)
        if document.faults:
            self._complain(document, subject, document.faults)
            return
        try:
            found = scaledobject.convert(document.value, self.names)
        except Wrong as wrong:
            self._complain(document, subject, [wrong.error])
            return
        if found.hpa is None:
            self._tell(document, subject, found.notes)
            return
        made = dataclasses.replace(document, value=found.hpa, node=None)
        loaded = hpas.load(made, scale_to_zero=True)
        errors = [
            *map(_of_scaled_object, loaded.errors),
            *flaws(adapter_rules.document([found]), found.sources),
        ]
        if errors:
            self._complain(document, subject, errors)
            return
        self._tell(document, subject, found.notes)
        self.converted.append(found)
        hpa = hpas.convert(made).hpa
        assert hpa is not None
        if note := _old_group(hpa):
            self._tell(document, subject, [note])
        self._write(hpa, made)

    def _rules(self, document: Document, rules: list[adapter_rules.Rules]) -> None:
        subject = adapter_rules.identity(document.value) if "kind" in document.value else "prometheus-adapter"
        notes = [Note(field, "is not carried over") for field in adapter_rules.lost(document.value, rules)]
        for each in rules:
            if errors := flaws({"sources": {"prometheus-adapter": adapter_rules.source(each)}}, ()):
                self._complain(document, subject, errors)
                continue
            self.rules.append(each)
            field = each.field or next(iter(each.content))
            notes.append(
                Note(field, f"write the address of Prometheus into the source, for {adapter_rules.UNKNOWN_URL}", False)
            )
            if "resourceRules" in each.content:
                notes.append(
                    Note(field, "resourceRules apply once a match or a route sends cpu and memory to the source", False)
                )
        self._tell(document, subject, notes)

    def _write(self, hpa: HorizontalPodAutoscaler, document: Document) -> None:
        wanted = conversion.to_v1(defaults.with_behavior(hpa)) if self.version == "v1" else hpa
        built: dict[str, Any] = v2.to_builtins(wanted)
        problem = self.output.hpa(hpas.with_whole_metadata(built, document), document)
        if problem is not None:
            self._complain(document, f"{v2.KIND} {hpa.metadata.namespace}/{hpa.metadata.name}", [problem])

    def _tell(self, document: Document, subject: str, notes: Iterable[Note]) -> None:
        placed = sorted(((document.line_of(note.field), note) for note in notes), key=lambda pair: pair[0])
        for line, note in placed:
            self.lost += note.lost
            print(f"{inputs.place(document, line)}: {subject}: {note}", file=sys.stderr)

    def _complain(self, document: Document, subject: str, errors: Iterable[FieldError]) -> None:
        self.wrong += 1
        for error in errors:
            place = inputs.place(document, document.line_of(error.field))
            print(f"{place}: {f'{subject}: ' if subject else ''}{error.message}", file=sys.stderr)


def _of_scaled_object(error: FieldError) -> FieldError:
    """An error of the HPA that a ScaledObject becomes, with the field that the value comes from."""
    return FieldError(error.type, scaledobject.origin(error.field), f"of the HPA: {error.message}")


def _old_group(hpa: HorizontalPodAutoscaler) -> Note | None:
    """Deployments and ReplicaSets of the group `extensions` have not been served since Kubernetes 1.16."""
    target = hpa.spec.scale_target_ref
    if (target.api_version or "").partition("/")[0] != "extensions":
        return None
    text = f'{target.api_version} is not served since Kubernetes 1.16, and is left as it is: write "apps/v1"'
    return Note("spec.scaleTargetRef.apiVersion", text, lost=False)
