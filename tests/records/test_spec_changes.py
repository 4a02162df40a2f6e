"""Changes of a recorded spec (`--set PATH=VALUE`): their paths and values, and the errors."""

from typing import Any

import msgspec
import pytest
from support.replays import QUEUE, scenario, step

from hpad.api import hpa as v2
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.records.format import decode_scenario
from hpad.records.spec_changes import ChangeError, applied, parse

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


def recorded(**spec: Any) -> HorizontalPodAutoscaler:
    row = scenario(step(0))
    row["hpa"]["spec"] |= {"metrics": [CPU]} | spec
    del row["hpa"]["spec"]["behavior"]
    row["hpa"]["metadata"] = {"name": "web", "namespace": "shop"}
    return v2.defaulted(decode_scenario(row).hpa)


def changed(*texts: str, **spec: Any) -> Any:
    return v2.to_builtins(applied(recorded(**spec), [parse(text) for text in texts]))["spec"]


def test_fields_entries_and_whole_objects_are_set() -> None:
    assert changed("spec.maxReplicas=20")["maxReplicas"] == 20
    target = changed("spec.metrics[0].resource.target.averageUtilization=70")["metrics"][0]["resource"]["target"]
    assert target == {"type": "Utilization", "averageUtilization": 70}
    target = changed("$.spec.metrics[0].resource.target={type: AverageValue, averageValue: 200m}")["metrics"][0]
    assert target["resource"]["target"] == {"type": "AverageValue", "averageValue": "200m"}


def test_objects_on_the_way_are_made_and_get_defaults() -> None:
    behavior = changed("spec.behavior.scaleDown.stabilizationWindowSeconds=60")["behavior"]
    assert behavior["scaleDown"] == {
        "stabilizationWindowSeconds": 60,
        "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    }
    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 0


def test_changes_apply_in_their_order() -> None:
    spec = changed(
        "spec.behavior.scaleDown.policies=[{type: Pods, value: 1, periodSeconds: 60}]",
        "spec.behavior.scaleDown.policies[0].value=50",
    )
    assert spec["behavior"]["scaleDown"]["policies"] == [{"type": "Pods", "value": 50, "periodSeconds": 60}]


def test_an_option_of_an_autoscaler_is_its_annotation_and_its_queries_stay() -> None:
    assert parse("spec.options.mode=shadow").annotation == "hpad.io/mode"
    hpa = recorded()
    own = v2.OwnQuery("orders", "prom", {"query": "sum(orders)"})
    hpa = v2.from_builtins({**v2.to_builtins(hpa), "kind": v2.AUTOSCALER})
    hpa = msgspec.structs.replace(hpa, spec=msgspec.structs.replace(hpa.spec, queries=(own,)))
    made = applied(hpa, [parse("spec.maxReplicas=20")])
    assert (made.kind, made.spec.max_replicas, made.spec.queries) == (v2.AUTOSCALER, 20, (own,))


def test_null_removes_a_field_or_an_entry() -> None:
    assert changed("spec.minReplicas=null", minReplicas=3)["minReplicas"] == 1, "the default"
    memory = {"type": "Resource", "resource": {"name": "memory", "target": CPU["resource"]["target"]}}  # type: ignore[index]
    assert changed("spec.metrics[0]=null", metrics=[CPU, memory])["metrics"] == [memory]


def test_the_recorded_values_leave_the_hpa_as_it_is() -> None:
    hpa = recorded()
    assert applied(hpa, [parse("spec.maxReplicas=10"), parse("spec.metrics[0].resource.name=cpu")]) is hpa


def test_an_error_that_the_recorded_hpa_has_as_well_is_none() -> None:
    row = recorded(minReplicas=0)
    assert applied(row, [parse("spec.maxReplicas=20")]).spec.max_replicas == 20
    queue = recorded(metrics=[QUEUE])
    assert applied(queue, [parse("spec.minReplicas=0")], scale_to_zero=True).spec.min_replicas == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the path is missing; write PATH=VALUE, as in spec.maxReplicas=20"),
        ("spec.maxReplicas", "there is no value after spec.maxReplicas; write PATH=VALUE"),
        ("spec.maxReplicas=", "the value is missing; null removes a field"),
        ("spec.maxReplicas={", "the value is not YAML: "),
        ("spec.behavior={scaleUp: {}, scaleUp: {}}", "scaleUp: strict decoding error: duplicate field"),
        ("spec.metrics[x].type=Pods", "'[' is not understood after spec.metrics; write PATH=VALUE"),
        ("spec.=1", "a field is missing after spec."),
        ("spec={}", "name a field of the spec, as in spec.maxReplicas=20"),
        ("maxReplicas=20", "only spec and the annotations under hpad.io/ can be set; did you mean spec.maxReplicas?"),
        ("status.desiredReplicas=1", "only spec and the annotations under hpad.io/ can be set"),
        ("metadata.name=other", "only spec and the annotations under hpad.io/ can be set, as in metadata.annotations["),
        ("metadata.annotations.hpad.io/fallback=last-good", "write the name of an annotation in brackets: metadata."),
        ('metadata.annotations["note"]=1', "this annotation changes no decision: only spec and"),
    ],
)
def test_the_error_of_a_change_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ChangeError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"--set {text}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "spec.maxReplica=20",
            'shop/web: spec.maxReplica: strict decoding error: unknown field "spec.maxReplica": '
            'did you mean "maxReplicas"?',
        ),
        ("spec.maxReplica=null", "shop/web: spec.maxReplica: strict decoding error: unknown field"),
        (
            "spec.maxReplicas=many",
            'shop/web: spec.maxReplicas: Invalid value: "many": must be a whole number, such as 10',
        ),
        (
            'spec.maxReplicas="20"',
            'shop/web: spec.maxReplicas: Invalid value: "20": must be a whole number: write 20 without quotes',
        ),
        ("spec.metrics[1].type=Pods", "shop/web: spec.metrics has no entry [1]: the last one is [0]"),
        ("spec.metrics[1]=null", "shop/web: spec.metrics has no entry [1]: the last one is [0]"),
        ("spec.behavior.scaleUp.policies[0].value=1", "shop/web: spec.behavior.scaleUp.policies has no entry [0]: it"),
        ("spec.metrix[0].type=Pods", 'shop/web: spec.metrix: strict decoding error: unknown field "spec.metrix": did'),
        ("spec.metrics.type=Pods", "shop/web: spec.metrics is a list: write the index of an entry, as in [0].type"),
        ("spec.maxReplicas.value=1", "shop/web: spec.maxReplicas is 10 and has no field 'value'"),
        ("spec.maxReplicas[0]=1", "shop/web: spec.maxReplicas is no list: write a field instead of [0]"),
        ("spec.maxReplicas=0", "the API server would refuse shop/web: spec.maxReplicas: Required value: must be"),
        ("spec.minReplicas=11", "the API server would refuse shop/web: spec.maxReplicas: Invalid value: 10: must be"),
        ("spec.minReplicas=0", "the API server would refuse shop/web: spec.minReplicas: Invalid value: 0: must be"),
        (
            "spec.metrics[0].resource.target.averageValue=1",
            "the API server would refuse shop/web: spec.metrics[0].resource.target",
        ),
        ("spec.scaleTargetRef.name=other", "shop/web: the target cannot be changed: counts and pods were recorded for"),
    ],
)
def test_the_error_of_a_change_that_does_not_fit(text: str, message: str) -> None:
    with pytest.raises(ChangeError) as caught:
        changed("spec.behavior.scaleDown.selectPolicy=Min", text)
    assert str(caught.value).startswith(f"--set {text}: {message}")
