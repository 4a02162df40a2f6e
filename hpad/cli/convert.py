"""`hpad convert`: HPAs of any version in another, and ScaledObjects of KEDA as HPAs and sources."""

import argparse
import dataclasses
import sys
from typing import Any

import msgspec
import yaml

from hpad.cli import inputs
from hpad.manifests import hpas
from hpad.manifests.documents import Document
from hpad.manifests.hpas import Loaded
from hpad.manifests.keda import configuration, scaledobject
from hpad.manifests.keda.found import Wrong
from hpad.manifests.keda.scaledobject import Converted
from hpad.model import conversion
from hpad.model import hpa as api
from hpad.model.fields import FieldError
from hpad.model.hpa import HorizontalPodAutoscaler

_EPILOG = """\
examples:
  hpad convert old.yaml > new.yaml        autoscaling/v2, from v1, v2beta1, v2beta2 or v2
  hpad convert --to v1 web.yaml           autoscaling/v1: what it has no field for goes into annotations
  hpad convert -o json hpas.jsonl         one object a line
  kubectl get hpa -A -o yaml | hpad convert -

  hpad convert scaledobject.yaml          KEDA: an HPA, then the sources that hpad's configuration needs for it

Of a ScaledObject the triggers rabbitmq, prometheus, cpu, memory and cron are carried over; standard error names what is
not. The last document is then a piece of hpad.yaml. Otherwise nothing is filled in but the CPU goal of 80 %
that an autoscaling/v1 object without any metric stands for. A document with errors in its form is reported on standard
error and left out; the exit status is then 1. `hpad check` says whether the result is valid.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "convert",
        help="rewrite HPA manifests in autoscaling/v2 (or v1)",
        description="Rewrite HPA manifests in autoscaling/v2, or v1.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a folder, or - for standard input")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="yaml (default) or json")
    parser.add_argument("--to", choices=("v1", "v2"), default="v2", help="the version to write (default: v2)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    wrong = skipped = written = 0
    converted: list[Converted] = []
    for document in inputs.read(args.files):
        scaled = scaledobject.is_scaled_object(document.value)
        if document.parsed and isinstance(document.value, dict) and not scaled and not hpas.is_hpa(document.value):
            skipped += 1
            continue
        loaded = _from_keda(document, converted) if scaled else _loaded(document)
        if loaded.hpa is None or loaded.errors:
            wrong += 1
            _complain(document, loaded)
            continue
        built = hpas.with_whole_metadata(_built(loaded.hpa, args.to), loaded.document)
        print(_json(built) if args.output == "json" else _yaml(built, document, first=not written), end="")
        written += 1
    _print_configuration(converted, args.output)
    if skipped:
        print(f"hpad: skipped {skipped} document{'' if skipped == 1 else 's'} of other kinds", file=sys.stderr)
    return 1 if wrong else 0


def _from_keda(document: Document, converted: list[Converted]) -> Loaded:
    """The HPA of a ScaledObject; what it needs beside is added to `converted`, and what is left behind is told."""
    try:
        found = scaledobject.convert(document.value)
    except Wrong as wrong:
        return Loaded(document, None, (*document.faults, wrong.error), *hpas.identity(document))
    loaded = hpas.convert(dataclasses.replace(document, value=found.hpa))
    if loaded.hpa is not None and not loaded.errors:
        converted.append(found)
        for note in found.notes:
            place = inputs.place(document, document.line_of(note.field))
            print(f"{place}: {scaledobject.KIND} {loaded.namespace}/{loaded.name}: {note}", file=sys.stderr)
    return loaded


def _print_configuration(converted: list[Converted], output: str) -> None:
    """The piece of hpad.yaml that the converted ScaledObjects need, all in one."""
    needed = configuration.document(converted)
    if not needed:
        return
    if output == "json":
        print(_json(needed), end="")
        return
    text = yaml.dump(needed, Dumper=yaml.CSafeDumper, sort_keys=False, width=120, allow_unicode=True)
    print(f"---\n# for hpad's configuration, hpad.yaml\n{text}", end="")


def _loaded(document: Document) -> Loaded:
    if hpas.is_hpa(document.value):
        return hpas.convert(document)
    errors: tuple[FieldError, ...] = document.faults or (hpas.not_an_object(document),)
    return Loaded(document, None, errors, hpas.DEFAULT_NAMESPACE, "")


def _complain(document: Document, loaded: Loaded) -> None:
    subject = f"{loaded}: " if hpas.is_hpa(document.value) else ""
    if scaledobject.is_scaled_object(document.value):
        subject = f"{scaledobject.KIND} {loaded.namespace}/{loaded.name or '?'}: "
    for error in loaded.errors:
        place = inputs.place(document, document.line_of(error.field))
        print(f"{place}: {subject}{error.message}", file=sys.stderr)


def _built(hpa: HorizontalPodAutoscaler, version: str) -> dict[str, Any]:
    built: dict[str, Any] = api.to_builtins(conversion.to_v1(hpa) if version == "v1" else hpa)
    return built


def _json(built: dict[str, Any]) -> str:
    return msgspec.json.encode(built).decode() + "\n"


def _yaml(built: dict[str, Any], document: Document, *, first: bool) -> str:
    """A manifest as people write them: apiVersion first, and no status unless there was one."""
    parts = ["apiVersion", "kind", "metadata", "spec", *(["status"] if document.value.get("status") else [])]
    text = yaml.dump({part: built[part] for part in parts}, Dumper=yaml.CSafeDumper, sort_keys=False, width=120)
    return text if first else f"---\n{text}"
