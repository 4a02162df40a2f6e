"""The checks of single HPAs of `hpad doctor`.

`zero`: targets at zero replicas, and whether the metrics of their HPAs wake them. `idle-first`: HPAs whose annotation
hpad.io/scale-down-order has no effect, and why.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.cli.checks import NOTE, OK, WARNING, Finding, listed
from hpad.cli.competing import TargetState, target_of
from hpad.cli.output import counted
from hpad.engine import annotations, conditions, spare
from hpad.engine.controls import IN_SHADOW
from hpad.engine.view import KEDA, View
from hpad.kube import errors, managed_fields
from hpad.kube.access import Right, allowed
from hpad.kube.client import Client
from hpad.settings import Settings, hpas


def check_asleep(
    settings: Settings, hpas: Iterable[HorizontalPodAutoscaler], states: Iterable[TargetState], now: datetime
) -> list[Finding]:
    """Returns a warning for each target at zero that stays there although its HPA is meant to wake it.

    A target that KEDA put to sleep, and that hpad wakes, has a finding of level ok.
    """
    at_zero = {state.key: state for state in states if state.replicas == 0}
    found = [(hpa, at_zero[target_of(hpa)]) for hpa in hpas if target_of(hpa) in at_zero]
    return [finding for hpa, state in found if (finding := _asleep(settings, hpa, state, now)) is not None]


def _asleep(settings: Settings, hpa: HorizontalPodAutoscaler, state: TargetState, now: datetime) -> Finding | None:
    setter = managed_fields.setter(state.owner)
    view = View(hpa=hpa, now=now, tunables=settings.tunables, zero_by=setter)
    key, ref = hpa.metadata.key, hpa.spec.scale_target_ref
    if view.zero_taken_over:
        says = f"{state} is asleep, as {setter} left it: the metrics of {key} wake it"
        return Finding("zero", OK, says) if setter in KEDA else None
    marked = conditions.find(hpa.status.conditions, conditions.SCALED_TO_ZERO)
    own = not setter and marked is not None and marked.status == conditions.TRUE
    if own or not (why := view.zero_stays):
        return None
    command = f"kubectl scale -n {key.namespace} --replicas={hpa.spec.min_replicas or 1}"
    do = f"unless it shall stay stopped: {command} {ref.kind.lower()}/{ref.name}"
    return Finding("zero", WARNING, f"{state} is at zero replicas, and {key} does not wake it: {why}", do)


def check_shadow(settings: Settings, found: Iterable[HorizontalPodAutoscaler], now: datetime) -> list[Finding]:
    """Returns a note if HPAs are in shadow mode now: in a dry run all that are not paused."""
    own = annotations.AnnotationReader(None, hpas.defaults(settings.hpas))
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
    own = annotations.AnnotationReader(None, hpas.defaults(settings.hpas))
    named = [hpa for hpa in found if own.of(hpa).controls.idle_first]
    by_ordinal = [hpa for hpa in named if spare.by_ordinal(hpa)]
    others = {hpa.metadata.namespace: hpa.metadata.name for hpa in named if hpa not in by_ordinal}
    try:
        refused = [] if settings.dry_run else [each for each in sorted(others) if not await _may_patch(client, each)]
    except errors.ApiError as error:
        says = f"the API server does not report whether hpad may patch pods: {error.message}"
        return [Finding(_CHECK, WARNING, says, "compare the rights of hpad's user with config/rbac-idle-first.yaml")]
    findings = []
    if by_ordinal:
        names = listed([str(hpa.metadata.key) for hpa in by_ordinal])
        says = (
            f"hpad.io/scale-down-order has no effect on {names}: a StatefulSet removes the pod with the highest ordinal"
        )
        findings.append(Finding(_CHECK, NOTE, says, 'hpad.io/keep-busy: "true" keeps busy pods of a StatefulSet'))
    if refused:
        says = f"may not patch pods in {listed(refused)}: scale-downs there remove pods in any order"
        findings.append(Finding(_CHECK, WARNING, says, "grant it as config/rbac-idle-first.yaml does"))
    elif others:
        findings.append(Finding(_CHECK, OK, "hpad may patch pods wherever an HPA has hpad.io/scale-down-order"))
    return findings


async def _may_patch(client: Client, namespace: str) -> bool:
    return await allowed(client, Right("patch", "", "pods", namespace=namespace))
