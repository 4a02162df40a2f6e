"""The checks of `hpad doctor` on competing writers.

`controllers`: does another controller write the status of hpad's HPAs? `targets`: does a client besides hpad's HPAs set
the replicas of their targets? Both are read from metadata.managedFields.
"""

import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from hpad.api import selector
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.cli.checks import ERROR, NOTE, OK, WARNING, Finding, count_of_hpas, listed
from hpad.kube import codec, competitors, errors, managed_fields, paths, scale
from hpad.kube.client import Client
from hpad.kube.competitors import TargetKey
from hpad.settings import Settings
from hpad.settings.model import YIELD

_OURS = "hpad"
"""The manager that an API server notes for hpad's writes: its user agent up to the slash."""
_STATUS_RECENT = timedelta(minutes=5)
_SCALE_RECENT = timedelta(seconds=competitors.RECENT)
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
_OFF = "--controllers=*,-horizontal-pod-autoscaler-controller"
_PAGE = 500


class _Writer(msgspec.Struct):
    """An entry of managedFields."""

    manager: str = ""
    subresource: str = ""
    time: datetime | None = None


class _HpaMetadata(msgspec.Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    managed_fields: list[_Writer] = []


class _Hpa(msgspec.Struct):
    metadata: _HpaMetadata


class Hpas(msgspec.Struct):
    """HPAs as the API server sent them, undecoded."""

    items: list[msgspec.Raw] = []


class _TargetMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    managed_fields: msgspec.Raw = msgspec.Raw(b"")


class _Target(msgspec.Struct):
    metadata: _TargetMetadata


async def hpas(client: Client, settings: Settings) -> Hpas:
    """The first 500 HPAs of each namespace that hpad would own; raises ApiError."""
    chosen = {"labelSelector": settings.hpa_selector} if settings.hpa_selector else {}
    pages = []
    for namespace in settings.namespaces or ("",):
        path = paths.HPAS.collection(namespace)
        body = await client.request("GET", path, params={"limit": str(_PAGE), **chosen})
        pages.append(msgspec.json.decode(body, type=Hpas))
    return Hpas(list(itertools.chain.from_iterable(page.items for page in pages)))


async def check_controllers(client: Client, found: Hpas) -> list[Finding]:
    """An error for each other controller that wrote the status of these HPAs within five minutes.

    Without any: a note if a kube-controller-manager holds its lease, and a finding that all is well.
    """
    now = client.clock.now()
    writers: dict[str, list[str]] = {}
    for raw in found.items:
        metadata = msgspec.json.decode(raw, type=_Hpa).metadata
        for entry in metadata.managed_fields:
            recent = entry.time is not None and now - entry.time < _STATUS_RECENT
            if entry.subresource == "status" and entry.manager != _OURS and recent:
                writers.setdefault(entry.manager, []).append(f"{metadata.namespace}/{metadata.name}")
    if writers:
        return [_other_controller(manager, names) for manager, names in sorted(writers.items())]
    if found.items:
        says = f"no other controller writes the status of {count_of_hpas(len(found.items))}"
    else:
        says = "there are no HPAs yet, so no other controller writes their status"
    return [*await _built_in_controller(client, now), Finding("controllers", OK, says)]


def _other_controller(manager: str, names: list[str]) -> Finding:
    says = f"{manager} has written the status of {listed(names)} within the last minutes: two controllers own the same"
    do = f"run kube-controller-manager with {_OFF}, or give hpad HPAs of its own (--manifests)"
    return Finding("controllers", ERROR, f"{says} HPAs", do)


async def _built_in_controller(client: Client, now: datetime) -> list[Finding]:
    """A note if a kube-controller-manager is active: its lease does not tell whether its HPA controller is off."""
    try:
        lease: dict[str, Any] = msgspec.json.decode(await client.request("GET", _LEASE))
        renewed = msgspec.convert(lease["spec"]["renewTime"], datetime, strict=False)
    except (errors.ApiError, msgspec.MsgspecError, KeyError, TypeError):
        return []
    if now - renewed > _STATUS_RECENT:
        return []
    says = "a kube-controller-manager is active; whether its HPA controller is off shows only once there are HPAs"
    return [Finding("controllers", NOTE, says, f"make sure that it runs with {_OFF}")]


async def check_targets(client: Client, settings: Settings, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Finding]:
    """Findings on targets that several HPAs scale, and on clients that set replicas. `hpas` are those of hpad."""
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
    """The HPAs of the API server that hpad does not own, by target; raises ApiError."""
    found: dict[TargetKey, set[Key]] = defaultdict(set)
    if settings.manifests is None and not settings.hpa_selector:
        return found
    chosen = selector.parse(settings.hpa_selector) if settings.manifests is None else None
    for namespace in settings.namespaces or ("",):
        async for item in _items(client, paths.HPAS.collection(namespace)):
            try:
                scaler, is_ours = competitors.decode(item, chosen)
            except codec.UndecodableError:
                continue
            if not is_ours:
                found[scaler.target_key].add(scaler.key)
    return found


async def _competing_clients(client: Client, ours: Iterable[TargetKey]) -> list[Finding]:
    """Clients that set the replicas of these targets recently; looks at the kinds that hpad watches."""
    by_kind = defaultdict(set)
    for target in ours:
        by_kind[target.group, target.kind].add(target)
    now, found = client.clock.now(), []
    for kind in scale.WATCHED:
        resource = kind.resource
        targets = by_kind.get((resource.group, resource.kind.lower()), set())
        for namespace in sorted({target.namespace for target in targets}):
            try:
                async for item in _items(client, resource.collection(namespace)):
                    found += _competing_client(item, resource, targets, now)
            except errors.ApiError:
                continue  # the check `rights` reports kinds that hpad may not list
    return found


def _competing_client(
    item: msgspec.Raw, resource: paths.Resource, targets: set[TargetKey], now: datetime
) -> list[Finding]:
    try:
        metadata = msgspec.json.decode(item, type=_Target).metadata
    except msgspec.MsgspecError:
        return []
    target = TargetKey(metadata.namespace, resource.group, resource.kind.lower(), metadata.name)
    owner = managed_fields.owner_of_replicas(metadata.managed_fields)
    if target not in targets or owner is None or not _competes(owner, now):
        return []
    says = f"{owner.manager} has set the replicas of {_target_name(target)} at {owner.time}, through its scale"
    do = "let one controller alone scale a target; a count set by hand holds until hpad scales again"
    return [Finding("targets", WARNING, says, do)]


def _competes(owner: managed_fields.Entry, now: datetime) -> bool:
    if owner.manager == managed_fields.OURS or owner.subresource != managed_fields.SCALE:
        return False
    try:
        return now - msgspec.convert(owner.time, datetime) < _SCALE_RECENT
    except (msgspec.ValidationError, TypeError):
        return False


async def _items(client: Client, path: str) -> AsyncIterator[msgspec.Raw]:
    """The objects of a list, page by page; raises ApiError."""
    token = ""
    while True:
        more = {"continue": token} if token else {}
        body = await client.request("GET", path, params={"limit": str(_PAGE), **more})
        try:
            page = msgspec.json.decode(body, type=codec.Page)
        except msgspec.MsgspecError as error:
            raise errors.ApiError(0, "BadAnswer", f"the answer is no list: {error}") from error
        for item in page.items or ():
            yield item
        token = page.metadata.continue_
        if not token:
            return


def _hpa_names(keys: Iterable[Key]) -> str:
    names = sorted(map(str, keys))
    return f"HPA{'' if len(names) == 1 else 's'} {listed(names)}"


def _target_name(target: TargetKey) -> str:
    kinds = {kind.resource.kind.lower(): kind.resource.kind for kind in scale.WATCHED}
    return f"{kinds.get(target.kind, target.kind)}/{target.name} in {target.namespace}"
