"""The checks of `hpad doctor` on HPAs and their targets.

`targets`: does a client besides hpad's HPAs set their replicas? Read from the HPAs and from metadata.managedFields.
`zero`: targets at zero replicas, and whether the metrics of their HPAs wake them. `shadow`: HPAs in shadow mode.
`idle-first`: HPAs whose annotation hpad.io/scale-down-order has no effect, and why.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api import selector
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import AUTOSCALER_KEY, Key
from hpad.api.wire import UNDECODABLE
from hpad.cli.doctor_checks import ERROR, NOTE, OK, WARNING, Finding, listed
from hpad.cli.output import counted
from hpad.engine import annotations, busy, conditions
from hpad.engine.controls import IN_SHADOW
from hpad.engine.view import View
from hpad.kube import competitors, errors, managed_fields, paths, scale, watch
from hpad.kube.access import Right, allowed
from hpad.kube.client import Client
from hpad.kube.competitors import TargetKey
from hpad.settings import Settings
from hpad.settings import hpas as section
from hpad.settings.model import AUTOSCALERS, YIELD

_RECENT = timedelta(seconds=competitors.RECENT)
_PAGE = 500
_WATCHED = {(kind.resource.group, kind.resource.kind.lower()): kind.resource for kind in scale.WATCHED}


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    managed_fields: msgspec.Raw = msgspec.Raw(b"")


class _Spec(msgspec.Struct):
    replicas: int | None = None


class Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None


class TargetState(NamedTuple):
    """A target as the API server has it; `owner` is the client that set its replicas last, None if unknown."""

    key: TargetKey
    replicas: int
    owner: managed_fields.ManagedFieldsEntry | None

    def __str__(self) -> str:
        return _target_name(self.key)


async def listed_hpas(client: Client, settings: Settings, resource: paths.Resource) -> list[msgspec.Raw]:
    """Returns the HPAs or Autoscalers that hpad would own, undecoded; raises ApiError."""
    chosen = {"labelSelector": settings.hpa_selector} if settings.hpa_selector else {}
    return [
        item
        for namespace in settings.namespaces or ("",)
        async for item in _items(client, resource.collection(namespace), chosen)
    ]


async def check_targets(
    client: Client, settings: Settings, hpas: Iterable[HorizontalPodAutoscaler], states: Iterable[TargetState]
) -> list[Finding]:
    """Findings on targets that several HPAs scale, and on clients that set replicas. `hpas`: hpad's own of both kinds.

    An HPA and an Autoscaler are no rivals where the Autoscaler is in shadow mode.
    """
    ours: dict[TargetKey, set[Key]] = defaultdict(set)
    yielding: dict[TargetKey, set[Key]] = defaultdict(set)
    own = annotations.AnnotationReader(None, section.defaults(settings.hpas))
    for hpa in hpas:
        ours[target_of(hpa)].add(hpa.key)
        if not hpa.key.kind or own.of(hpa).controls.mode != IN_SHADOW:
            yielding[target_of(hpa)].add(hpa.key)
    found = [
        _several_hpas(target, same)
        for target, keys in sorted(ours.items())
        for kind in ("", AUTOSCALER_KEY)
        if len(same := {key for key in keys if key.kind == kind}) > 1
    ]
    found += [
        _competing_hpa(settings, target, autoscalers, leading)
        for target, keys in sorted(yielding.items())
        if (autoscalers := {key for key in keys if key.kind}) and (leading := keys - autoscalers)
    ]
    try:
        others = await _competing_hpas(client, settings)
        found += [
            _competing_hpa(settings, target, yielding[target], others[target])
            for target in sorted(yielding.keys() & others)
        ]
    except errors.ApiError as error:
        do = "grant `list` and `watch` of horizontalpodautoscalers as config/rbac does"
        found.append(Finding("targets", NOTE, f"{competitors.UNKNOWN}: {error.message}", do))
    now = client.clock.now()
    found += [finding for state in states if (finding := _competing_client(state, now)) is not None]
    if settings.dry_run:
        found = [msgspec.structs.replace(each, level=NOTE) for each in found]
    return found or [Finding("targets", OK, "no other client scales the targets of hpad's HPAs")]


def _several_hpas(target: TargetKey, keys: set[Key]) -> Finding:
    says = f"{_hpa_names(keys)} scale the same target {_target_name(target)}: none of them acts (AmbiguousSelector)"
    return Finding("targets", ERROR, says, "keep one HPA for each target, with all its metrics")


def _competing_hpa(settings: Settings, target: TargetKey, ours: set[Key], others: set[Key]) -> Finding:
    if settings.manifests is not None:
        origin = " of the manifests"
    else:
        origin = "" if any(key.kind for key in ours) else " of hpad's"
    yields = settings.competing_hpas == YIELD
    effect = "hpad leaves the target to the API server's HPA" if yields else "both write its replicas"
    hpas = f"{_hpa_names(others)} of the API server and {_hpa_names(ours)}{origin}"
    shadow = ", or give the Autoscaler the option mode: shadow" if all(key.kind for key in ours) else ""
    do = f"delete one of them{shadow}; with competing_hpas: write hpad scales the target as well"
    return Finding("targets", ERROR, f"{hpas} scale the same target {_target_name(target)}: {effect}", do)


async def _competing_hpas(client: Client, settings: Settings) -> dict[TargetKey, set[Key]]:
    """Returns the HPAs of the API server that hpad does not own, by target; raises ApiError."""
    found: dict[TargetKey, set[Key]] = defaultdict(set)
    owned = settings.manifests is None and settings.kinds != AUTOSCALERS
    if owned and not settings.hpa_selector:
        return found
    chosen = selector.parse(settings.hpa_selector) if owned else None
    for namespace in settings.namespaces or ("",):
        async for item in _items(client, paths.HPAS.collection(namespace)):
            try:
                scaler, is_ours = competitors.decode(item, chosen)
            except UNDECODABLE:
                continue
            if not is_ours:
                found[scaler.target_key].add(scaler.key)
    return found


async def target_states(client: Client, hpas: Iterable[HorizontalPodAutoscaler]) -> list[TargetState]:
    """Returns the targets of these HPAs that exist, of the kinds that hpad watches and may list."""
    wanted, found = {target_of(hpa) for hpa in hpas}, []
    for namespace, group, kind in sorted({target[:3] for target in wanted}):
        if (resource := _WATCHED.get((group, kind))) is None:
            continue
        try:
            async for item in _items(client, resource.collection(namespace)):
                state = _state(item, (group, kind))
                if state is not None and state.key in wanted:
                    found.append(state)
        except errors.ApiError:
            continue  # the check `rights` reports kinds that hpad may not list
    return found


def target_of(hpa: HorizontalPodAutoscaler) -> TargetKey:
    return competitors.target_key(hpa.metadata.namespace, hpa.spec.scale_target_ref)


def _state(item: msgspec.Raw, kind: tuple[str, str]) -> TargetState | None:
    try:
        found = msgspec.json.decode(item, type=Object)
    except msgspec.MsgspecError:
        return None
    key = TargetKey(found.metadata.namespace, *kind, found.metadata.name)
    replicas = 1 if found.spec is None or found.spec.replicas is None else found.spec.replicas
    return TargetState(key, replicas, managed_fields.owner_of_replicas(found.metadata.managed_fields))


def _competing_client(state: TargetState, now: datetime) -> Finding | None:
    """Returns a warning about a client that set the replicas of a target recently."""
    owner = state.owner
    if owner is None or owner.manager == managed_fields.OURS:
        return None
    # A count that was set with the whole object, as by kubectl apply, comes from a user: controllers write the scale.
    if owner.subresource != managed_fields.SCALE or not is_recent(owner.time, now):
        return None
    says = f"{owner.manager} has set the replicas of {state} at {owner.time}, through its scale"
    do = "let one controller alone scale a target; a count set by hand stays until hpad scales again"
    return Finding("targets", WARNING, says, do)


def is_recent(time: object, now: datetime) -> bool:
    """Returns whether a time of the API server is less than five minutes old; False if it is not readable."""
    try:
        return now - msgspec.convert(time, datetime) < _RECENT
    except (msgspec.ValidationError, TypeError):  # TypeError: the time has no zone
        return False


async def _items(client: Client, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[msgspec.Raw]:
    """Yields the objects of a list, page by page; raises ApiError."""
    async for page in watch.pages(client, path, params or {}, _PAGE):
        for item in page.items or ():
            yield item


def _hpa_names(keys: Iterable[Key]) -> str:
    known = sorted(keys)
    if all(key.kind for key in known):
        noun, names = "Autoscaler", [f"{key.namespace}/{key.name}" for key in known]
    else:
        noun, names = "HPA", [str(key) for key in known]
    return f"{noun}{'' if len(known) == 1 else 's'} {listed(names)}"


def _target_name(target: TargetKey) -> str:
    resource = _WATCHED.get((target.group, target.kind))
    return f"{resource.kind if resource else target.kind}/{target.name} in {target.namespace}"


# Targets at zero, HPAs in shadow mode, and the annotation hpad.io/scale-down-order.


def check_asleep(
    settings: Settings, hpas: Iterable[HorizontalPodAutoscaler], states: Iterable[TargetState], now: datetime
) -> list[Finding]:
    """Returns a warning for each target at zero that stays there although its HPA is meant to wake it."""
    at_zero = {state.key: state for state in states if state.replicas == 0}
    found = [(hpa, at_zero[target_of(hpa)]) for hpa in hpas if target_of(hpa) in at_zero]
    return [finding for hpa, state in found if (finding := _asleep(settings, hpa, state, now)) is not None]


def _asleep(settings: Settings, hpa: HorizontalPodAutoscaler, state: TargetState, now: datetime) -> Finding | None:
    setter = managed_fields.setter(state.owner)
    view = View(hpa=hpa, now=now, tunables=settings.tunables, zero_by=setter)
    key, ref = hpa.key, hpa.spec.scale_target_ref
    marked = conditions.find(hpa.status.conditions, conditions.SCALED_TO_ZERO)
    own = not setter and marked is not None and marked.status == conditions.TRUE
    if own or not (why := view.zero_stays):
        return None
    command = f"kubectl scale -n {key.namespace} --replicas=1 {ref.kind.lower()}/{ref.name}"
    do = f"unless it shall stay stopped: {command}"
    return Finding("zero", WARNING, f"{state} is at zero replicas, and {key} does not wake it: {why}", do)


def check_shadow(settings: Settings, found: Iterable[HorizontalPodAutoscaler], now: datetime) -> list[Finding]:
    """Returns a note if HPAs are in shadow mode now: in a dry run all that are not paused."""
    own = annotations.AnnotationReader(None, section.defaults(settings.hpas))
    controls = [own.of(hpa).controls for hpa in found]
    shadows = [each for each in controls if not each.is_paused(now) and (settings.dry_run or each.mode == IN_SHADOW)]
    if not shadows:
        return []
    says = f"{counted(len(shadows), 'HPA')} in shadow mode: hpad decides, and leaves the target alone"
    return [Finding("shadow", NOTE, says, "see where the counts differed: hpad shadow-report")]


_CHECK: Final = "idle-first"


async def check_idle_first(
    client: Client, settings: Settings, found: Iterable[HorizontalPodAutoscaler]
) -> list[Finding]:
    """Returns findings on the HPAs with the annotation; none where no HPA has it. Reviews one right per namespace."""
    own = annotations.AnnotationReader(None, section.defaults(settings.hpas))
    named = [hpa for hpa in found if own.of(hpa).controls.idle_first]
    by_ordinal = [hpa for hpa in named if busy.by_ordinal(hpa)]
    others = {hpa.metadata.namespace: hpa.metadata.name for hpa in named if hpa not in by_ordinal}
    try:
        refused = [] if settings.dry_run else [each for each in sorted(others) if not await _may_patch(client, each)]
    except errors.ApiError as error:
        says = f"the API server does not report whether hpad may patch pods: {error.message}"
        return [Finding(_CHECK, WARNING, says, "compare the rights of hpad's user with config/rbac/idle-first")]
    findings = []
    if by_ordinal:
        names = listed([str(hpa.key) for hpa in by_ordinal])
        says = (
            f"hpad.io/scale-down-order has no effect on {names}: a StatefulSet removes the pod with the highest ordinal"
        )
        findings.append(Finding(_CHECK, NOTE, says, 'hpad.io/keep-busy: "true" keeps busy pods of a StatefulSet'))
    if refused:
        says = f"may not patch pods in {listed(refused)}: scale-downs there remove pods in any order"
        findings.append(Finding(_CHECK, WARNING, says, "grant it as config/rbac/idle-first does"))
    elif others:
        findings.append(Finding(_CHECK, OK, "hpad may patch pods wherever an HPA has hpad.io/scale-down-order"))
    return findings


async def _may_patch(client: Client, namespace: str) -> bool:
    return await allowed(client, Right("patch", "", "pods", namespace=namespace))
