"""The checks of `hpad doctor` on configuration, manifests, API server, state store, scale to zero and metric sources.

Each check returns findings and raises no exception for problems. Rights are checked in doctor.py, competing controllers
in doctor_targets.py.
"""

import asyncio
import os
from collections.abc import Hashable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from hpad.adapter import AdapterError, HPAIdentity, Query
from hpad.api import selector
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.api.wire import UNDECODABLE
from hpad.cli import offline
from hpad.cli.output import counted
from hpad.clock import Clock
from hpad.daemon import assembly
from hpad.engine.spec import compiled_spec
from hpad.kube import access, cluster, errors, hpas, paths
from hpad.kube.client import Client
from hpad.manifests import folder
from hpad.serve import ServeError
from hpad.serve.server import ServedFiles
from hpad.settings import Settings
from hpad.settings.model import AUTOSCALERS, HPAS
from hpad.sources import plugins

OK: Final = "ok"
NOTE: Final = "note"
WARNING: Final = "warning"
ERROR: Final = "error"
LEVELS: Final = (OK, NOTE, WARNING, ERROR)
"""note: works, with a limitation; warning: something does not work as it could; error: hpad cannot do its work."""

_OLDEST_VERSION = (1, 23)
"""The first version of Kubernetes with autoscaling/v2."""
_KIND = "kind"
_OF_TLS: Final = {
    "WRONG_VERSION_NUMBER": "the server answers, but not by TLS: does its address need http:// or another port?",
    "mismatch": "name the server as its certificate does, by its address or by tls-server-name in the kubeconfig",
    "expired": "renew the certificate of the server; if it is valid, check the clock of this machine",
}
"""What to do, by a part of OpenSSL's text for a failed handshake."""
_SKEW_TOLERATED, _SKEW_HARMFUL = timedelta(seconds=2), timedelta(seconds=30)
"""Windows, Leases and the age of metrics compare this machine's clock with timestamps of other machines."""
_LISTED = 3
"""Names that a message lists before it says how many more there are."""
_MAX_QUERIES = 20  # a cluster may have thousands of metrics; their sources shall not notice hpad doctor
_ANSWER_SECONDS = 10.0
_ALL_PODS = selector.parse("")


class Finding(msgspec.Struct, frozen=True):
    """One result of a check: `says` describes it, `do` advises (empty if there is nothing to do)."""

    check: str
    level: str
    says: str
    do: str = ""


def listed(names: Sequence[str]) -> str:
    """Returns a text of the first names and the number of further ones."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


async def check_configuration(settings: Settings, clock: Clock) -> list[Finding]:
    """Builds each configured source without querying it, and reads the files of the HTTP server.

    Returns an error per problem, or one finding without any.
    """
    found = await asyncio.to_thread(_check_served_files, settings)
    make = plugins.Contexts(clock)
    for source in settings.sources:
        wrong = await asyncio.to_thread(plugins.check_settings, source)
        problems = [f'source "{source.name}": {problem.text}' for problem in wrong]
        try:
            if not problems:
                async with offline.adapter(source, make):
                    pass
        except AdapterError as error:
            problems = [error.message]
        place = f"{source.origin}: " if source.origin else ""
        advice = "correct it there; `hpad check` shows the line"
        found += [Finding("configuration", ERROR, f"{place}{each}", advice) for each in problems]
    if found:
        return found
    names = ", ".join(source.name for source in settings.sources)
    noun = "source" if len(settings.sources) == 1 else "sources"
    return [Finding("configuration", OK, f"the settings are valid{f', including {noun} {names}' if names else ''}")]


def _check_served_files(settings: Settings) -> list[Finding]:
    """Returns an error for each file of certificates and tokens that hpad could not use."""
    found = []
    for files in ServedFiles.of(settings.serving).configured if settings.listen is not None else ():
        try:
            files.refresh()
        except ServeError as error:
            found.append(Finding("configuration", ERROR, str(error), "correct the file; hpad reads it again by itself"))
    return found


async def check_manifests(settings: Settings, clock: Clock) -> tuple[list[Finding], list[HorizontalPodAutoscaler]]:
    """Returns the findings, one per problem and one with the number of HPAs, and the valid HPAs."""
    if settings.manifests is None:
        return [], []
    try:
        await asyncio.to_thread(folder.check, settings.manifests, may_come=False)
    except folder.FolderError as error:
        return [Finding("manifests", ERROR, str(error), "correct --manifests, or create it")], []
    read = folder.Folder(settings.manifests, clock, scale_to_zero=settings.tunables.gates.HPAScaleToZero)
    await read.refresh()
    if read.trouble is not None:
        return [Finding("manifests", ERROR, read.trouble, "give hpad's user the right to read it")], []
    found = [
        Finding("manifests", WARNING, problem.at(file), "correct it there; the daemon picks up the change")
        for file, problems in read.errors.items()
        for problem in problems
    ]
    found.append(Finding("manifests", OK, f"{counted(len(read), 'HPA')} in {settings.manifests}"))
    return found, list(read.values())


async def check_server(client: Client, settings: Settings) -> tuple[list[Finding], Settings | None]:
    """Checks whether the API server can be reached, whether it is new enough, and whether the clocks agree.

    Also returns the settings with the defaults that depend on its version, None if it cannot be reached.
    """
    try:
        server = await access.probe_version(client)
        now = client.clock.now()  # before the next request, so that the difference of the clocks excludes its duration
        await client.request("GET", paths.HPAS.root)
    except errors.ApiError as error:
        return [Finding("server", ERROR, error.message, _server_advice(client, error))], None
    says = f"{client.config.server} is Kubernetes {server.version}, as {client.config.source} says"
    findings = [Finding("server", OK, says)]
    version = access.numbers(server.version)
    if version is not None and version < _OLDEST_VERSION:
        says = f"Kubernetes {server.version} is older than hpad supports"
        findings.append(Finding("server", WARNING, says, "upgrade the cluster to 1.23 or later"))
    if server.date is not None:
        findings.append(_check_clock(now - server.date))
    return findings, settings.on_server(version)


async def check_kind(client: Client, settings: Settings) -> tuple[bool, list[Finding]]:
    """Returns whether hpad can watch Autoscalers, whose kind may be missing, and the finding on that."""
    if settings.manifests is not None or settings.kinds == HPAS:
        return False, []
    missing = "the kind Autoscaler is not installed"
    do = "install it with kubectl apply -k config/crd"
    try:
        await client.request("GET", paths.AUTOSCALERS.root)
    except errors.ApiError as error:
        if error.status != 404:
            says = f"the API server does not say whether it has the kind Autoscaler: {error.message}"
            return False, [Finding(_KIND, WARNING, says, "show the message to the administrator of the cluster")]
        if settings.kinds == AUTOSCALERS:
            return False, [Finding(_KIND, ERROR, f"{missing}, and hpad acts on Autoscalers alone", do)]
        return False, [Finding(_KIND, OK, f"{missing}: hpad acts on HPAs alone", f"for Autoscalers, {do}")]
    return True, [Finding(_KIND, OK, "the kind Autoscaler is installed")]


def _check_clock(skew: timedelta) -> Finding:
    """Compares the clocks. `skew` is the time by which this machine's clock is ahead of the API server's."""
    if abs(skew) <= _SKEW_TOLERATED:
        return Finding("clock", OK, "the clocks of this machine and of the API server agree")
    direction = "ahead of" if skew > timedelta(0) else "behind"
    says = f"this machine's clock is {abs(skew).total_seconds():.0f}s {direction} the API server's"
    level = ERROR if abs(skew) > _SKEW_HARMFUL else WARNING
    return Finding("clock", level, says, "synchronize both by NTP: windows and metric ages depend on these clocks")


def _server_advice(client: Client, error: errors.ApiError) -> str:
    if error.status == 401:
        return f"the credentials are not accepted: check those in {client.config.source or 'the kubeconfig'}"
    if error.status == 404:
        return "autoscaling/v2 is missing there: hpad needs Kubernetes 1.23 or later"
    if error.reason == errors.CERTIFICATE:
        advice = (do for text, do in _OF_TLS.items() if text in error.message)
        return next(advice, "the certificate-authority of the kubeconfig does not fit the server")
    if error.reason == errors.PROXY:
        return "check the proxy-url of the kubeconfig, or HTTPS_PROXY and NO_PROXY without one"
    if error.status == 0:
        return f"check the address {client.config.server}, the network between, and whether the server runs"
    return "show the message to the administrator of the cluster"


async def check_store(settings: Settings, own_namespace: str | None) -> list[Finding]:
    """Returns one finding on where the state of HPAs is kept. `own_namespace` is hpad's; None without a cluster."""
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
    """Returns a warning if HPAs have minReplicas 0 while the feature gate HPAScaleToZero is off."""
    names = sorted(str(hpa.key) for hpa in hpas if hpa.spec.min_replicas == 0)
    if settings.tunables.gates.HPAScaleToZero or not names:
        return []
    says = f"minReplicas is 0 in {listed(names)}, but the feature gate HPAScaleToZero is off: "
    if settings.tunables.gates.HPAMinimumOfOne:
        says += "metrics never propose less than 1 replica there, and do not wake a target that is at zero"
    else:
        says += "hpad scales to zero, and metrics never wake a target from there"
    do = "set feature_gates: {HPAScaleToZero: true}, as in the API server, or minReplicas: 1"
    return [Finding("zero", WARNING, says, do)]


def decode_hpas(items: Iterable[msgspec.Raw], form: hpas.Form = hpas.HPA) -> list[HorizontalPodAutoscaler]:
    """Decodes HPAs, or Autoscalers, of the API server; skips those that cannot be decoded."""
    found = []
    for item in items:
        try:
            found.append(hpas.hpa(item, form).value)
        except UNDECODABLE:
            continue
    return found


def metric_queries(hpas: Iterable[HorizontalPodAutoscaler]) -> list[tuple[HorizontalPodAutoscaler, Query]]:
    """Returns one query per metric type and name, at most 20, each with the first HPA that names the metric.

    Queries about pods select all pods of the namespace, since no target is read.
    """
    found: dict[Hashable, tuple[HorizontalPodAutoscaler, Query]] = {}
    for hpa in hpas:
        for target in compiled_spec(hpa).metrics:
            if target.error is None and len(found) < _MAX_QUERIES:
                query = target.query
                if query.type not in ("External", "Object"):
                    query = msgspec.structs.replace(query, pods=_ALL_PODS)
                found.setdefault((query.type, query.name, query.definition), (hpa, query))
    return list(found.values())


async def check_sources(client: Client, settings: Settings, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Finding]:
    """Queries each metric of the HPAs once: a finding per metric, and an error per built-in source that fails to build.

    `check_configuration` has reported configured sources that fail to build.
    """
    queries = metric_queries(hpas)
    configured = {source.name for source in settings.sources}
    make = plugins.Contexts(client.clock, api=cluster.ApiReads(client))
    async with offline.gatherer(settings, make) as gatherer:
        found = [
            Finding("sources", ERROR, error.message, "install hpad again: one of its own adapters does not work")
            for name, error in gatherer.problems().items()
            if name not in configured
        ]
        for hpa, query in queries:
            (answer,) = await gatherer.gather([query], deadline=_ANSWER_SECONDS, identity=HPAIdentity.of(hpa))
            found.append(_finding_on_answer(hpa.key, query, answer))
    if settings.sources and not queries:
        says = "no HPA names a metric yet, so the sources were built, but not queried"
        found.append(Finding("sources", NOTE, says, "query one: hpad sources test"))
    return found or [Finding("sources", OK, "no metric source is configured, and no HPA names a metric")]


_NOT_FOUND: Final = "could not find the "
"""What an API server, or an adapter behind it, says with 404."""


def _finding_on_answer(key: Key, query: Query, answer: object) -> Finding:
    metric = f'{query.type} metric "{query.name}" of {key}'
    if not isinstance(answer, AdapterError):
        return Finding("sources", OK, f"{metric} has an answer")
    advice = {
        "spec": "correct the HPA, or the settings of the source",
        "cluster": "check the API that serves it: kubectl get apiservices",
        "bug": "report it with the log of hpad run --log-level=debug",
    }
    do = advice.get(answer.blame, "check the source and its configuration")
    lower = query.name.lower()
    if query.type == "External" and query.name != lower and _NOT_FOUND in answer.message:
        do = f'name it "{lower}" in the HPA: the built-in controller asks this API in lower case, hpad as it is written'
    return Finding("sources", WARNING, f"{metric}: {answer.message}", do)
