"""Rivals: does somebody else do hpad's work on the same HPAs?"""

import itertools
from datetime import datetime, timedelta
from typing import Any

import msgspec

from hpad.cli.checkup.finding import ERROR, NOTE, OK, Finding, counted
from hpad.kube import errors, paths
from hpad.kube.client import Client
from hpad.settings import Settings

_OURS = "hpad"
"""The manager that an API server notes for our writes: the user agent up to its slash."""
_RECENT = timedelta(minutes=5)
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
_MOST = 500
_NAMED = 3


class _Written(msgspec.Struct):
    """An entry of managedFields."""

    manager: str = ""
    subresource: str = ""
    time: datetime | None = None


class _Meta(msgspec.Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    managed_fields: list[_Written] = []


class _Headed(msgspec.Struct):
    metadata: _Meta


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


async def check(client: Client, told: Settings, found: Hpas) -> list[Finding]:
    """Who else has written the status of these HPAs of late, and whether a kube-controller-manager runs."""
    now = client.clock.now()
    rivals: dict[str, list[str]] = {}
    for raw in found.items:
        meta = msgspec.json.decode(raw, type=_Headed).metadata
        for entry in meta.managed_fields:
            recent = entry.time is not None and now - entry.time < _RECENT
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
    if now - renewed > _RECENT:
        return []
    says = "a kube-controller-manager is at work; that its HPA controller is off can only be seen once there are HPAs"
    return [
        Finding("rivals", NOTE, says, "make sure that it has --controllers=*,-horizontal-pod-autoscaler-controller")
    ]
