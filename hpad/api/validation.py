"""Validates an HPA as the API server does on creation.

Source of rules, field paths and messages: Kubernetes 1.36, pkg/apis/autoscaling/validation/validation.go. Errors come
in its order: metadata, replicas, target, metrics, behavior.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from hpad.api import hpa as v2
from hpad.api import metadata
from hpad.api.problem import Problem, forbidden, invalid, not_supported, required

MAX_STABILIZATION_WINDOW_SECONDS: Final = 3600
MAX_PERIOD_SECONDS: Final = 1800

_SOURCE_TYPES: Final = ("ContainerResource", "External", "Object", "Pods", "Resource")
_SELECT_POLICIES: Final = ("Disabled", "Max", "Min")
_POLICY_TYPES: Final = ("Percent", "Pods")
SYNC_PERIODS: Final = (3, 3600)
STRATEGIES: Final = (v2.LABEL_SELECTOR, v2.OWNER_REFERENCE)
SHORTEST_FAILURE: Final = 180
_TARGET_TYPES: Final = ("Utilization", "Value", "AverageValue")


def validate(hpa: v2.HorizontalPodAutoscaler, *, scale_to_zero: bool = False) -> list[Problem]:
    """Returns all errors of an HPA with defaults; empty if it is valid.

    `scale_to_zero` is the feature gate HPAScaleToZero: with it `minReplicas` may be 0.
    """
    return [*metadata.metadata_faults(hpa.metadata), *_spec(hpa.spec, 0 if scale_to_zero else 1)]


def _spec(spec: v2.HorizontalPodAutoscalerSpec, least: int) -> Iterator[Problem]:
    if spec.min_replicas is not None and spec.min_replicas < least:
        yield invalid("spec.minReplicas", spec.min_replicas, f"must be greater than or equal to {least}")
    if spec.max_replicas == 0:
        yield required("spec.maxReplicas", "must be set and greater than 0")
    elif spec.max_replicas < 1:
        yield invalid("spec.maxReplicas", spec.max_replicas, "must be greater than or equal to 1")
    if spec.min_replicas is not None and spec.max_replicas < spec.min_replicas:
        yield invalid("spec.maxReplicas", spec.max_replicas, "must be greater than or equal to `minReplicas`")
    # The only scalable kind without an API group (pkg/registry/autoscaling/horizontalpodautoscaler/strategy.go).
    core = spec.scale_target_ref.kind == "ReplicationController"
    yield from _reference(spec.scale_target_ref, "spec.scaleTargetRef", group_needed=not core)
    for index, metric in enumerate(spec.metrics):
        yield from _metric(metric, f"spec.metrics[{index}]")
    if spec.min_replicas == 0 and not any(metric.type in ("Object", "External") for metric in spec.metrics):
        yield forbidden(
            "spec.metrics", "must specify at least one Object or External metric to support scaling to zero replicas"
        )
    if spec.behavior is not None:
        yield from _behavior(spec.behavior)
    yield from _newer(spec)


def _newer(spec: v2.HorizontalPodAutoscalerSpec) -> Iterator[Problem]:
    """Validates fields of newer versions. Sources: KEP-6003, KEP-5325, KEP-5679."""
    seconds, strategy = spec.sync_period_seconds, spec.selection_strategy
    if seconds is not None and not SYNC_PERIODS[0] <= seconds <= SYNC_PERIODS[1]:
        detail = f"must be between {SYNC_PERIODS[0]} and {SYNC_PERIODS[1]}, inclusive"
        yield invalid("spec.syncPeriodSeconds", seconds, detail)
    if strategy and strategy not in STRATEGIES:
        yield not_supported("spec.selectionStrategy", strategy, STRATEGIES)
    for index, metric in enumerate(spec.metrics):
        fallback = None if metric.external is None else metric.external.fallback
        if fallback is None:
            continue
        path, after = f"spec.metrics[{index}].external.fallback", fallback.failure_duration_seconds
        if fallback.replicas < 1:
            yield invalid(f"{path}.replicas", fallback.replicas, "must be greater than 0")
        if after is not None and after < SHORTEST_FAILURE:
            detail = f"must be greater than or equal to {SHORTEST_FAILURE}"
            yield invalid(f"{path}.failureDurationSeconds", after, detail)


def _reference(reference: v2.CrossVersionObjectReference, path: str, *, group_needed: bool) -> Iterator[Problem]:
    for field, value in (("kind", reference.kind), ("name", reference.name)):
        if not value:
            yield required(f"{path}.{field}")
        yield from (invalid(f"{path}.{field}", value, fault) for fault in _segment_faults(value))
    version = reference.api_version
    if version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    elif group_needed and not version.rpartition("/")[0]:
        yield invalid(f"{path}.apiVersion", version, "apiVersion must specify API group")


def _segment_faults(name: str) -> list[str]:
    """Returns why a name cannot be part of a URL path; an empty name is checked elsewhere."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{sign}'" for sign in "/%" if sign in name]


def _metric(metric: v2.MetricSpec, path: str) -> Iterator[Problem]:
    if not metric.type:
        yield required(f"{path}.type", "must specify a metric source type")
    known = metric.type in _SOURCE_TYPES
    if not known:
        yield not_supported(f"{path}.type", metric.type, _SOURCE_TYPES)
    present = _present_sources(metric)
    if present:
        # Only the first source is validated; the other ones have an error of their own below.
        field, check, source = present[0]
        yield from check(source, f"{path}.{field}")
    expected = metric.type[:1].lower() + metric.type[1:] if known else ""
    if not known:
        yield not_supported(f"{path}.type", metric.type, _SOURCE_TYPES)  # reported twice, as by validateMetricSpec
    elif expected not in (field for field, _, _ in present):
        yield required(f"{path}.{expected}", "must populate information for the given metric source")
    if len(present) > 1:
        for field, _, _ in present:
            if field != expected:
                yield forbidden(f"{path}.{field}", "must populate the given metric source only")


_Check = Callable[[Any, str], Iterator[Problem]]


def _present_sources(metric: v2.MetricSpec) -> list[tuple[str, _Check, Any]]:
    """Returns the sources that are set, with their checks, in the order of the API server."""
    sources: tuple[tuple[str, _Check, Any], ...] = (
        ("object", _object, metric.object),
        ("external", _external, metric.external),
        ("pods", _pods, metric.pods),
        ("resource", _resource, metric.resource),
        ("containerResource", _container_resource, metric.container_resource),
    )
    return [entry for entry in sources if entry[2] is not None]


def _object(source: v2.ObjectMetricSource, path: str) -> Iterator[Problem]:
    yield from _reference(source.described_object, f"{path}.describedObject", group_needed=False)
    yield from _identifier(source.metric, f"{path}.metric")
    yield from _target(source.target, f"{path}.target")
    if source.target.value is None and source.target.average_value is None:
        yield required(f"{path}.target.averageValue", "must set either a target value or averageValue")


def _external(source: v2.ExternalMetricSource, path: str) -> Iterator[Problem]:
    yield from _identifier(source.metric, f"{path}.metric")
    yield from _target(source.target, f"{path}.target")
    value, average = source.target.value, source.target.average_value
    if value is None and average is None:
        detail = "must set either a target value for metric or a per-pod target"
        yield required(f"{path}.target.averageValue", detail)
    if value is not None and average is not None:
        yield forbidden(f"{path}.target.value", "may not set both a target value for metric and a per-pod target")


def _pods(source: v2.PodsMetricSource, path: str) -> Iterator[Problem]:
    yield from _identifier(source.metric, f"{path}.metric")
    yield from _target(source.target, f"{path}.target")
    if source.target.average_value is None:
        yield required(f"{path}.target.averageValue", "must specify a positive target averageValue")


def _resource(source: v2.ResourceMetricSource, path: str) -> Iterator[Problem]:
    if not source.name:
        yield required(f"{path}.name", "must specify a resource name")
    yield from _resource_target(source.target, f"{path}.target")


def _container_resource(source: v2.ContainerResourceMetricSource, path: str) -> Iterator[Problem]:
    if not source.name:
        yield required(f"{path}.name", "must specify a resource name")
    yield from (invalid(f"{path}.name", source.name, fault) for fault in metadata.resource_faults(source.name))
    if not source.container:
        yield required(f"{path}.container", "must specify a container")
    else:
        faults = metadata.label_faults(source.container)
        yield from (invalid(f"{path}.container", source.container, fault) for fault in faults)
    yield from _resource_target(source.target, f"{path}.target")


def _resource_target(target: v2.MetricTarget, path: str) -> Iterator[Problem]:
    yield from _target(target, path)
    if target.average_utilization is None and target.average_value is None:
        detail = "must set either a target raw value or a target utilization"
        yield required(f"{path}.averageUtilization", detail)
    if target.average_utilization is not None and target.average_value is not None:
        yield forbidden(f"{path}.averageValue", "may not set both a target raw value and a target utilization")


def _target(target: v2.MetricTarget, path: str) -> Iterator[Problem]:
    if not target.type:
        yield required(f"{path}.type", "must specify a metric target type")
    if target.type not in _TARGET_TYPES:
        yield invalid(f"{path}.type", target.type, "must be either Utilization, Value, or AverageValue")
    for field, value in (("value", target.value), ("averageValue", target.average_value)):
        if value is not None and value.sign != 1:
            yield invalid(f"{path}.{field}", value, "must be positive")
    if target.average_utilization is not None and target.average_utilization < 1:
        yield invalid(f"{path}.averageUtilization", target.average_utilization, "must be greater than 0")


def _identifier(metric: v2.MetricIdentifier, path: str) -> Iterator[Problem]:
    if not metric.name:
        yield required(f"{path}.name", "must specify a metric name")
    yield from (invalid(f"{path}.name", metric.name, fault) for fault in _segment_faults(metric.name))


def _behavior(behavior: v2.HorizontalPodAutoscalerBehavior) -> Iterator[Problem]:
    for direction, rules in (("scaleUp", behavior.scale_up), ("scaleDown", behavior.scale_down)):
        if rules is not None:
            yield from _rules(rules, f"spec.behavior.{direction}")


def _rules(rules: v2.HPAScalingRules, path: str) -> Iterator[Problem]:
    window = rules.stabilization_window_seconds
    if window is not None and window < 0:
        yield invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
    if window is not None and window > MAX_STABILIZATION_WINDOW_SECONDS:
        detail = f"must be less than or equal to {MAX_STABILIZATION_WINDOW_SECONDS}"
        yield invalid(f"{path}.stabilizationWindowSeconds", window, detail)
    if rules.select_policy is not None and rules.select_policy not in _SELECT_POLICIES:
        yield not_supported(f"{path}.selectPolicy", rules.select_policy, _SELECT_POLICIES)
    if not rules.policies:
        yield required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in enumerate(rules.policies or ()):
        yield from _policy(policy, f"{path}.policies[{index}]")
    if rules.tolerance is not None and rules.tolerance.sign < 0:
        yield invalid(f"{path}.tolerance", rules.tolerance, "must be greater than or equal to 0")


def _policy(policy: v2.HPAScalingPolicy, path: str) -> Iterator[Problem]:
    if policy.type not in _POLICY_TYPES:
        yield not_supported(f"{path}.type", policy.type, _POLICY_TYPES)
    if policy.value <= 0:
        yield invalid(f"{path}.value", policy.value, "must be greater than zero")
    if policy.period_seconds <= 0:
        yield invalid(f"{path}.periodSeconds", policy.period_seconds, "must be greater than zero")
    if policy.period_seconds > MAX_PERIOD_SECONDS:
        detail = f"must be less than or equal to {MAX_PERIOD_SECONDS}"
        yield invalid(f"{path}.periodSeconds", policy.period_seconds, detail)
