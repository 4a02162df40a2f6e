"""`hpad doctor`: checks whether hpad can do its work here, and advises how to correct problems.

The check `rights` requests a review of each right that hpad needs with its settings; config/rbac grants them, for all
namespaces or for one, as the overlays in config/overlays choose.
"""

import argparse
import asyncio
import contextlib
import functools
import itertools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hpad import clock
from hpad.cli import doctor_checks, doctor_controllers, doctor_targets, flags, output
from hpad.cli.doctor_checks import ERROR, LEVELS, NOTE, OK, WARNING, Finding
from hpad.daemon import assembly, logs
from hpad.engine.styled import line
from hpad.kube import client, competitors, errors, paths, scale
from hpad.kube.access import Right, allowed
from hpad.kube.auth import kubeconfig
from hpad.kube.auth.credentials import ConfigError
from hpad.kube.client import Client
from hpad.kube.hpas import AUTOSCALER
from hpad.settings import Settings, SettingsError
from hpad.settings.model import AUTOSCALERS
from hpad.store import configmaps

_AUTOSCALING = "autoscaling"
_CORRECT = "correct it there; meanwhile a running hpad keeps its previous settings"
_FOR_AUTOSCALERS = "config/rbac/autoscalers"
_KINDS = [(kind.resource.group, kind.resource.plural) for kind in scale.WATCHED]
_CONCURRENCY = 8
"""SelfSubjectAccessReviews in flight."""


class Need(NamedTuple):
    """A right, the level of its absence, and what fails without it.

    `names`: objects for which the right suffices if it is not granted for all; empty if it must be granted for all.
    `file`: the component that grants it, if no overlay does.
    """

    right: Right
    level: str
    without: str
    names: tuple[str, ...] = ()
    file: str = ""


_Review = Callable[[Need], Coroutine[Any, Any, list[Need]]]


def needs(settings: Settings, own_namespace: str, hpas: int = 0, *, autoscalers: bool = False) -> list[Need]:
    """Returns all rights that hpad uses to own `hpas` HPAs; `own_namespace` is the namespace that hpad runs in.

    `autoscalers`: their kind is installed.
    """
    found = []
    for namespace in settings.namespaces or ("",):
        found += [*_for_hpas(settings, namespace), *_for_reconciles(settings, namespace)]
        found += _for_autoscalers(settings, namespace) if autoscalers else ()
    if settings.election.enabled and not settings.dry_run:
        found += _for_election(settings)
    if settings.store.kind == "cluster" and not settings.dry_run:
        place = assembly.store_namespace(settings, own_namespace)
        maps, without = configmaps.CONFIG_MAPS.plural, "a restart loses the recommendations made before it"
        written, read = configmaps.objects(settings.store.name, hpas)
        for verb, names in (("get", read), ("create", ()), ("update", written)):
            found.append(Need(_right(place, verb, "", maps), WARNING, without, names))
    if settings.serving.review and settings.listen is not None:
        without = "no client is admitted by its token of the cluster"
        reviews = (("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews"))
        found += [Need(Right("create", *review), ERROR, without, file="config/rbac/review") for review in reviews]
    return found


def _right(namespace: str, verb: str, group: str, resource: str) -> Right:
    """Returns a right. `resource` is the plural, with a subresource after a slash; `namespace` is "" for all."""
    plural, _, subresource = resource.partition("/")
    return Right(verb, group, plural, subresource, namespace)


def _for_election(settings: Settings) -> Iterable[Need]:
    election = settings.election
    right = functools.partial(_right, election.namespace)
    leases = ("coordination.k8s.io", "leases")
    yield Need(right("create", *leases), WARNING, "hpad cannot create the Lease; it must exist already")
    for verb in ("get", "update"):
        lease = right(verb, *leases)._replace(name=election.name)
        yield Need(lease, ERROR, "hpad never becomes leader, and so does nothing")


def _for_hpas(settings: Settings, namespace: str) -> Iterable[Need]:
    owned = settings.manifests is None and settings.kinds != AUTOSCALERS
    level, without = (ERROR, "hpad sees no HPA") if owned else (NOTE, competitors.UNKNOWN)
    for verb in ("list", "watch"):
        yield Need(_right(namespace, verb, _AUTOSCALING, "horizontalpodautoscalers"), level, without)
    if owned and not settings.dry_run:
        without = "kubectl shows no metrics and conditions"
        yield Need(_right(namespace, "update", _AUTOSCALING, "horizontalpodautoscalers/status"), ERROR, without)


def _for_autoscalers(settings: Settings, namespace: str) -> Iterable[Need]:
    level = ERROR if settings.kinds == AUTOSCALERS else WARNING
    for verb in ("list", "watch"):
        need = _right(namespace, verb, paths.AUTOSCALERS.group, paths.AUTOSCALERS.plural)
        yield Need(need, level, "hpad sees no Autoscaler", file=_FOR_AUTOSCALERS)
    if not settings.dry_run:
        written = _right(namespace, "update", paths.AUTOSCALERS.group, f"{paths.AUTOSCALERS.plural}/status")
        yield Need(written, level, "kubectl shows no metrics and conditions", file="config/rbac/status-autoscalers")


def _for_reconciles(settings: Settings, namespace: str) -> Iterable[Need]:
    """Returns the rights for pods and targets of one namespace, or of all of them ("")."""
    right, writing = functools.partial(_right, namespace), not settings.dry_run
    for verb in ("list", "watch"):
        yield Need(right(verb, "", "pods"), ERROR, "hpad decides nothing, since it does not see which pods are ready")
        for group, kind in _KINDS:
            yield Need(
                right(verb, group, kind), NOTE, "each reconcile reads the scale of its target from the API server"
            )
    for group, kind in _KINDS:
        yield Need(right("get", group, f"{kind}/scale"), WARNING, f"HPAs of {kind} do nothing (FailedGetScale)")
        if writing:
            yield Need(right("update", group, f"{kind}/scale"), WARNING, f"{kind} are not scaled (FailedUpdateScale)")
    if writing:
        yield Need(right("create", "", "events"), WARNING, "kubectl describe shows no events")
        yield Need(right("patch", "", "events"), NOTE, "the count of a repeated event does not rise")
    yield Need(right("list", "metrics.k8s.io", "pods"), WARNING, "metrics of type Resource and ContainerResource fail")
    yield Need(right("get", "custom.metrics.k8s.io", "*"), NOTE, "metrics of type Pods and Object from that API fail")
    yield Need(right("list", "external.metrics.k8s.io", "*"), NOTE, "metrics of type External from that API fail")


async def check_rights(
    client: Client, settings: Settings, hpas: int = 0, *, autoscalers: bool = False
) -> list[Finding]:
    """Returns a finding for each missing right, or one if none is missing. Arguments as of `needs`."""
    needed = needs(settings, client.config.namespace, hpas, autoscalers=autoscalers)
    review = functools.partial(_missing, client, asyncio.Semaphore(_CONCURRENCY))
    try:
        missing = list(itertools.chain.from_iterable(await asyncio.gather(*map(review, needed))))
        only_namespace = await _only_namespace(review, client, settings, missing)
    except errors.ApiError as error:
        says = f"the API server does not report which rights hpad has: {error.message}"
        return [Finding("rights", WARNING, says, "compare the rights of hpad's user with config/rbac")]
    if only_namespace:
        says = f"hpad's rights are for namespace {only_namespace} only, but its settings name all namespaces"
        do = f"run it with --namespace {only_namespace}, or grant the rights for all namespaces as config/rbac does"
        return [Finding("rights", ERROR, says, do)]
    found = [
        Finding("rights", need.level, f"may not {need.right}: {need.without}", _advice(need, settings))
        for need in missing
    ]
    return found or [Finding("rights", OK, f"hpad has all {len(needed)} rights that it may need")]


async def _missing(client: Client, semaphore: asyncio.Semaphore, need: Need) -> list[Need]:
    """Returns the part of a need that is refused: nothing, some objects by name, or all. Raises ApiError."""

    async def is_granted(right: Right) -> bool:
        async with semaphore:
            return await allowed(client, right)

    if await is_granted(need.right):
        return []
    named = [need._replace(right=need.right._replace(name=name)) for name in need.names]
    refused = [each for each in named if not await is_granted(each.right)]
    return [need] if len(refused) == len(named) else refused


async def _only_namespace(review: _Review, client: Client, settings: Settings, missing: list[Need]) -> str:
    """Returns the namespace in which hpad has every right that it lacks for all namespaces; "" if there is none.

    Tries the namespaces that hpad knows: its own, and those of its Lease and its ConfigMaps.
    """
    lacking = [need for need in missing if not need.right.namespace]
    if not lacking or any(need.right.namespace for need in missing):
        return ""
    stored = assembly.store_namespace(settings, client.config.namespace) if settings.store.kind == "cluster" else ""
    candidates = (client.config.namespace, settings.election.namespace if settings.election.enabled else "", stored)
    for candidate in dict.fromkeys(filter(None, candidates)):
        there = (need._replace(right=need.right._replace(namespace=candidate)) for need in lacking)
        if not any(await asyncio.gather(*map(review, there))):
            return candidate
    return ""


def _advice(need: Need, settings: Settings) -> str:
    if need.right.name and need.names:
        return "add the name to the Role, as config/rbac/one-namespace lists them"
    if need.file:
        return f"grant it as {need.file} does"
    if need.right.namespace or settings.namespaces:
        return "grant it as config/overlays/namespace does, or for all namespaces as config/rbac does"
    return "grant it as config/rbac does, or limit hpad to the namespace that grants it with --namespace"


HELP: Final = "check configuration, cluster, rights, sources and competing controllers"
DESCRIPTION: Final = "Check whether hpad can do its work here, and advise how to correct problems."
EPILOG: Final = """\
It takes the settings of `hpad run`, from the same places; run it as the same user, on the same machine. It reads
objects, requests which rights hpad has (SelfSubjectAccessReview), and queries each metric that HPAs name once, 20 at
most. It changes nothing.

levels: ok, note (works, with a limitation), warning (something does not work as it could), error (hpad cannot do its
work). A line that starts with -> is advice.

examples:
  hpad doctor --config /etc/hpad/hpad.yaml
  hpad doctor --kubeconfig ~/.kube/config -n shop
  kubectl -n hpad exec deploy/hpad -- hpad doctor
  hpad doctor -o json                  [{"check", "level", "says", "do"}]

exit status: 0 without a finding of level error, 1 with one, 2 for wrong use
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    output.add_format(parser)
    flags.add(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the findings; 0 if there is no error among them, else 1."""
    logs.configure("error", "text")
    findings = asyncio.run(examine(lambda: flags.read(args)))
    if args.output == "json":
        output.print_value(msgspec.to_builtins(findings), "json")
    else:
        _print(findings)
    return 1 if any(finding.level == ERROR for finding in findings) else 0


async def examine(read: Callable[[], Settings]) -> list[Finding]:
    """Returns all findings in the order in which to correct them. Skips a check that depends on a failed one."""
    try:
        settings = read()
    except SettingsError as error:
        return [Finding("configuration", ERROR, problem.text, _CORRECT) for problem in error.problems]
    found = await doctor_checks.check_configuration(settings, clock.SystemClock())
    try:
        where = await asyncio.to_thread(kubeconfig.load_cluster_config, settings.kubeconfig, settings.context)
    except ConfigError as error:
        found += await doctor_checks.check_store(settings, None)
        named = not isinstance(error, kubeconfig.NoConfigError)
        do = "correct it there" if named else "name a kubeconfig with --kubeconfig"
        return [*found, Finding("server", ERROR, str(error), do)]
    found += await doctor_checks.check_store(settings, where.namespace)
    async with client.Client(where, clock.SystemClock()) as api:
        on_server, there = await doctor_checks.check_server(api, settings)
        found += on_server
        if there is not None:
            installed, on_kind = await doctor_checks.check_kind(api, there)
            count, on_hpas = await _check_hpas(api, there, installed)
            found += [*on_kind, *await check_rights(api, there, count, autoscalers=installed), *on_hpas]
    return found


async def _check_hpas(api: client.Client, settings: Settings, installed: bool) -> tuple[int, list[Finding]]:
    """Returns the number of HPAs, and the findings on them, their targets and their metrics.

    `installed`: the API server has Autoscalers.
    """
    if settings.manifests is not None:
        found, hpas = await doctor_checks.check_manifests(settings, api.clock)
        count = len(hpas)
    else:
        try:
            listed = (
                [] if settings.kinds == AUTOSCALERS else await doctor_targets.listed_hpas(api, settings, paths.HPAS)
            )
        except errors.ApiError as error:
            says = f"HPAs cannot be listed, so competing controllers and sources were not checked: {error.message}"
            return 0, [Finding("controllers", ERROR, says, "see the rights above")]
        hpas, count = doctor_checks.decode_hpas(listed), len(listed)
        found = await doctor_controllers.check_controllers(api, settings, listed)
        if installed:
            with contextlib.suppress(errors.ApiError):  # the rights are reported
                autoscalers = await doctor_targets.listed_hpas(api, settings, paths.AUTOSCALERS)
                listed = [*listed, *autoscalers]
                hpas += doctor_checks.decode_hpas(autoscalers, AUTOSCALER)
                count += len(autoscalers)
        found += await doctor_controllers.check_other_hpad(api, settings, listed)
    states = await doctor_targets.target_states(api, hpas)
    found += doctor_checks.check_zero(settings, hpas)
    found += doctor_targets.check_asleep(settings, hpas, states, api.clock.now())
    found += await doctor_targets.check_targets(api, settings, hpas, states)
    found += await doctor_targets.check_idle_first(api, settings, hpas)
    found += doctor_targets.check_shadow(settings, hpas, api.clock.now())
    return count, [*found, *await doctor_checks.check_sources(api, settings, hpas)]


def _print(findings: Sequence[Finding]) -> None:
    """Prints each finding. Advice that consecutive findings share is printed once, after the last of them."""
    lines = []
    for finding, following in itertools.zip_longest(findings, findings[1:]):
        lines.append(line(f"{finding.level:<8} {finding.check:<14} {finding.says}", hang=24))
        if finding.do and (following is None or (following.check, following.do) != (finding.check, finding.do)):
            lines.append(line(f"{'':<23} -> {finding.do}", hang=27))
    counts = {level: sum(finding.level == level for finding in findings) for level in reversed(LEVELS)}
    totals = [f"{each} ok" if level == OK else output.counted(each, level) for level, each in counts.items() if each]
    lines.append(line(", ".join(totals)))
    output.show_lines(lines, most=None)
