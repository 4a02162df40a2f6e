"""Reads the HPA that `hpad simulate` and `hpad backtest` try, from a manifest, with the changes of `--set`."""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from hpad import settings
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.text import shown
from hpad.cli.output import Failure, WrongUse
from hpad.engine.annotations import PLAIN, sentence
from hpad.manifests import documents, hpas
from hpad.records import spec_changes
from hpad.records.spec_changes import Change, ChangeError
from hpad.settings import hpas as section

PERIOD: Final = "time between reconciles (default: the annotation hpad.io/sync-period, else that of --config, else 15s)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hpa", metavar="[NAMESPACE/]NAME", help="the HPA to take, if the manifest has several")
    parser.add_argument(
        "--set",
        dest="changes",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="change this field of the HPA, such as spec.maxReplicas=20, or spec.options.mode=paused of an Autoscaler "
        "(YAML; null removes it); may be repeated",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings in YAML: tolerance, periods, feature gates, annotations of HPAs",
    )


def tunables(args: argparse.Namespace) -> settings.Settings:
    """Returns the settings of `--config`, else the defaults. Raises SettingsError."""
    return settings.load(args.config, {}, {})


def read(file: str, name: str | None, changes: Sequence[str], given: settings.Settings) -> HorizontalPodAutoscaler:
    """Returns the HPA of a manifest, with defaults and changes, and with the annotations that the settings give it.

    Raises Failure naming file, field and value.
    """
    found = read_all(file, name, changes, given)
    if len(found) > 1:
        raise Failure(f"{file}: choose one with --hpa: {', '.join(f'{each.kind} {names(each)[1]}' for each in found)}")
    return found[0]


def read_all(
    file: str, name: str | None, changes: Sequence[str], given: settings.Settings
) -> list[HorizontalPodAutoscaler]:
    """Returns the HPAs of a manifest as `read`, at least one; those that are called `name`, if it is given."""
    found = list(loaded([file], given))
    if name is not None:
        found = [each for each in found if name in (each.name, f"{each.namespace}/{each.name}", str(each.key))]
    if not found:
        raise Failure(f"{file}: there is no HPA{'' if name is None else f' {shown(name)}'}")
    if errors := [hpas.explained(error).text for each in found for error in each.errors]:
        raise Failure(f"{file}: {'; '.join(errors)}")
    valid = [each.hpa for each in found if each.hpa is not None]
    if twice := [str(key) for key, count in Counter(each.key for each in valid).items() if count > 1]:
        raise Failure(f"{file}: there is more than one HPA {twice[0]}")
    return [changed(configured(each, given), changes, given) for each in valid]


def loaded(
    files: Sequence[str], given: settings.Settings, namespace: str = hpas.DEFAULT_NAMESPACE
) -> Iterator[hpas.Loaded]:
    """Yields the HPAs of files and folders, also those with errors. Raises Failure for a document that is no YAML."""
    for document in documents.read_all(files):
        if not document.parsed:
            raise Failure(f"{document.file}: {'; '.join(fault.text for fault in document.faults)}")
        if hpas.is_hpa(document.value):
            zero = given.tunables.gates.HPAScaleToZero
            yield hpas.load(document, namespace=namespace, scale_to_zero=zero)


def names(hpa: HorizontalPodAutoscaler) -> tuple[str, str, str]:
    """Returns what an HPA is called in flags: its name alone, with its namespace, and as its key."""
    return hpa.metadata.name, f"{hpa.metadata.namespace}/{hpa.metadata.name}", str(hpa.key)


def mistakes(hpa: HorizontalPodAutoscaler) -> list[str]:
    """Returns a sentence for each annotation of the HPA that has no effect."""
    return [f"{sentence(error, hpa.kind)}; it has no effect" for error in PLAIN.of(hpa).errors]


def configured(hpa: HorizontalPodAutoscaler, given: settings.Settings) -> HorizontalPodAutoscaler:
    by_settings = section.defaults(given.hpas)
    if by_settings is None:
        return hpa
    own = {**by_settings(hpa), **(hpa.metadata.annotations or {})}
    return msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, annotations=own))


def changed(hpa: HorizontalPodAutoscaler, texts: Sequence[str], given: settings.Settings) -> HorizontalPodAutoscaler:
    """Returns the HPA with these `--set`. Raises Failure."""
    try:
        changes = [spec_changes.parse(text) for text in texts]
        hpa = spec_changes.applied(hpa, changes, scale_to_zero=given.tunables.gates.HPAScaleToZero)
        return _annotated(hpa, changes)
    except ChangeError as error:
        raise WrongUse(str(error)) from None


def _annotated(hpa: HorizontalPodAutoscaler, changes: Sequence[Change]) -> HorizontalPodAutoscaler:
    given = {change.annotation: change.value for change in changes if change.annotation is not None}
    if not given:
        return hpa
    own = {**(hpa.metadata.annotations or {}), **{name: str(value) for name, value in given.items()}}
    kept = {name: text for name, text in own.items() if given.get(name, text) is not None}
    return msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, annotations=kept))


def period(given: float | None, hpa: HorizontalPodAutoscaler, common: timedelta) -> timedelta:
    """Returns the time between reconciles: the one `given` in seconds, that of the HPA itself, or the common one."""
    own = PLAIN.sync_period(hpa) if given is None else given
    return common if own is None else timedelta(seconds=own)
