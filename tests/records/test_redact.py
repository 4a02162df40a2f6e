"""`hpad redact`: names are replaced, decisions stay."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import environment
from support.controller import Bench, annotated, hpa
from support.replays import scenario, step
from support.virtual_time import in_virtual_time

from hpad import cli
from hpad.engine.turn import Reconcile
from hpad.records import replay
from hpad.records.encode import encode_head, encode_reconcile
from hpad.records.redact import Redaction

Vectors = Callable[..., Iterator[dict[str, Any]]]


@pytest.mark.parametrize(("name", "one_in"), [("reconcile", 120), ("timeline", 30)])
def test_recorded_scenarios_give_the_same_results_without_their_names(vectors: Vectors, name: str, one_in: int) -> None:
    for row in vectors(name, environment.every(one_in)):
        redaction = Redaction()
        redaction.collect(row)
        redacted = redaction.redact(row, "one")
        names = {row["hpa"]["metadata"]["name"], row["hpa"]["metadata"]["namespace"]}
        for one in row["steps"]:
            for pod in one.get("pods", ()):
                names |= {pod["metadata"]["name"], *(pod["metadata"].get("labels") or {}).values()}
        text = json.dumps(redacted)
        for each in names - {""}:
            if not each.isdigit():
                assert not re.search(rf"(?<![\w-]){re.escape(each)}(?![\w-])", text), (row["id"], each)
        fields = ("scaleTo", "scaleUpdateAttempts", "action", "errorLabel", "metricComputations")
        for old, new in zip(replay.replay(row)["steps"], replay.replay(redacted)["steps"], strict=True):
            assert {field: old[field] for field in fields} == {field: new[field] for field in fields}


def test_a_copy_has_no_annotation_and_the_names_stand_in_a_private_file(tmp_path: Path) -> None:
    row = scenario(step(0), step(15, "90"), id="shop.checkout")
    row["hpa"]["metadata"] = {"name": "checkout", "namespace": "shop", "annotations": {"token": "hunter2"}}
    query = {"name": "requests", "source": "prom", "parameters": {"query": 'sum(x{token="hunter2"})'}}
    row["hpa"]["spec"]["hpad.io/queries"] = [query]
    row["steps"][1]["spec"] = row["hpa"]["spec"]
    source, out, names = tmp_path / "in.jsonl", tmp_path / "out.jsonl.gz", tmp_path / "names.json"
    source.write_text(json.dumps(row))
    arguments = ["redact", str(source), "-o", str(out), "--names", str(names)]
    assert cli.main(arguments) == 0
    text = gzip.decompress(out.read_bytes()).decode()
    assert not re.search("checkout|shop|hunter2", text)
    assert {"checkout", "shop"} <= json.loads(names.read_text()).keys()
    assert (out.stat().st_mode & 0o777, names.stat().st_mode & 0o777) == (0o600, 0o600)
    assert cli.main(["replay", str(out)]) == 0
    assert cli.main(arguments) == 2  # an existing file is never overwritten


@pytest.mark.parametrize("name", ["web", "db-1"])
@in_virtual_time
async def test_pods_of_a_stateful_set_keep_their_ordinals_on_which_its_floor_depends(name: str) -> None:
    target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name}
    done: list[Reconcile] = []
    recorder = SimpleNamespace(note=done.append)
    made = annotated(hpa(name, scaleTargetRef=target), **{"keep-busy": "true"})
    world = Bench(made, recorder=recorder)
    world.cluster.scales[name], world.metrics.values[name] = 12, 1
    world.metrics.work = {f"{name}-{n}": int(n in (1, 10)) for n in range(12)}
    await world.advance(1)
    assert world.cluster.scales[name] == 11
    row = encode_head(done[0], name) | {"steps": [encode_reconcile(each, new_spec=False) for each in done]}
    redaction = Redaction()
    redaction.collect(row)
    redacted = redaction.redact(row, "one")
    assert [step["scaleTo"] for step in replay.replay(redacted)["steps"]] == [11]
    assert not re.search(rf"(?<![\w-]){name}(?![\w])", json.dumps(redacted))
    pods = {pod["metadata"]["name"] for pod in redacted["steps"][0]["pods"]}
    assert pods == {f"{redaction.names[name]}-{n}" for n in range(12)}


def test_names_that_are_fields_of_the_format_are_replaced_as_names_only() -> None:
    pod = {"metadata": {"name": "web-1", "namespace": "metrics", "labels": {"app": "web", "type": "frontend"}}}
    row = scenario(step(0, pods=[pod]), step(15, "90", pods=[pod]), id="target.metrics")
    row["hpa"]["metadata"] = {"name": "target", "namespace": "metrics"}
    redaction = Redaction()
    redaction.collect(row)
    redacted = redaction.redact(row, "one")
    assert redacted["hpa"]["metadata"] == {"name": redaction.names["target"], "namespace": redaction.names["metrics"]}
    assert "frontend" not in json.dumps(redacted)
    assert redacted["hpa"]["spec"]["metrics"]


def test_no_annotation_of_a_pod_and_no_unknown_field_is_copied() -> None:
    metadata = {"name": "web-1", "labels": {"app": "web"}, "annotations": {"token": "hunter2"}}
    usage = {"metadata": metadata, "timestamp": "2026-01-01T12:00:00Z", "window": "10s", "containers": []}
    fields = {"pods": [{"metadata": metadata}], "podMetrics": {"items": [usage]}, "note": "hunter2"}
    row = scenario(step(0, **fields, expect={"scaleTo": 6, "comment": "hunter2"}))
    redaction = Redaction()
    redaction.collect(row)
    assert "hunter2" not in (text := json.dumps(redaction.redact(row, "one")))
    assert '"scaleTo": 6' in text


def test_requests_in_force_are_kept_and_their_containers_renamed() -> None:
    """A container and a label with the text of an amount: 100m of 100m in force are 100 %, of 400m they are 25 %."""
    wanted = [{"name": "500m", "resources": {"requests": {"cpu": "400m"}}}]
    metadata = {"name": "web-1", "namespace": "default", "labels": {"app": "web", "size": "100m"}}
    pod = {
        "metadata": metadata,
        "spec": {"containers": wanted, "overhead": {"cpu": "100m"}},
        "status": {
            "phase": "Running",
            "startTime": "2026-01-01T11:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:30Z"}],
            "containerStatuses": [{"name": "500m", "allocatedResources": {"cpu": "100m"}}],
        },
    }
    used = {"name": "500m", "usage": {"cpu": "100m"}}
    usage = {"metadata": metadata, "timestamp": "2026-01-01T12:00:00Z", "window": "10s", "containers": [used]}
    row = scenario(step(0, replicas=1, pods=[pod], podMetrics={"items": [usage]}))
    target = {"type": "Utilization", "averageUtilization": 50}
    row["hpa"]["spec"]["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    row["controller"] = {"featureGates": {"InPlacePodVerticalScaling": True}}
    redaction = Redaction()
    redaction.collect(row)
    redacted = redaction.redact(row, "one")
    assert "500m" not in json.dumps(redacted)
    for each in (row, redacted):
        assert [done["scaleTo"] for done in replay.replay(each)["steps"]] == [2]


def test_labels_with_the_texts_of_conditions_and_amounts_decide_as_before() -> None:
    """One pod uses 160m of 100m per replica, so that two are needed. It is Ready: True, the text of a label as well."""
    metadata = {"name": "web-1", "labels": {"app": "web", "ready": "True", "memory": "1Gi", "size": "100m"}}
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:30Z"}]
    status = {"phase": "Running", "startTime": "2026-01-01T11:00:00Z", "conditions": conditions}
    usage = {
        "timestamp": "2026-01-01T12:00:00Z",
        "window": "10s",
        "containers": [{"name": "a", "usage": {"cpu": "160m"}}],
    }
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "a"}]}, "status": status}
    row = scenario(step(0, replicas=1, pods=[pod], podMetrics={"items": [{"metadata": metadata, **usage}]}))
    target = {"type": "AverageValue", "averageValue": "100m"}
    row["hpa"]["spec"]["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    redaction = Redaction()
    redaction.collect(row)
    redacted = redaction.redact(row, "one")
    assert not {"True", "1Gi", "100m"} & set(redacted["steps"][0]["pods"][0]["metadata"]["labels"].values())
    for each in (row, redacted):
        assert [done["scaleTo"] for done in replay.replay(each)["steps"]] == [2]


def test_names_in_annotations_are_replaced_and_decide_as_before() -> None:
    """60 and 20 of 10 per replica want 6 and 2: the smaller one decides. `owner` is a label and a word of a control."""
    controls = {
        "hpad.io/metric-policy": "min(queue{owner=orders}, queue{owner=mails})",
        "hpad.io/ignore-containers": "istio-proxy,log-agent",
        "hpad.io/pod-selection": "owner",
        "hpad.io/schedule": "0 8 * * * for 1h in Europe/Berlin: max=9",
    }
    answers = [{"values": [value]} for value in (60000, 20000)]
    row = scenario(*(step(second, replicas=1, controls=controls, answers=answers) for second in (0, 15)))
    target = {"type": "AverageValue", "averageValue": "10"}
    row["hpa"]["spec"]["metrics"] = [
        {
            "type": "External",
            "external": {"metric": {"name": "queue", "selector": {"matchLabels": labels}}, "target": target},
        }
        for labels in ({"owner": "orders"}, {"owner": "mails"})
    ]
    redaction = Redaction()
    redaction.collect(row)
    redacted = redaction.redact(row, "one")
    text = json.dumps(redacted)
    assert not re.search("orders|mails|istio|log-agent", text)
    new = redacted["steps"][0]["controls"]
    key, orders, mails = (redaction.names[name] for name in ("owner", "orders", "mails"))
    assert new["hpad.io/metric-policy"] == f"min(queue{{{key}={orders}}}, queue{{{key}={mails}}})"
    assert {name: new[name] for name in list(controls)[2:]} == {name: controls[name] for name in list(controls)[2:]}
    assert [each["scaleTo"] for each in replay.replay(redacted)["steps"]] == [2, 2]


def test_only_the_chosen_hpas_are_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = []
    for name in ("web", "queue"):
        row = scenario(step(0), id=name)
        row["hpa"]["metadata"] = {"name": name, "namespace": "shop"}
        made.append(json.dumps(row))
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(made))
    assert cli.main(["redact", str(source), "--hpa", "shop/web", "-o", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 1
    assert re.fullmatch(rf"{out}: 1 scenario, \d+ names replaced\n", capsys.readouterr().out)
    assert cli.main(["redact", str(source), "--hpa", "none", "-o", str(tmp_path / "other")]) == 2
    assert "no recording of the HPA" in capsys.readouterr().err
