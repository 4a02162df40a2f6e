"""The checks of `hpad doctor` on configuration, manifests, API server, state store, scale to zero and metric sources.

Each check returns findings; it never raises for what it finds wrong. Rights and competing controllers have files of
their own.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
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
"""note: works, but good to know; warning: something does not work as it could; error: hpad cannot do its work."""

_OLDEST_VERSION = (1, 23)
"""The first version of Kubernetes with autoscaling/v2."""
_NO_TLS = "WRONG_VERSION_NUMBER"
"""OpenSSL's reason for an answer that is no TLS handshake."""
_SKEW_TOLERATED, _SKEW_HARMFUL = timedelta(seconds=2), timedelta(seconds=30)
"""Windows, Leases and the age of metrics compare this machine's clock with timestamps of other machines."""
_LISTED = 3
"""Names that a message lists before it says how many more there are."""
_MAX_QUERIES = 20
_ANSWER_SECONDS = 10.0
_ALL_PODS = selector.parse("")


class Finding(msgspec.Struct, frozen=True):
    """One result of a check: `says` describes it, `do` advises (empty if there is nothing to do)."""

    check: str
    level: str
    says: str
    do: str = ""


def count_of_hpas(count: int) -> str:
    """A number of HPAs in words, such as "no HPAs" or "1 HPA"."""
    return f"{count or 'no'} HPA{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


async def check_configuration(settings: Settings, clock: Clock) -> list[Finding]:
    """Builds each configured source without asking it for a metric: one error per problem, or one finding that says
    that all settings are valid."""
    found = []
    make = plugins.Contexts(clock)
    for source in settings.sources:
        problems = [str(flaw) for flaw in await asyncio.to_thread(plugins.check_settings, source)]
        try:
            if not problems:
                async with question.opened(source, make):
                    pass
        except AdapterError as error:
            problems = [error.message.removeprefix(f'source "{source.name}": ')]
        place = f'{source.origin}: source "{source.name}"' if source.origin else f'source "{source.name}"'
        advice = "correct it there; `hpad check` shows the line"
        found += [Finding("configuration", ERROR, f"{place}: {each}", advice) for each in problems]
    if found:
        return found
    names = ", ".join(source.name for source in settings.sources)
    noun = "source" if len(settings.sources) == 1 else "sources"
    return [Finding("configuration", OK, f"the settings are valid{f', including {noun} {names}' if names else ''}")]


async def check_manifests(settings: Settings, clock: Clock) -> tuple[list[Finding], list[HorizontalPodAutoscaler]]:
    """One finding per problem of the manifests, one with the number of HPAs; and the valid HPAs."""
    if settings.manifests is None:
        return [], []
    try:
        await asyncio.to_thread(folder.check, settings.manifests, may_come=False)
    except folder.FolderError as error:
        return [Finding("manifests", ERROR, str(error), "correct --manifests, or create the folder")], []
    read = folder.Folder(settings.manifests, clock, scale_to_zero=settings.tunables.gates.HPAScaleToZero)
    await read.refresh()
    if read.trouble is not None:
        return [Finding("manifests", ERROR, read.trouble, "give hpad's user the right to read it")], []
    found = [
        Finding("manifests", WARNING, str(problem), "correct it there; the daemon picks up the change")
        for problems in read.errors.values()
        for problem in problems
    ]
    found.append(Finding("manifests", OK, f"{count_of_hpas(len(read))} in {settings.manifests}"))
    return found, list(read.values())


async def check_server(client: Client) -> list[Finding]:
    """Can the API server be reached, is it new enough, and do the clocks agree?

    A finding of level error means that no other check of the cluster can succeed.
    """
    try:
        server = await access.probe_version(client)
        now = client.clock.now()
        await client.request("GET", paths.HPAS.root)
    except errors.ApiError as error:
        return [Finding("server", ERROR, error.message, _server_advice(client, error))]
    says = f"{client.config.server} is Kubernetes {server.version}, as {client.config.source} says"
    findings = [Finding("server", OK, says)]
    version = access.numbers(server.version)
    if version is not None and version < _OLDEST_VERSION:
        says = f"Kubernetes {server.version} is older than hpad supports"
        findings.append(Finding("server", WARNING, says, "upgrade the cluster to 1.23 or later"))
    if server.date is not None:
        findings.append(_check_clock(now - server.date))
    return findings


async def settings_on_server(client: Client, settings: Settings) -> Settings:
    """The settings with the defaults that depend on the version of this API server."""
    try:
        return settings.on_server(access.numbers((await access.probe_version(client)).version))
    except errors.ApiError:
        return settings


def _check_clock(skew: timedelta) -> Finding:
    """`skew`: how far this machine's clock is ahead of the API server's."""
    if abs(skew) <= _SKEW_TOLERATED:
        return Finding("clock", OK, "the clocks of this machine and of the API server agree")
    direction = "ahead of" if skew > timedelta(0) else "behind"
    says = f"this machine's clock is {abs(skew).total_seconds():.0f}s {direction} the API server's"
    level = ERROR if abs(skew) > _SKEW_HARMFUL else WARNING
    return Finding("clock", level, says, "synchronize both by NTP: windows and metric ages depend on these clocks")


def _server_advice(client: Client, error: errors.ApiError) -> str:
    if error.status == 401:
        return f"the credentials are not accepted: look at {client.config.source or 'the kubeconfig'}"
    if error.status == 404:
        return "autoscaling/v2 is missing there: hpad needs Kubernetes 1.23 or later"
    if error.reason == "Certificate" and _NO_TLS in error.message:
        return "the server answers, but not by TLS: does its address need http:// or another port?"
    if error.reason == "Certificate":
        return "the certificate-authority of the kubeconfig does not fit the server"
    if error.status == 0:
        return f"check the address {client.config.server}, the network between, and whether the server runs"
    return "ask the administrator of the cluster"


async def check_store(settings: Settings, own_namespace: str | None) -> list[Finding]:
    """One finding on where the state of HPAs is kept. `own_namespace` is hpad's; None without a cluster."""
    store = settings.store
    if settings.dry_run:
        return [Finding("store", OK, "a dry run keeps the state of HPAs in memory")]
    if store.kind == "sqlite" and store.path is not None:
        return [await asyncio.to_thread(_check_file, store.path)]
    if store.kind == "memory":
        says = "the state of HPAs is lost when hpad stops: after a restart every stabilization window starts again"
        return [Finding("store", NOTE, says, "name a file, or the cluster, with --store")]
    place = "the cluster" if own_namespace is None else f"namespace {assembly.store_namespace(settings, own_namespace)}"
    return [Finding("store", OK, f"the state of HPAs is kept in ConfigMaps {store.name}-* of {place} (see rights)")]


def _check_file(path: Path) -> Finding:
    probe = path if path.exists() else path.parent
    if not path.parent.is_dir():
        return Finding("store", ERROR, f"{path}: there is no folder {path.parent}", "create it, owned by hpad's user")
    if not os.access(probe, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        return Finding("store", ERROR, f"{probe}: this user cannot write it", "give it to hpad's user (chown)")
    return Finding("store", OK, f"the state of HPAs is kept in {path}")


def check_zero(settings: Settings, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Finding]:
    """A warning if HPAs have minReplicas 0 while the feature gate HPAScaleToZero is off."""
    names = sorted(str(hpa.metadata.key) for hpa in hpas if hpa.spec.min_replicas == 0)
    if settings.tunables.gates.HPAScaleToZero or not names:
        return []
    says = f"minReplicas is 0 in {listed(names)}, but the feature gate HPAScaleToZero is off: "
    if settings.tunables.gates.HPAMinimumOfOne:
        says += "metrics never ask for less than 1 replica there, and do not wake a target that is at zero"
    else:
        says += "hpad scales to zero, and metrics never wake a target from there"
    do = "set feature_gates: {HPAScaleToZero: true}, as in the API server, or minReplicas: 1"
    return [Finding("zero", WARNING, says, do)]


def decode_hpas(items: Iterable[msgspec.Raw]) -> list[HorizontalPodAutoscaler]:
    """Decodes HPAs of the API server; skips those that cannot be decoded."""
    found = []
    for item in items:
        try:
            found.append(codec.hpa(item).value)
        except codec.UndecodableError:
            continue
    return found


def metric_queries(hpas: Iterable[HorizontalPodAutoscaler]) -> list[tuple[Key, Query]]:
    """One query per metric type and name, at most 20, each with the first HPA that names the metric.

    Queries about pods ask about all pods of the namespace, since no target is looked up.
    """
    found: dict[tuple[str, str], tuple[Key, Query]] = {}
    for hpa in hpas:
        for metric in hpa.spec.metrics or ():
            target = compile_metric(metric, hpa.metadata.namespace)
            if target.error is None and len(found) < _MAX_QUERIES:
                query = target.query
                if query.type not in ("External", "Object"):
                    query = msgspec.structs.replace(query, pods=_ALL_PODS)
                found.setdefault((query.type, query.name), (hpa.metadata.key, query))
    return list(found.values())


async def check_sources(client: Client, settings: Settings, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Finding]:
    """Asks once for each metric of the HPAs: a finding per metric, and an error per built-in source that fails to
    build. `check_configuration` has reported configured sources that fail to build."""
    queries = metric_queries(hpas)
    period = settings.sync_period.total_seconds()
    make = plugins.Contexts(client.clock, api=cluster.Api(client))
    gatherer = manager.Gatherer(settings.sources, settings.routes, contexts=make, period=period)
    await gatherer.start()
    try:
        configured = {source.name for source in settings.sources}
        found = [
            Finding("sources", ERROR, error.message, "install hpad again: one of its own adapters does not work")
            for name, error in gatherer.problems().items()
            if name not in configured
        ]
        for key, query in queries:
            (answer,) = await gatherer.gather(key, [query], deadline=_ANSWER_SECONDS)
            found.append(_finding_on_answer(key, query, answer))
    finally:
        await gatherer.aclose()
    if settings.sources and not queries:
        says = "no HPA names a metric yet, so the sources were built, but not asked"
        found.append(Finding("sources", NOTE, says, "ask one yourself: hpad sources test"))
    return found or [Finding("sources", OK, "no metric source is configured, and no HPA names a metric")]


def _finding_on_answer(key: Key, query: Query, answer: object) -> Finding:
    metric = f'{query.type} metric "{query.name}" of {key}'
    if not isinstance(answer, AdapterError):
        return Finding("sources", OK, f"{metric} has an answer")
    advice = {
        "spec": "correct the HPA, or the settings of the source",
        "cluster": "look at the API that serves it: kubectl get apiservices",
        "bug": "report it with the log of hpad run --log-level=debug",
    }
    do = advice.get(answer.blame, "look at the source, and at how it is configured")
    return Finding("sources", WARNING, f"{metric}: {answer.message}", do)
