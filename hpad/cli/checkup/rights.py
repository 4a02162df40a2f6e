"""Rights: each that hpad needs as it is configured, and what does not work without it. config/rbac.yaml grants them."""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from hpad.cli.checkup.finding import ERROR, NOTE, OK, WARNING, Finding
from hpad.kube import errors, history
from hpad.kube.client import Client
from hpad.kube.review import Right, allowed
from hpad.settings import Settings

_AUTOSCALING, _APPS = "autoscaling", "apps"
_KINDS = ((_APPS, "deployments"), (_APPS, "replicasets"), (_APPS, "statefulsets"), ("", "replicationcontrollers"))
_AT_ONCE = 8


class Need(NamedTuple):
    """A right, and how bad it is not to have it."""

    right: Right
    level: str
    without: str


def needs(told: Settings, home: str) -> list[Need]:
    """All that hpad would ask for; `home` is the namespace it counts as its own."""
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
        place = told.store.namespace or (election.namespace if election.enabled else home)
        maps = history.CONFIG_MAPS.plural
        without = "what was recommended before a restart is forgotten by it"
        found += [
            Need(Right(verb, "", maps, namespace=place), WARNING, without) for verb in ("get", "create", "update")
        ]
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


async def check(client: Client, told: Settings) -> list[Finding]:
    """A finding for each right that is missing, or one that says that none is."""
    wanted, turns = needs(told, client.config.namespace), asyncio.Semaphore(_AT_ONCE)

    async def ask(need: Need) -> bool:
        async with turns:
            return await allowed(client, need.right)

    try:
        answers = await asyncio.gather(*(ask(need) for need in wanted))
    except errors.ApiError as error:
        says = f"the server does not say what hpad may do: {error.message}"
        return [Finding("rights", WARNING, says, "compare the rights of hpad's user with config/rbac.yaml")]
    missing = [need for need, has in zip(wanted, answers, strict=True) if not has]
    found = [
        Finding("rights", need.level, f"may not {need.right}: {need.without}", "grant it as config/rbac.yaml does")
        for need in missing
    ]
    return found or [Finding("rights", OK, f"hpad has all {len(wanted)} rights that it may need")]
