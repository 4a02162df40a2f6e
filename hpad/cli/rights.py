"""Rights: each that hpad needs as it is configured, and what does not work without it. config/rbac.yaml grants them."""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from hpad.cli.checks import ERROR, NOTE, OK, WARNING, Finding
from hpad.daemon import assembly
from hpad.kube import competitors, errors
from hpad.kube.access import Right, allowed
from hpad.kube.client import Client
from hpad.settings import Settings
from hpad.store import configmaps

_AUTOSCALING, _APPS = "autoscaling", "apps"
_KINDS = ((_APPS, "deployments"), (_APPS, "replicasets"), (_APPS, "statefulsets"), ("", "replicationcontrollers"))
_AT_ONCE = 8


class Need(NamedTuple):
    """A right, and how bad it is not to have it. `names`: the objects for which it suffices, empty for none."""

    right: Right
    level: str
    without: str
    names: tuple[str, ...] = ()


def needs(told: Settings, home: str, hpas: int = 0) -> list[Need]:
    """All that hpad would ask for, with so many HPAs; `home` is the namespace it counts as its own."""
    found = [need for namespace in told.namespaces or ("",) for need in _everywhere(told, namespace)]
    election = told.election
    if election.enabled and not told.dry_run:
        without = "it can never lead, and so does nothing"
        group, place = "coordination.k8s.io", election.namespace
        found += [
            Need(Right("create", group, "leases", namespace=place), WARNING, "the Lease must be made by somebody else"),
            *(
                Need(Right(verb, group, "leases", "", place, election.name), ERROR, without)
                for verb in ("get", "update")
            ),
        ]
        if election.shards:
            without = "its share of the HPAs is nobody's"
            found += [
                Need(Right(verb, group, "leases", namespace=place), ERROR, without) for verb in ("list", "update")
            ]
            without = "Leases of replicas that have gone stay"
            found.append(Need(Right("delete", group, "leases", namespace=place), NOTE, without))
    if told.store.kind == "cluster" and not told.dry_run:
        place = assembly.place(told, home)
        maps = configmaps.CONFIG_MAPS.plural
        without = "what was recommended before a restart is forgotten by it"
        written, read = configmaps.objects(told.store.name, hpas)
        named: tuple[tuple[str, tuple[str, ...]], ...] = (("get", read), ("create", ()), ("update", written))
        found += [Need(Right(verb, "", maps, namespace=place), WARNING, without, names) for verb, names in named]
    if told.serving.review and told.listen is not None:
        without = "nobody is let in by his token of the cluster"
        found += [
            Need(Right("create", "authentication.k8s.io", "tokenreviews"), ERROR, without),
            Need(Right("create", "authorization.k8s.io", "subjectaccessreviews"), ERROR, without),
        ]
    return found


def _everywhere(told: Settings, namespace: str) -> Iterable[Need]:
    """Of one namespace, or of all of them ("")."""

    def need(verb: str, group: str, resource: str, level: str, without: str) -> Need:
        plural, _, subresource = resource.partition("/")
        return Need(Right(verb, group, plural, subresource, namespace), level, without)

    writing = not told.dry_run
    for verb in ("list", "watch"):
        if told.manifests is None:
            yield need(verb, _AUTOSCALING, "horizontalpodautoscalers", ERROR, "no HPA is known")
        else:
            yield need(verb, _AUTOSCALING, "horizontalpodautoscalers", NOTE, competitors.UNKNOWN)
        yield need(verb, "", "pods", ERROR, "nothing is decided: which pods are ready is not known")
        for group, kind in _KINDS:
            yield need(verb, group, kind, NOTE, "each reconcile asks for the scale of its target instead")
    for group, kind in _KINDS:
        yield need("get", group, f"{kind}/scale", WARNING, f"HPAs of {kind} do nothing (FailedGetScale)")
        if writing:
            yield need("update", group, f"{kind}/scale", WARNING, f"{kind} are not scaled (FailedUpdateScale)")
    if writing:
        if told.manifests is None:
            without = "kubectl shows no metrics and conditions"
            yield need("update", _AUTOSCALING, "horizontalpodautoscalers/status", ERROR, without)
        yield need("create", "", "events", WARNING, "kubectl describe shows no events")
        yield need("patch", "", "events", NOTE, "an event that happens again is not counted up")
    yield need("list", "metrics.k8s.io", "pods", WARNING, "metrics of type Resource and ContainerResource fail")
    yield need("get", "custom.metrics.k8s.io", "*", NOTE, "metrics of type Pods and Object from that API fail")
    yield need("list", "external.metrics.k8s.io", "*", NOTE, "metrics of type External from that API fail")


async def check_rights(client: Client, told: Settings, hpas: int = 0) -> list[Finding]:
    """A finding for each right that is missing with so many HPAs, or one that says that none is."""
    wanted, ask = needs(told, client.config.namespace, hpas), _Asking(client)
    try:
        missing = [right for each in await asyncio.gather(*map(ask.missing, wanted)) for right in each]
        confined = await _confined(ask, client, told, missing)
    except errors.ApiError as error:
        says = f"the server does not say what hpad may do: {error.message}"
        return [Finding("rights", WARNING, says, "compare the rights of hpad's user with config/rbac.yaml")]
    if confined:
        says = f"hpad's rights are for namespace {confined} only, but it is to look after all namespaces"
        do = f"run it with --namespace {confined}, or grant the rights for all namespaces as config/rbac.yaml does"
        return [Finding("rights", ERROR, says, do)]
    found = [
        Finding("rights", need.level, f"may not {need.right}: {need.without}", _advice(need, told)) for need in missing
    ]
    return found or [Finding("rights", OK, f"hpad has all {len(wanted)} rights that it may need")]


class _Asking:
    """Asks what hpad may do, a few questions at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def missing(self, need: Need) -> list[Need]:
        """What hpad may not do of it: nothing, some objects by name, or all. Raises ApiError."""
        if await self._may(need.right):
            return []
        named = [need._replace(right=need.right._replace(name=name)) for name in need.names]
        refused = [each for each in named if not await self._may(each.right)]
        return [need] if len(refused) == len(named) else refused

    async def _may(self, right: Right) -> bool:
        async with self._turns:
            return await allowed(self._client, right)


async def _confined(ask: _Asking, client: Client, told: Settings, missing: list[Need]) -> str:
    """The namespace for which hpad has all the rights that it lacks in all of them; "" where there is none.

    Looked for in the namespaces that are known: that of hpad itself, of its Lease and of its ConfigMaps.
    """
    lacking = [need for need in missing if not need.right.namespace]
    if not lacking or any(need.right.namespace for need in missing):
        return ""
    stored = assembly.place(told, client.config.namespace) if told.store.kind == "cluster" else ""
    homes = (client.config.namespace, told.election.namespace if told.election.enabled else "", stored)
    for home in dict.fromkeys(filter(None, homes)):
        there = (need._replace(right=need.right._replace(namespace=home)) for need in lacking)
        if not any(await asyncio.gather(*map(ask.missing, there))):
            return home
    return ""


def _advice(need: Need, told: Settings) -> str:
    if need.right.name and need.names:
        return "add the name to the Role, as config/rbac-one-namespace.yaml has them"
    if need.right.namespace or told.namespaces:
        return "grant it as config/rbac-one-namespace.yaml does, or for all namespaces as config/rbac.yaml does"
    return "grant it as config/rbac.yaml does, or name the namespace for which it is granted with --namespace"
