"""No field of a ScaledObject is dropped silently: it affects the result, or it has a note."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from support import keda_corpus
from support.scaled_objects import (
    CPU,
    CRON,
    FULL,
    MEMORY,
    METRICS_API,
    PROMETHEUS,
    PULSAR,
    RABBITMQ,
    REDIS,
    STREAM,
    scaled,
    trigger,
)

from hpad.api.problem import Invalid
from hpad.cli import convert
from hpad.engine.annotations import PLAIN
from hpad.manifests import hpas
from hpad.manifests.documents import Document
from hpad.manifests.keda import conversion, scaledobject
from hpad.manifests.keda.conversion import Converted

Path = tuple[str | int, ...]
SHAPES = [
    *(scaled(each) for each in (RABBITMQ, PROMETHEUS, REDIS, STREAM, METRICS_API, CPU, MEMORY, CRON)),
    scaled(trigger("rabbitmq", {"hostFromEnv": "HOST", "queueName": "q"}, authenticationRef={"name": "a"})),
    scaled(trigger("rabbitmq", {"host": "amqp://u:p@r/v", "queueName": "q", "queueLength": "5"})),
    scaled(trigger("redis-streams", {"host": "r", "port": "7", "stream": "s", "streamLength": "4"})),
    scaled(RABBITMQ, PULSAR, fallback={"failureThreshold": 2, "replicas": 4, "behavior": "currentReplicasIfHigher"}),
    scaled({**RABBITMQ, "name": "queue"}, CPU, advanced={"scalingModifiers": {"formula": "queue * 2", "target": "5"}}),
    FULL,
    *(each for each in keda_corpus.scaled_objects() if scaledobject.convert(each).hpa is not None),
]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the paths of the values that are neither objects nor lists."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*path, key))
    else:
        yield path


def shown(path: Path) -> str:
    """Returns the path in the form of the messages."""
    text = ""
    for step in path:
        bracketed = isinstance(step, int) or not step.replace("-", "").replace("_", "").isalnum()
        text += f"[{step}]" if bracketed else f".{step}" if text else str(step)
    return text


def changed(document: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """Yields the document without the field, and with other values in it."""
    for other in (None, "7", "true", "false", "x y", 9, True, "enable", "plaintext"):
        copied = copy.deepcopy(document)
        parent = copied
        for step in path[:-1]:
            parent = parent[step]  # type: ignore[index]  # a path of this very document
        if other is None and isinstance(parent, list):
            continue
        if other is None:
            del parent[path[-1]]  # type: ignore[arg-type]
        else:
            parent[path[-1]] = other  # type: ignore[index]
        yield copied


def result(document: dict[str, Any]) -> str:
    """Returns the result for a document as text, or the error."""
    try:
        found = scaledobject.convert(document)
    except Invalid as wrong:
        return str(wrong)
    return json.dumps([found.hpa, conversion.settings_document([found])])


def named(found: Converted, path: str) -> bool:
    """Whether a note is about the field, a field around it, or a field in it."""
    return any(
        path == note.field or path.startswith((f"{note.field}.", f"{note.field}[")) for note in found.notes
    ) or any(note.field.startswith((f"{path}.", f"{path}[")) for note in found.notes)


def dropped(document: dict[str, Any]) -> list[str]:
    """Returns the fields that neither affect the result nor have a note."""
    found, before = scaledobject.convert(document), result(document)
    return [
        shown(path)
        for path in leaves(document)
        if path not in (("apiVersion",), ("kind",))  # which say that it is a ScaledObject
        and not named(found, shown(path))
        and all(result(other) == before for other in changed(document, path))
    ]


@pytest.mark.parametrize("document", SHAPES)
def test_each_field_affects_the_result_or_has_a_note(document: dict[str, Any]) -> None:
    assert dropped(document) == []


@pytest.mark.parametrize("document", SHAPES)
def test_a_field_with_a_note_is_not_called_one_without_a_counterpart_as_well(document: dict[str, Any]) -> None:
    notes = scaledobject.convert(document).notes
    unknown = {note.field for note in notes if "no counterpart" in note.text}
    assert [note for note in notes if note.field in unknown and "no counterpart" not in note.text] == []


@hypothesis.settings(max_examples=150, deadline=None, derandomize=True)
@hypothesis.given(data=st.data())
def test_an_unknown_field_has_a_note(data: st.DataObject) -> None:
    """The field is in any object of any shape, beside the known fields."""
    # An external scaler gets all metadata.
    document = copy.deepcopy(data.draw(st.sampled_from([each for each in SHAPES if "scalerAddress" not in str(each)])))
    objects = [(), *sorted({path[:end] for path in leaves(document) for end in range(1, len(path))}, key=str)]
    places = [path for path in objects if isinstance(at(document, path), dict) and "behavior" not in path]
    place = data.draw(st.sampled_from(places))
    name = data.draw(st.sampled_from(["unheardOf", "x-1", "unheard.of/field", "Value"]))
    value = data.draw(st.sampled_from(["text", 5, True, 0, False, {"deep": [1]}, ["a"], "false"]))
    hypothesis.assume(place != ("metadata", "annotations"))  # those of others are kept
    if "metadata" in place[2:] and isinstance(value, dict | list):
        value = "text"
    at(document, place)[name] = value
    notes = scaledobject.convert(document).notes
    path = shown((*place, name))
    assert any(
        note.lost and (path == note.field or path.startswith((note.field + ".", note.field + "["))) for note in notes
    )


def at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


@pytest.mark.parametrize("document", SHAPES)
def test_the_result_is_valid(document: dict[str, Any]) -> None:
    found = scaledobject.convert(document)
    assert found.hpa is not None
    loaded = hpas.load(Document("file", 0, 1, found.hpa), scale_to_zero=True)
    assert [str(error) for error in loaded.errors] == []
    assert loaded.hpa is not None
    assert PLAIN.of(loaded.hpa).errors == ()
    assert convert.settings_errors(conversion.settings_document([found]), found.sources) == []


def test_the_settings_of_all_shapes_together_are_valid_and_lose_no_metric() -> None:
    taken: set[str] = set()
    found = [scaledobject.convert(document, taken) for document in [*SHAPES, *SHAPES]]
    together = conversion.settings_document(found)
    assert convert.settings_errors(together, ()) == []
    entries = [
        entry
        for source in together["sources"].values()
        for part in ("metrics", "keys")
        for entry in source.get(part, ())
    ]
    named = [source.entry for each in found for source in each.sources if source.entry]
    assert sorted(entries) == sorted(named)
    assert len(set(entries)) == len(entries)


PAUSED, PAUSED_REPLICAS = "autoscaling.keda.sh/paused", "autoscaling.keda.sh/paused-replicas"


@pytest.mark.parametrize(
    "annotations",
    [
        {PAUSED: "true"},
        {PAUSED: "True"},
        {PAUSED: "1"},
        {PAUSED: ""},
        {PAUSED: "yes"},
        {PAUSED_REPLICAS: "0"},
        {PAUSED_REPLICAS: "4"},
        {PAUSED: "false", PAUSED_REPLICAS: "4"},
    ],
    ids=str,
)
def test_a_paused_scaled_object_becomes_a_paused_hpa(annotations: dict[str, str]) -> None:
    found = scaledobject.convert(scaled(RABBITMQ, annotations=annotations))
    assert found.hpa is not None
    assert found.hpa["metadata"]["annotations"] == {"hpad.io/mode": "paused"}
    name = PAUSED_REPLICAS if PAUSED_REPLICAS in annotations else PAUSED
    [note] = [note for note in found.notes if note.field == f"metadata.annotations[{name}]"]
    assert not note.lost


@pytest.mark.parametrize(("kind", "minimum", "named"), [("Rollout", 0, True), ("Rollout", 1, False), (None, 0, True)])
def test_a_target_that_may_stay_asleep_at_the_switch_is_named(kind: str | None, minimum: int, named: bool) -> None:
    """The API server does not record that KEDA has set the replicas to 0."""
    document = scaled(RABBITMQ, minReplicaCount=minimum)
    document["spec"]["scaleTargetRef"] |= {"apiVersion": "argoproj.io/v1alpha1", "kind": kind} if kind else {}
    texts = [each.text for each in scaledobject.convert(document).notes if each.field == "spec.minReplicaCount"]
    command = f"kubectl scale -n shop --replicas=1 {(kind or 'Deployment').lower()}/worker"
    assert [command in text for text in texts] == ([True] if named else [])


@pytest.mark.parametrize("value", ["false", "False", "0"])
def test_a_scaled_object_that_is_not_paused_becomes_an_hpa(value: str) -> None:
    found = scaledobject.convert(scaled(RABBITMQ, annotations={PAUSED: value}))
    assert found.hpa is not None
    assert "annotations" not in found.hpa["metadata"]


def test_a_paused_direction_stays_disabled() -> None:
    on = {f"autoscaling.keda.sh/paused-scale-{direction}": "true" for direction in ("in", "out")}
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 60}}
    handed_on = {"horizontalPodAutoscalerConfig": {"behavior": behavior}}
    document = scaled(RABBITMQ, annotations=on, advanced=handed_on)
    found = scaledobject.convert(document)
    assert found.hpa is not None
    assert found.hpa["spec"]["behavior"] == {
        "scaleDown": {"stabilizationWindowSeconds": 60, "selectPolicy": "Disabled"},
        "scaleUp": {"selectPolicy": "Disabled"},
    }
    assert behavior == {"scaleDown": {"stabilizationWindowSeconds": 60}}


def test_force_activation_becomes_a_minimum_of_one() -> None:
    annotations = {"autoscaling.keda.sh/force-activation": "true"}
    found = scaledobject.convert(scaled(RABBITMQ, annotations=annotations, minReplicaCount=0))
    assert found.hpa is not None
    assert found.hpa["spec"]["minReplicas"] == 1
    assert not found.scale_to_zero


def test_an_unsupported_trigger_has_a_note_even_if_it_is_the_only_one() -> None:
    found = scaledobject.convert(scaled(PULSAR))
    assert found.hpa is None
    assert [(note.field, note.lost) for note in found.notes] == [("spec.triggers[0]", True), ("spec.triggers", True)]
    assert '"pulsar"' in found.notes[0].text


def test_the_alias_of_a_redis_list_is_a_valid_label_value() -> None:
    long = trigger("redis", REDIS["metadata"], name="n" * 80)
    found = scaledobject.convert(scaled(REDIS, long, STREAM))
    assert found.hpa is not None
    first, second, third = (metric["external"]["metric"] for metric in found.hpa["spec"]["metrics"])
    assert first == {"name": "redis_list_length", "selector": {"matchLabels": {"key": "shop-worker-s0-redis"}}}
    assert len(second["selector"]["matchLabels"]["key"]) == 63
    assert third == {
        "name": "redis_stream_pending",
        "selector": {"matchLabels": {"key": "shop-worker-s2-redis-streams", "group": "workers"}},
    }
    [source] = conversion.settings_document([found])["sources"].values()
    assert source["keys"]["shop-worker-s0-redis"] == "jobs:mail"
    assert source["match"][0] == {
        "types": ["External"], "metrics": ["redis_list_length"], "labels": {"key": "shop-worker-s0-redis"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("location", "path"),
    [("jobs.0.depth", "jobs[0].depth"), ("0.depth", "[0].depth"), ("a-b.c_d", "a-b.c_d"), ("x", "x")],
)
def test_a_value_location_becomes_a_path_of_hpad(location: str, path: str) -> None:
    found = scaledobject.convert(scaled(trigger("metrics-api", METRICS_API["metadata"] | {"valueLocation": location})))
    [source] = conversion.settings_document([found])["sources"].values()
    assert source["metrics"] == {
        "shop-worker-s0-metrics-api": {"url": "http://api.shop:8080/stats", "path": path},
    }


@pytest.mark.parametrize(("field", "value"), [("valueLocation", "jobs.#.depth"), ("valueLocation", "a|@count")])
def test_a_trigger_with_an_unsupported_location_is_lost(field: str, value: str) -> None:
    found = scaledobject.convert(scaled(trigger("metrics-api", METRICS_API["metadata"] | {field: value}), CRON))
    assert [note.field for note in found.notes if note.lost] == [f"spec.triggers[0].metadata.{field}"]
    assert [source.adapter for source in found.sources] == ["cron"]


def test_a_password_in_a_url_is_never_copied() -> None:
    address = "https://reader:hunter2@prom.example.com/x?tenant=a"
    found = scaledobject.convert(scaled(trigger("prometheus", PROMETHEUS["metadata"] | {"serverAddress": address})))
    [source] = found.sources
    assert source.settings == {
        "url": "https://prom.example.com/x",
        "username": "reader",
        "password_env": "HPAD_PROM_EXAMPLE_COM_PASSWORD",
        "params": {"tenant": "a"},
    }
    assert "hunter2" not in str(found)
