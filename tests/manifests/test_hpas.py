"""Loading HPAs from documents."""

from typing import Any

import pytest

from hpad.api import hpa as v2
from hpad.api.metadata import Key
from hpad.manifests import hpas
from hpad.manifests.documents import Document


def document(version: str = "autoscaling/v2", metadata: Any = None, **spec: Any) -> Document:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    value = {
        "apiVersion": version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata or {"name": "web"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3, **spec},
    }
    return Document("file", 0, 1, value)


def test_a_valid_document_becomes_an_hpa_with_defaults() -> None:
    loaded = hpas.load(document())
    assert loaded.errors == ()
    assert loaded.hpa is not None
    assert (loaded.key, loaded.hpa.key) == (Key("default", "web"), Key("default", "web"))
    assert loaded.hpa.spec.min_replicas == 1
    assert str(loaded) == "HorizontalPodAutoscaler default/web"


def test_an_hpa_without_a_namespace_gets_the_chosen_one() -> None:
    assert hpas.load(document(), namespace="shop").key == Key("shop", "web")
    assert hpas.load(document(metadata={"name": "web", "namespace": "own"}), namespace="shop").key == Key("own", "web")


def test_an_invalid_document_keeps_its_namespace_and_name() -> None:
    loaded = hpas.load(document(maxReplicas="ten", metadata={"name": "web", "namespace": "own"}))
    assert (loaded.hpa, loaded.key, len(loaded.errors)) == (None, Key("own", "web"), 1)
    assert hpas.load(document(metadata={"namespace": "own"})).key is None
    assert hpas.load(Document("file", 0, 1, {"kind": "HorizontalPodAutoscaler", "metadata": 5})).key is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"kind": "HorizontalPodAutoscaler"}, True),
        ({"kind": "HorizontalPodAutoScaler", "apiVersion": "autoscaling/v2"}, True),
        ({"kind": "Scale", "apiVersion": "autoscaling/v1"}, False),
        ({"kind": "VerticalPodAutoscaler", "apiVersion": "autoscaling.k8s.io/v1"}, False),
        ({"kind": "Deployment", "apiVersion": "apps/v1"}, False),
        ({}, False),
        ("HorizontalPodAutoscaler", False),
    ],
)
def test_a_document_counts_as_an_hpa_by_kind_or_group(value: Any, expected: bool) -> None:
    assert hpas.is_hpa(value) is expected


def test_the_behavior_of_v1_is_validated_without_defaults() -> None:
    text = '{"ScaleUp": {"StabilizationWindowSeconds": 10}}'
    metadata = {"name": "web", "annotations": {"autoscaling.alpha.kubernetes.io/behavior": text}}
    [error] = hpas.load(document("autoscaling/v1", metadata)).errors
    assert error.path == "spec.behavior.scaleUp.policies"
    assert hpas.load(document(behavior={"scaleUp": {"stabilizationWindowSeconds": 10}})).errors == ()


def test_whole_metadata_comes_from_the_document() -> None:
    metadata = {
        "name": "web",
        "finalizers": ["x"],
        "creationTimestamp": None,
        "annotations": {"a": "b", "autoscaling.alpha.kubernetes.io/metrics": "[]"},
    }
    original = document(metadata=metadata)
    loaded = hpas.load(original)
    assert loaded.hpa is not None
    whole = hpas.with_whole_metadata(v2.to_builtins(loaded.hpa), original)
    assert whole["metadata"] == {
        "name": "web",
        "namespace": "default",
        "finalizers": ["x"],
        "annotations": {"a": "b"},
    }
