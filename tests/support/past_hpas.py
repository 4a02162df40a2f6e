"""HPAs whose past tests read from Prometheus."""

from typing import Any

from hpad.api.hpa import HorizontalPodAutoscaler, from_builtins

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


def past_hpa(
    name: str,
    *metrics: dict[str, Any],
    kind: str = "Deployment",
    target: str = "",
    namespace: str = "shop",
    conditions: tuple[dict[str, Any], ...] = (),
) -> HorizontalPodAutoscaler:
    """Returns an HPA with these metrics, by default with a goal of 50 % CPU."""
    return from_builtins(
        {
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target or name},
                "minReplicas": 1,
                "maxReplicas": 10,
                "metrics": list(metrics) or [CPU],
            },
            "status": {"desiredReplicas": 1, "conditions": list(conditions)},
        }
    )


def external(name: str, kind: str, amount: str) -> dict[str, Any]:
    """Returns an External metric with a target of the type AverageValue or Value."""
    field = kind[0].lower() + kind[1:]
    return {"type": "External", "external": {"metric": {"name": name}, "target": {"type": kind, field: amount}}}
