"""The HPAs that `hpad advise` reads: those of the cluster or of files, and those that it has to leave out."""

import argparse
import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from hpad.api import hpa as v2
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import AUTOSCALER_KEY, Key
from hpad.api.text import meant, shown
from hpad.api.wire import UNDECODABLE
from hpad.cli import doctor_targets, fetch, manifest
from hpad.cli.output import Failure, WrongUse
from hpad.clock import SystemClock
from hpad.kube import errors, hpas, paths
from hpad.kube.auth import kubeconfig
from hpad.kube.auth.credentials import ConfigError
from hpad.kube.client import Client
from hpad.manifests import hpas as loading
from hpad.settings import Settings
from hpad.simulation.advice.assessment import NotAssessed

_FORMS: Final = {"": hpas.HPA, AUTOSCALER_KEY: hpas.AUTOSCALER}


class KnownHpas(NamedTuple):
    """The HPAs to assess, in the order of their names, and those that cannot be read. `notes`: what is left out."""

    hpas: Sequence[HorizontalPodAutoscaler]
    unread: Sequence[NotAssessed] = ()
    notes: Sequence[str] = ()

    def kept(self, wanted: Callable[[Key], bool]) -> "KnownHpas":
        """Returns those whose key is wanted."""
        return self._replace(
            hpas=[hpa for hpa in self.hpas if wanted(hpa.key)],
            unread=[each for each in self.unread if wanted(each.key)],
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{fetch.NAMES} (default: all HPAs)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-n", "--namespace", help="only HPAs of this namespace")
    where.add_argument("-A", "--all-namespaces", action="store_true", help="HPAs of all namespaces (default)")
    parser.add_argument("--kubeconfig", metavar="FILE", help="how to reach the API server (default: as kubectl)")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="HPAs of this file or folder (- for standard input), instead of those of the cluster; may be repeated",
    )


def found(args: argparse.Namespace, settings: Settings, only: Collection[Key] | None = None) -> KnownHpas:
    """Returns the HPAs that the arguments name; with `only`, those of them with such a key.

    Raises Failure if there is none, and WrongUse for a name of another namespace.
    """
    for text in args.names:
        if args.namespace and fetch.parsed(text)[0] not in ("", args.namespace):
            raise WrongUse(f"NAME: {shown(text)} is not of the namespace {shown(args.namespace)} (-n)")
    known = from_files(args.filename, settings) if args.filename else asyncio.run(_listed(args, settings))
    known = _chosen(known, args)
    if only is not None:
        return known.kept(only.__contains__)
    if not known.hpas and not known.unread:
        where = f" in namespace {args.namespace}" if args.namespace else ""
        raise Failure(f"there is no HPA{where}{''.join(f'; {note}' for note in known.notes)}")
    return known


def from_files(files: Sequence[str], settings: Settings) -> KnownHpas:
    """Returns the HPAs of files and folders. Raises Failure for a file that cannot be read."""
    found: dict[Key, HorizontalPodAutoscaler] = {}
    unread: list[NotAssessed] = []
    for loaded in manifest.loaded(files, settings):
        file = loaded.document.file
        if loaded.hpa is None or loaded.errors:
            problems = "; ".join(loading.explained(each).text for each in loaded.errors)
            unread.append(NotAssessed(loaded.key or Key(loaded.namespace, "?"), f"{file}: {problems}"))
        elif loaded.hpa.key in found:
            raise Failure(f"{file}: {loaded} is there twice")
        else:
            found[loaded.hpa.key] = loaded.hpa
    return KnownHpas([_whole(found[key], settings) for key in sorted(found)], unread)


async def _listed(args: argparse.Namespace, settings: Settings) -> KnownHpas:
    """Lists the HPAs and the Autoscalers of the cluster. Raises Failure."""
    path, context = args.kubeconfig or settings.kubeconfig, args.context or settings.context
    try:
        where = await asyncio.to_thread(kubeconfig.load_cluster_config, path, context)
    except ConfigError as error:
        raise Failure(f"{error}; or name files of HPAs with -f") from None
    scope = msgspec.structs.replace(settings, namespaces=_namespaces(args), hpa_selector="")
    async with Client(where, SystemClock()) as client:
        try:
            items = await doctor_targets.listed_hpas(client, scope, paths.HPAS)
        except errors.ApiError as error:
            raise Failure(f"HPAs cannot be listed: {error.message}") from None
        known = _decoded(items, "", settings)
        try:
            others = await doctor_targets.listed_hpas(client, scope, paths.AUTOSCALERS)
        except errors.ApiError as error:
            notes = [] if error.status == 404 else [f"Autoscalers cannot be listed: {error.message}"]
            return known._replace(notes=notes)
    autoscalers = _decoded(others, AUTOSCALER_KEY, settings)
    return KnownHpas([*known.hpas, *autoscalers.hpas], [*known.unread, *autoscalers.unread])


def _namespaces(args: argparse.Namespace) -> tuple[str, ...]:
    """Returns the namespaces to list: those of the names, if each has one; () for all."""
    if args.namespace:
        return (args.namespace,)
    named = [fetch.parsed(name)[0] for name in args.names]
    return tuple(dict.fromkeys(named)) if named and all(named) else ()


def _decoded(items: Iterable[msgspec.Raw], kind: str, settings: Settings) -> KnownHpas:
    found: list[HorizontalPodAutoscaler] = []
    unread: list[NotAssessed] = []
    for item in items:
        try:
            hpa = hpas.hpa(item, _FORMS[kind]).value
        except UNDECODABLE as error:
            unread.append(NotAssessed(_key(item, kind), f"cannot be decoded: {error}"))
            continue
        problem = hpa.spec.refused or hpa.spec.invalid
        if problem:
            unread.append(NotAssessed(hpa.key, problem))
        else:
            found.append(_whole(hpa, settings))
    return KnownHpas(sorted(found, key=lambda hpa: hpa.key), unread)


def _key(item: msgspec.Raw, kind: str) -> Key:
    """Returns the key of an object that cannot be decoded."""
    try:
        metadata = msgspec.json.decode(item, type=doctor_targets.Object).metadata
    except msgspec.MsgspecError:
        return Key("?", "?", kind)
    return Key(metadata.namespace, metadata.name, kind)


def _whole(hpa: HorizontalPodAutoscaler, settings: Settings) -> HorizontalPodAutoscaler:
    """Returns the HPA with all defaults, also the annotations of the settings."""
    return manifest.configured(v2.defaulted(hpa), settings)


def _chosen(known: KnownHpas, args: argparse.Namespace) -> KnownHpas:
    """Keeps the HPAs that the arguments name. Raises Failure for a name that no HPA has."""
    asked = [fetch.parsed(name) for name in args.names]
    keys = [*(hpa.key for hpa in known.hpas), *(each.key for each in known.unread)]
    for text, name in zip(args.names, asked, strict=True):
        if not any(_names(name, key) for key in keys):
            raise Failure(f"there is no HPA {shown(text)}{meant(text, _forms(keys))}")
    return known.kept(wanted(args))


def wanted(args: argparse.Namespace) -> Callable[[Key], bool]:
    """Returns whether the arguments name an HPA: by the namespace, if there is one, and by one of the names, if any."""
    asked = [fetch.parsed(name) for name in args.names]

    def is_wanted(key: Key) -> bool:
        return args.namespace in (None, key.namespace) and (not asked or any(_names(name, key) for name in asked))

    return is_wanted


def _forms(keys: Iterable[Key]) -> list[str]:
    """Returns how the HPAs may be named."""
    return list(dict.fromkeys(form for key in keys for form in (key.name, str(key))))


def _names(asked: tuple[str, str, str], key: Key) -> bool:
    """Returns whether `[NAMESPACE/][autoscaler/]NAME` is this key; without a kind it is each kind."""
    namespace, name, kind = asked
    return namespace in ("", key.namespace) and name == key.name and (not kind or bool(key.kind))
