"""The kind Autoscaler in the embedded cluster, and objects of it."""

from typing import Any

from hpad.api.hpa import AUTOSCALER, AUTOSCALER_VERSION

DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "autoscalers.hpad.io"},
    "spec": {
        "group": "hpad.io",
        "scope": "Namespaced",
        "names": {"plural": "autoscalers", "singular": "autoscaler", "kind": AUTOSCALER},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {"status": {}},
            }
        ],
    },
}


def autoscaler(name: str, target: str, *, goal: int = 50, **spec: Any) -> dict[str, Any]:
    """Returns an Autoscaler of a Deployment by CPU utilization; `spec` replaces fields."""
    utilization = {"type": "Utilization", "averageUtilization": goal}
    return {
        "apiVersion": AUTOSCALER_VERSION,
        "kind": AUTOSCALER,
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": utilization}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            **spec,
        },
    }
