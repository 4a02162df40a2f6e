"""Carries over the bounds and times of a ScaledObject: minimum, idle count, polling interval and cooldown.

Source: KEDA 2.21, "ScaledObject specification"; pkg/scaling/executor/scale_scaledobjects.go: scaleToZeroOrIdle.
"""

from collections.abc import Mapping
from typing import Any, Final

from hpad.api.problem import Invalid, invalid
from hpad.engine import controls
from hpad.engine.words import span
from hpad.manifests.keda.conversion import Conversion
from hpad.manifests.keda.fields import Fields

POLLING_SECONDS: Final = 30
_PERIOD_SECONDS: Final = 15
"""How often KEDA's HPA, and hpad, read the metrics while there are replicas."""
_COOLDOWN_SECONDS: Final = 300
_WINDOW_SECONDS: Final = 300
_LONGEST_PERIOD: Final = 3600
_MINIMUM: Final = 0
_RESOURCES: Final = ("Resource", "ContainerResource")
WINDOW: Final = "stabilizationWindowSeconds"
_NO_EFFECT: Final = "is left out: without a scale to zero it has no effect"


def minimum(spec: Fields, conversion: Conversion, namespace: str, *, active: bool) -> int:
    """Returns minReplicas. KEDA's default is 0, which needs a metric that exists without pods: not CPU or memory."""
    count, idle = spec.count("minReplicaCount", _MINIMUM), idle_minimum(spec)
    if active or (count and not idle):
        return max(count, 1)
    if all(metric["type"] in _RESOURCES for metric in conversion.metrics):
        conversion.note_change(
            "spec.minReplicaCount", "0 needs a metric that is not of cpu or memory; carried over as 1"
        )
        return max(count, 1)
    target = spec.object("scaleTargetRef")
    target_id = f"{(target.text('kind') or 'Deployment').lower()}/{target.text('name')}"
    conversion.note_change(
        "spec.minReplicaCount",
        "0 needs the feature gate HPAScaleToZero, which the configuration sets; an HPA of the cluster needs it on the "
        "API server as well, one of --manifests and an Autoscaler do not; if KEDA has put the target to sleep when you "
        f"switch, wake it once: kubectl scale -n {namespace} --replicas=1 {target_id}",
    )
    return 0


def idle_minimum(spec: Fields) -> int:
    """Returns the minimum while a trigger is active, where there are fewer replicas without; else 0."""
    if "idleReplicaCount" not in spec:
        return 0
    idle, count, field = spec.count("idleReplicaCount", 0), spec.count("minReplicaCount", _MINIMUM), "idleReplicaCount"
    if idle >= count:
        raise Invalid(invalid(spec.at(field), idle, "must be less than minReplicaCount"))
    return count if idle == 0 else 0


def may_sleep(spec: Fields) -> bool:
    """Returns whether KEDA scales the target to zero."""
    return not spec.count("minReplicaCount", _MINIMUM) or bool(idle_minimum(spec))


def note_idle(spec: Fields, conversion: Conversion) -> None:
    """Notes an idle count."""
    if "idleReplicaCount" in spec and spec.count("idleReplicaCount", 0):
        text = f"{spec.get('idleReplicaCount')} is not carried over: 0 is the only one that works in KEDA, too"
        conversion.note_loss(spec.at("idleReplicaCount"), text)
    elif "idleReplicaCount" in spec:
        text = "is carried over as minReplicas 0, and minReplicaCount as a metric that holds while a trigger is active"
        conversion.note_change(spec.at("idleReplicaCount"), text)


def sync_period(spec: Fields, conversion: Conversion, *, cached: bool) -> None:
    """Carries over pollingInterval, where KEDA reads the metrics as often, or as seldom, between 1 and N replicas.

    KEDA's own interval wakes a target at zero. While there are replicas its HPA asks every 15 s, unless the answers are
    cached.
    """
    if "pollingInterval" not in spec:
        return
    seconds, field = spec.count("pollingInterval", POLLING_SECONDS), spec.at("pollingInterval")
    if not seconds:
        raise Invalid(invalid(field, seconds, "must be 1 or more"))
    if seconds == POLLING_SECONDS and not cached:
        conversion.note_change(field, "is left out: it is KEDA's default, and hpad reads each metric every 15 s")
    elif seconds < _PERIOD_SECONDS or cached:
        period = f"{min(seconds, _LONGEST_PERIOD)}s"
        conversion.own[controls.SYNC_PERIOD] = period
        more = f", which is at most {_LONGEST_PERIOD}s" if seconds > _LONGEST_PERIOD else ""
        conversion.note_change(field, f"is carried over as {controls.SYNC_PERIOD}: {period}{more}")
    elif seconds == _PERIOD_SECONDS:
        conversion.note_change(field, "is left out: hpad reads each metric every 15 s")
    else:
        text = (
            "is left out: hpad reads each metric every 15 s, as KEDA's HPA does while there are replicas; to ask the "
            f"source less often, set limits.fresh of the source, or {controls.SYNC_PERIOD}: {seconds}s"
        )
        conversion.note_change(field, text)


def cooldown(spec: Fields, behavior: Mapping[str, Any], conversion: Conversion, *, to_zero: bool) -> None:
    """Carries over cooldownPeriod and initialCooldownPeriod, which delay the scale to zero alone.

    KEDA removes all replicas a cooldown after a trigger was last active; its HPA does the other scale-downs. Without
    `hpad.io/zero-after` hpad goes to zero after the scale-down window.
    """
    period, field = spec.count("cooldownPeriod", _COOLDOWN_SECONDS), spec.at("cooldownPeriod")
    down = behavior.get("scaleDown") or {}
    window = down.get(WINDOW, _WINDOW_SECONDS)
    _initial(spec, conversion, to_zero=to_zero)
    if not to_zero:
        if "cooldownPeriod" in spec:
            conversion.note_change(field, _NO_EFFECT)
    elif period != window:
        _carry_over(controls.ZERO_AFTER, period, field, conversion, of_steps=bool(down.get("policies")))
    elif "cooldownPeriod" in spec:
        conversion.note_change(field, f"is left out: it is as long as the scale-down window, {window} s")


def _initial(spec: Fields, conversion: Conversion, *, to_zero: bool) -> None:
    if "initialCooldownPeriod" not in spec:
        return
    period, field = spec.count("initialCooldownPeriod", 0), spec.at("initialCooldownPeriod")
    if to_zero and period:
        _carry_over(controls.INITIAL_DELAY, period, field, conversion)
    else:
        conversion.note_change(field, "is left out: 0 is no delay" if to_zero else _NO_EFFECT)


def _carry_over(name: str, seconds: int, field: str, conversion: Conversion, *, of_steps: bool = False) -> None:
    longest = int(controls.LONGEST_WAIT.total_seconds())
    written = span(min(seconds, longest))
    conversion.own[name] = written
    text = f"is carried over as {name}: {written}"
    if seconds > longest:
        conversion.note_loss(field, f"{text}, the longest")
    else:
        steps = "; the policies of scaleDown bound this step as well, which KEDA takes at once"
        conversion.note_change(field, text + (steps if of_steps else ""))
