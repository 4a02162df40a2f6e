"""The defaults of an HPA in autoscaling/v2.

Source: Kubernetes 1.36, pkg/apis/autoscaling/v2/defaults.go. Settings of the controller, such as the downscale
stabilization window, are not part of the object and stay absent.
"""

from typing import Final

import msgspec

from hpad.api import hpa as v2
from hpad.api.hpa import HorizontalPodAutoscaler, HPAScalingPolicy, HPAScalingRules

DEFAULT_CPU_UTILIZATION: Final = 80
DEFAULT_METRIC: Final = v2.MetricSpec(
    type="Resource",
    resource=v2.ResourceMetricSource(
        name="cpu", target=v2.MetricTarget(type="Utilization", average_utilization=DEFAULT_CPU_UTILIZATION)
    ),
)
SCALE_UP: Final = HPAScalingRules(
    stabilization_window_seconds=0,
    select_policy="Max",
    policies=(HPAScalingPolicy("Pods", 4, 15), HPAScalingPolicy("Percent", 100, 15)),
)
SCALE_DOWN: Final = HPAScalingRules(select_policy="Max", policies=(HPAScalingPolicy("Percent", 100, 15),))


def defaulted(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA with all defaults of autoscaling/v2. Idempotent."""
    return with_behavior(with_minimum_and_metrics(hpa))


def with_behavior(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA with defaults in its behavior only, if it has one.

    Versions without these defaults need the rules written out.
    """
    if hpa.spec.behavior is None:
        return hpa
    behavior = v2.HorizontalPodAutoscalerBehavior(
        scale_up=_rules(hpa.spec.behavior.scale_up, SCALE_UP),
        scale_down=_rules(hpa.spec.behavior.scale_down, SCALE_DOWN),
    )
    return msgspec.structs.replace(hpa, spec=msgspec.structs.replace(hpa.spec, behavior=behavior))


def with_minimum_and_metrics(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA with defaults for `minReplicas` and `metrics` only.

    autoscaling/v1 and v2beta1 set these before validation (pkg/apis/autoscaling/v1/defaults.go).
    """
    spec = hpa.spec
    minimum = 1 if spec.min_replicas is None else spec.min_replicas
    spec = msgspec.structs.replace(spec, min_replicas=minimum, metrics=spec.metrics or (DEFAULT_METRIC,))
    return msgspec.structs.replace(hpa, spec=spec)


def _rules(rules: HPAScalingRules | None, default: HPAScalingRules) -> HPAScalingRules:
    """Returns the default rules, overridden by all fields that are set; an empty list of policies counts as set."""
    if rules is None:
        return default
    fields = {name: value for name in HPAScalingRules.__struct_fields__ if (value := getattr(rules, name)) is not None}
    return msgspec.structs.replace(default, **fields)
