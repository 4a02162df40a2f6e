"""A ScaledObject (keda.sh/v1alpha1) as an HPA and the sources that it needs.

The metadata of a ScaledObject: what of it an HPA has, and KEDA's annotations.

Source: KEDA, "Pause scaling" and "ScaledObject specification" (2.21).
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from hpad.api import hpa as v2
from hpad.api.fields import required
from hpad.engine import fallback_policy
from hpad.manifests.keda import found as gathered
from hpad.manifests.keda import queues, triggers
from hpad.manifests.keda.found import Fields, Found, Note, Source, Trigger, Wrong

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
"""What strconv.ParseBool takes for false; KEDA takes any other text for true."""


def _paused(annotations: Fields) -> Note | None:
    """Why no HPA may be written: it would scale what KEDA has been told to leave alone."""
    for name in (_PAUSED_REPLICAS, _PAUSED):
        if name in annotations and (name == _PAUSED_REPLICAS or annotations.text(name) not in _FALSE):
            return Note(
                annotations.at(name),
                "the ScaledObject is paused: no HPA is written, since it would scale at once, and nothing else of the "
                "ScaledObject is carried over; remove the annotation and convert again when it may scale",
            )
    return None


def _switches(annotations: Fields, found: Found) -> set[str]:
    """Which of KEDA's other switches are on, by their names without prefix."""
    on = set()
    for name, instead in _SWITCHES.items():
        if (_PREFIX + name) in annotations and annotations.text(_PREFIX + name) not in _FALSE:
            found.note(annotations.at(_PREFIX + name), instead)
            on.add(name)
    return on


def _behavior(handed_on: Fields, on: set[str]) -> dict[str, Any]:
    """The behavior of the HPA that KEDA makes, with the directions closed that a switch closes."""
    made: dict[str, Any] = copy.deepcopy(handed_on.get("behavior") or {})
    for switch, direction in (("paused-scale-in", "scaleDown"), ("paused-scale-out", "scaleUp")):
        if switch in on and isinstance(made, dict):
            rules = made.get(direction)
            made[direction] = {**(rules if isinstance(rules, dict) else {}), "selectPolicy": "Disabled"}
    return made


def _metadata(given: Fields, name: Any, own: dict[str, str], found: Found) -> dict[str, Any]:
    """The HPA's metadata: namespace, labels and annotations, without KEDA's own, with hpad's."""
    for each in _BY_SERVERS:
        given.get(each)
    finalizers = given.get("finalizers", [])
    if not isinstance(finalizers, list) or not all(str(each).endswith(".keda.sh") for each in finalizers):
        found.lose(given.at("finalizers"), "is not carried over")
    made: dict[str, Any] = {"name": name}
    made |= {key: given.get(key) for key in ("namespace", "labels") if given.get(key)}
    kept = _annotations(given.object("annotations"), own, found)
    return {**made, "annotations": kept} if kept else made


def _annotations(given: Fields, own: dict[str, str], found: Found) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name in given:
        text = given.get(name)
        if name in own:
            found.lose(given.at(name), f"is not carried over: what KEDA's fields say is written there: {own[name]}")
        elif name in _NEEDLESS:
            found.note(given.at(name), "is left out: it has no effect without KEDA")
        elif name == _LAST_APPLIED:
            continue
        elif name in (_PAUSED, *(_PREFIX + switch for switch in _SWITCHES)):
            if str(text) in _FALSE:
                found.note(given.at(name), "is left out: it is off")
        elif "keda.sh/" in name:
            found.lose(given.at(name), "is not carried over")
        else:
            kept[name] = text
    return kept | own


KIND: Final = "ScaledObject"
API_VERSION: Final = "keda.sh/v1alpha1"
_MINIMUM, _MAXIMUM = 0, 100
_POLLING_SECONDS, _COOLDOWN_SECONDS = 30, 300
_MOST = 2**31 - 1
_TRIGGERS: Mapping[str, Callable[[Trigger, Found], None]] = {
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


class Converted(msgspec.Struct, frozen=True):
    """What comes of a ScaledObject: the HPA as a document (None: none), what has to be configured, and notes."""

    namespace: str
    name: str
    hpa: dict[str, Any] | None
    sources: tuple[Source, ...] = ()
    notes: tuple[Note, ...] = ()
    scale_to_zero: bool = False


def is_scaled_object(value: Any) -> bool:
    """Whether a document means to be a ScaledObject that `convert` can read."""
    return isinstance(value, dict) and value.get("apiVersion") == API_VERSION and value.get("kind") == KIND


def convert(value: Mapping[str, Any], taken: set[str] | None = None) -> Converted:
    """Raises Wrong for what KEDA would not take either.

    Each field is in the result or in a note, but for those that a server writes. `taken` holds the names of metrics
    that other ScaledObjects have; the new ones are added.
    """
    fields = Fields(value)
    metadata, spec = fields.object("metadata"), fields.object("spec")
    name, namespace = metadata.text("name"), metadata.text("namespace") or "default"
    if not name:
        raise Wrong(required("metadata.name", "a ScaledObject has a name"))
    if paused := _paused(metadata.object("annotations")):
        return Converted(namespace, name, None, notes=(paused,))
    found = Found()
    for trigger, entry in _triggers(spec, f"{namespace}-{name}", found, set() if taken is None else taken):
        before = len(found.metrics)
        _TRIGGERS[trigger.type](trigger, found)
        if len(found.metrics) == before:
            entry.skip()
    if not found.metrics:
        found.lose("spec.triggers", "no HPA is written: none of the triggers can be carried over")
        return Converted(namespace, name, None, notes=tuple(found.notes))
    hpa = _hpa(metadata, spec, found)
    for own in ("apiVersion", "kind", "status"):
        fields.get(own)
    for path in fields.unread():
        found.lose(path, "is not carried over: there is no counterpart")
    scale_to_zero = hpa["spec"]["minReplicas"] == 0
    return Converted(namespace, name, hpa, tuple(found.sources), tuple(found.notes), scale_to_zero)


def origin(field: str) -> str:
    """The field of a ScaledObject that a field of its HPA comes from, as near as can be told."""
    for own, keda in _ORIGINS.items():
        if field == own or field.startswith((f"{own}.", f"{own}[")):
            return keda + field.removeprefix(own)
    return field


def _hpa(metadata: Fields, spec: Fields, found: Found) -> dict[str, Any]:
    target = spec.object("scaleTargetRef")
    if not target.text("name"):
        raise Wrong(required("spec.scaleTargetRef.name", "says what is scaled"))
    reference = {"apiVersion": "apps/v1", "kind": "Deployment"} | {
        key: target.get(key) for key in ("apiVersion", "kind", "name") if target.get(key)
    }
    switches = _switches(metadata.object("annotations"), found)
    advanced = spec.object("advanced")
    handed_on = advanced.object("horizontalPodAutoscalerConfig")
    behavior = _behavior(handed_on, switches)
    minimum = _minimum(spec, found, active="force-activation" in switches)
    fallback = _fallback(spec, found)
    _waits(spec, found, minimum)
    _formula(advanced, found)
    made = {
        "scaleTargetRef": reference,
        "minReplicas": minimum,
        "maxReplicas": spec.count("maxReplicaCount", _MAXIMUM),
        "metrics": found.metrics,
        **({"behavior": behavior} if behavior else {}),
    }
    own = gathered.annotations(found, fallback)
    name = handed_on.get("name") or metadata.get("name")
    return {
        "apiVersion": v2.API_VERSION,
        "kind": v2.KIND,
        "metadata": _metadata(metadata, name, own, found),
        "spec": made,
    }


def _triggers(spec: Fields, prefix: str, found: Found, taken: set[str]) -> Iterator[tuple[Trigger, Fields]]:
    """The triggers of a type that can be carried over, each with its fields; raises Wrong."""
    entries = spec.objects("triggers")
    if not entries:
        raise Wrong(required("spec.triggers", "a ScaledObject has one at least"))
    for index, entry in enumerate(entries):
        path, kind = f"spec.triggers[{index}]", entry.text("type")
        metadata, name = entry.object("metadata"), entry.text("name") or f"s{index}-{kind}"
        if kind not in _TRIGGERS:
            found.lose(path, f'a trigger of type "{kind}" is not carried over; there are {", ".join(_TRIGGERS)}')
            entry.skip()
            continue
        _authentication(entry, found)
        if entry.truth("useCachedMetrics"):
            found.note(entry.at("useCachedMetrics"), "is left out: hpad shares answers anyway (limits.fresh)")
        trigger = Trigger(
            path=path,
            metric=_unique(f"{prefix}-{name}".lower(), taken),
            type=kind,
            metadata=metadata,
            metric_type=entry.text("metricType"),
        )
        yield trigger, entry


def _unique(name: str, taken: set[str]) -> str:
    """The name, with a number where another metric has it; it is taken from now on."""
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name}-{number}"
    taken.add(unique)
    return unique


def _authentication(trigger: Fields, found: Found) -> None:
    if "authenticationRef" not in trigger:
        return
    reference = trigger.object("authenticationRef")
    kind, name = reference.text("kind") or "TriggerAuthentication", reference.text("name") or "?"
    found.lose(
        trigger.at("authenticationRef"),
        f'is not carried over: {kind} "{name}" is not read: mount its secret into hpad and write into the source '
        "username and password_file, bearer_token_file, ca, cert and key, whatever it holds",
    )


def _minimum(spec: Fields, found: Found, *, active: bool) -> int:
    """KEDA's own default is 0, which needs something to tell that there is work: CPU and memory of no pod do not."""
    minimum = spec.count("minReplicaCount", _MINIMUM)
    if minimum or active:
        return max(minimum, 1)
    if all(metric["type"] in _RESOURCES for metric in found.metrics):
        found.note("spec.minReplicaCount", "0 needs a metric that is not of cpu or memory; carried over as 1")
        return 1
    found.note(
        "spec.minReplicaCount",
        "0 needs the feature gate HPAScaleToZero, which the configuration sets; an HPA of the cluster needs it on the "
        "API server as well, one of --manifests does not",
    )
    return 0


def _waits(spec: Fields, found: Found, minimum: int) -> None:
    """How often KEDA asks and how long it waits: where that is its default, it means the same as saying nothing."""
    waits = (
        ("pollingInterval", _POLLING_SECONDS, "hpad asks once a sync_period, for all HPAs"),
        ("cooldownPeriod", _COOLDOWN_SECONDS, "a scale to zero waits as each scale-down does: spec.behavior.scaleDown"),
        ("initialCooldownPeriod", 0, "there is no counterpart"),
    )
    for name, default, instead in waits:
        if name not in spec:
            continue
        if spec.count(name, default) == default:
            found.note(spec.at(name), f"is left out: it is KEDA's default; {instead}")
        elif minimum and name != "pollingInterval":
            found.note(spec.at(name), "is left out: without a scale to zero it has no effect")
        else:
            found.lose(spec.at(name), f"is not carried over: {instead}")
    if "idleReplicaCount" in spec:
        spec.count("idleReplicaCount", 0)
        instead = "set minReplicas to 0 and use the annotation hpad.io/activation, or leave it out"
        found.lose(spec.at("idleReplicaCount"), f"is not carried over: {instead}")


def _formula(advanced: Fields, found: Found) -> None:
    for name in (modifiers := advanced.object("scalingModifiers")):
        modifiers.get(name)
        found.lose(modifiers.at(name), "is not carried over: each metric proposes, the largest wins")
    if advanced.truth("restoreToOriginalReplicaCount"):
        found.lose(
            advanced.at("restoreToOriginalReplicaCount"), "is not carried over: hpad leaves replicas as they are"
        )


def _fallback(spec: Fields, found: Found) -> fallback_policy.Fallback | None:
    """So many failed polls make so much time; hpad counts that, and not the polls."""
    if "fallback" not in spec:
        return None
    given = spec.object("fallback")
    behavior, replicas = given.text("behavior") or "static", given.count("replicas", 0)
    threshold = given.count("failureThreshold", 3)
    hold = fallback_policy.Fallback(kind=fallback_policy.HOLD)
    if behavior != "static":
        if behavior != "currentReplicas":
            found.lose(given.at("behavior"), f"{behavior} is not carried over; the replicas are held instead")
        for name in ("replicas", "failureThreshold"):
            if name in given:
                found.note(given.at(name), "is left out: hpad holds the replicas from the first failure on")
        return hold
    if not replicas:
        found.lose(given.at("replicas"), "0 is not carried over: what fails never scales to zero; replicas are held")
        return hold
    seconds = threshold * spec.count("pollingInterval", _POLLING_SECONDS)
    after = timedelta(seconds=min(seconds, _MOST))  # 68 years are as good as more
    return fallback_policy.Fallback(kind=fallback_policy.REPLICAS, replicas=replicas, after=after)
