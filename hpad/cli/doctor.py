"""`hpad doctor`: checks whether hpad can do its work here, and says what to do if not.

The check `rights` asks for each right that hpad needs with its settings; config/rbac.yaml grants them for all
namespaces, config/rbac-one-namespace.yaml for one.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from hpad import clock
from hpad.cli import checks, competing, output
from hpad.cli import run as daemon
from hpad.cli.checks import ERROR, LEVELS, NOTE, OK, WARNING, Finding
from hpad.daemon import assembly, logs
from hpad.kube import client, competitors, errors
from hpad.kube.access import Right, allowed
from hpad.kube.auth import kubeconfig
from hpad.kube.auth.credentials import ConfigError
from hpad.kube.client import Client
from hpad.settings import Settings, SettingsError
from hpad.store import configmaps

_AUTOSCALING, _APPS = "autoscaling", "apps"
_KINDS = ((_APPS, "deployments"), (_APPS, "replicasets"), (_APPS, "statefulsets"), ("", "replicationcontrollers"))
_CONCURRENCY = 8
"""SelfSubjectAccessReviews in flight."""


class Need(NamedTuple):
    """A right, the level of its absence, and what fails without it.

    `names`: objects for which the right suffices if it is not granted for all; empty if it must be granted for all.
    """

    right: Right
    level: str
    without: str
    names: tuple[str, ...] = ()


def needs(settings: Settings, own_namespace: str, hpas: int = 0) -> list[Need]:
    """All rights that hpad uses to own `hpas` HPAs; `own_namespace` is the namespace that hpad runs in."""
    found = [need for namespace in settings.namespaces or ("",) for need in _for_reconciles(settings, namespace)]
    if settings.election.enabled and not settings.dry_run:
        found += _for_election(settings)
    if settings.store.kind == "cluster" and not settings.dry_run:
        place = assembly.store_namespace(settings, own_namespace)
        maps = configmaps.CONFIG_MAPS.plural
        without = "a restart loses the recommendations made before it"
        written, read = configmaps.objects(settings.store.name, hpas)
        named: tuple[tuple[str, tuple[str, ...]], ...] = (("get", read), ("create", ()), ("update", written))
        found += [Need(Right(verb, "", maps, namespace=place), WARNING, without, names) for verb, names in named]
    if settings.serving.review and settings.listen is not None:
        without = "no client is admitted by its token of the cluster"
        found += [
            Need(Right("create", "authentication.k8s.io", "tokenreviews"), ERROR, without),
            Need(Right("create", "authorization.k8s.io", "subjectaccessreviews"), ERROR, without),
        ]
    return found


def _for_election(settings: Settings) -> Iterable[Need]:
    election = settings.election

    def need(verb: str, level: str, without: str, name: str = "") -> Need:
        return Need(Right(verb, "coordination.k8s.io", "leases", "", election.namespace, name), level, without)

    yield need("create", WARNING, "hpad cannot create the Lease; it must exist already")
    for verb in ("get", "update"):
        yield need(verb, ERROR, "hpad never becomes leader, and so does nothing", election.name)
    if election.shards:
        for verb in ("list", "update"):
            yield need(verb, ERROR, "no replica owns the HPAs assigned to this one")
        yield need("delete", NOTE, "Leases of stopped replicas stay")


def _for_reconciles(settings: Settings, namespace: str) -> Iterable[Need]:
    """The rights for HPAs, pods and targets of one namespace, or of all of them ("")."""

    def need(verb: str, group: str, resource: str, level: str, without: str) -> Need:
        plural, _, subresource = resource.partition("/")
        return Need(Right(verb, group, plural, subresource, namespace), level, without)

    writing = not settings.dry_run
    for verb in ("list", "watch"):
        if settings.manifests is None:
            yield need(verb, _AUTOSCALING, "horizontalpodautoscalers", ERROR, "hpad sees no HPA")
        else:
            yield need(verb, _AUTOSCALING, "horizontalpodautoscalers", NOTE, competitors.UNKNOWN)
        yield need(verb, "", "pods", ERROR, "hpad decides nothing, since it does not see which pods are ready")
        for group, kind in _KINDS:
            yield need(verb, group, kind, NOTE, "each reconcile reads the scale of its target from the API server")
    for group, kind in _KINDS:
        yield need("get", group, f"{kind}/scale", WARNING, f"HPAs of {kind} do nothing (FailedGetScale)")
        if writing:
            yield need("update", group, f"{kind}/scale", WARNING, f"{kind} are not scaled (FailedUpdateScale)")
    if writing:
        if settings.manifests is None:
            without = "kubectl shows no metrics and conditions"
            yield need("update", _AUTOSCALING, "horizontalpodautoscalers/status", ERROR, without)
        yield need("create", "", "events", WARNING, "kubectl describe shows no events")
        yield need("patch", "", "events", NOTE, "the count of a repeated event does not rise")
    yield need("list", "metrics.k8s.io", "pods", WARNING, "metrics of type Resource and ContainerResource fail")
    yield need("get", "custom.metrics.k8s.io", "*", NOTE, "metrics of type Pods and Object from that API fail")
    yield need("list", "external.metrics.k8s.io", "*", NOTE, "metrics of type External from that API fail")


async def check_rights(client: Client, settings: Settings, hpas: int = 0) -> list[Finding]:
    """A finding for each missing right, or one that says that none is missing. `hpas`: how many HPAs hpad owns."""
    needed, reviews = needs(settings, client.config.namespace, hpas), _Reviews(client)
    try:
        missing = [need for each in await asyncio.gather(*map(reviews.missing, needed)) for need in each]
        only_namespace = await _only_namespace(reviews, client, settings, missing)
    except errors.ApiError as error:
        says = f"the server does not say what hpad may do: {error.message}"
        return [Finding("rights", WARNING, says, "compare the rights of hpad's user with config/rbac.yaml")]
    if only_namespace:
        says = f"hpad's rights are for namespace {only_namespace} only, but its settings name all namespaces"
        do = (
            f"run it with --namespace {only_namespace}, or grant the rights for all namespaces as config/rbac.yaml does"
        )
        return [Finding("rights", ERROR, says, do)]
    found = [
        Finding("rights", need.level, f"may not {need.right}: {need.without}", _advice(need, settings))
        for need in missing
    ]
    return found or [Finding("rights", OK, f"hpad has all {len(needed)} rights that it may need")]


class _Reviews:
    """Asks the API server which rights hpad has, a few at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(_CONCURRENCY)

    async def missing(self, need: Need) -> list[Need]:
        """The part of a need that is refused: nothing, some objects by name, or all. Raises ApiError."""
        if await self._allowed(need.right):
            return []
        named = [need._replace(right=need.right._replace(name=name)) for name in need.names]
        refused = [each for each in named if not await self._allowed(each.right)]
        return [need] if len(refused) == len(named) else refused

    async def _allowed(self, right: Right) -> bool:
        async with self._slots:
            return await allowed(self._client, right)


async def _only_namespace(reviews: _Reviews, client: Client, settings: Settings, missing: list[Need]) -> str:
    """The namespace in which hpad has every right that it lacks for all namespaces; "" if there is none.

    Tries the namespaces that hpad knows: its own, and those of its Lease and its ConfigMaps.
    """
    lacking = [need for need in missing if not need.right.namespace]
    if not lacking or any(need.right.namespace for need in missing):
        return ""
    stored = assembly.store_namespace(settings, client.config.namespace) if settings.store.kind == "cluster" else ""
    candidates = (client.config.namespace, settings.election.namespace if settings.election.enabled else "", stored)
    for candidate in dict.fromkeys(filter(None, candidates)):
        there = (need._replace(right=need.right._replace(namespace=candidate)) for need in lacking)
        if not any(await asyncio.gather(*map(reviews.missing, there))):
            return candidate
    return ""


def _advice(need: Need, settings: Settings) -> str:
    if need.right.name and need.names:
        return "add the name to the Role, as config/rbac-one-namespace.yaml lists them"
    if need.right.namespace or settings.namespaces:
        return "grant it as config/rbac-one-namespace.yaml does, or for all namespaces as config/rbac.yaml does"
    return "grant it as config/rbac.yaml does, or limit hpad to the namespace that grants it with --namespace"


_EPILOG = """\
It takes the settings of `hpad run`, from the same places; run it as the same user, on the same machine. It reads
objects, asks which rights hpad has (SelfSubjectAccessReview), and asks once for each metric that HPAs name, 20 at most.
It changes nothing.

levels: ok, note (works, but good to know), warning (something does not work as it could), error (hpad cannot do its
work). A line that starts with -> says what to do.

examples:
  hpad doctor --config /etc/hpad/hpad.yaml
  hpad doctor --kubeconfig ~/.kube/config -n shop
  kubectl -n hpad exec deploy/hpad -- hpad doctor
  hpad doctor -o json                  [{"check", "level", "says", "do"}]

exit status: 0 without a finding of level error, 1 with one, 2 for wrong use
"""


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "doctor",
        help="check configuration, cluster, rights, sources and competing controllers",
        description="Check whether hpad can do its work here, and say what to do if not.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")
    daemon.add_settings(parser)
    parser.set_defaults(run=run, flags={})


def run(args: argparse.Namespace) -> int:
    """Prints the findings; 0 if there is no error among them, else 1."""
    logs.configure("error", "text")
    findings = asyncio.run(examine(lambda: daemon.read_settings(args)))
    if args.output == "json":
        print(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        _print(findings)
    return 1 if any(finding.level == ERROR for finding in findings) else 0


async def examine(read: Callable[[], Settings]) -> list[Finding]:
    """All findings, in the order in which to correct them. A check that depends on one that failed is left out."""
    try:
        settings = read()
    except SettingsError as error:
        return [Finding("configuration", ERROR, problem, "correct it there") for problem in error.problems]
    found = await checks.check_configuration(settings, clock.SystemClock())
    try:
        where = await asyncio.to_thread(kubeconfig.load_cluster_config, settings.kubeconfig, settings.context)
    except ConfigError as error:
        found += await checks.check_store(settings, None)
        return [*found, Finding("server", ERROR, str(error), "name a kubeconfig with --kubeconfig")]
    found += await checks.check_store(settings, where.namespace)
    async with client.Client(where, clock.SystemClock()) as api:
        on_server = await checks.check_server(api)
        found += on_server
        if not any(finding.check == "server" and finding.level == ERROR for finding in on_server):
            settings = await checks.settings_on_server(api, settings)
            count, on_hpas = await _check_hpas(api, settings)
            found += [*await check_rights(api, settings, count), *on_hpas]
    return found


async def _check_hpas(api: client.Client, settings: Settings) -> tuple[int, list[Finding]]:
    """The number of HPAs, and the findings on them, their targets and their metrics."""
    if settings.manifests is not None:
        found, hpas = await checks.check_manifests(settings, api.clock)
        count = len(hpas)
    else:
        try:
            listed = await competing.hpas(api, settings)
        except errors.ApiError as error:
            says = f"HPAs cannot be listed, so competing controllers and sources were not checked: {error.message}"
            return 0, [Finding("controllers", ERROR, says, "see the rights above")]
        hpas, count = checks.decode_hpas(listed.items), len(listed.items)
        found = await competing.check_controllers(api, listed)
    found += checks.check_zero(settings, hpas)
    found += await competing.check_targets(api, settings, hpas)
    return count, [*found, *await checks.check_sources(api, settings, hpas)]


def _print(findings: Sequence[Finding]) -> None:
    """Prints each finding. Advice that consecutive findings share is printed once, after the last of them."""
    for finding, following in zip_longest(findings, findings[1:]):
        print(output.wrapped(f"{finding.level:<8} {finding.check:<14} {finding.says}", 24))
        if finding.do and (following is None or (following.check, following.do) != (finding.check, finding.do)):
            print(output.wrapped(f"{'':<23} -> {finding.do}", 27))
    counts = {level: sum(finding.level == level for finding in findings) for level in reversed(LEVELS)}
    print(", ".join(f"{count} {level}" for level, count in counts.items() if count))
