"""No field of a ScaledObject is dropped in silence: it is in what is written, or it is named."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from support.scaled_objects import (
    CPU,
    CRON,
    FULL,
    KAFKA,
    MEMORY,
    METRICS_API,
    PROMETHEUS,
    RABBITMQ,
    REDIS,
    STREAM,
    scaled,
    trigger,
)

from hpad.cli import convert
from hpad.engine import fallback_policy
from hpad.manifests import hpas
from hpad.manifests.documents import Document
from hpad.manifests.keda import conversion, scaledobject
from hpad.manifests.keda.conversion import ConversionError, Converted

Path = tuple[str | int, ...]
SHAPES = [
    *(scaled(each) for each in (RABBITMQ, PROMETHEUS, REDIS, STREAM, METRICS_API, CPU, MEMORY, CRON)),
    scaled(trigger("rabbitmq", {"hostFromEnv": "HOST", "queueName": "q"}, authenticationRef={"name": "a"})),
    scaled(trigger("rabbitmq", {"host": "amqp://u:p@r/v", "queueName": "q", "queueLength": "5"})),
    scaled(trigger("redis-streams", {"host": "r", "port": "7", "stream": "s", "streamLength": "4"})),
    scaled(RABBITMQ, KAFKA, fallback={"failureThreshold": 2, "replicas": 4, "behavior": "currentReplicasIfHigher"}),
    scaled(RABBITMQ, CPU, advanced={"scalingModifiers": {"formula": "s0 * 2", "target": "5"}}),
    FULL,
]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where the values stand that are neither objects nor lists."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*path, key))
    else:
        yield path


def shown(path: Path) -> str:
    """The path as messages have it."""
    text = ""
    for step in path:
        bracketed = isinstance(step, int) or not step.replace("-", "").replace("_", "").isalnum()
        text += f"[{step}]" if bracketed else f".{step}" if text else str(step)
    return text


def changed(document: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """The document without the field, and with other values there."""
    for other in (None, "7", "true", "false", "x y", 9, True):
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
    """What is written for a document, as text; the refusal, if it is refused."""
    try:
        found = scaledobject.convert(document)
    except ConversionError as wrong:
        return str(wrong)
    return json.dumps([found.hpa, conversion.settings_document([found])])


def named(found: Converted, path: str) -> bool:
    """Whether a note is about the field, about what it is in, or about what is in it."""
    return any(
        path == note.field or path.startswith((f"{note.field}.", f"{note.field}[")) for note in found.notes
    ) or any(note.field.startswith((f"{path}.", f"{path}[")) for note in found.notes)


def dropped(document: dict[str, Any]) -> list[str]:
    """The fields that neither make a difference to what is written nor are named."""
    found, before = scaledobject.convert(document), result(document)
    return [
        shown(path)
        for path in leaves(document)
        if path not in (("apiVersion",), ("kind",))  # which say that it is a ScaledObject
        and not named(found, shown(path))
        and all(result(other) == before for other in changed(document, path))
    ]


@pytest.mark.parametrize("document", SHAPES)
def test_each_field_makes_a_difference_or_is_named(document: dict[str, Any]) -> None:
    assert dropped(document) == []


@hypothesis.settings(max_examples=150, deadline=None, derandomize=True)
@hypothesis.given(data=st.data())
def test_so_does_a_field_that_conversion_does_not_know(data: st.DataObject) -> None:
    """In any object of any shape, beside all that is known there."""
    document = copy.deepcopy(data.draw(st.sampled_from(SHAPES)))
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
def test_what_is_written_is_valid(document: dict[str, Any]) -> None:
    found = scaledobject.convert(document)
    assert found.hpa is not None
    loaded = hpas.load(Document("file", 0, 1, found.hpa), scale_to_zero=True)
    assert [str(error) for error in loaded.errors] == []
    assert loaded.hpa is not None
    names = [metric["external"]["metric"]["name"] for metric in found.hpa["spec"]["metrics"] if "external" in metric]
    assert fallback_policy.annotation_errors(loaded.hpa.metadata.annotations, names) == {}
    assert convert.flaws(conversion.settings_document([found]), found.sources) == []


def test_the_settings_of_all_shapes_together_are_valid_and_lose_no_metric() -> None:
    taken: set[str] = set()
    found = [scaledobject.convert(document, taken) for document in [*SHAPES, *SHAPES]]
    together = conversion.settings_document(found)
    assert convert.flaws(together, ()) == []
    entries = [
        entry
        for source in together["sources"].values()
        for part in ("metrics", "keys")
        for entry in source.get(part, ())
    ]
    assert sorted(entries) == sorted(source.entry for each in found for source in each.sources)
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
def test_a_paused_one_becomes_no_hpa(annotations: dict[str, str]) -> None:
    found = scaledobject.convert(scaled(RABBITMQ, annotations=annotations))
    assert (found.hpa, found.sources) == (None, ())
    [note] = found.notes
    assert note.lost
    assert note.field == f"metadata.annotations[{PAUSED_REPLICAS if PAUSED_REPLICAS in annotations else PAUSED}]"


@pytest.mark.parametrize("value", ["false", "False", "0"])
def test_one_that_is_not_paused_does(value: str) -> None:
    found = scaledobject.convert(scaled(RABBITMQ, annotations={PAUSED: value}))
    assert found.hpa is not None
    assert "annotations" not in found.hpa["metadata"]


def test_directions_that_are_closed_stay_closed() -> None:
    on = {f"autoscaling.keda.sh/paused-scale-{way}": "true" for way in ("in", "out")}
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


def test_what_is_kept_active_keeps_a_replica() -> None:
    annotations = {"autoscaling.keda.sh/force-activation": "true"}
    found = scaledobject.convert(scaled(RABBITMQ, annotations=annotations, minReplicaCount=0))
    assert found.hpa is not None
    assert found.hpa["spec"]["minReplicas"] == 1
    assert not found.scale_to_zero


def test_the_trigger_that_is_lacked_is_named_also_where_it_is_the_only_one() -> None:
    found = scaledobject.convert(scaled(KAFKA))
    assert found.hpa is None
    assert [(note.field, note.lost) for note in found.notes] == [("spec.triggers[0]", True), ("spec.triggers", True)]
    assert '"kafka"' in found.notes[0].text


def test_a_list_of_redis_is_asked_for_by_a_name_that_a_label_can_hold() -> None:
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


@pytest.mark.parametrize("field", ["activationListLength"])
def test_two_lists_with_different_thresholds_of_activity_are_not_told_apart_and_that_is_named(field: str) -> None:
    active = trigger("redis", REDIS["metadata"] | {field: "3"})
    found = scaledobject.convert(scaled(active, REDIS))
    assert [note.field for note in found.notes if note.lost] == ["spec.triggers[1]"]


@pytest.mark.parametrize(
    ("location", "path"),
    [("jobs.0.depth", "jobs[0].depth"), ("0.depth", "[0].depth"), ("a-b.c_d", "a-b.c_d"), ("x", "x")],
)
def test_a_place_in_a_document_is_written_as_hpad_has_it(location: str, path: str) -> None:
    found = scaledobject.convert(scaled(trigger("metrics-api", METRICS_API["metadata"] | {"valueLocation": location})))
    [source] = conversion.settings_document([found])["sources"].values()
    assert source["metrics"] == {
        "shop-worker-s0-metrics-api": {"url": "http://api.shop:8080/stats", "path": path},
    }


@pytest.mark.parametrize(
    ("field", "value"), [("format", "xml"), ("valueLocation", "jobs.#.depth"), ("valueLocation", "a|@count")]
)
def test_what_hpad_cannot_read_of_a_document_is_lost_with_its_trigger(field: str, value: str) -> None:
    found = scaledobject.convert(scaled(trigger("metrics-api", METRICS_API["metadata"] | {field: value}), CRON))
    assert [note.field for note in found.notes if note.lost] == [f"spec.triggers[0].metadata.{field}"]
    assert [source.adapter for source in found.sources] == ["cron"]


def test_the_default_of_keda_is_no_loss_and_another_value_is() -> None:
    same = scaledobject.convert(scaled(RABBITMQ, pollingInterval=30, cooldownPeriod=300, initialCooldownPeriod=0))
    assert not [note for note in same.notes if note.lost]
    other = scaledobject.convert(scaled(RABBITMQ, pollingInterval=31, cooldownPeriod=301, initialCooldownPeriod=1))
    expected = {"spec.pollingInterval", "spec.cooldownPeriod", "spec.initialCooldownPeriod"}
    assert {note.field for note in other.notes if note.lost} == expected


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
