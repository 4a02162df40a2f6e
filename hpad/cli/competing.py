"""The checks of `hpad doctor` on competing writers.

`controllers`: does another controller write the status of hpad's HPAs? `targets`: does a client besides hpad's HPAs set
the replicas of their targets? Both are read from metadata.managedFields.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from hpad.api import selector
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.cli.checks import ERROR, NOTE, OK, WARNING, Finding, listed
from hpad.cli.output import counted
from hpad.kube import codec, competitors, errors, managed_fields, paths, scale
from hpad.kube.client import Client
from hpad.kube.competitors import TargetKey
from hpad.settings import Settings
from hpad.settings.model import YIELD

_RECENT = timedelta(seconds=competitors.RECENT)
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
_OFF = "--controllers=*,-horizontal-pod-autoscaler-controller"
_PAGE = 500
_WATCHED = {(kind.resource.group, kind.resource.kind.lower()): kind.resource for kind in scale.WATCHED}


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    managed_fields: msgspec.Raw = msgspec.Raw(b"")


class _Object(msgspec.Struct):
    metadata: _Metadata


async def hpas(client: Client, settings: Settings) -> list[msgspec.Raw]:
    """Returns the HPAs that hpad would own, undecoded; raises ApiError."""
    chosen = {"labelSelector": settings.hpa_selector} if settings.hpa_selector else {}
    return [
        item
        for namespace in settings.namespaces or ("",)
        async for item in _items(client, paths.HPAS.collection(namespace), chosen)
    ]


async def check_controllers(client: Client, found: Sequence[msgspec.Raw]) -> list[Finding]:
    """Returns an error for each other controller that wrote the status of these HPAs within five minutes.

    Without any: a note if the Lease of a kube-controller-manager is current, and a finding that there is none.
    """
    now = client.clock.now()
    writers: dict[str, list[str]] = defaultdict(list)
    for item in found:
        metadata = msgspec.json.decode(item, type=_Object).metadata
        for manager, time in managed_fields.writers_of_status(managed_fields.entries(metadata.managed_fields)).items():
            if _is_recent(time, now):
                writers[manager].append(f"{metadata.namespace}/{metadata.name}")
    if writers:
        return [_other_controller(manager, names) for manager, names in sorted(writers.items())]
    if found:
        says = f"no other controller writes the status of {counted(len(found), 'HPA')}"
    else:
        says = "there are no HPAs yet, so no other controller writes their status"
    return [*await _built_in_controller(client, now), Finding("controllers", OK, says)]


def _other_controller(manager: str, names: list[str]) -> Finding:
    says = f"{manager} has written the status of {listed(names)} within the last five minutes: two controllers own the"
    do = f"run kube-controller-manager with {_OFF}, or give hpad HPAs of its own (--manifests)"
    return Finding("controllers", ERROR, f"{says} same HPAs", do)


async def _built_in_controller(client: Client, now: datetime) -> list[Finding]:
    """Returns a note if a kube-controller-manager is active.

    Its Lease does not show whether its HPA controller is off.
    """
    try:
        lease: dict[str, Any] = msgspec.json.decode(await client.request("GET", _LEASE))
        renewed = lease["spec"]["renewTime"]
    except (errors.ApiError, msgspec.MsgspecError, KeyError, TypeError):
        return []
    if not _is_recent(renewed, now):
        return []
    says = "a kube-controller-manager is active; whether its HPA controller is off shows only once there are HPAs"
    return [Finding("controllers", NOTE, says, f"make sure that it runs with {_OFF}")]


async def check_targets(client: Client, settings: Settings, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Finding]:
    """Findings on targets that several HPAs scale, and on clients that set replicas. `hpas`: hpad's HPAs."""
    ours: dict[TargetKey, set[Key]] = defaultdict(set)
    for hpa in hpas:
        ours[competitors.target_key(hpa.metadata.namespace, hpa.spec.scale_target_ref)].add(hpa.metadata.key)
    found = [_several_hpas(target, keys) for target, keys in sorted(ours.items()) if len(keys) > 1]
    try:
        others = await _competing_hpas(client, settings)
        found += [
            _competing_hpa(settings, target, ours[target], others[target]) for target in sorted(ours.keys() & others)
        ]
    except errors.ApiError as error:
        do = "grant `list` and `watch` of horizontalpodautoscalers as config/rbac.yaml does"
        found.append(Finding("targets", NOTE, f"{competitors.UNKNOWN}: {error.message}", do))
    found += await _competing_clients(client, ours)
    return found or [Finding("targets", OK, "no other client scales the targets of hpad's HPAs")]


def _several_hpas(target: TargetKey, keys: set[Key]) -> Finding:
    says = f"{_hpa_names(keys)} scale the same target {_target_name(target)}: none of them acts (AmbiguousSelector)"
    return Finding("targets", ERROR, says, "keep one HPA for each target, with all its metrics")


def _competing_hpa(settings: Settings, target: TargetKey, ours: set[Key], others: set[Key]) -> Finding:
    origin = "of the manifests" if settings.manifests is not None else "of hpad's"
    yields = settings.competing_hpas == YIELD
    effect = "hpad leaves the target to the API server's HPA" if yields else "both write its replicas"
    hpas = f"{_hpa_names(others)} of the API server and {_hpa_names(ours)} {origin}"
    do = "delete one of them; with competing_hpas: write hpad scales the target as well"
    return Finding("targets", ERROR, f"{hpas} scale the same target {_target_name(target)}: {effect}", do)


async def _competing_hpas(client: Client, settings: Settings) -> dict[TargetKey, set[Key]]:
    """Returns the HPAs of the API server that hpad does not own, by target; raises ApiError."""
    found: dict[TargetKey, set[Key]] = defaultdict(set)
    if settings.manifests is None and not settings.hpa_selector:
        return found
    chosen = selector.parse(settings.hpa_selector) if settings.manifests is None else None
    for namespace in settings.namespaces or ("",):
        async for item in _items(client, paths.HPAS.collection(namespace)):
            try:
                scaler, is_ours = competitors.decode(item, chosen)
            except codec.UNDECODABLE:
                continue
            if not is_ours:
                found[scaler.target_key].add(scaler.key)
    return found


async def _competing_clients(client: Client, ours: Collection[TargetKey]) -> list[Finding]:
    """Clients that set the replicas of these targets recently, for targets of the kinds that hpad watches."""
    now, found = client.clock.now(), []
    for namespace, group, kind in sorted({target[:3] for target in ours}):
        if (resource := _WATCHED.get((group, kind))) is None:
            continue
        try:
            async for item in _items(client, resource.collection(namespace)):
                found += _competing_client(item, (group, kind), ours, now)
        except errors.ApiError:
            continue  # the check `rights` reports kinds that hpad may not list
    return found


def _competing_client(
    item: msgspec.Raw, kind: tuple[str, str], ours: Collection[TargetKey], now: datetime
) -> list[Finding]:
    try:
        metadata = msgspec.json.decode(item, type=_Object).metadata
    except msgspec.MsgspecError:
        return []
    target = TargetKey(metadata.namespace, *kind, metadata.name)
    owner = managed_fields.owner_of_replicas(metadata.managed_fields)
    if target not in ours or owner is None or owner.manager == managed_fields.OURS:
        return []
    # A count that was set with the whole object, as by kubectl apply, comes from a user: controllers write the scale.
    if owner.subresource != managed_fields.SCALE or not _is_recent(owner.time, now):
        return []
    says = f"{owner.manager} has set the replicas of {_target_name(target)} at {owner.time}, through its scale"
    do = "let one controller alone scale a target; a count set by hand stays until hpad scales again"
    return [Finding("targets", WARNING, says, do)]


def _is_recent(time: object, now: datetime) -> bool:
    """Returns whether a time of the API server is less than five minutes old; False if it is not readable."""
    try:
        return now - msgspec.convert(time, datetime) < _RECENT
    except (msgspec.ValidationError, TypeError):  # TypeError: the time has no zone
        return False


async def _items(client: Client, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[msgspec.Raw]:
    """Yields the objects of a list, page by page; raises ApiError."""
    query = {**(params or {}), "limit": str(_PAGE)}
    while True:
        page = codec.page(await client.request("GET", path, params=query))
        for item in page.items or ():
            yield item
        if not page.metadata.continue_:
            return
        query["continue"] = page.metadata.continue_


def _hpa_names(keys: Iterable[Key]) -> str:
    names = sorted(map(str, keys))
    return f"HPA{'' if len(names) == 1 else 's'} {listed(names)}"


def _target_name(target: TargetKey) -> str:
    resource = _WATCHED.get((target.group, target.kind))
    return f"{resource.kind if resource else target.kind}/{target.name} in {target.namespace}"
