"""A ScaledObject (keda.sh/v1alpha1) as an HPA and the sources that it needs."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from hpad.manifests.keda import found as gathered
from hpad.manifests.keda import plain, prometheus, rabbitmq
from hpad.manifests.keda.found import Found, Note, Source, Trigger, Wrong
from hpad.model import hpa as api
from hpad.model import terms
from hpad.model.fields import invalid, required

KIND: Final = "ScaledObject"
_GROUP: Final = "keda.sh/"
_MINIMUM, _MAXIMUM = 0, 100
_POLLING_SECONDS = 30
_MOST = 2**31 - 1
_TRIGGERS: Mapping[str, Callable[[Trigger, Found], None]] = {
    "rabbitmq": rabbitmq.convert,
    "prometheus": prometheus.convert,
    "cpu": plain.resource,
    "memory": plain.resource,
    "cron": plain.cron,
}
_RESOURCES = ("Resource", "ContainerResource")
_NOT_CARRIED = {
    "pollingInterval": "hpad asks once a sync_period, for all HPAs",
    "cooldownPeriod": "a scale to zero waits as each scale-down does: spec.behavior.scaleDown",
    "initialCooldownPeriod": "there is no counterpart",
    "idleReplicaCount": "set minReplicas to 0 and use the annotation hpad.io/activation, or leave it out",
}
_ANNOTATIONS_LEFT = re.compile(r"kubectl\.kubernetes\.io/last-applied-configuration|.*keda\.sh/.*")


class Converted(msgspec.Struct, frozen=True):
    """What comes of a ScaledObject: the HPA as a document, what has to be configured, and what to tell."""

    namespace: str
    hpa: dict[str, Any]
    sources: tuple[Source, ...]
    notes: tuple[Note, ...]
    scale_to_zero: bool


def is_scaled_object(value: Any) -> bool:
    """Whether a document means to be a ScaledObject."""
    version = value.get("apiVersion") if isinstance(value, dict) else None
    return isinstance(version, str) and version.startswith(_GROUP) and value.get("kind") == KIND


def convert(value: Mapping[str, Any]) -> Converted:
    """Raises Wrong for what KEDA would not take either."""
    metadata, spec = _mapping(value, "metadata"), _mapping(value, "spec")
    name, namespace = str(metadata.get("name") or ""), str(metadata.get("namespace") or "default")
    if not name:
        raise Wrong(required("metadata.name", "a ScaledObject has a name"))
    found = Found()
    for trigger in _triggers(spec, f"{namespace}-{name}", found):
        if trigger.type in _TRIGGERS:
            _TRIGGERS[trigger.type](trigger, found)
    if not found.metrics:
        raise Wrong(invalid("spec.triggers", "…", f"must hold one of {', '.join(_TRIGGERS)} that can be carried over"))
    minimum = _minimum(spec, found)
    fallback = _fallback(spec, found)
    _left_behind(spec, metadata, found)
    hpa = {
        "apiVersion": api.API_VERSION,
        "kind": api.KIND,
        "metadata": _metadata(metadata, spec, gathered.annotations(found, fallback)),
        "spec": _hpa_spec(spec, minimum, found),
    }
    return Converted(namespace, hpa, tuple(found.sources), tuple(found.notes), minimum == 0)


def _hpa_spec(spec: Mapping[str, Any], minimum: int, found: Found) -> dict[str, Any]:
    target = _mapping(spec, "scaleTargetRef", "spec.")
    if not target.get("name"):
        raise Wrong(required("spec.scaleTargetRef.name", "says what is scaled"))
    reference = {"apiVersion": "apps/v1", "kind": "Deployment"} | {
        key: target[key] for key in ("apiVersion", "kind", "name") if target.get(key)
    }
    made = {
        "scaleTargetRef": reference,
        "minReplicas": minimum,
        "maxReplicas": _count(spec, "maxReplicaCount", _MAXIMUM),
        "metrics": found.metrics,
    }
    behavior = _advanced(spec).get("behavior")
    return {**made, "behavior": behavior} if behavior else made


def _triggers(spec: Mapping[str, Any], prefix: str, found: Found) -> Iterable[Trigger]:
    given = spec.get("triggers")
    if not isinstance(given, list) or not given:
        raise Wrong(required("spec.triggers", "a ScaledObject has one at least"))
    for index, entry in enumerate(given):
        path = f"spec.triggers[{index}]"
        if not isinstance(entry, dict):
            raise Wrong(invalid(path, entry, "must be an object with type and metadata"))
        kind = str(entry.get("type") or "")
        metadata = {str(key): _text(text) for key, text in _mapping(entry, "metadata", f"{path}.").items()}
        name = str(entry.get("name") or f"s{index}-{kind}")
        if kind not in _TRIGGERS:
            found.note(path, f'a trigger of type "{kind}" is not carried over; there are {", ".join(_TRIGGERS)}')
        if reference := entry.get("authenticationRef"):
            _authentication(path, reference, found)
        yield Trigger(
            path=path,
            metric=f"{prefix}-{name}".lower(),
            type=kind,
            metadata=metadata,
            metric_type=str(entry.get("metricType") or ""),
        )


def _authentication(path: str, reference: Any, found: Found) -> None:
    named = reference.get("name", "?") if isinstance(reference, dict) else "?"
    kind = reference.get("kind", "TriggerAuthentication") if isinstance(reference, dict) else "TriggerAuthentication"
    found.note(
        f"{path}.authenticationRef",
        f'{kind} "{named}" is not read: mount its secret into hpad and write into the source username and '
        "password_file, bearer_token_file, ca, cert and key, whatever it holds",
    )


def _minimum(spec: Mapping[str, Any], found: Found) -> int:
    """KEDA's own default is 0, which needs something to tell that there is work: CPU and memory of no pod do not."""
    minimum = _count(spec, "minReplicaCount", _MINIMUM)
    if minimum == 0 and all(metric["type"] in _RESOURCES for metric in found.metrics):
        found.note("spec.minReplicaCount", "0 needs a metric that is not of cpu or memory; carried over as 1")
        return 1
    if minimum == 0:
        found.note("spec.minReplicaCount", "0 needs the feature gate HPAScaleToZero, which the configuration sets")
    return minimum


def _fallback(spec: Mapping[str, Any], found: Found) -> terms.Fallback | None:
    """So many failed polls make so much time; hpad counts that, and not the polls."""
    given = _mapping(spec, "fallback", "spec.")
    if not given:
        return None
    behavior = given.get("behavior") or "static"
    if behavior == "currentReplicas":
        return terms.Fallback(kind=terms.HOLD)
    if behavior != "static":
        found.note("spec.fallback.behavior", f"{behavior} is not carried over; the replicas are held instead")
        return terms.Fallback(kind=terms.HOLD)
    replicas = _count(given, "replicas", 0, "spec.fallback.")
    threshold = _count(given, "failureThreshold", 3, "spec.fallback.")
    if not replicas:
        found.note(
            "spec.fallback.replicas", "0 is not carried over: what fails never scales to zero; replicas are held"
        )
        return terms.Fallback(kind=terms.HOLD)
    seconds = threshold * _count(spec, "pollingInterval", _POLLING_SECONDS)
    after = timedelta(seconds=min(seconds, _MOST))  # 68 years are as good as more
    return terms.Fallback(kind=terms.REPLICAS, replicas=replicas, after=after)


def _left_behind(spec: Mapping[str, Any], metadata: Mapping[str, Any], found: Found) -> None:
    for name, instead in _NOT_CARRIED.items():
        if spec.get(name) is not None:
            found.note(f"spec.{name}", f"is not carried over: {instead}")
    advanced = _mapping(spec, "advanced", "spec.")
    if advanced.get("scalingModifiers"):
        found.note("spec.advanced.scalingModifiers", "is not carried over: each metric proposes, the largest wins")
    if advanced.get("restoreToOriginalReplicaCount"):
        found.note(
            "spec.advanced.restoreToOriginalReplicaCount", "is not carried over: hpad leaves replicas as they are"
        )
    for name in _mapping(metadata, "annotations", "metadata."):
        if "keda.sh/" in name:
            found.note("metadata.annotations", f"{name} is not carried over")


def _metadata(metadata: Mapping[str, Any], spec: Mapping[str, Any], own: Mapping[str, str]) -> dict[str, Any]:
    made = {"name": _advanced(spec).get("name") or metadata["name"]}
    made |= {key: metadata[key] for key in ("namespace", "labels") if metadata.get(key)}
    given = _mapping(metadata, "annotations", "metadata.")
    kept = {name: text for name, text in given.items() if not _ANNOTATIONS_LEFT.fullmatch(name)} | dict(own)
    return {**made, "annotations": kept} if kept else made


def _advanced(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """What KEDA hands on to its HPA: a name and a behavior."""
    return _mapping(_mapping(spec, "advanced", "spec."), "horizontalPodAutoscalerConfig", "spec.advanced.")


def _mapping(value: Mapping[str, Any], name: str, path: str = "") -> Mapping[str, Any]:
    given = value.get(name)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise Wrong(invalid(f"{path}{name}", given, "must be an object"))
    return given


def _count(value: Mapping[str, Any], name: str, default: int, path: str = "spec.") -> int:
    given = value.get(name)
    if given is None:
        return default
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= _MOST:
        raise Wrong(invalid(f"{path}{name}", given, f"must be a whole number from 0 to {_MOST}"))
    return given


def _text(value: Any) -> str:
    """KEDA wants texts, people write numbers."""
    return str(value).lower() if isinstance(value, bool) else str(value)
