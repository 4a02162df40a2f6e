"""Scenarios replayed offline: the format, the state carried from step to step, the errors, and `hpad replay`."""

import gzip
import io
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import environment
from support.replays import called, scenario, step

from hpad.engine.outlook import outlook
from hpad.engine.trace.make import make_trace
from hpad.records import replay
from hpad.records.encode import encode_head, encode_reconcile
from hpad.records.format import RecordingError, decode_scenario

Vectors = Callable[..., Iterator[dict[str, Any]]]


def test_results_have_the_format_of_the_vectors() -> None:
    answered = replay.replay(scenario(step(0)))
    assert answered["id"] == "mine"
    (first,) = answered["steps"]
    assert first["scaleTo"] == 6
    assert first["scaleUpdateAttempts"] == [6]
    assert first["statusUpdate"]["desiredReplicas"] == 6
    assert first["events"] == [
        ["Normal", "SuccessfulRescale", "New size: 6; reason: external metric queue(nil) above target"]
    ]
    assert (first["error"], first["action"], first["errorLabel"]) == (None, "scale_up", "none")
    assert first["metricComputations"] == [["External", "scale_up", "none"]]


def test_a_replay_ignores_the_expected_results() -> None:
    assert replay.replay(scenario(step(0, expect={"scaleTo": 99}))) == replay.replay(scenario(step(0)))


def test_status_and_history_are_carried_from_step_to_step() -> None:
    steps = replay.replay(scenario(step(0, "30"), step(15, "30"), step(30, "0")))["steps"]
    assert steps[0]["statusUpdate"] is not None
    assert steps[1]["statusUpdate"] is None, "the status has not changed"
    assert steps[2]["statusUpdate"]["conditions"][0]["reason"] == "ScaleDownStabilized"


def test_a_scenario_may_have_a_history() -> None:
    history = {"recommendations": [{"timestamp": "2026-01-01T11:59:00Z", "replicas": 8}]}
    (first,) = replay.replay(scenario(step(0, "0", replicas=8), history=history))["steps"]
    assert first["scaleTo"] is None


def test_after_conflicts_the_write_is_tried_five_times_in_all() -> None:
    steps = replay.replay(
        scenario(
            step(0, scaleUpdateErrors=["conflict"] * 4),
            step(15, replicas=3, scaleUpdateErrors=["conflict"] * 5),
            step(30, replicas=3, scaleUpdateErrors=["conflict", "boom"]),
        )
    )["steps"]
    assert (steps[0]["scaleTo"], steps[0]["scaleUpdateAttempts"]) == (6, [6] * 5)
    assert (steps[1]["scaleTo"], len(steps[1]["scaleUpdateAttempts"])) == (None, 5)
    assert 'cannot be fulfilled on deployments.apps "web"' in steps[1]["error"]
    assert (steps[2]["scaleTo"], len(steps[2]["scaleUpdateAttempts"])) == (None, 2)
    assert steps[2]["error"] == "failed to rescale Deployment/default/web: boom"


def test_a_stale_scale_replays_as_stale() -> None:
    (first,) = replay.replay(scenario(step(0, scale=None, scaleError="too old", stale=True)))["steps"]
    assert first["events"] == [["Warning", "StaleCache", "too old"]]
    assert [each["reason"] for each in first["statusUpdate"]["conditions"]] == ["StaleCache"]


def test_overlapping_hpas_are_found_by_their_selectors_and_the_pods() -> None:
    pods = [{"metadata": {"name": "web-0", "labels": {"app": "web", "tier": "x"}}}]
    others = {"same-pods": "tier=x", "other-pods": "tier=y"}
    (first,) = replay.replay(scenario(step(0, pods=pods), otherHpaSelectors=others))["steps"]
    assert first["events"][0][1:] == [
        "AmbiguousSelector",
        "pods by selector app=web are controlled by multiple HPAs: [default/same-pods default/web]",
    ]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"time": "yesterday"}, "steps[0].time: invalid RFC3339 encoded datetime"),
        ({"pods": [{"metadata": {"name": 7}}]}, "steps[0].pods[0].metadata.name: expected `str`, got `int`"),
        ({"time": "2026-01-01T12:00:00"}, "steps[0].time: expected `datetime` with a timezone component"),
        ({"pods": [{"status": {"startTime": "2026-01-01T12:00:00"}}]}, "steps[0].pods[0].status.startTime: expected"),
        ({"time": "0001-01-01T00:00:01Z"}, "steps[0]: a time, a duration or a number is out of range"),
        ({"time": "9999-12-31T23:59:50Z"}, "steps[0].time: 9999-12-31T23:59:50+00:00 is out of range: it is after the"),
        ({"scale": None}, "steps[0]: needs scale or scaleError"),
        ({"pods": {}}, "steps[0].pods: expected `array`, got `object`"),
        ({"answers": []}, "steps[0].answers: 0 entries for 1 metrics"),
        (
            {"pods": [{"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}}]},
            "steps[0].pods[0]: quantities must match",
        ),
    ],
)
def test_the_error_of_a_malformed_step_names_the_field(broken: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordingError) as caught:
        replay.replay(scenario(step(0, **broken)))
    assert str(caught.value).startswith(message)


def test_the_longest_duration_after_the_last_time_is_explained() -> None:
    terms = [{"fallback": "replicas:3 after 2562047h"}]
    failing = step(0, time="9699-12-31T23:59:50Z", terms=terms, externalMetrics={})
    (done,) = replay.run(decode_scenario(scenario(failing)))
    (metric,) = make_trace(done).metrics
    assert metric.next_fallback is not None
    assert metric.next_fallback.at.year == 9992
    assert outlook(done)[-1].at == metric.next_fallback.at


def test_the_error_of_an_unknown_gate_names_it_and_the_known_ones() -> None:
    gates = {"HPAMagic": True, "HPAZeroTakenOver": True}
    with pytest.raises(RecordingError, match=r"controller\.featureGates: no gate HPAMagic; there are HPAScaleToZero, "):
        replay.replay(scenario(step(0), controller={"featureGates": gates}))


def test_a_recording_may_name_a_gate_that_was_removed() -> None:
    given = [scenario(step(0), controller={"featureGates": gates}) for gates in ({}, {"HPAZeroTakenOver": True})]
    without, named = [replay.replay(each)["steps"] for each in given]
    assert named == without


def test_a_value_that_is_not_a_quantity_is_an_error_of_its_metric() -> None:
    (first,) = replay.replay(scenario(step(0, "many")))["steps"]
    assert first["scaleTo"] is None
    assert "the external metric queue is 'many', which is not a quantity" in first["error"]


def recorded_again(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a recording of the scenario's replay."""
    scenario = decode_scenario(row)
    steps = list(replay.steps(scenario))
    recording = encode_head(steps[0][1], scenario.id)
    recording["steps"] = [encode_reconcile(done, new_spec=step.spec is not None) for step, done in steps]
    value: dict[str, Any] = json.loads(json.dumps(recording))
    return value


@pytest.mark.parametrize("name", ["reconcile", "timeline"])
def test_a_recording_of_a_replay_replays_alike(vectors: Vectors, name: str) -> None:
    rows = list(vectors(name, environment.every(30)))
    assert len(rows) >= 4
    for row in rows:
        assert replay.replay(recorded_again(row)) == replay.replay(row), row["id"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "web.jsonl.gz"
    expected = replay.replay(scenario(step(0), step(15)))["steps"]
    row = scenario(*(step(15 * index, expect=expect) for index, expect in enumerate(expected)))
    with gzip.open(path, "wt") as lines:
        lines.write(json.dumps(row) + "\n\n" + json.dumps(row) + "\n")
    return path


def test_the_command_prints_one_line_per_scenario(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(str(file)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [replay.replay(scenario(step(0), step(15)))] * 2


def test_explain_prints_sentences(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("--explain", str(file)) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "mine:",
        "  2026-01-01T12:00:00Z scale web from 3 to 6: "
        "external metric queue above target (20 / 10 per replica, 60 in total)",
    ]


def test_explain_verbosely_prints_each_decision_in_full(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("--explain", str(file)) == 0
    sentences = [line.partition("Z ")[2] for line in capsys.readouterr().out.splitlines() if "Z " in line]
    assert called("--explain", "-v", str(file)) == 0
    printed = capsys.readouterr().out.splitlines()
    found = [line.removeprefix("Decision:").strip() for line in printed if line.startswith("Decision:")]
    assert found == sentences != []
    assert printed.count("Replicas:") == printed.count("Next:") == len(sentences)


def test_verbose_needs_explain(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("-v", str(file)) == 2
    assert capsys.readouterr().err == "hpad replay: -v needs --explain\n"


def test_explain_names_the_cause_of_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error of the step keeps the nested text of Kubernetes."""
    path = tmp_path / "web.jsonl"
    row = scenario(step(0, answers=[{"error": "the broker is down"}]))
    path.write_text(json.dumps(row))
    assert called("--explain", str(path)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "mine:",
        "  2026-01-01T12:00:00Z cannot decide: external metric queue fails: the broker is down",
    ]
    (first,) = replay.replay(row)["steps"]
    assert first["error"].endswith("unable to get external metric default/queue/nil: the broker is down")


def test_check_compares_with_the_expected_results(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("--check", str(file)) == 0
    assert capsys.readouterr().out == "4 of 4 steps as expected\n"
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(json.dumps(scenario(step(0, expect={"scaleTo": 7, "statusUpdate": "*"}))))
    assert called("--check", str(wrong)) == 1
    out = capsys.readouterr().out
    assert f"{wrong}, line 1: steps[0].scaleTo: 7 expected, 6 decided" in out
    assert out.endswith("0 of 1 steps as expected\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{]", "standard input, line 1: not JSON"),
        ('{"id": "\\ud800"}', "standard input, line 1: not JSON: \\ud800 is half of a surrogate pair"),
        ("[]", "standard input, line 1: a scenario is a JSON object, not list"),
        ("{}", "standard input, line 1: the object: object missing required field `hpa`"),
        ('\n{"hpa": {}, "steps": [{}]}', "standard input, line 2: steps[0]: object missing required field `time`"),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--explain"], ["--check"]])
def test_errors_of_the_command_name_file_line_and_field(
    text: str, message: str, flags: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert called(*flags, "-") == 2
    assert message in capsys.readouterr().err


def test_the_command_names_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(str(tmp_path / "none.jsonl")) == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_the_command_takes_a_folder(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    assert called(str(folder)) == 2
    assert capsys.readouterr().err == (
        f"hpad replay: {folder}: the folder has no file that ends in .jsonl or .jsonl.gz\n"
    )
    assert called(str(file)) == 0
    alone = capsys.readouterr().out
    (folder / file.name).write_bytes(file.read_bytes())
    (folder / "notes.txt").write_text("not a scenario")
    assert called(str(folder)) == 0
    assert capsys.readouterr().out == alone


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "has no scenario"), (b"\n\xff", "not a recording: byte 0xff is not UTF-8")]
)
def test_a_file_that_is_not_a_recording_is_an_error(
    content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(content)
    assert called("--check", str(file)) == 2
    assert capsys.readouterr().err == f"hpad replay: {file}: {words}\n"


@pytest.mark.parametrize("flags", [[], ["--explain"], ["--check"]])
def test_the_whole_steps_of_a_cut_line_are_replayed(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk cuts a step. The next one begins another line."""
    begun = json.dumps(scenario(step(0), step(15), step(30)), separators=(",", ":"))
    kept = json.dumps(scenario(step(0), step(15)), separators=(",", ":"))
    later = json.dumps(scenario(step(45)))
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    whole.write_text(f"{kept}\n{later}\n")
    assert called(*flags, str(whole)) == 0
    expected = capsys.readouterr().out
    second_ends, third_ends = len(kept) - len("]}"), len(begun) - len("]}")
    for length in (second_ends, second_ends + 1, second_ends + 2, third_ends - 1):
        cut.write_text(f"{begun[:length]}\n{later}\n")
        assert called(*flags, str(cut)) == 2
        out, err = capsys.readouterr()
        assert out == expected
        assert err.startswith(f"hpad replay: left out: {cut}, line 1 after 2 whole steps: not JSON: ")
        assert err.count("\n") == 1


def test_a_cut_line_without_a_whole_step_is_left_out(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(str(file)) == 0
    expected = capsys.readouterr().out
    with gzip.open(file, "at") as lines:
        lines.write('{"id":"mine","hpa":{"metadata":{"na')
    assert called(str(file)) == 2
    out, err = capsys.readouterr()
    assert out == expected
    assert err.startswith(f"hpad replay: left out: {file}, line 4: not JSON: ")


def test_the_lines_before_the_cut_of_a_compressed_file_are_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = json.dumps(scenario(step(0), step(15)))
    whole = gzip.compress(f"{row}\n{row}\n".encode()) + gzip.compress(row.encode())
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[:-20])
    assert called(str(tmp_path / "cut.jsonl.gz")) == 2
    out, err = capsys.readouterr()
    assert out.count("\n") == 2
    assert err.startswith(
        f"hpad replay: left out: {tmp_path}/cut.jsonl.gz, line 3 and what follows: Compressed file ended"
    )


def test_files_of_a_folder_that_cannot_be_read_are_left_out(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(str(file)) == 0
    expected = capsys.readouterr().out
    (file.parent / "empty.jsonl").write_text("")
    (file.parent / "cut.jsonl.gz").write_bytes(file.read_bytes()[:20])
    (file.parent / "text.jsonl").write_bytes(b"\xff")
    assert called(str(file.parent)) == 2
    out, err = capsys.readouterr()
    assert out == expected
    assert sorted(err.splitlines()) == [
        f"hpad replay: left out: {file.parent}/cut.jsonl.gz: "
        "Compressed file ended before the end-of-stream marker was reached",
        f"hpad replay: left out: {file.parent}/empty.jsonl: has no scenario",
        f"hpad replay: left out: {file.parent}/text.jsonl: not a recording: byte 0xff is not UTF-8",
    ]


def test_a_line_that_expands_without_end_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_LONGEST", 1 << 16)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"id": "' + b"x" * (32 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(RecordingError, match=r"line 1: has more than 65,536 characters"):
            list(replay.read(str(tmp_path / "a.jsonl.gz")))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_recorded_controls_decide_as_before() -> None:
    """60 of 10 per replica and 5 replicas: 1.2 of the target, which only the wide tolerance allows."""
    wide = {"hpad.io/tolerance-up": "0.5"}
    steps = [step(0, replicas=5), step(15, replicas=5, controls=wide), step(30, replicas=5)]
    row = scenario(*steps)
    assert [each["scaleTo"] for each in replay.replay(row)["steps"]] == [6, None, 6]
    again = recorded_again(row)
    assert [each.get("controls", {}) for each in again["steps"]] == [{}, wide, {}]
    assert replay.replay(again) == replay.replay(row)


def test_a_recording_keeps_ignored_containers_and_the_metric_policy() -> None:
    """The two containers use 50m and 150m of 100m requested by each: 50 % without `proxy`, 100 % with it.

    The target of the CPU is 50 %, so 3 replicas stay or become 6; 60 in the queue at 10 per replica ask for 6.
    """
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    containers = [{"name": name, "resources": {"requests": {"cpu": "100m"}}} for name in ("app", "proxy")]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T10:00:00Z"}
    status = {"phase": "Running", "startTime": "2026-01-01T10:00:00Z", "conditions": [ready]}
    usage = [{"name": name, "usage": {"cpu": used}} for name, used in (("app", "50m"), ("proxy", "150m"))]
    heads = [{"name": f"web-{index}", "labels": {"app": "web"}} for index in range(3)]
    fields = {
        "pods": [{"metadata": head, "spec": {"containers": containers}, "status": status} for head in heads],
        "podMetrics": {
            "items": [
                {"metadata": head, "timestamp": "2026-01-01T12:00:00Z", "window": "30s", "containers": usage}
                for head in heads
            ]
        },
    }
    ignoring, both = {"hpad.io/ignore-containers": "proxy"}, {"hpad.io/metric-policy": "cpu and queue"}
    steps = [{}, ignoring, both, {**ignoring, **both}]
    row = scenario(*(step(15 * index, controls=controls, **fields) for index, controls in enumerate(steps)))
    row["hpa"]["spec"]["metrics"] = [*row["hpa"]["spec"]["metrics"], cpu]
    row["hpa"]["spec"]["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    assert [each["scaleTo"] for each in replay.replay(row)["steps"]] == [6, 6, 6, None]
    again = recorded_again(row)
    assert [each.get("controls", {}) for each in again["steps"]] == steps
    assert replay.replay(again) == replay.replay(row)


@pytest.mark.parametrize(
    ("controls", "message"),
    [
        ({"hpad.io/tolerance-up": "-1"}, "steps[0].controls: hpad.io/tolerance-up: '-1' is not a tolerance"),
        ({"hpad.io/x": "1"}, "steps[0].controls: hpad.io/x: there is no such control"),
    ],
)
def test_the_error_of_a_recorded_control_names_it(controls: dict[str, str], message: str) -> None:
    with pytest.raises(RecordingError) as caught:
        replay.replay(scenario(step(0, controls=controls)))
    assert str(caught.value).startswith(message)


def test_a_recorded_pause_holds_the_count_and_can_be_lifted() -> None:
    texts = {"hpad.io/paused-until": "2026-01-01T12:00:20Z"}
    row = scenario(*(step(second, replicas=3, controls=texts) for second in (0, 15, 30)))
    assert [each["scaleTo"] for each in replay.replay(row)["steps"]] == [None, None, 6]
    again = recorded_again(row)
    assert [each.get("withheld", {}).get("reason") for each in again["steps"]] == ["Paused", "Paused", None]
    assert replay.replay(again) == replay.replay(row)
    for each in again["steps"]:
        each["controls"] = {}
    assert [each["scaleTo"] for each in replay.replay(again)["steps"]] == [6, 6, 6]
