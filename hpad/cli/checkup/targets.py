"""Targets: does anything besides the HPAs that hpad looks after scale them, too?"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from datetime import datetime, timedelta

import msgspec

from hpad.api import selector
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.cli.checkup.finding import ERROR, NOTE, OK, WARNING, Finding
from hpad.kube import codec, competitors, errors, paths, scale
from hpad.kube import managed_fields as managed
from hpad.kube.client import Client
from hpad.kube.competitors import Place
from hpad.settings import Settings
from hpad.settings.shape import YIELD

_RECENT = timedelta(seconds=competitors.RECENT)
_PAGE = 500
_NAMED = 3


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    managed_fields: msgspec.Raw = msgspec.Raw(b"")


class _Owned(msgspec.Struct):
    metadata: _Meta


async def check(client: Client, told: Settings, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Finding]:
    """Findings on targets that several HPAs scale, and on clients that set replicas; `hpas` are those of hpad."""
    ours: dict[Place, set[Key]] = defaultdict(set)
    for hpa in hpas:
        ours[competitors.place(hpa.metadata.namespace, hpa.spec.scale_target_ref)].add(hpa.metadata.key)
    found = [_several(place, keys) for place, keys in sorted(ours.items()) if len(keys) > 1]
    try:
        others = await _others(client, told)
        found += [_other(told, place, ours[place], others[place]) for place in sorted(ours) if place in others]
    except errors.ApiError as error:
        do = "grant `list` and `watch` of horizontalpodautoscalers as config/rbac.yaml does"
        found.append(Finding("targets", NOTE, f"{competitors.UNKNOWN}: {error.message}", do))
    found += await _writers(client, ours)
    return found or [Finding("targets", OK, "nothing else is seen to scale the targets of hpad's HPAs")]


def _several(place: Place, keys: set[Key]) -> Finding:
    says = f"{_listed(keys)} scale the same target {_named(place)}: none of them acts (AmbiguousSelector)"
    return Finding("targets", ERROR, says, "leave one HPA for each target, with all its metrics")


def _other(told: Settings, place: Place, ours: set[Key], others: set[Key]) -> Finding:
    of_files = "of the manifests" if told.manifests is not None else "of hpad's"
    says = f"{_listed(others)} of the API server and {_listed(ours)} {of_files} scale the same target {_named(place)}: "
    says += (
        "hpad leaves the target to the API server's HPA" if told.competing_hpas == YIELD else "both write its replicas"
    )
    do = "delete one of them; with competing_hpas: write hpad scales the target all the same"
    return Finding("targets", ERROR, says, do)


async def _others(client: Client, told: Settings) -> dict[Place, set[Key]]:
    """The HPAs of the API server that hpad does not look after, by target; raises ApiError."""
    found: dict[Place, set[Key]] = defaultdict(set)
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
                found[scaler.place].add(scaler.key)
    return found


async def _writers(client: Client, ours: Iterable[Place]) -> list[Finding]:
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


def _written(item: msgspec.Raw, resource: paths.Resource, places: set[Place], now: datetime) -> list[Finding]:
    try:
        meta = msgspec.json.decode(item, type=_Owned).metadata
    except msgspec.MsgspecError:
        return []
    place = Place(meta.namespace, resource.group, resource.kind.lower(), meta.name)
    owner = managed.owner_of_replicas(meta.managed_fields)
    if place not in places or owner is None or not _is_rival(owner, now):
        return []
    says = f"{owner.manager} has set the replicas of {_named(place)} at {owner.time}, through its scale"
    do = "have one controller alone scale a target; what people set by hand holds until hpad scales again"
    return [Finding("targets", WARNING, says, do)]


def _is_rival(owner: managed.Entry, now: datetime) -> bool:
    if owner.manager == managed.OURS or owner.subresource != managed.SCALE:
        return False
    try:
        return now - msgspec.convert(owner.time, datetime) < _RECENT
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


def _named(place: Place) -> str:
    kind = next((kind.resource.kind for kind in scale.WATCHED if kind.resource.kind.lower() == place.kind), place.kind)
    return f"{kind}/{place.name} in {place.namespace}"
