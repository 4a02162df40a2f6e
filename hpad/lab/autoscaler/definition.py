"""The CustomResourceDefinition of the kind Autoscaler."""

from typing import Any, Final

from hpad.api.hpa import AUTOSCALER, AUTOSCALER_VERSION
from hpad.api.metadata import AUTOSCALER_KEY
from hpad.lab.autoscaler import schema

GROUP: Final = AUTOSCALER_VERSION.partition("/")[0]
_COLUMNS: Final = (
    ("Reference", "string", ".spec.scaleTargetRef.name", 0, "Name of the workload that is scaled."),
    ("Targets", "string", ".status.targets", 0, "Value and target of each metric."),
    ("MinPods", "integer", ".spec.minReplicas", 0, "Smallest number of replicas; none: 1."),
    ("MaxPods", "integer", ".spec.maxReplicas", 0, "Largest number of replicas."),
    ("Replicas", "integer", ".status.currentReplicas", 0, "Number of replicas that hpad found."),
    ("Age", "date", ".metadata.creationTimestamp", 0, ""),
    ("Kind", "string", ".spec.scaleTargetRef.kind", 1, "Kind of the workload that is scaled."),
    ("Decision", "string", ".status.decision", 1, "Last decision in one sentence."),
)
"""Name, type, path, priority (1: with `-o wide` only) and description of each column.

A column has only one path, so kind and name of the target are two columns.
"""


def definition() -> dict[str, Any]:
    """Returns the CustomResourceDefinition as plain JSON."""
    names = {
        "plural": "autoscalers",
        "singular": AUTOSCALER_KEY,
        "kind": AUTOSCALER,
        "listKind": "AutoscalerList",
        "shortNames": ["asr"],
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(*each) for each in _COLUMNS],
        "schema": {"openAPIV3Schema": schema.schema()},
    }
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "preserveUnknownFields": False}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {**spec, "versions": [version]},
    }


def _column(name: str, kind: str, path: str, priority: int, description: str) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    if description:
        column["description"] = description
    return {**column, "priority": priority} if priority else column
