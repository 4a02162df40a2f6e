"""Converts a ScaledObject (keda.sh/v1alpha1) to an HPA and the sources that it needs.

Source: KEDA 2.21, "Pause scaling" and "ScaledObject specification".
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from hpad.api import hpa as v2
from hpad.api.fields import required
from hpad.engine import fallback_policy
from hpad.manifests.keda import queues, triggers
from hpad.manifests.keda.conversion import Conversion, Converted, Note, Trigger
from hpad.manifests.keda.fields import ConversionError, Fields

_PREFIX: Final = "autoscaling.keda.sh/"
_PAUSED, _PAUSED_REPLICAS = f"{_PREFIX}paused", f"{_PREFIX}paused-replicas"
_SWITCHES: Final = {
    "paused-scale-in": "is carried over as spec.behavior.scaleDown.selectPolicy Disabled",
    "paused-scale-out": "is carried over as spec.behavior.scaleUp.selectPolicy Disabled",
    "force-activation": "is carried over as minReplicas of 1 or more",
}
_NEEDLESS: Final = ("scaledobject.keda.sh/transfer-hpa-ownership", "validations.keda.sh/hpa-ownership")
_BY_SERVERS: Final = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")
"""False by Go's strconv.ParseBool; for KEDA any other text is true."""


def _paused(annotations: Fields) -> Note | None:
    """Returns the note on a paused ScaledObject, which gets no HPA; None if it is not paused."""
    for name in (_PAUSED_REPLICAS, _PAUSED):
        if name in annotations and (name == _PAUSED_REPLICAS or annotations.text(name) not in _FALSE):
            return Note(
                annotations.at(name),
                "the ScaledObject is paused: no HPA is written, since it would scale at once, and nothing else of the "
                "ScaledObject is carried over; remove the annotation and convert again when it may scale",
            )
    return None


def _switches(annotations: Fields, conversion: Conversion) -> set[str]:
    """Returns the names, without prefix, of KEDA's other switches that are on."""
    on = set()
    for name, instead in _SWITCHES.items():
        if (_PREFIX + name) in annotations and annotations.text(_PREFIX + name) not in _FALSE:
            conversion.note_change(annotations.at(_PREFIX + name), instead)
            on.add(name)
    return on


def _behavior(hpa_config: Fields, switches: set[str]) -> dict[str, Any]:
    """Returns the behavior of the HPA that KEDA would create; a switch disables its direction."""
    behavior: dict[str, Any] = copy.deepcopy(hpa_config.get("behavior") or {})
    for switch, direction in (("paused-scale-in", "scaleDown"), ("paused-scale-out", "scaleUp")):
        if switch in switches and isinstance(behavior, dict):
            rules = behavior.get(direction)
            behavior[direction] = {**(rules if isinstance(rules, dict) else {}), "selectPolicy": "Disabled"}
    return behavior


def _metadata(fields: Fields, name: Any, own: dict[str, str], conversion: Conversion) -> dict[str, Any]:
    """Returns the HPA's metadata: name, namespace, labels and annotations. `own`: the annotations for hpad."""
    for each in _BY_SERVERS:
        fields.get(each)
    finalizers = fields.get("finalizers", [])
    if not isinstance(finalizers, list) or not all(str(each).endswith(".keda.sh") for each in finalizers):
        conversion.note_loss(fields.at("finalizers"), "is not carried over")
    metadata: dict[str, Any] = {"name": name}
    metadata |= {key: fields.get(key) for key in ("namespace", "labels") if fields.get(key)}
    kept = _annotations(fields.object("annotations"), own, conversion)
    return {**metadata, "annotations": kept} if kept else metadata


def _annotations(fields: Fields, own: dict[str, str], conversion: Conversion) -> dict[str, Any]:
    """Returns the annotations without those of KEDA, with those for hpad."""
    kept: dict[str, Any] = {}
    for name in fields:
        text, field = fields.get(name), fields.at(name)
        if name in own:
            conversion.note_loss(field, f"is not carried over: KEDA's fields set this annotation to {own[name]}")
        elif name in _NEEDLESS:
            conversion.note_change(field, "is left out: it has no effect without KEDA")
        elif name == _LAST_APPLIED:
            continue
        elif name in (_PAUSED, *(_PREFIX + switch for switch in _SWITCHES)):
            if str(text) in _FALSE:
                conversion.note_change(field, "is left out: it is off")
        elif "keda.sh/" in name:
            conversion.note_loss(field, "is not carried over")
        else:
            kept[name] = text
    return kept | own


KIND: Final = "ScaledObject"
API_VERSION: Final = "keda.sh/v1alpha1"
_MINIMUM, _MAXIMUM = 0, 100
_POLLING_SECONDS, _COOLDOWN_SECONDS = 30, 300
_MAX_SECONDS = 2**31 - 1
_TRIGGERS: Mapping[str, Callable[[Trigger], None]] = {
    "rabbitmq": queues.rabbitmq,
    "prometheus": triggers.prometheus,
    "redis": queues.redis_lists,
    "redis-streams": queues.redis_streams,
    "metrics-api": triggers.metrics_api,
    "cpu": triggers.resource,
    "memory": triggers.resource,
    "cron": triggers.cron,
}
_ORIGINS: Final = {
    "spec.minReplicas": "spec.minReplicaCount",
    "spec.maxReplicas": "spec.maxReplicaCount",
    "spec.behavior": "spec.advanced.horizontalPodAutoscalerConfig.behavior",
    "spec.metrics": "spec.triggers",
}
_RESOURCES = ("Resource", "ContainerResource")


def is_scaled_object(value: Any) -> bool:
    """Returns whether a document is a ScaledObject of the version that `convert` reads."""
    return isinstance(value, dict) and value.get("apiVersion") == API_VERSION and value.get("kind") == KIND


def convert(value: Mapping[str, Any], taken: set[str] | None = None) -> Converted:
    """Converts a ScaledObject; raises ConversionError for one that KEDA would refuse as well.

    Each field is in the result or in a note, except fields that a server writes. `taken`: names of metrics of other
    ScaledObjects; the new names are added.
    """
    fields = Fields(value)
    metadata, spec = fields.object("metadata"), fields.object("spec")
    name, namespace = metadata.text("name"), metadata.text("namespace") or "default"
    if not name:
        raise ConversionError(required("metadata.name", "a ScaledObject has a name"))
    if paused := _paused(metadata.object("annotations")):
        return Converted(namespace, name, None, notes=(paused,))
    conversion = Conversion()
    for trigger, entry in _triggers(spec, f"{namespace}-{name}", conversion, set() if taken is None else taken):
        before = len(conversion.metrics)
        _TRIGGERS[trigger.type](trigger)
        if len(conversion.metrics) == before:
            entry.skip()  # its note covers all of its fields
    if not conversion.metrics:
        conversion.note_loss("spec.triggers", "no HPA is written: none of the triggers can be carried over")
        return Converted(namespace, name, None, notes=tuple(conversion.notes))
    hpa = _hpa(metadata, spec, conversion)
    for own in ("apiVersion", "kind", "status"):
        fields.get(own)
    for path in fields.unread():
        conversion.note_loss(path, "is not carried over: there is no counterpart")
    scale_to_zero = hpa["spec"]["minReplicas"] == 0
    return Converted(namespace, name, hpa, tuple(conversion.sources), tuple(conversion.notes), scale_to_zero)


def origin(field: str) -> str:
    """Returns the field of a ScaledObject that a field of its HPA comes from, or the nearest known one."""
    for own, keda in _ORIGINS.items():
        if field == own or field.startswith((f"{own}.", f"{own}[")):
            return keda + field.removeprefix(own)
    return field


def _hpa(metadata: Fields, spec: Fields, conversion: Conversion) -> dict[str, Any]:
    target = spec.object("scaleTargetRef")
    if not target.text("name"):
        raise ConversionError(required("spec.scaleTargetRef.name", "names the target"))
    reference = {"apiVersion": "apps/v1", "kind": "Deployment"} | {
        key: target.get(key) for key in ("apiVersion", "kind", "name") if target.get(key)
    }
    switches = _switches(metadata.object("annotations"), conversion)
    advanced = spec.object("advanced")
    hpa_config = advanced.object("horizontalPodAutoscalerConfig")
    behavior = _behavior(hpa_config, switches)
    minimum = _minimum(spec, conversion, active="force-activation" in switches)
    fallback = _fallback(spec, conversion)
    _note_intervals(spec, conversion, minimum)
    _note_advanced(advanced, conversion)
    hpa_spec = {
        "scaleTargetRef": reference,
        "minReplicas": minimum,
        "maxReplicas": spec.count("maxReplicaCount", _MAXIMUM),
        "metrics": conversion.metrics,
        **({"behavior": behavior} if behavior else {}),
    }
    name = hpa_config.get("name") or metadata.get("name")
    return {
        "apiVersion": v2.API_VERSION,
        "kind": v2.KIND,
        "metadata": _metadata(metadata, name, conversion.annotations(fallback), conversion),
        "spec": hpa_spec,
    }


def _triggers(spec: Fields, prefix: str, conversion: Conversion, taken: set[str]) -> Iterator[tuple[Trigger, Fields]]:
    """Yields the triggers of supported types, each with its fields; notes the others. Raises ConversionError."""
    entries = spec.objects("triggers")
    if not entries:
        raise ConversionError(required("spec.triggers", "a ScaledObject has at least one"))
    for index, entry in enumerate(entries):
        path, kind = f"spec.triggers[{index}]", entry.text("type")
        metadata, name = entry.object("metadata"), entry.text("name") or f"s{index}-{kind}"
        if kind not in _TRIGGERS:
            text = f'a trigger of type "{kind}" is not carried over; supported are {", ".join(_TRIGGERS)}'
            conversion.note_loss(path, text)
            entry.skip()
            continue
        _authentication(entry, conversion)
        if entry.truth("useCachedMetrics"):
            conversion.note_change(
                entry.at("useCachedMetrics"), "is left out: hpad shares answers anyway (limits.fresh)"
            )
        # All ScaledObjects share the settings, so the name of a metric must be unique among them.
        trigger = Trigger(
            path=path,
            metric=_unique(f"{prefix}-{name}".lower(), taken),
            type=kind,
            metadata=metadata,
            conversion=conversion,
            metric_type=entry.text("metricType"),
        )
        yield trigger, entry


def _unique(name: str, taken: set[str]) -> str:
    """Returns the name, with a number appended if another metric has it; adds it to `taken`."""
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name}-{number}"
    taken.add(unique)
    return unique


def _authentication(trigger: Fields, conversion: Conversion) -> None:
    if "authenticationRef" not in trigger:
        return
    reference = trigger.object("authenticationRef")
    kind, name = reference.text("kind") or "TriggerAuthentication", reference.text("name") or "?"
    conversion.note_loss(
        trigger.at("authenticationRef"),
        f'is not carried over: {kind} "{name}" is not read: mount its secret into hpad and write into the source '
        "username and password_file, bearer_token_file, ca, cert and key, as far as it has them",
    )


def _minimum(spec: Fields, conversion: Conversion, *, active: bool) -> int:
    """Returns minReplicas. KEDA's default is 0, which needs a metric that exists without pods: not CPU or memory."""
    minimum = spec.count("minReplicaCount", _MINIMUM)
    if minimum or active:
        return max(minimum, 1)
    if all(metric["type"] in _RESOURCES for metric in conversion.metrics):
        conversion.note_change(
            "spec.minReplicaCount", "0 needs a metric that is not of cpu or memory; carried over as 1"
        )
        return 1
    conversion.note_change(
        "spec.minReplicaCount",
        "0 needs the feature gate HPAScaleToZero, which the configuration sets; an HPA of the cluster needs it on the "
        "API server as well, one of --manifests does not",
    )
    return 0


def _note_intervals(spec: Fields, conversion: Conversion, minimum: int) -> None:
    """Notes KEDA's polling interval and cooldown periods; a field with KEDA's default counts as absent."""
    intervals = (
        ("pollingInterval", _POLLING_SECONDS, "hpad reads each metric once per sync_period"),
        ("cooldownPeriod", _COOLDOWN_SECONDS, "a scale to zero waits as each scale-down does: spec.behavior.scaleDown"),
        ("initialCooldownPeriod", 0, "there is no counterpart"),
    )
    for name, default, instead in intervals:
        if name not in spec:
            continue
        if spec.count(name, default) == default:
            conversion.note_change(spec.at(name), f"is left out: it is KEDA's default; {instead}")
        elif minimum and name != "pollingInterval":
            conversion.note_change(spec.at(name), "is left out: without a scale to zero it has no effect")
        else:
            conversion.note_loss(spec.at(name), f"is not carried over: {instead}")
    if "idleReplicaCount" in spec:
        spec.count("idleReplicaCount", 0)
        instead = "set minReplicas to 0 and use the annotation hpad.io/activation, or leave it out"
        conversion.note_loss(spec.at("idleReplicaCount"), f"is not carried over: {instead}")


def _note_advanced(advanced: Fields, conversion: Conversion) -> None:
    for name in (modifiers := advanced.object("scalingModifiers")):
        modifiers.get(name)
        conversion.note_loss(modifiers.at(name), "is not carried over: the largest proposal of all metrics wins")
    if advanced.truth("restoreToOriginalReplicaCount"):
        conversion.note_loss(
            advanced.at("restoreToOriginalReplicaCount"), "is not carried over: hpad leaves replicas as they are"
        )


def _fallback(spec: Fields, conversion: Conversion) -> fallback_policy.Fallback | None:
    """Returns the fallback policy of the external metrics. failureThreshold, in polls, becomes seconds."""
    if "fallback" not in spec:
        return None
    fields = spec.object("fallback")
    behavior, replicas = fields.text("behavior") or "static", fields.count("replicas", 0)
    threshold = fields.count("failureThreshold", 3)
    hold = fallback_policy.Fallback(kind=fallback_policy.HOLD)
    if behavior != "static":
        if behavior != "currentReplicas":
            conversion.note_loss(
                fields.at("behavior"), f"{behavior} is not carried over; the replicas are held instead"
            )
        for name in ("replicas", "failureThreshold"):
            if name in fields:
                text = "is left out: hpad holds the replicas from the first failure on"
                conversion.note_change(fields.at(name), text)
        return hold
    if not replicas:
        text = "0 is not carried over: a failed metric never scales to zero; the replicas are held"
        conversion.note_loss(fields.at("replicas"), text)
        return hold
    seconds = threshold * spec.count("pollingInterval", _POLLING_SECONDS)
    after = timedelta(seconds=min(seconds, _MAX_SECONDS))  # timedelta overflows far beyond 68 years
    return fallback_policy.Fallback(kind=fallback_policy.REPLICAS, replicas=replicas, after=after)
