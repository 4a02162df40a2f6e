"""From document to HPA."""

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


def test_a_good_document_is_an_hpa_filled_in() -> None:
    loaded = hpas.load(document())
    assert loaded.sound
    assert loaded.hpa is not None
    assert (loaded.key, loaded.hpa.metadata.key) == (Key("default", "web"), Key("default", "web"))
    assert loaded.hpa.spec.min_replicas == 1
    assert str(loaded) == "HorizontalPodAutoscaler default/web"


def test_the_namespace_can_be_chosen_and_written() -> None:
    assert hpas.load(document(), namespace="shop").key == Key("shop", "web")
    assert hpas.load(document(metadata={"name": "web", "namespace": "own"}), namespace="shop").key == Key("own", "web")


def test_a_broken_document_still_says_whom_it_means() -> None:
    loaded = hpas.load(document(maxReplicas="ten", metadata={"name": "web", "namespace": "own"}))
    assert (loaded.hpa, loaded.key, loaded.sound) == (None, Key("own", "web"), False)
    assert hpas.load(document(metadata={"namespace": "own"})).key is None
    assert hpas.load(Document("file", 0, 1, {"kind": "HorizontalPodAutoscaler", "metadata": 5})).key is None


@pytest.mark.parametrize(
    ("value", "meant"),
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
def test_which_documents_mean_to_be_an_hpa(value: Any, meant: bool) -> None:
    assert hpas.is_hpa(value) is meant


def test_a_behavior_that_v1_leaves_open_is_judged_as_it_is() -> None:
    text = '{"ScaleUp": {"StabilizationWindowSeconds": 10}}'
    metadata = {"name": "web", "annotations": {"autoscaling.alpha.kubernetes.io/behavior": text}}
    [error] = hpas.load(document("autoscaling/v1", metadata)).errors
    assert error.field == "spec.behavior.scaleUp.policies"
    assert hpas.load(document(behavior={"scaleUp": {"stabilizationWindowSeconds": 10}})).sound


def test_metadata_comes_out_whole() -> None:
    metadata = {
        "name": "web",
        "finalizers": ["x"],
        "creationTimestamp": None,
        "annotations": {"a": "b", "autoscaling.alpha.kubernetes.io/metrics": "[]"},
    }
    given = document(metadata=metadata)
    loaded = hpas.load(given)
    assert loaded.hpa is not None
    whole = hpas.with_whole_metadata(v2.to_builtins(loaded.hpa), given)
    assert whole["metadata"] == {
        "name": "web",
        "namespace": "default",
        "finalizers": ["x"],
        "annotations": {"a": "b"},
    }


def test_conversion_fills_in_nothing() -> None:
    loaded = hpas.convert(document())
    assert loaded.hpa is not None
    assert (loaded.hpa.spec.min_replicas, loaded.hpa.spec.metrics, loaded.hpa.metadata.namespace) == (None, (), "")
