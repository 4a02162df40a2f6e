"""Rivals: does somebody else do hpad's work on the same HPAs?

Targets: does anything besides the HPAs that hpad looks after scale them, too?
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
from hpad.cli.checks import ERROR, NOTE, OK, WARNING, Finding, counted
from hpad.kube import codec, competitors, errors, managed_fields, paths, scale
from hpad.kube.client import Client
from hpad.kube.competitors import TargetKey
from hpad.settings import Settings
from hpad.settings.model import YIELD

_OURS = "hpad"
"""The manager that an API server notes for our writes: the user agent up to its slash."""
_CONTROLLER_RECENT = timedelta(minutes=5)
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
_MOST = 500
_NAMED = 3


class _Written(msgspec.Struct):
    """An entry of managedFields."""

    manager: str = ""
    subresource: str = ""
    time: datetime | None = None


class _HpaMeta(msgspec.Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    managed_fields: list[_Written] = []


class _Headed(msgspec.Struct):
    metadata: _HpaMeta


class Hpas(msgspec.Struct):
    """HPAs, in two views of the same objects."""

    items: list[msgspec.Raw] = []


async def hpas(client: Client, told: Settings) -> Hpas:
    """The first some hundred HPAs that hpad would look after; raises ApiError."""
    chosen = {"labelSelector": told.hpa_selector} if told.hpa_selector else {}
    found = []
    for namespace in told.namespaces or ("",):
        path = paths.HPAS.collection(namespace)
        found.append(await client.request("GET", path, params={"limit": str(_MOST), **chosen}))
    pages = [msgspec.json.decode(body, type=Hpas) for body in found]
    return Hpas(list(itertools.chain.from_iterable(page.items for page in pages)))


async def check_controllers(client: Client, told: Settings, found: Hpas) -> list[Finding]:
    """Who else has written the status of these HPAs of late, and whether a kube-controller-manager runs."""
    now = client.clock.now()
    rivals: dict[str, list[str]] = {}
    for raw in found.items:
        meta = msgspec.json.decode(raw, type=_Headed).metadata
        for entry in meta.managed_fields:
            recent = entry.time is not None and now - entry.time < _CONTROLLER_RECENT
            if entry.subresource == "status" and entry.manager != _OURS and recent:
                rivals.setdefault(entry.manager, []).append(f"{meta.namespace}/{meta.name}")
    if rivals:
        return [_rival(manager, named) for manager, named in sorted(rivals.items())]
    says = (
        f"nobody else writes the status of {counted(len(found.items))}"
        if found.items
        else "there are no HPAs yet, so nobody else writes their status"
    )
    return [*await _original(client, now), Finding("rivals", OK, says)]


def _rival(manager: str, named: list[str]) -> Finding:
    listed = ", ".join(named[:_NAMED]) + (f" and {len(named) - _NAMED} more" if len(named) > _NAMED else "")
    says = f"{manager} has written the status of {listed} within the last minutes: two controllers own the same HPAs"
    do = "run kube-controller-manager with --controllers=*,-horizontal-pod-autoscaler-controller, or give hpad HPAs of"
    return Finding("rivals", ERROR, says, f"{do} its own (--manifests)")


async def _original(client: Client, now: datetime) -> list[Finding]:
    """A kube-controller-manager that is alive: whether its HPA controller is off cannot be seen from here."""
    try:
        lease: dict[str, Any] = msgspec.json.decode(await client.request("GET", _LEASE))
        renewed = msgspec.convert(lease["spec"]["renewTime"], datetime, strict=False)
    except (errors.ApiError, msgspec.MsgspecError, KeyError, TypeError):
        return []
    if now - renewed > _CONTROLLER_RECENT:
        return []
    says = "a kube-controller-manager is at work; that its HPA controller is off can only be seen once there are HPAs"
    return [
        Finding("rivals", NOTE, says, "make sure that it has --controllers=*,-horizontal-pod-autoscaler-controller")
    ]


_TARGET_RECENT = timedelta(seconds=competitors.RECENT)
_PAGE = 500


class _TargetMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    managed_fields: msgspec.Raw = msgspec.Raw(b"")


class _Owned(msgspec.Struct):
    metadata: _TargetMeta


async def check_targets(client: Client, told: Settings, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Finding]:
    """Findings on targets that several HPAs scale, and on clients that set replicas; `hpas` are those of hpad."""
    ours: dict[TargetKey, set[Key]] = defaultdict(set)
    for hpa in hpas:
        ours[competitors.target_key(hpa.metadata.namespace, hpa.spec.scale_target_ref)].add(hpa.metadata.key)
    found = [_several(place, keys) for place, keys in sorted(ours.items()) if len(keys) > 1]
    try:
        others = await _others(client, told)
        found += [_other(told, place, ours[place], others[place]) for place in sorted(ours) if place in others]
    except errors.ApiError as error:
        do = "grant `list` and `watch` of horizontalpodautoscalers as config/rbac.yaml does"
        found.append(Finding("targets", NOTE, f"{competitors.UNKNOWN}: {error.message}", do))
    found += await _writers(client, ours)
    return found or [Finding("targets", OK, "nothing else is seen to scale the targets of hpad's HPAs")]


def _several(place: TargetKey, keys: set[Key]) -> Finding:
    says = f"{_listed(keys)} scale the same target {_named(place)}: none of them acts (AmbiguousSelector)"
    return Finding("targets", ERROR, says, "leave one HPA for each target, with all its metrics")


def _other(told: Settings, place: TargetKey, ours: set[Key], others: set[Key]) -> Finding:
    of_files = "of the manifests" if told.manifests is not None else "of hpad's"
    says = f"{_listed(others)} of the API server and {_listed(ours)} {of_files} scale the same target {_named(place)}: "
    says += (
        "hpad leaves the target to the API server's HPA" if told.competing_hpas == YIELD else "both write its replicas"
    )
    do = "delete one of them; with competing_hpas: write hpad scales the target all the same"
    return Finding("targets", ERROR, says, do)


async def _others(client: Client, told: Settings) -> dict[TargetKey, set[Key]]:
    """The HPAs of the API server that hpad does not look after, by target; raises ApiError."""
    found: dict[TargetKey, set[Key]] = defaultdict(set)
    if told.manifests is None and not told.hpa_selector:
        return found
    chosen = selector.parse(told.hpa_selector) if told.manifests is None else None
    for namespace in told.namespaces or ("",):
        async for item in _items(client, paths.HPAS.collection(namespace)):
            try:
                scaler, is_ours = competitors.decode(item, chosen)
            except codec.UndecodableError:
                continue
            if not is_ours:
                found[scaler.target_key].add(scaler.key)
    return found


async def _writers(client: Client, ours: Iterable[TargetKey]) -> list[Finding]:
    """Clients that have set the replicas of these targets of late, in kinds that are watched."""
    by_kind = defaultdict(set)
    for place in ours:
        by_kind[place.group, place.kind].add(place)
    now, found = client.clock.now(), []
    for kind in scale.WATCHED:
        resource = kind.resource
        places = by_kind.get((resource.group, resource.kind.lower()), set())
        for namespace in sorted({place.namespace for place in places}):
            try:
                async for item in _items(client, resource.collection(namespace)):
                    found += _written(item, resource, places, now)
            except errors.ApiError:
                continue  # `rights` says what may not be listed
    return found


def _written(item: msgspec.Raw, resource: paths.Resource, places: set[TargetKey], now: datetime) -> list[Finding]:
    try:
        meta = msgspec.json.decode(item, type=_Owned).metadata
    except msgspec.MsgspecError:
        return []
    place = TargetKey(meta.namespace, resource.group, resource.kind.lower(), meta.name)
    owner = managed_fields.owner_of_replicas(meta.managed_fields)
    if place not in places or owner is None or not _is_rival(owner, now):
        return []
    says = f"{owner.manager} has set the replicas of {_named(place)} at {owner.time}, through its scale"
    do = "have one controller alone scale a target; what people set by hand holds until hpad scales again"
    return [Finding("targets", WARNING, says, do)]


def _is_rival(owner: managed_fields.Entry, now: datetime) -> bool:
    if owner.manager == managed_fields.OURS or owner.subresource != managed_fields.SCALE:
        return False
    try:
        return now - msgspec.convert(owner.time, datetime) < _TARGET_RECENT
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


def _listed(keys: Iterable[Key]) -> str:
    names = sorted(map(str, keys))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"HPA{'' if len(names) == 1 else 's'} {', '.join(names[:_NAMED])}{more}"


def _named(place: TargetKey) -> str:
    kind = next((kind.resource.kind for kind in scale.WATCHED if kind.resource.kind.lower() == place.kind), place.kind)
    return f"{kind}/{place.name} in {place.namespace}"
