"""The objects of tests/data/fixtures/invalid as Autoscalers: what refuses each of them."""

from typing import Any, Final

HEAD: Final = {"apiVersion": "hpad.io/v1", "kind": "Autoscaler"}
METRIC = "spec.metrics[0]"
REFUSED = {
    "01_min_gt_max": ["spec.maxReplicas"],
    "02_max_zero": ["spec.maxReplicas"],
    "04_min_negative": ["spec.minReplicas"],
    "05_target_missing": ["spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"],
    "06_utilization_and_value": [f"{METRIC}.resource.target"],
    "07_resource_no_target": [f"{METRIC}.resource.target"],
    "08_utilization_zero": [f"{METRIC}.resource.target.averageUtilization"],
    "09_window_too_long": ["spec.behavior.scaleDown.stabilizationWindowSeconds"],
    "10_window_negative": ["spec.behavior.scaleUp.stabilizationWindowSeconds"],
    "11_policy_bad": [f"spec.behavior.scaleUp.policies[0].{each}" for each in ("type", "value", "periodSeconds")],
    "12_policy_period_too_long": ["spec.behavior.scaleUp.policies[0].periodSeconds"],
    "13_select_policy_unknown": ["spec.behavior.scaleUp.selectPolicy"],
    "14_policies_empty": ["spec.behavior.scaleUp.policies"],
    "15_metric_type_unknown": [f"{METRIC}.type"],
    "16_metric_type_source_mismatch": [f"{METRIC}.pods", f"{METRIC}.resource"],
    "17_metric_name_slash": [f"{METRIC}.pods.metric.name"],
    "18_container_missing": [f"{METRIC}.containerResource"],
    "19_object_no_described": [f"{METRIC}.object"],
    "20_external_both_targets": [f"{METRIC}.external.target"],
    "22_tolerance_negative": ["spec.behavior.scaleUp.tolerance"],
    "23_pods_value_negative": [f"{METRIC}.pods.target.averageValue"],
    "24_pods_utilization_target": [f"{METRIC}.pods.target.averageValue"],
    "26_many_errors": [
        "spec.scaleTargetRef.kind",
        "spec.scaleTargetRef.name",
        f"{METRIC}.resource.target.averageUtilization",
        "spec.metrics[1].type",
    ],
    "27_target_apiversion_bad": ["spec.scaleTargetRef.apiVersion"],
    "28_target_kind_slash": ["spec.scaleTargetRef.kind"],
    "29_resource_name_empty": [f"{METRIC}.resource.name"],
    "30_target_type_missing": [f"{METRIC}.resource.target"],
    "31_put_spec_invalid": ["spec.maxReplicas"],
}
"""The recorded objects that the schema refuses, and where."""
ELSEWHERE = {
    "03_min_zero_gate_off": "hpad: its gate HPAScaleToZero decides",
    "21_name_bad": "the API server, which checks the names of all objects",
    "32_v1_behavior_annotation_partial": "the API server: targetCPUUtilizationPercentage is no field of the kind",
}
"""The recorded objects that others than the schema refuse."""


def autoscaler(value: dict[str, Any]) -> dict[str, Any]:
    """Returns an HPA as sent with the two lines that make it an Autoscaler."""
    return {**value, **HEAD}
