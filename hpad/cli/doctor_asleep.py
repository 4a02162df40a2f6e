"""The check `zero` of `hpad doctor`: targets at zero replicas, and whether the metrics of their HPAs wake them."""

from collections.abc import Iterable
from datetime import datetime

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.cli.checks import OK, WARNING, Finding
from hpad.cli.competing import TargetState, target_of
from hpad.engine import conditions
from hpad.engine.view import KEDA, View
from hpad.kube import managed_fields
from hpad.settings import Settings


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
