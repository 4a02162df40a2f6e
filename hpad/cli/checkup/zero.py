"""Scale to zero: is it asked for, and allowed?"""

from collections.abc import Iterable

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.cli.checkup.finding import WARNING, Finding
from hpad.settings import Settings

_NAMED = 3


def check(told: Settings, hpas: Iterable[HorizontalPodAutoscaler]) -> list[Finding]:
    """A finding if HPAs have minReplicas 0 while the feature gate HPAScaleToZero is off."""
    names = sorted(str(hpa.metadata.key) for hpa in hpas if hpa.spec.min_replicas == 0)
    if told.tunables.gates.HPAScaleToZero or not names:
        return []
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    says = f"minReplicas is 0 in {listed}, but the feature gate HPAScaleToZero is off: "
    if told.tunables.gates.HPAMinimumOfOne:
        says += "metrics never ask for less than 1 replica there, and do not wake a target that is at zero"
    else:
        says += "hpad scales to zero, and metrics never wake a target from there"
    do = "set feature_gates: {HPAScaleToZero: true}, as in the API server, or minReplicas: 1"
    return [Finding("zero", WARNING, says, do)]
