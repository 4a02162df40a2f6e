"""Fields that exist, but in another version of an HPA: why they cannot stand there, and what to write instead."""

from collections.abc import Callable
from typing import Any, Final

from hpad.model.fields import shown

_USE_V2: Final = "{version} has no {field}: write apiVersion: autoscaling/v2"
_CPU_IN_V2: Final = (
    "{field} is autoscaling/v1: in {version} write metrics: [{{type: Resource, resource: {{name: cpu, "
    "target: {{type: Utilization, averageUtilization: {value}}}}}}}]"
)
_TO_TARGET: Final = "{field} is autoscaling/v2beta1: in {version} write target: {{type: %s, %s: {value}}}"
_UTILIZATION: Final = _TO_TARGET % ("Utilization", "averageUtilization")
_AVERAGE: Final = _TO_TARGET % ("AverageValue", "averageValue")
_VALUE: Final = _TO_TARGET % ("Value", "value")
_NAME: Final = "{field} is autoscaling/v2beta1: in {version} write metric: {{name: {value}}}"
_SELECTOR: Final = "{field} is autoscaling/v2beta1: in {version} write it as metric.selector"
_DESCRIBED: Final = (
    "this is autoscaling/v2beta1: in {version} the object is named by describedObject, target is the goal"
)
_FLAT: Final = "{field} is autoscaling/v2: write apiVersion: autoscaling/v2, or in {version} %s"
_FLAT_RESOURCE: Final = _FLAT % "targetAverageUtilization: 50 (or targetAverageValue: 200m) beside name"
_FLAT_METRIC: Final = _FLAT % "metricName and the goal (targetAverageValue or targetValue) beside it"

_IN_V2: Final[dict[tuple[str, str], str]] = {
    ("HorizontalPodAutoscalerSpec", "targetCPUUtilizationPercentage"): _CPU_IN_V2,
    ("ResourceMetricSource", "targetAverageUtilization"): _UTILIZATION,
    ("ResourceMetricSource", "targetAverageValue"): _AVERAGE,
    ("ContainerResourceMetricSource", "targetAverageUtilization"): _UTILIZATION,
    ("ContainerResourceMetricSource", "targetAverageValue"): _AVERAGE,
    ("PodsMetricSource", "metricName"): _NAME,
    ("PodsMetricSource", "targetAverageValue"): _AVERAGE,
    ("PodsMetricSource", "selector"): _SELECTOR,
    ("ObjectMetricSource", "metricName"): _NAME,
    ("ObjectMetricSource", "targetValue"): _VALUE,
    ("ObjectMetricSource", "averageValue"): _AVERAGE,
    ("ObjectMetricSource", "selector"): _SELECTOR,
    ("ExternalMetricSource", "metricName"): _NAME,
    ("ExternalMetricSource", "metricSelector"): _SELECTOR,
    ("ExternalMetricSource", "targetValue"): _VALUE,
    ("ExternalMetricSource", "targetAverageValue"): _AVERAGE,
    ("MetricTarget", "kind"): _DESCRIBED,
    ("MetricTarget", "name"): _DESCRIBED,
    ("MetricTarget", "apiVersion"): _DESCRIBED,
}
_FORMS: Final[dict[str, dict[tuple[str, str], str]]] = {
    "autoscaling/v2": _IN_V2,
    "autoscaling/v2beta2": {**_IN_V2, ("HPAScalingRules", "tolerance"): _USE_V2},
    "autoscaling/v2beta1": {
        ("HorizontalPodAutoscalerSpec", "targetCPUUtilizationPercentage"): (
            "{field} is autoscaling/v1: in {version} write metrics: [{{type: Resource, resource: {{name: cpu, "
            "targetAverageUtilization: {value}}}}}]"
        ),
        ("HorizontalPodAutoscalerSpec", "behavior"): _USE_V2,
        ("ResourceMetricSource", "target"): _FLAT_RESOURCE,
        ("ContainerResourceMetricSource", "target"): _FLAT_RESOURCE,
        ("PodsMetricSource", "target"): _FLAT_METRIC,
        ("PodsMetricSource", "metric"): _FLAT_METRIC,
        ("ExternalMetricSource", "target"): _FLAT_METRIC,
        ("ExternalMetricSource", "metric"): _FLAT_METRIC,
        ("ObjectMetricSource", "metric"): _FLAT_METRIC,
        ("ObjectMetricSource", "describedObject"): _FLAT % "target: {{apiVersion, kind, name}} names the object",
    },
    "autoscaling/v1": {
        ("HorizontalPodAutoscalerSpec", "metrics"): (
            "{version} has no metrics: write apiVersion: autoscaling/v2, or for a CPU goal alone "
            "targetCPUUtilizationPercentage: 50"
        ),
        ("HorizontalPodAutoscalerSpec", "behavior"): _USE_V2,
    },
}


def hint(version: str) -> Callable[[str, str, Any], str | None]:
    """For one apiVersion: (struct, field, value) -> the advice, or None for a field that is no such mix."""
    forms = _FORMS[version]

    def advice(struct: str, field: str, value: Any) -> str | None:
        form = forms.get((struct, field))
        if form is None:
            return None
        text = value if isinstance(value, str) else shown(value)
        return form.format(version=version, field=field, value=text)

    return advice
