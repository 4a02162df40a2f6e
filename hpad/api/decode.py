"""Decodes an HPA document of any autoscaling version into autoscaling/v2, and the document of an Autoscaler.

The error for a field of another version says what to write instead.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hpad.api import hpa as v2
from hpad.api import older, strict
from hpad.api.autoscaler import Autoscaler, as_hpa
from hpad.api.hpa import AUTOSCALER, AUTOSCALER_VERSION, HorizontalPodAutoscaler
from hpad.api.problem import Problem, not_supported, required, shown, type_invalid

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
    "this is autoscaling/v2beta1: in {version} the object is named by describedObject, target is the metric target"
)
_FLAT: Final = "{field} is autoscaling/v2: write apiVersion: autoscaling/v2, or in {version} %s"
_FLAT_RESOURCE: Final = _FLAT % "targetAverageUtilization: 50 (or targetAverageValue: 200m) beside name"
_FLAT_METRIC: Final = _FLAT % "metricName and the metric target (targetAverageValue or targetValue) beside it"

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
_ADVICE: Final[dict[str, dict[tuple[str, str], str]]] = {
    "autoscaling/v2": _IN_V2,
    AUTOSCALER_VERSION: {**_IN_V2, ("AutoscalerSpec", "targetCPUUtilizationPercentage"): _CPU_IN_V2},
    "autoscaling/v2beta2": {**_IN_V2, ("HPAScalingRules", "tolerance"): _USE_V2},
    "autoscaling/v2beta1": {
        ("V2beta1Spec", "targetCPUUtilizationPercentage"): (
            "{field} is autoscaling/v1: in {version} write metrics: [{{type: Resource, resource: {{name: cpu, "
            "targetAverageUtilization: {value}}}}}]"
        ),
        ("V2beta1Spec", "behavior"): _USE_V2,
        ("FlatResourceMetricSource", "target"): _FLAT_RESOURCE,
        ("FlatContainerResourceMetricSource", "target"): _FLAT_RESOURCE,
        ("FlatPodsMetricSource", "target"): _FLAT_METRIC,
        ("FlatPodsMetricSource", "metric"): _FLAT_METRIC,
        ("FlatExternalMetricSource", "target"): _FLAT_METRIC,
        ("FlatExternalMetricSource", "metric"): _FLAT_METRIC,
        ("FlatObjectMetricSource", "metric"): _FLAT_METRIC,
        ("FlatObjectMetricSource", "describedObject"): _FLAT % "target: {{apiVersion, kind, name}} names the object",
    },
    "autoscaling/v1": {
        ("V1Spec", "metrics"): (
            "{version} has no metrics: write apiVersion: autoscaling/v2, or for a CPU target alone "
            "targetCPUUtilizationPercentage: 50"
        ),
        ("V1Spec", "behavior"): _USE_V2,
    },
}


def _advice(version: str, struct: str, field: str, value: Any) -> str | None:
    """Returns what to write instead of a field of another version; None for any other field."""
    form = _ADVICE[version].get((struct, field))
    if form is None:
        return None
    text = value if isinstance(value, str) else shown(value)
    return form.format(version=version, field=field, value=text)


def _from_v2(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    metadata = older.without_annotations(hpa.metadata)
    return msgspec.structs.replace(hpa, metadata=metadata, api_version=v2.API_VERSION)


_VERSIONS: Final[dict[str, tuple[type, Callable[[Any], HorizontalPodAutoscaler]]]] = {
    "autoscaling/v1": (older.V1, older.from_v1),
    "autoscaling/v2beta1": (older.V2beta1, older.from_v2beta1),
    "autoscaling/v2beta2": (HorizontalPodAutoscaler, _from_v2),
    "autoscaling/v2": (HorizontalPodAutoscaler, _from_v2),
    AUTOSCALER_VERSION: (Autoscaler, as_hpa),
}
VERSIONS: Final = tuple(version for version in _VERSIONS if version != AUTOSCALER_VERSION)
"""The versions of HPAs."""
_OF_KIND: Final = {v2.KIND: VERSIONS, AUTOSCALER: (AUTOSCALER_VERSION,)}
_GROUP: Final = AUTOSCALER_VERSION.partition("/")[0]


class DecodedHpa(msgspec.Struct, frozen=True):
    """The HPA of a document (None where a value has the wrong type), all errors, and the apiVersion."""

    hpa: HorizontalPodAutoscaler | None
    errors: tuple[Problem, ...] = ()
    version: str = v2.API_VERSION


def kind_of(value: Any) -> str:
    """Returns the kind that a document is meant to be: HorizontalPodAutoscaler, Autoscaler, or "" for neither.

    A misspelled kind in one of their API groups is meant as the kind of the group. Autoscalers of other groups are not
    meant.
    """
    if not isinstance(value, dict):
        return ""
    kind, version = value.get("kind"), value.get("apiVersion")
    group = version.partition("/")[0] if isinstance(version, str) else ""
    if kind == v2.KIND or (group == "autoscaling" and kind != "Scale"):
        return v2.KIND
    return AUTOSCALER if group == _GROUP or (kind == AUTOSCALER and not group) else ""


def read(value: Any) -> DecodedHpa:
    """Reads a JSON-like document of an HPA in autoscaling/v1, v2beta1, v2beta2 or v2, or of an Autoscaler.

    Sets no defaults and does not validate. Unknown fields are errors; the HPA is returned without them.
    """
    version = value.get("apiVersion") if isinstance(value, dict) else None
    fault = _header_fault(value, version)
    if fault is not None:
        return DecodedHpa(None, (fault,))
    assert isinstance(version, str)
    kind, convert = _VERSIONS[version]
    reader = strict.StrictReader(functools.partial(_advice, version))
    clean = reader.read(value, kind)
    if not reader.sound:
        return DecodedHpa(None, tuple(reader.errors), version)
    hpa = convert(msgspec.convert(clean, kind, dec_hook=v2.dec_hook))
    return DecodedHpa(hpa, tuple(reader.errors), version)


def _header_fault(value: Any, version: Any) -> Problem | None:
    if not isinstance(value, dict):
        # A file of one text may be that of a password, to which a link leads.
        told = value if isinstance(value, list) else "…"
        return type_invalid("", told, "must be an object with apiVersion, kind, metadata and spec")
    kind = kind_of(value) or v2.KIND
    if value.get("kind") != kind:
        return not_supported("kind", value.get("kind"), [kind])
    versions = _OF_KIND[kind]
    if not version:
        return required("apiVersion", f"one of {', '.join(versions)}" if len(versions) > 1 else versions[0])
    return None if version in versions else not_supported("apiVersion", version, versions)
