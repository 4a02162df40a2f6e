"""Validation rules that the conformance vectors rarely cover: names, containers, labels, limits."""

from typing import Any

import pytest

from hpad.api import hpa, validation
from hpad.api import metadata as names

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def messages(spec: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **options: bool) -> list[str]:
    value = {
        "metadata": {"name": "web", "namespace": "default", **(metadata or {})},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **(spec or {})},
    }
    found = validation.validate(hpa.defaulted(hpa.from_builtins(value)), **options)
    assert all(error.text.startswith(f"{error.path}: ") for error in found)
    return [error.text for error in found]


def container(name: str, resource: str = "cpu") -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": 50}
    return {"type": "ContainerResource", "containerResource": {"name": resource, "container": name, "target": target}}


def test_a_plain_hpa_is_valid() -> None:
    assert messages() == []


@pytest.mark.parametrize("name", ["a", "web-1.example.com", "0", "a" * 253])
def test_valid_names(name: str) -> None:
    assert messages(metadata={"name": name}) == []


@pytest.mark.parametrize("name", ["-a", "a-", "A", "a_b", "a..b", "a" * 254, "ä"])
def test_invalid_names(name: str) -> None:
    found = messages(metadata={"name": name})
    assert found
    assert all(message.startswith(f'metadata.name: Invalid value: "{name}": ') for message in found)


def test_a_generate_name_is_enough_and_may_end_in_a_dash() -> None:
    assert messages(metadata={"name": "", "generateName": "web-"}) == []
    assert messages(metadata={"name": "", "generateName": "Web-"})[0].startswith("metadata.generateName: Invalid value")


def test_a_namespace_is_a_dns_label() -> None:
    assert messages(metadata={"namespace": ""}) == ["metadata.namespace: Required value"]
    assert messages(metadata={"namespace": "a.b"}) == [
        'metadata.namespace: Invalid value: "a.b": must not contain dots'
    ]
    assert messages(metadata={"namespace": "A"})[0].startswith('metadata.namespace: Invalid value: "A": a lowercase')


def test_labels_and_annotations_are_checked() -> None:
    assert messages(metadata={"labels": {"app": "web", "example.com/tier": ""}}) == []
    assert len(messages(metadata={"labels": {"-app": "we b"}})) == 2
    assert len(messages(metadata={"annotations": {"a/b/c": "anything at all"}})) == 1
    assert messages(metadata={"annotations": {"Example.com/Any": "x"}}) == []
    assert messages(metadata={"annotations": {"a": "é" * (1 << 16), "b": "x" * ((1 << 17) - 2)}}) == []
    assert messages(metadata={"annotations": {"a": "é" * (1 << 16), "b": "x" * ((1 << 17) - 1)}}) == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]


@pytest.mark.parametrize("name", ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu"])
def test_valid_resources_of_a_container(name: str) -> None:
    assert messages({"metrics": [container("app", name)]}) == []


def test_invalid_resources_of_a_container() -> None:
    path = "spec.metrics[0].containerResource.name"
    assert messages({"metrics": [container("app", "pods")]}) == [
        f'{path}: Invalid value: "pods": must be a standard resource for containers'
    ]
    assert names.resource_faults("gpu") == [
        "must be a standard resource type or fully qualified",
        "must be a standard resource for containers",
    ]


@pytest.mark.parametrize("name", ["requests.example.com/gpu", f"{'a' * 245}.io/gpu"])
def test_an_extended_resource_name_must_fit_a_quota(name: str) -> None:
    assert names.resource_faults(name) == ["doesn't follow extended resource name standard"]


@pytest.mark.parametrize("name", ["example.kubernetes.io/gpu", "requests.kubernetes.io/gpu"])
def test_a_resource_name_of_kubernetes_itself_needs_no_quota(name: str) -> None:
    assert names.resource_faults(name) == []


def test_a_container_name_is_a_dns_label() -> None:
    [message] = messages({"metrics": [container("My App")]})
    assert message.startswith('spec.metrics[0].containerResource.container: Invalid value: "My App": a lowercase RFC')


@pytest.mark.parametrize(
    ("field", "value", "valid"),
    [
        ("stabilizationWindowSeconds", 3600, True),
        ("stabilizationWindowSeconds", 3601, False),
        ("stabilizationWindowSeconds", 0, True),
        ("stabilizationWindowSeconds", -1, False),
        ("tolerance", 0, True),
        ("tolerance", "-1m", False),
        ("selectPolicy", "Disabled", True),
        ("selectPolicy", "disabled", False),
    ],
)
def test_limits_of_behavior(field: str, value: Any, valid: bool) -> None:
    found = messages({"behavior": {"scaleDown": {field: value}}})
    assert [message.partition(": ")[0] for message in found] == ([] if valid else [f"spec.behavior.scaleDown.{field}"])


@pytest.mark.parametrize("kind", ["Deployment", "ReplicationController"])
def test_only_a_replication_controller_may_lack_a_group(kind: str) -> None:
    found = messages({"scaleTargetRef": {"apiVersion": "v1", "kind": kind, "name": "web"}})
    error = 'spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group'
    assert found == ([] if kind == "ReplicationController" else [error])


def test_scale_to_zero_needs_the_gate_and_an_object_or_external_metric() -> None:
    external = {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": 1}}}
    least = "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"
    rule = "must specify at least one Object or External metric to support scaling to zero replicas"
    assert messages({"minReplicas": 0, "metrics": [external]}) == [least]
    assert messages({"minReplicas": 0, "metrics": [external]}, scale_to_zero=True) == []
    assert messages({"minReplicas": 0}, scale_to_zero=True) == [f"spec.metrics: Forbidden: {rule}"]


def test_each_superfluous_source_is_an_error() -> None:
    resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    pods = {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": 1}}
    external = {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": 1}}
    metric = {"type": "Resource", "resource": resource, "pods": pods, "external": external}
    assert messages({"metrics": [metric]}) == [
        f"spec.metrics[0].{source}: Forbidden: must populate the given metric source only"
        for source in ("external", "pods")
    ]
