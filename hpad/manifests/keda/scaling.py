"""Carries over what a ScaledObject says beside its triggers: annotations and labels, bounds and times.

Sources: KEDA 2.21, "ScaledObject specification", "Scaling Deployments, StatefulSets & Custom Resources";
scaledobject_types.go: getBoolAnnotation; pkg/scaling/executor/scale_scaledobjects.go: scaleToZeroOrIdle.
"""

from collections.abc import Mapping
from typing import Any, Final

from hpad.api.problem import Invalid, invalid
from hpad.engine import controls
from hpad.engine.words import span
from hpad.manifests.autoscalers import LAST_APPLIED, OF_THE_SERVER
from hpad.manifests.keda.conversion import Conversion
from hpad.manifests.keda.fields import FALSE, Fields

# Annotations and labels: pauses, switches, and those of others.

_PREFIX: Final = "autoscaling.keda.sh/"
_PAUSED, _PAUSED_REPLICAS = f"{_PREFIX}paused", f"{_PREFIX}paused-replicas"
_EXCLUDED_LABELS: Final = "scaledobject.keda.sh/hpa-excluded-labels"
_TRANSFER: Final = "scaledobject.keda.sh/transfer-hpa-ownership"
_SWITCHES: Final = {
    "paused-scale-in": "is carried over as spec.behavior.scaleDown.selectPolicy Disabled",
    "paused-scale-out": "is carried over as spec.behavior.scaleUp.selectPolicy Disabled",
    "force-activation": "is carried over as minReplicas of 1 or more",
}
_HANDLED: Final = (_PAUSED, _PAUSED_REPLICAS, _EXCLUDED_LABELS, *(_PREFIX + switch for switch in _SWITCHES))
_NEEDLESS: Final = {
    _TRANSFER: "is left out: the HPA keeps its name; in the API server it is the ScaledObject's, and goes with it: "
    "apply the new one once the ScaledObject is gone",
    "validations.keda.sh/hpa-ownership": "is left out: it has no effect without KEDA",
}


def pause(annotations: Fields, conversion: Conversion) -> None:
    """Sets the mode of an HPA whose ScaledObject is paused. Raises Invalid."""
    kept = f"is carried over as {controls.MODE}: {controls.PAUSED}"
    if _PAUSED_REPLICAS in annotations:
        count, field = annotations.text(_PAUSED_REPLICAS), annotations.at(_PAUSED_REPLICAS)
        if not count.removeprefix("-").isdigit():
            raise Invalid(invalid(field, count, "must be a whole number"))
        conversion.own[controls.MODE] = controls.PAUSED
        text = f"{kept}: hpad leaves the replicas as they are, which KEDA has set to {count}"
        conversion.note_change(field, text)
    if _PAUSED in annotations and annotations.text(_PAUSED) not in FALSE:
        conversion.own[controls.MODE] = controls.PAUSED
        conversion.note_change(annotations.at(_PAUSED), kept)


def switches(annotations: Fields, conversion: Conversion) -> set[str]:
    """Returns the names, without prefix, of KEDA's other switches that are on."""
    on = set()
    for name, instead in _SWITCHES.items():
        if (_PREFIX + name) in annotations and annotations.text(_PREFIX + name) not in FALSE:
            conversion.note_change(annotations.at(_PREFIX + name), instead)
            on.add(name)
    return on


def metadata_of(fields: Fields, name: Any, own: dict[str, str], conversion: Conversion) -> dict[str, Any]:
    """Returns the HPA's metadata: name, namespace, labels and annotations. `own`: the annotations for hpad."""
    for each in OF_THE_SERVER:
        fields.get(each)
    finalizers = fields.get("finalizers", [])
    if not isinstance(finalizers, list) or not all(str(each).endswith(".keda.sh") for each in finalizers):
        conversion.note_loss(fields.at("finalizers"), "is not carried over")
    annotations = fields.object("annotations")
    metadata: dict[str, Any] = {"name": name}
    metadata |= {key: fields.get(key) for key in ("namespace",) if fields.get(key)}
    if labels := _labels(fields.get("labels"), annotations, conversion):
        metadata["labels"] = labels
    kept = _annotations(annotations, own, conversion)
    return {**metadata, "annotations": kept} if kept else metadata


def _labels(labels: Any, annotations: Fields, conversion: Conversion) -> Any:
    """Returns the labels without those that an annotation keeps from the HPA."""
    excluded = [each.strip() for each in annotations.text(_EXCLUDED_LABELS).split(",")]
    if not isinstance(labels, dict):
        return labels
    labels = {name: "" if value is None else value for name, value in labels.items()}
    if _EXCLUDED_LABELS in annotations:
        conversion.note_change(annotations.at(_EXCLUDED_LABELS), "is left out: the HPA has the other labels")
        conversion.note_change("metadata.labels", f"are carried over without {', '.join(excluded)}")
    return {name: value for name, value in labels.items() if name not in excluded}


def _annotations(fields: Fields, own: dict[str, str], conversion: Conversion) -> dict[str, Any]:
    """Returns the annotations without those of KEDA, with those for hpad."""
    kept: dict[str, Any] = {}
    for name in fields:
        text, field = fields.get(name), fields.at(name)
        if name in own:
            conversion.note_loss(field, f"is not carried over: KEDA's fields set this annotation to {own[name]}")
        elif name in _NEEDLESS:
            conversion.note_change(field, _NEEDLESS[name])
        elif name == LAST_APPLIED:
            continue
        elif name in _HANDLED:
            if name not in (_EXCLUDED_LABELS, _PAUSED_REPLICAS) and str(text) in FALSE:
                conversion.note_change(field, "is left out: it is off")
        elif "keda.sh/" in name:
            conversion.note_loss(field, "is not carried over")
        else:
            kept[name] = text
    return kept | own


# Minimum, idle count, polling interval and cooldown.

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
