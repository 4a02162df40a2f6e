"""The custom kind Widget with a scale subresource, for tests of custom resources."""

from typing import Any

from hpad.lab.cluster import Resource, ScalePaths

API_VERSION = "oracle.example/v1"
WIDGETS = Resource("oracle.example", ("v1",), "widgets", "Widget", scale=ScalePaths(selector=".status.selector"))
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.oracle.example"},
    "spec": {
        "group": "oracle.example",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}
"""The CustomResourceDefinition of WIDGETS."""
