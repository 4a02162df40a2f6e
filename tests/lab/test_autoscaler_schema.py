"""The schema of the kind Autoscaler: it takes what Kubernetes takes in an HPA, and refuses what Kubernetes refuses.

Rules in CEL run in cel-python here; a server compiles them itself, and estimates their cost.
"""

import json
import re
from pathlib import Path

import pytest
import yaml
from support.crd_rules import refusals
from support.recorded_refusals import ELSEWHERE, HEAD, REFUSED, autoscaler

from hpad.api import hpa, quantity, strict, validation
from hpad.cli import main
from hpad.engine import annotations, controls
from hpad.lab.autoscaler import definition, options
from hpad.lab.cluster import customs

ROOT = Path(__file__).resolve().parents[2]
[VERSION] = definition()["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def fields(schema, path=""):
    for name, each in schema.get("properties", {}).items():
        yield f"{path}{name}", each
        yield from fields(each.get("items", each), f"{path}{name}.")


def nodes(schema, path=""):
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from nodes(each, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from nodes(schema[name], f"{path}[]")


def test_spec_and_status_have_the_fields_of_an_hpa_and_their_own():
    spec, status = (SCHEMA["properties"][part]["properties"] for part in ("spec", "status"))
    assert set(spec) == {*strict.fields_of(hpa.HorizontalPodAutoscalerSpec), "options", "queries"}
    assert set(status) == {*strict.fields_of(hpa.HorizontalPodAutoscalerStatus), "decision", "targets"}


def test_every_field_has_a_description_and_no_default():
    found = dict(fields(SCHEMA))
    assert {"spec.metrics.external.target.averageValue", "spec.options.mode", "status.decision"} <= found.keys()
    assert [path for path, each in found.items() if len(each.get("description", "")) < 5] == ["metadata"]
    assert [path for path, each in found.items() if "default" in each] == []


def test_the_schema_is_structural():
    """The rules of an API server that a mistake here would break: apiextensions-apiserver, schema/validation.go."""
    assert SCHEMA["properties"]["metadata"] == {"type": "object"}
    found = dict(nodes(SCHEMA))
    assert {".spec.metrics[]", ".spec.queries[].parameters[]"} <= found.keys()
    for path, each in found.items():
        kinds = ("type", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
        assert len([kind for kind in kinds if each.get(kind)]) == 1, path
        assert (each.get("type") == "array") is ("items" in each), path
        assert not {"properties", "additionalProperties"} <= each.keys(), path
        keys = each.get("x-kubernetes-list-map-keys", ())
        assert set(keys) <= set(each.get("items", {}).get("required", ())), path
        for rule in each.get("x-kubernetes-validations", ()):
            assert rule.get("fieldPath", ".type").removeprefix(".") in {*each["properties"], "type"}, (path, rule)


@pytest.mark.parametrize("text", ["30", "500m", "0.5", "+1", "1.5Gi", ".5", "5.", "2e3", "1E-2", "000.001", "9" * 64])
def test_a_quantity_that_the_schema_takes_can_be_read(text):
    target = dict(fields(SCHEMA))["spec.metrics.external.target.averageValue"]
    assert re.search(target["pattern"], text)
    assert quantity.Quantity.parse(text).sign == 1


@pytest.mark.parametrize("text", ["", "0", "0.0", "-1", "1x", "1 ", "1e100", "Ki", ".", "0m", "1\n"])
def test_a_quantity_that_is_no_target_is_refused(text):
    target = dict(fields(SCHEMA))["spec.metrics.external.target.averageValue"]
    assert list(customs.causes(target, text, "value"))


def test_the_options_are_the_annotations_with_their_choices():
    known = SCHEMA["properties"]["spec"]["properties"]["options"]["properties"]
    assert [f"hpad.io/{name}" for name in known] == list(annotations.ANNOTATIONS)
    for name, choices in options.CHOICES.items():
        for choice in choices:
            controls.parse(name, choice)
        with pytest.raises(ValueError, match="other"):
            controls.parse(name, "other")
    assert {name for name, each in known.items() if "enum" in each} == {
        name.removeprefix("hpad.io/") for name in options.CHOICES
    }
    assert [name for name, each in known.items() if "`" in each["description"] or "](" in each["description"]] == []


def test_the_schema_agrees_with_kubernetes_about_hpas(vectors):
    taken = refused = 0
    for row in vectors("admission_v2", 10):
        value = {name: each for name, each in row["in"].items() if name != "status"}
        found = refusals(SCHEMA, autoscaler(value))
        # what has no place in the schema: names of objects, `.` and `..`, and an empty list that the vector lacks
        errors = [
            each
            for each in row["errorsScaleToZero"]
            if not each["field"].startswith("metadata.")
            and "may not be '." not in each["message"]
            and "must specify at least one Policy" not in each["message"]
        ]
        assert bool(found) == bool(errors), (found, errors, row["in"])
        taken, refused = taken + (not found), refused + bool(found)
    assert min(taken, refused) > 30


@pytest.mark.parametrize(("name", "places"), REFUSED.items(), ids=REFUSED)
def test_what_a_real_server_refuses_in_an_hpa_the_schema_refuses(recordings, name, places):
    exchange = json.loads((recordings / "invalid" / f"{name}.json").read_text("utf-8"))
    assert refusals(SCHEMA, autoscaler(exchange["request"]["body"])) == places


def test_every_recorded_refusal_is_accounted_for(recordings):
    assert {path.stem for path in (recordings / "invalid").glob("*.json")} == REFUSED.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize(
    ("metric", "is_taken"),
    [
        ({"type": "Value", "value": "10"}, True),
        ({"type": "AverageValue", "averageValue": "500m"}, True),
        ({"type": "AverageValue", "value": "10"}, False),
        ({"type": "Value", "averageValue": "10"}, False),
    ],
)
def test_the_type_of_an_object_target_names_its_value(metric, is_taken):
    source = {"metric": {"name": "m"}, "describedObject": {"kind": "Service", "name": "s"}, "target": metric}
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 2}
    value = {**HEAD, "spec": {**spec, "metrics": [{"type": "Object", "object": source}]}}
    assert (refusals(SCHEMA, value) == []) is is_taken


@pytest.mark.parametrize("path", sorted((ROOT / "config" / "autoscalers").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_samples_are_valid(path):
    for value in yaml.load_all(path.read_text("utf-8"), yaml.CSafeLoader):
        assert {name: value[name] for name in HEAD} == HEAD
        assert refusals(SCHEMA, value) == []
        spec = {name: each for name, each in value["spec"].items() if name not in ("options", "queries")}
        own = {f"hpad.io/{name}": text for name, text in value["spec"].get("options", {}).items()}
        metadata = {**value["metadata"], "namespace": "shop", "annotations": own}
        decoded = hpa.defaulted(hpa.from_builtins({"metadata": metadata, "spec": spec}))
        assert validation.validate(decoded, scale_to_zero=True) == []
        assert annotations.PLAIN.of(decoded).errors == ()


def test_converted_hpas_and_scaledobjects_fit_the_schema(capsys):
    files = [str(ROOT / each) for each in ("config/hpas", "config/keda", "tests/data/keda")]
    main(["convert", "--to", "autoscaler", "--lossy", "-o", "json", *files])
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    scalers = [each for each in made if each.get("kind") == "Autoscaler"]
    assert len(scalers) > 50
    assert [(each["metadata"]["name"], found) for each in scalers if (found := refusals(SCHEMA, each))] == []
    assert {each["metadata"]["name"] for each in scalers if customs.unknown(SCHEMA, each)} == set()
