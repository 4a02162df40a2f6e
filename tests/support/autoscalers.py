"""Autoscalers for the embedded cluster."""

from typing import Any

from hpad.api.hpa import AUTOSCALER, AUTOSCALER_VERSION


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
