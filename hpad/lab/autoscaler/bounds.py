"""What the schema of an Autoscaler allows: bounds of single fields, and rules in CEL for what spans fields.

The schema refuses nothing that the API server takes in an autoscaling/v2 HPA, but for a few notations
(docs/reference/autoscaler.md), and what it lets pass `hpad.api.validation` refuses. Every text and list has a largest
size, from which a server estimates the cost of the rules.
"""

from collections.abc import Mapping
from typing import Any, Final

from hpad.api import limits, quantity, selector_syntax, validation

Schema = dict[str, Any]
_MOST_QUERIES: Final = 20
_MOST_PARAMETERS: Final = 100
_LABEL: Final = 63
"""Characters of a DNS label."""
_SUFFIX: Final = "([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
_NOT_NEGATIVE: Final[Schema] = {
    "minimum": 0,
    "pattern": rf"^(\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)|-(0+(\.0*)?|\.0+)){_SUFFIX}$",
}
_POSITIVE: Final[Schema] = {
    "minimum": 1,
    "pattern": rf"^\+?([0-9]*[1-9][0-9]*(\.[0-9]*)?|0*\.[0-9]*[1-9][0-9]*){_SUFFIX}$",
}
_PART_OF_URL: Final[Schema] = {"minLength": 1, "pattern": "^[^/%]*$"}
"""Names that the API server puts into a URL (validation.go: ValidatePathSegmentName); `.` and `..` pass here."""
_COUNT: Final[Schema] = {"minimum": 1, "maximum": quantity.MAX_INT32}


def _rule(rule: str, message: str, field: str = "", reason: str = "FieldValueInvalid") -> Schema:
    """Returns a CEL rule; the error is at `field`, a path such as `.maxReplicas` below the object of the rule."""
    made = {"rule": rule, "message": message, "reason": reason}
    return {**made, "fieldPath": field} if field else made


def _rules(*rules: Schema) -> Schema:
    return {"x-kubernetes-validations": list(rules)}


def _source(kind: str) -> Schema:
    field = kind[:1].lower() + kind[1:]
    message = f"`{field}` is set where `type` is {kind}, and only there"
    return _rule(f"(self.type == '{kind}') == has(self.{field})", message, f".{field}")


_SOURCES: Final = ("ContainerResource", "External", "Object", "Pods", "Resource")
_ONE_OF: Final = "one of `{}` and `{}` is needed, and not both"
_RESOURCE_TARGET: Final = _rules(
    _rule(
        "has(self.averageUtilization) != has(self.averageValue)", _ONE_OF.format("averageUtilization", "averageValue")
    )
)
BOUNDS: Final[Mapping[str, Schema]] = {
    "AutoscalerSpec": _rules(
        _rule(
            "!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",
            "must be greater than or equal to `minReplicas`",
            ".maxReplicas",
        ),
        _rule(
            "!has(self.minReplicas) || self.minReplicas != 0 || (has(self.metrics) &&"
            " self.metrics.exists(metric, metric.type == 'Object' || metric.type == 'External'))",
            "must specify at least one Object or External metric to support scaling to zero replicas",
            ".metrics",
            "FieldValueForbidden",
        ),
    ),
    "AutoscalerSpec.scaleTargetRef": _rules(
        _rule(
            "self.kind == 'ReplicationController' || (has(self.apiVersion) && self.apiVersion.contains('/')"
            " && !self.apiVersion.startsWith('/'))",
            "apiVersion must specify API group",
            ".apiVersion",
        )
    ),
    "AutoscalerSpec.minReplicas": {**_COUNT, "minimum": 0},
    "AutoscalerSpec.maxReplicas": _COUNT,
    "AutoscalerSpec.syncPeriodSeconds": dict(zip(("minimum", "maximum"), validation.SYNC_PERIODS, strict=True)),
    "AutoscalerSpec.selectionStrategy": {"enum": list(validation.STRATEGIES)},
    "AutoscalerSpec.metrics": {"maxItems": limits.METRICS, "x-kubernetes-list-type": "atomic"},
    "AutoscalerSpec.queries": {
        "maxItems": _MOST_QUERIES,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    "OwnQuery.name": _PART_OF_URL,
    "OwnQuery.source": {"minLength": 1},
    "OwnQuery.parameters": {"maxProperties": _MOST_PARAMETERS},
    "CrossVersionObjectReference.kind": _PART_OF_URL,
    "CrossVersionObjectReference.name": _PART_OF_URL,
    "CrossVersionObjectReference.apiVersion": {"pattern": "^[^/]*(/[^/]*)?$"},
    "MetricSpec": _rules(*map(_source, _SOURCES)),
    "MetricSpec.type": {"enum": list(_SOURCES)},
    "ResourceMetricSource.name": {"minLength": 1},
    "ResourceMetricSource.target": _RESOURCE_TARGET,
    "ContainerResourceMetricSource.name": {"minLength": 1},
    "ContainerResourceMetricSource.container": {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": _LABEL},
    "ContainerResourceMetricSource.target": _RESOURCE_TARGET,
    "PodsMetricSource.target": _rules(
        _rule("has(self.averageValue)", "`averageValue` is needed", ".averageValue", "FieldValueRequired")
    ),
    # The controller takes the value of an Object metric by `target.type`, that of the others by what is set
    # (Kubernetes 1.36, pkg/controller/podautoscaler/horizontal.go: computeStatusForObjectMetric).
    "ObjectMetricSource.target": _rules(
        _rule(
            "self.type == 'Value' ? has(self.value) : self.type == 'AverageValue' && has(self.averageValue)",
            "`type` is Value with `value`, or AverageValue with `averageValue`",
        )
    ),
    "ExternalMetricSource.target": _rules(
        _rule("has(self.value) != has(self.averageValue)", _ONE_OF.format("value", "averageValue"))
    ),
    "ExternalMetricFallback.replicas": _COUNT,
    "ExternalMetricFallback.failureDurationSeconds": {"format": "int64", "minimum": validation.SHORTEST_FAILURE},
    "MetricIdentifier.name": _PART_OF_URL,
    "MetricIdentifier.selector": {"x-kubernetes-map-type": "atomic"},
    "LabelSelector.matchLabels": {"maxProperties": selector_syntax.MOST_REQUIREMENTS},
    "LabelSelector.matchExpressions": {
        "maxItems": selector_syntax.MOST_REQUIREMENTS,
        "x-kubernetes-list-type": "atomic",
    },
    "LabelSelectorRequirement.key": {"minLength": 1},
    "LabelSelectorRequirement.operator": {"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
    "LabelSelectorRequirement.values": {"maxItems": selector_syntax.LONGEST, "x-kubernetes-list-type": "atomic"},
    "MetricTarget.type": {"enum": ["Utilization", "Value", "AverageValue"]},
    "MetricTarget.averageUtilization": _COUNT,
    "MetricTarget.averageValue": _POSITIVE,
    "MetricTarget.value": _POSITIVE,
    "HPAScalingRules.stabilizationWindowSeconds": {
        "minimum": 0,
        "maximum": validation.MAX_STABILIZATION_WINDOW_SECONDS,
    },
    "HPAScalingRules.selectPolicy": {"enum": ["Max", "Min", "Disabled"]},
    "HPAScalingRules.policies": {
        "minItems": 1,
        "maxItems": limits.POLICIES,
        "x-kubernetes-list-type": "atomic",
    },
    "HPAScalingRules.tolerance": _NOT_NEGATIVE,
    "HPAScalingPolicy.type": {"enum": ["Pods", "Percent"]},
    "HPAScalingPolicy.value": _COUNT,
    "HPAScalingPolicy.periodSeconds": {"minimum": 1, "maximum": validation.MAX_PERIOD_SECONDS},
    "AutoscalerStatus.observedGeneration": {"format": "int64"},
    "AutoscalerStatus.currentMetrics": {"x-kubernetes-list-type": "atomic"},
    "AutoscalerStatus.conditions": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    "HorizontalPodAutoscalerCondition.observedGeneration": {"format": "int64"},
    "HorizontalPodAutoscalerCondition.status": {"enum": ["True", "False", "Unknown"]},
}
"""Bounds by TYPE.FIELD, and rules over the fields of a type by TYPE."""
