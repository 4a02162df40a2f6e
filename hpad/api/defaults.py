"""What the API server fills in where an HPA says nothing.

The rules of autoscaling/v2 (Kubernetes 1.36), also stated in the API reference of HorizontalPodAutoscalerSpec. Numbers
that are flags of the controller (the scale-down window) stay absent: they are `tunables`, not part of the object.
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
    """The HPA with everything filled in that autoscaling/v2 fills in; a second time changes nothing."""
    return with_behavior(with_minimum_and_metrics(hpa))


def with_behavior(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Only the rules of a behavior filled in, if there is one: versions without defaults for them need them written."""
    if hpa.spec.behavior is None:
        return hpa
    behavior = v2.HorizontalPodAutoscalerBehavior(
        scale_up=_rules(hpa.spec.behavior.scale_up, SCALE_UP),
        scale_down=_rules(hpa.spec.behavior.scale_down, SCALE_DOWN),
    )
    return msgspec.structs.replace(hpa, spec=msgspec.structs.replace(hpa.spec, behavior=behavior))


def with_minimum_and_metrics(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Only `minReplicas` and `metrics` filled in, as autoscaling/v1 and v2beta1 do before they validate."""
    spec = hpa.spec
    minimum = 1 if spec.min_replicas is None else spec.min_replicas
    spec = msgspec.structs.replace(spec, min_replicas=minimum, metrics=spec.metrics or (DEFAULT_METRIC,))
    return msgspec.structs.replace(hpa, spec=spec)


def _rules(given: HPAScalingRules | None, default: HPAScalingRules) -> HPAScalingRules:
    """The default with all that is given put over it; an empty list of policies counts as given."""
    if given is None:
        return default
    said = {name: value for name in HPAScalingRules.__struct_fields__ if (value := getattr(given, name)) is not None}
    return msgspec.structs.replace(default, **said)
