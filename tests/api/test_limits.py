"""HPAs that are larger than any user's are refused where they enter, with the field, its size and the limit."""

import json
from typing import Any

import msgspec
import pytest
from support.engine import external, resource

from hpad.api import limits
from hpad.kube import hpas, scale
from hpad.records.format import decode_scenario

_REF = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
_FEW = {"matchExpressions": [{"key": f"k{number}", "operator": "Exists"} for number in range(100)]}
_MANY = {"matchExpressions": [{"key": f"k{number}", "operator": "Exists"} for number in range(101)]}


def hpa(labels: Any = None, **spec: Any) -> bytes:
    metadata = {"name": "web", "namespace": "n", "labels": labels, "annotations": {"other.io/a": "b", "hpad.io/c": "d"}}
    return json.dumps({"metadata": metadata, "spec": {"scaleTargetRef": _REF, "maxReplicas": 7, **spec}}).encode()


def policies(count: int) -> dict[str, Any]:
    return {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}] * count}}


_LARGE = hpa(metrics=[external("m", value="1") | {"x": "y" * 70_000}])


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (hpa(metrics=[external("m", value="1")] * 101), "spec.metrics has 101 metrics; hpad takes at most 100"),
        (hpa(behavior=policies(101)), "spec.behavior.scaleDown.policies has 101 policies; hpad takes at most 100"),
        (hpa({f"l{number}": "" for number in range(257)}), "metadata.labels has 257 labels; hpad takes at most 256"),
        (
            hpa(metrics=[resource("cpu", averageValue="1"), external("m" * 1025, value="1")]),
            "spec.metrics[1] has a name of 1,025 characters; hpad takes at most 1,024",
        ),
        (
            hpa(scaleTargetRef={**_REF, "kind": "K" * 1025}),
            "spec.scaleTargetRef has a name of 1,025 characters; hpad takes at most 1,024",
        ),
        (
            _LARGE,
            f"spec has {len(json.dumps(json.loads(_LARGE)['spec'])):,} bytes; hpad takes at most 65,536",
        ),
    ],
)
def test_a_larger_hpa_is_refused_and_nothing_large_is_left_of_it(raw: bytes, fault: str) -> None:
    found = hpas.hpa(raw).value
    assert found.spec.refused == fault
    assert found.spec.max_replicas == 7
    assert (found.spec.metrics, found.spec.behavior) == ((), None)
    assert len(msgspec.json.encode(found.spec)) < 3000
    assert len(found.metadata.labels or ()) <= 256


_VALUES = {"matchExpressions": [{"key": "a", "operator": "In", "values": [f"v{n}" for n in range(1500)]}]}


@pytest.mark.parametrize(("selector", "refused"), [(_FEW, False), (_MANY, True), (_VALUES, True)])
def test_the_selector_of_a_metric_has_at_most_a_hundred_requirements_and_4096_characters(
    selector: dict[str, Any], refused: bool
) -> None:
    metric = {
        "type": "External",
        "external": {"metric": {"name": "m", "selector": selector}, "target": {"type": "Value"}},
    }
    assert bool(hpas.hpa(hpa(metrics=[metric])).value.spec.refused) is refused


def test_as_much_as_the_limits_allow_is_taken() -> None:
    metrics = [external("m" * 300, value="1")] * 100
    found = hpas.hpa(hpa({f"l{number}": "" for number in range(256)}, metrics=metrics, behavior=policies(100))).value
    assert found.spec.refused == ""
    assert limits.within(found) is found
    assert len(found.spec.metrics) == 100


def test_of_the_annotations_only_those_of_hpad_are_kept() -> None:
    assert hpas.hpa(hpa()).value.metadata.annotations == {"hpad.io/c": "d"}


def test_a_recorded_hpa_that_was_refused_is_refused_again() -> None:
    refused = hpas.hpa(hpa(metrics=[external("m", value="1")] * 101)).value
    recorded = msgspec.json.decode(msgspec.json.encode(refused))
    assert decode_scenario({"id": "x", "hpa": recorded, "steps": []}).hpa.spec.refused == refused.spec.refused


@pytest.mark.parametrize(
    "selector",
    [
        {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(101)]},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": [f"v{number}" for number in range(100_000)]}]},
        {"matchLabels": {f"k{number}": "v" * 60 for number in range(99)}},
    ],
)
def test_a_larger_selector_of_a_target_is_refused_when_it_is_read(selector: dict[str, Any]) -> None:
    """The target stays known, so that the condition can name the fault."""
    raw = json.dumps({"metadata": {"name": "web", "namespace": "n"}, "spec": {"selector": selector}}).encode()
    target = scale.target(raw).value
    assert len(target.selector) < 5000
    assert str(target.scale.status.parsed_selector).startswith("the label selector is too large")
    assert target.scale.pod_selector is None
