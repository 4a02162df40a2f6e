"""The kind Rollout of Argo Rollouts, as far as an HPA sees it: its scale subresource, its pods and their labels."""

from typing import Any

API_VERSION = "argoproj.io/v1alpha1"
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rollouts.argoproj.io"},
    "spec": {
        "group": "argoproj.io",
        "scope": "Namespaced",
        "names": {"plural": "rollouts", "singular": "rollout", "kind": "Rollout", "shortNames": ["ro"]},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.HPAReplicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}
"""The paths of the scale are those of its CustomResourceDefinition: the selector covers stable and canary pods."""


def rollout(replicas: int) -> dict[str, Any]:
    """A Rollout named web whose canary pods have the label `role: canary`, by its canaryMetadata."""
    roles = {f"{role}Metadata": {"labels": {"role": role}} for role in ("stable", "canary")}
    head = {"apiVersion": API_VERSION, "kind": "Rollout", "metadata": {"name": "web"}}
    return {**head, "spec": {"replicas": replicas, "strategy": {"canary": roles}}}


def status(stable: int, canaries: int) -> dict[str, Any]:
    """The status while so many pods of both run."""
    hashes = {"stableRS": "6b7", "currentPodHash": "9c4"}
    return {"status": {"HPAReplicas": stable + canaries, "selector": "app=web", **hashes}}


def pods(stable: int, canaries: int) -> list[dict[str, Any]]:
    """The pods of both ReplicaSets."""
    found = [("stable", "6b7", number) for number in range(stable)]
    found += [("canary", "9c4", number) for number in range(canaries)]
    return [
        {
            "metadata": {
                "name": f"web-{revision}-{number}",
                "labels": {"app": "web", "rollouts-pod-template-hash": revision, "role": role},
            },
            "spec": {"containers": [{"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}]},
        }
        for role, revision, number in found
    ]
