"""The check `idle-first` of `hpad doctor`: HPAs whose annotation hpad.io/scale-down-order has no effect, and why."""

from collections.abc import Iterable
from typing import Final

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.cli.checks import NOTE, OK, WARNING, Finding, listed
from hpad.engine import annotations, spare
from hpad.kube import errors
from hpad.kube.access import Right, allowed
from hpad.kube.client import Client
from hpad.settings import Settings, hpas

_CHECK: Final = "idle-first"


async def check_idle_first(
    client: Client, settings: Settings, found: Iterable[HorizontalPodAutoscaler]
) -> list[Finding]:
    """Returns findings on the HPAs with the annotation; none where no HPA has it. Reviews one right per namespace."""
    own = annotations.Reader(None, hpas.defaults(settings.hpas))
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
