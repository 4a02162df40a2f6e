"""Converts a ScaledObject (keda.sh/v1alpha1) to an HPA and the sources that it needs.

Source: KEDA 2.21, "ScaledObject specification".
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from hpad.api import hpa as v2
from hpad.api.problem import Invalid, required
from hpad.manifests.keda import (
    authentication,
    brokers,
    modifiers,
    policy,
    queries,
    queues,
    scaling,
    triggers,
    unsupported,
)
from hpad.manifests.keda.authentication import CLUSTER, TRIGGER, Authentication, Known, Reference
from hpad.manifests.keda.conversion import Conversion, Converted
from hpad.manifests.keda.fields import API_VERSION, SCALED_OBJECT, Fields, without_null
from hpad.manifests.keda.trigger import Trigger

_MAXIMUM: Final = 100
TRIGGERS: Mapping[str, Callable[[Trigger], None]] = {
    "rabbitmq": brokers.rabbitmq,
    "prometheus": queries.prometheus,
    "redis": brokers.redis_lists,
    "redis-cluster": brokers.redis_lists,
    "redis-sentinel": brokers.redis_lists,
    "redis-streams": brokers.redis_streams,
    "redis-cluster-streams": brokers.redis_streams,
    "redis-sentinel-streams": brokers.redis_streams,
    "metrics-api": queries.metrics_api,
    "cpu": triggers.resource,
    "memory": triggers.resource,
    "cron": triggers.cron,
    "kubernetes-workload": triggers.kubernetes_workload,
    "kafka": queues.kafka,
    "apache-kafka": queues.kafka,
    "postgresql": queries.postgresql,
    "nats-jetstream": queues.nats_jetstream,
    "aws-sqs-queue": queues.sqs,
    "external": triggers.external,
    "external-push": triggers.external,
}
"""The triggers that are carried over."""
_UNCACHED: Final = ("cpu", "memory", "cron")
"""Triggers whose answers KEDA does not cache."""
_ORIGINS: Final = {
    "spec.minReplicas": "spec.minReplicaCount",
    "spec.maxReplicas": "spec.maxReplicaCount",
    "spec.behavior": "spec.advanced.horizontalPodAutoscalerConfig.behavior",
    "spec.metrics": "spec.triggers",
}


def is_scaled_object(value: Any) -> bool:
    """Returns whether a document is a ScaledObject of the version that `convert` reads."""
    return isinstance(value, dict) and value.get("apiVersion") == API_VERSION and value.get("kind") == SCALED_OBJECT


def convert(value: Mapping[str, Any], taken: set[str] | None = None, known: Known | None = None) -> Converted:
    """Converts a ScaledObject; raises Invalid for one that KEDA would refuse as well.

    Each field is in the result or in a note, except fields that a server writes. `taken`: names of metrics of other
    ScaledObjects; the new names are added. `known`: the objects that it may refer to.
    """
    fields = Fields(value)
    metadata, spec = fields.object("metadata"), fields.object("spec")
    name, namespace = metadata.text("name"), metadata.text("namespace") or "default"
    if not name:
        raise Invalid(required("metadata.name", "a ScaledObject has a name"))
    conversion = Conversion(taken=set() if taken is None else taken)
    reader = _Triggers(spec, (namespace, name), conversion, authentication.collect(()) if known is None else known)
    reader.read(f"{namespace}-{name}")
    if not conversion.metrics:
        conversion.note_loss("spec.triggers", "no HPA is written: none of the triggers can be carried over")
        return Converted(namespace, name, None, notes=tuple(conversion.notes))
    hpa = _hpa(metadata, spec, conversion, f"{namespace}-{name}".lower())
    for own in ("apiVersion", "kind", "status"):
        fields.get(own)
    for path in fields.unread():
        conversion.note_loss(path, "is not carried over: there is no counterpart")
    scale_to_zero = hpa["spec"]["minReplicas"] == 0
    return Converted(namespace, name, hpa, conversion.sources, tuple(conversion.notes), scale_to_zero)


def origin(field: str) -> str:
    """Returns the field of a ScaledObject that a field of its HPA comes from, or the nearest known one."""
    for own, keda in _ORIGINS.items():
        if field == own or field.startswith((f"{own}.", f"{own}[")):
            return keda + field.removeprefix(own)
    return field


def _hpa(metadata: Fields, spec: Fields, conversion: Conversion, prefix: str) -> dict[str, Any]:
    target = spec.object("scaleTargetRef")
    if not target.text("name"):
        raise Invalid(required("spec.scaleTargetRef.name", "names the target"))
    annotations, advanced = metadata.object("annotations"), spec.object("advanced")
    scaling.pause(annotations, conversion)
    on = scaling.switches(annotations, conversion)
    hpa_config = advanced.object("horizontalPodAutoscalerConfig")
    own = policy.formula(modifiers.read(advanced.object("scalingModifiers")), spec, conversion, prefix)
    namespace = metadata.text("namespace") or "default"
    minimum = scaling.minimum(spec, conversion, namespace, active="force-activation" in on)
    scaling.note_idle(spec, conversion)
    policy.set_policy(own, scaling.idle_minimum(spec) if minimum == 0 else 0, conversion, prefix, to_zero=minimum == 0)
    behavior = _behavior(hpa_config, on)
    scaling.cooldown(spec, behavior, conversion, to_zero=minimum == 0)
    fallback = policy.fallback(spec, conversion)
    _note_restoring(advanced, conversion)
    hpa_spec = {
        "scaleTargetRef": _target(target),
        "minReplicas": minimum,
        "maxReplicas": spec.count("maxReplicaCount", _MAXIMUM),
        "metrics": conversion.metrics,
        **({"behavior": behavior} if behavior else {}),
    }
    name = hpa_config.get("name") or metadata.get("name")
    return {
        "apiVersion": v2.API_VERSION,
        "kind": v2.KIND,
        "metadata": scaling.metadata_of(metadata, name, conversion.annotations(fallback), conversion),
        "spec": hpa_spec,
    }


def _target(target: Fields) -> dict[str, Any]:
    named = {key: target.get(key) for key in ("apiVersion", "kind", "name") if target.get(key)}
    return {"apiVersion": "apps/v1", "kind": "Deployment"} | named


def _behavior(hpa_config: Fields, on: set[str]) -> dict[str, Any]:
    """Returns the behavior of the HPA that KEDA would create; a switch disables its direction.

    Raises Invalid for a value that a switch would replace, or the cooldown is compared with.
    """
    fields = hpa_config.object("behavior")
    fields.object("scaleUp")
    fields.object("scaleDown").count(scaling.WINDOW, 0)
    fields.skip()
    behavior: dict[str, Any] = without_null(hpa_config.get("behavior") or {})
    for switch, direction in (("paused-scale-in", "scaleDown"), ("paused-scale-out", "scaleUp")):
        if switch in on:
            behavior[direction] = {**(behavior.get(direction) or {}), "selectPolicy": "Disabled"}
    return behavior


def _note_restoring(advanced: Fields, conversion: Conversion) -> None:
    if advanced.truth("restoreToOriginalReplicaCount"):
        text = "is not carried over: hpad leaves replicas as they are when an HPA is deleted"
        conversion.note_loss(advanced.at("restoreToOriginalReplicaCount"), text)


class _Triggers:
    """Reads the triggers of a ScaledObject into a conversion. `identity`: its namespace and name."""

    def __init__(self, spec: Fields, identity: tuple[str, str], conversion: Conversion, known: Known) -> None:
        self._spec, self._conversion, self._known = spec, conversion, known
        namespace, self._name = identity
        self._namespace = namespace
        self._in_formula = bool(list(spec.object("advanced").object("scalingModifiers")))
        target = spec.object("scaleTargetRef")
        self._target = target.text("kind") or "Deployment", namespace, target.text("name")
        self._container = target.text("envSourceContainerName")
        if self._container:
            text = "is left out: it names the container whose variables are looked up"
            conversion.note_change("spec.scaleTargetRef.envSourceContainerName", text)

    def read(self, prefix: str) -> None:
        """Adds the metrics of the triggers; notes those that are not carried over. Raises Invalid."""
        cached = [True]
        for trigger, entry in self._triggers(prefix):
            before = len(self._conversion.metrics)
            TRIGGERS[trigger.type](trigger)
            if len(self._conversion.metrics) == before:
                entry.skip()  # its note covers all of its fields
                continue
            unsupported.note_unread(trigger)
            entry.object("metadata").skip()
            if entry.text("name"):
                self._conversion.names[entry.text("name")] = before
                if not self._is_named(before):
                    self._conversion.note_change(
                        entry.at("name"), "is left out: the metric is named after what it counts"
                    )
            self._note_untaken(trigger)
            is_cached = entry.truth("useCachedMetrics")
            if trigger.type not in _UNCACHED:
                cached.append(is_cached)
        scaling.sync_period(self._spec, self._conversion, cached=len(cached) > 1 and all(cached))

    def _is_named(self, index: int) -> bool:
        """Whether the name of a metric, or of what its source reads for it, comes from the name of its trigger."""
        source = self._conversion.origins[index]
        return source is not None and bool(source.entry)

    def _triggers(self, prefix: str) -> Iterator[tuple[Trigger, Fields]]:
        """Yields the triggers of supported types, each with its fields; notes the others. Raises Invalid."""
        entries = self._spec.objects("triggers")
        if not entries:
            raise Invalid(required("spec.triggers", "a ScaledObject has at least one"))
        for index, entry in enumerate(entries):
            path, kind = f"spec.triggers[{index}]", entry.text("type")
            metadata, name = entry.object("metadata"), entry.text("name") or f"s{index}-{kind}"
            if kind not in TRIGGERS:
                text = f'a trigger of type "{kind}" is not carried over: {unsupported.instead(kind, TRIGGERS)}'
                self._conversion.note_loss(path, text)
                entry.skip()
                continue
            if "useCachedMetrics" in entry:
                text = "is left out: hpad shares answers anyway (limits.fresh)"
                self._conversion.note_change(entry.at("useCachedMetrics"), text)
            yield self._trigger(path, self._conversion.unique(f"{prefix}-{name}"), entry, metadata), entry

    def _trigger(self, path: str, metric: str, entry: Fields, metadata: Fields) -> Trigger:
        return Trigger(
            path=path,
            metric=metric,
            type=entry.text("type"),
            metadata=metadata,
            conversion=self._conversion,
            metric_type=entry.text("metricType"),
            authentication=self._authentication(entry),
            variable=self._variable,
            namespace=self._namespace,
            owner=self._name,
            in_formula=self._in_formula,
            polling=self._spec.count("pollingInterval", scaling.POLLING_SECONDS),
            to_zero=scaling.may_sleep(self._spec),
        )

    def _variable(self, name: str, container: str) -> Reference:
        return self._known.objects.variable(self._target, container or self._container, name)

    def _authentication(self, entry: Fields) -> Authentication:
        """Returns the authentication that a trigger refers to; notes one that is not among the documents."""
        if "authenticationRef" not in entry:
            return Authentication(identity="")
        reference = entry.object("authenticationRef")
        kind, name = reference.text("kind") or TRIGGER, reference.text("name")
        if not name:
            raise Invalid(required(reference.at("name"), "names the TriggerAuthentication"))
        key = kind, "" if kind == CLUSTER else self._namespace, name
        self._known.used.add(key)
        if key in self._known.errors:
            raise Invalid(*self._known.errors[key].problems)
        found = self._known.authentications.get(key)
        if found is None:
            text = f'{kind} "{name}" is not among the documents, so that nothing of it is carried over: give it as well'
            self._conversion.note_loss(entry.at("authenticationRef"), text)
            return Authentication(identity=f'{kind} "{name}"', missing=True)
        return found

    def _note_untaken(self, trigger: Trigger) -> None:
        """Notes parameters of the authentication that the source has no setting for."""
        found = trigger.authentication
        untaken = {name: reference.place for name, reference in found.parameters.items() if name not in trigger.taken}
        if found.oauth2 is not None and "oauth2" not in trigger.taken:
            untaken["oauth2"] = found.oauth2.token_url
        for name, place in untaken.items():
            text = f'"{name}" of {found.identity} ({place}) is not carried over: the source has no setting for it'
            self._conversion.note_loss(f"{trigger.path}.authenticationRef", text)
