"""What a check found.

A folder of manifests: is it there, and are they good?

The API server: can it be reached, is it new enough, does it have the same time?

Where histories survive.

Scale to zero: is it asked for, and allowed?

Metric sources: are they built, and do they answer what the HPAs ask?
"""

import asyncio
import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from hpad.adapter import AdapterError, Query
from hpad.api import selector
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.cli import question
from hpad.clock import Clock
from hpad.daemon import assembly
from hpad.engine.spec import compile_metric
from hpad.kube import access, cluster, codec, errors, paths
from hpad.kube.client import Client
from hpad.manifests import folder
from hpad.settings import Settings
from hpad.sources import manager, plugins

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
ERROR: Final = "error"
LEVELS: Final = (OK, NOTE, WARNING, ERROR)
"""note: fine, but good to know; warning: something will not work as it could; error: hpad cannot do its work."""


def counted(hpas: int) -> str:
    """So many HPAs, in words."""
    return f"{hpas or 'no'} HPA{'' if hpas == 1 else 's'}"


class Finding(msgspec.Struct, frozen=True):
    """`says` what is, `do` what would help (empty if nothing needs to be done)."""

    check: str
    level: str
    says: str
    do: str = ""


async def check_manifests(told: Settings, clock: Clock) -> tuple[list[Finding], list[HorizontalPodAutoscaler]]:
    """A finding for each problem, or one that says that there is none; and the HPAs that are good."""
    if told.manifests is None:
        return [], []
    try:
        await asyncio.to_thread(folder.check, told.manifests, may_come=False)
    except folder.FolderError as error:
        return [Finding("manifests", ERROR, str(error), "correct --manifests, or make the folder")], []
    read = folder.Folder(told.manifests, clock, scale_to_zero=told.tunables.gates.HPAScaleToZero)
    await read.refresh()
    if read.trouble is not None:
        return [Finding("manifests", ERROR, read.trouble, "let hpad's user read it")], []
    found = [
        Finding("manifests", WARNING, str(problem), "correct it there; the daemon takes up the change")
        for problems in read.errors.values()
        for problem in problems
    ]
    found.append(Finding("manifests", OK, f"{counted(len(read))} in {told.manifests}"))
    return found, list(read.values())


_OLDEST = (1, 23)
"""The first with autoscaling/v2."""
_NO_TLS = "WRONG_VERSION_NUMBER"
"""What OpenSSL says of an answer that is no part of a handshake."""
_SKEW, _TOO_MUCH = timedelta(seconds=2), timedelta(seconds=30)
"""Windows, Leases and the age of metrics compare our clock with times that others wrote down."""


async def check_server(client: Client) -> list[Finding]:
    """One finding of level error if nothing else needs to be tried."""
    server = client.config.server
    try:
        found = await access.probe_version(client)
        now = client.clock.now()
        await client.request("GET", paths.HPAS.root)
    except errors.ApiError as error:
        return [Finding("server", ERROR, error.message, _server_advice(client, error))]
    findings = [Finding("server", OK, f"{server} is Kubernetes {found.version}, as {client.config.source} says")]
    version = access.numbers(found.version)
    if version is not None and version < _OLDEST:
        says = f"Kubernetes {found.version} is older than hpad knows"
        findings.append(Finding("server", WARNING, says, "upgrade the cluster to 1.23 or later"))
    if found.date is not None:
        findings.append(_clock(now - found.date))
    return findings


async def settled(client: Client, told: Settings) -> Settings:
    """The settings as they are with this server, whose version some defaults follow."""
    try:
        return told.on_server(access.numbers((await access.probe_version(client)).version))
    except errors.ApiError:
        return told


def _clock(skew: timedelta) -> Finding:
    """`skew`: how far our clock is ahead of the server's."""
    says = (
        f"our clock is {abs(skew).total_seconds():.0f}s {'ahead of' if skew > timedelta(0) else 'behind'} the server's"
    )
    if abs(skew) <= _SKEW:
        return Finding("clock", OK, "our clock and the server's agree")
    level = ERROR if abs(skew) > _TOO_MUCH else WARNING
    return Finding("clock", level, says, "synchronize both by NTP: windows and metrics are judged by these clocks")


def _server_advice(client: Client, error: errors.ApiError) -> str:
    if error.status == 401:
        return f"the credentials are not accepted: look at {client.config.source or 'the kubeconfig'}"
    if error.status == 404:
        return "autoscaling/v2 is missing there: hpad needs Kubernetes 1.23 or later"
    if error.reason == "Certificate" and _NO_TLS in error.message:
        return "something answers there, but not by TLS: is its address one with http:// or another port?"
    if error.reason == "Certificate":
        return "the certificate-authority of the kubeconfig does not fit the server"
    if error.status == 0:
        return f"look at the address {client.config.server}, the network between, and whether the server runs"
    return "ask the administrator of the cluster"


async def check_store(told: Settings, home: str | None) -> list[Finding]:
    """One finding. `home` is the namespace that hpad counts as its own; None where no cluster is known."""
    store = told.store
    if told.dry_run:
        return [Finding("store", OK, "a dry run keeps its histories in memory")]
    if store.kind == "sqlite" and store.path is not None:
        return [await asyncio.to_thread(_file, store.path)]
    if store.kind == "memory":
        says = "histories end with the process: a restart begins its stabilization windows anew"
        return [Finding("store", NOTE, says, "name a file, or the cluster, with --store")]
    place = "the cluster" if home is None else f"namespace {assembly.place(told, home)}"
    return [Finding("store", OK, f"histories are kept in ConfigMaps {store.name}-* of {place} (see rights)")]


def _file(path: Path) -> Finding:
    probe = path if path.exists() else path.parent
    if not path.parent.is_dir():
        return Finding("store", ERROR, f"{path}: there is no folder {path.parent}", "create it, owned by hpad's user")
    if not os.access(probe, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        return Finding("store", ERROR, f"{probe}: may not be written by this user", "give it to hpad's user (chown)")
    return Finding("store", OK, f"histories are kept in {path}")


_NAMED = 3


def check_zero(told: Settings, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Finding]:
    """A finding if HPAs have minReplicas 0 while the feature gate HPAScaleToZero is off."""
    names = sorted(str(hpa.metadata.key) for hpa in hpas if hpa.spec.min_replicas == 0)
    if told.tunables.gates.HPAScaleToZero or not names:
        return []
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    says = f"minReplicas is 0 in {listed}, but the feature gate HPAScaleToZero is off: "
    if told.tunables.gates.HPAMinimumOfOne:
        says += "metrics never ask for less than 1 replica there, and do not wake a target that is at zero"
    else:
        says += "hpad scales to zero, and metrics never wake a target from there"
    do = "set feature_gates: {HPAScaleToZero: true}, as in the API server, or minReplicas: 1"
    return [Finding("zero", WARNING, says, do)]


_MOST = 20
_SECONDS = 10.0
_CORRECT = "correct it there; `hpad check` shows the line"
_EVERY_POD = selector.parse("")


def decoded(items: Iterable[msgspec.Raw]) -> list[HorizontalPodAutoscaler]:
    """The HPAs that can be read."""
    found = []
    for item in items:
        try:
            found.append(codec.hpa(item).value)
        except codec.UndecodableError:
            continue
    return found


def questions(hpas: Iterable[HorizontalPodAutoscaler]) -> list[tuple[Key, Query]]:
    """One for each metric that HPAs name, up to a number; the pods asked about are all of the namespace."""
    found: dict[tuple[str, str], tuple[Key, Query]] = {}
    for hpa in hpas:
        for spec in hpa.spec.metrics or ():
            wanted = compile_metric(spec, hpa.metadata.namespace)
            if wanted.error is None and len(found) < _MOST:
                query = wanted.query
                if query.type not in ("External", "Object"):
                    query = msgspec.structs.replace(query, pods=_EVERY_POD)
                found.setdefault((query.type, query.name), (hpa.metadata.key, query))
    return list(found.values())


async def built(told: Settings, clock: Clock) -> list[Finding]:
    """Errors of sources that are not configured well, or a finding that all are; nothing is asked."""
    found = []
    make = plugins.Contexts(clock)
    for source in told.sources:
        wrong = [str(flaw) for flaw in await asyncio.to_thread(plugins.check_settings, source)]
        try:
            if not wrong:
                async with question.opened(source, make):
                    pass
        except AdapterError as error:
            wrong = [error.message.removeprefix(f'source "{source.name}": ')]
        place = f'{source.origin}: source "{source.name}"' if source.origin else f'source "{source.name}"'
        found += [Finding("configuration", ERROR, f"{place}: {each}", _CORRECT) for each in wrong]
    return found or [Finding("configuration", OK, _good(told))]


def _good(told: Settings) -> str:
    if not told.sources:
        return "the settings are good"
    names = ", ".join(source.name for source in told.sources)
    return f"the settings are good, those of the source{'' if len(told.sources) == 1 else 's'} {names} too"


async def check_sources(client: Client, told: Settings, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Finding]:
    """A finding for each source that cannot be built, and for each metric that was asked for."""
    asked = questions(hpas)
    make = plugins.Contexts(client.clock, api=cluster.Api(client))
    gatherer = manager.Gatherer(told.sources, told.routes, contexts=make, period=told.sync_period.total_seconds())
    await gatherer.start()
    try:
        configured = {source.name for source in told.sources}  # `built` has said what is wrong with those
        found = [
            Finding("sources", ERROR, error.message, "install hpad again: one of its own adapters does not work")
            for name, error in gatherer.problems().items()
            if name not in configured
        ]
        for key, query in asked:
            (answer,) = await gatherer.gather(key, [query], deadline=_SECONDS)
            found.append(_judged(key, query, answer))
    finally:
        await gatherer.aclose()
    if told.sources and not asked:
        says = "no HPA asks for a metric yet, so the sources were built, but not asked"
        found.append(Finding("sources", NOTE, says, "ask by hand: hpad sources test"))
    return found or [Finding("sources", OK, "no metric source is configured, and no HPA asks for one")]


def _judged(key: Key, query: Query, answer: object) -> Finding:
    metric = f'{query.type} metric "{query.name}" of {key}'
    if isinstance(answer, AdapterError):
        return Finding("sources", WARNING, f"{metric}: {answer.message}", _source_advice(answer))
    return Finding("sources", OK, f"{metric} has an answer")


def _source_advice(error: AdapterError) -> str:
    return {
        "spec": "correct the HPA, or the settings of the source",
        "cluster": "look at the API that serves it: kubectl get apiservices",
        "bug": "report it with the log of hpad run --log-level=debug",
    }.get(error.blame, "look at the source, and at how it is configured")
