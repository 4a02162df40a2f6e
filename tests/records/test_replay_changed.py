"""`hpad replay --set`: the printed comparison, as text and as JSON, its flags and exit statuses."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.replays import called, scenario, step

Captured = pytest.CaptureFixture[str]

STEPS = [step(0, "60", 3), step(15, "60", 6), step(30, "120", 6), step(45, "120", 10), step(59, "120", 10)]
STATEMENT = (
    "from 2026-01-01 12:00:30Z on the count differs, 12 instead of 10: external and object metrics were recorded with"
    " 10 replicas at work"
)


def written(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "web.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return written(tmp_path, scenario(*STEPS))


def as_json(capsys: Captured, *arguments: str) -> dict[str, Any]:
    assert called("-o", "json", *arguments) == 0
    (found,) = json.loads(capsys.readouterr().out)["items"]
    return dict(found)


def test_the_comparison_as_text(file: str, capsys: Captured) -> None:
    assert called(file, "--set", "spec.maxReplicas=20") == 0
    assert capsys.readouterr().out.splitlines() == [
        "HPA:       default/web",
        "Time:      2026-01-01 12:00:00Z to 2026-01-01 12:00:59Z, 5 reconciles",
        "Set:       spec.maxReplicas=20",
        f"Differs:   {STATEMENT}; 2 of 5 reconciles began with another count",
        "",
        "TIME                  RECORDED  CHANGED    DECISION WITH THE CHANGES",
        "2026-01-01 12:00:00Z  3 -> 6    3 -> 6     scale web from 3 to 6: external metric queue above target"
        " (20 / 10 per replica, 60 in total)",
        "2026-01-01 12:00:30Z  6 -> 10   6 -> 12    scale web from 6 to 12: external metric queue above target"
        " (20 / 10 per replica, 120 in total)",
        "",
        "          RESCALES  LOWEST  HIGHEST  AT MAX  REPLICA HOURS",
        "recorded  2         6       10       29s     0.13",
        "changed   2         6       12       0s      0.15",
    ]


def test_decisions_with_answers_of_another_count_are_marked(tmp_path: Path, capsys: Captured) -> None:
    file = written(tmp_path, scenario(step(0, "60", 3), step(15, "120", 6), step(30, "120", 10)))
    assert called(file, "--set", "spec.maxReplicas=5") == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("2026-01-01 12:00:15Z"))
    assert row.startswith("2026-01-01 12:00:15Z  6 -> 10   5        *  keep 5: ")
    assert "* decided with answers that were recorded for another count" in lines


def test_the_comparison_as_json(file: str, capsys: Captured) -> None:
    found = as_json(capsys, file, "--set", "spec.maxReplicas=20")
    steps = found.pop("steps")
    assert [(each["time"], each["valid"], each["changed"]["desired"]) for each in steps] == [
        ("2026-01-01T12:00:00Z", True, 6),
        ("2026-01-01T12:00:30Z", True, 12),
    ]
    summary = found.pop("summary")
    assert summary["recorded"] == {
        "rescales": 2,
        "lowest": 6,
        "highest": 10,
        "secondsAtMax": 29.0,
        "replicaHours": pytest.approx((30 * 6 + 29 * 10) / 3600),
    }
    assert found == {
        "namespace": "default",
        "name": "web",
        "begin": "2026-01-01T12:00:00Z",
        "end": "2026-01-01T12:00:59Z",
        "reconciles": 5,
        "set": ["spec.maxReplicas=20"],
        "notes": [],
        "difference": {
            "time": "2026-01-01T12:00:30Z",
            "recorded": 10,
            "changed": 12,
            "reconciles": 2,
            "text": STATEMENT,
        },
    }


def test_the_recorded_values_show_no_difference(file: str, capsys: Captured) -> None:
    found = as_json(capsys, file, "--set", "spec.maxReplicas=10")
    assert found["difference"] is None
    assert found["summary"]["recorded"] == found["summary"]["changed"]
    assert all(each["recorded"] == each["changed"] for each in found["steps"])


def test_an_interval_is_shown_with_the_state_of_the_steps_before(file: str, capsys: Captured) -> None:
    found = as_json(capsys, file, "--set", "spec.maxReplicas=20", "--from", "2026-01-01T12:00:45Z")
    assert (found["begin"], found["reconciles"], found["steps"]) == ("2026-01-01T12:00:45Z", 2, [])
    assert found["difference"]["time"] == "2026-01-01T12:00:30Z"
    assert found["summary"]["changed"]["lowest"] == 12


def test_one_step_has_no_durations(file: str, capsys: Captured) -> None:
    found = as_json(capsys, file, "--set", "spec.maxReplicas=20", "--to", "2026-01-01T12:00:00Z")
    assert found["summary"]["changed"]["replicaHours"] is found["summary"]["changed"]["secondsAtMax"] is None


def test_a_simulation_can_stop_where_the_count_differs(file: str, capsys: Captured) -> None:
    found = as_json(capsys, file, "--set", "spec.maxReplicas=20", "--until-different")
    assert (found["end"], found["reconciles"]) == ("2026-01-01T12:00:30Z", 3)
    late = ["--from", "2026-01-01T12:00:45Z", "--until-different"]
    assert called(file, "--set", "spec.maxReplicas=20", *late) == 2
    assert "differs from 2026-01-01 12:00:30Z, before --from" in capsys.readouterr().err


def test_trace_prints_the_shown_steps_in_full(tmp_path: Path, capsys: Captured) -> None:
    file = written(tmp_path, scenario(step(0, "60", 3), step(15, "120", 6)))
    assert called(file, "--set", "spec.maxReplicas=5", "--trace") == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("Decision:") for line in lines) == 2
    assert lines.count("Note:      decided with answers that were recorded for another count") == 1
    found = as_json(capsys, file, "--set", "spec.maxReplicas=5", "--trace")
    assert [each["changed"]["trace"]["replicas"]["desired"] for each in found["steps"]] == [5, 5]


def test_a_metric_that_was_not_recorded_is_named(file: str, capsys: Captured) -> None:
    found = as_json(capsys, file, "--set", "spec.metrics[0].external.metric.name=other")
    assert found["notes"] == ["external metric other was not recorded in 5 of 5 reconciles"]


def test_a_dry_run_is_named(tmp_path: Path, capsys: Captured) -> None:
    withheld = {"reason": "DryRun", "message": "this is a dry run"}
    steps = [step(second, "60", 3, withheld=withheld) for second in (0, 15, 30)]
    found = as_json(capsys, written(tmp_path, scenario(*steps)), "--set", "spec.maxReplicas=5")
    assert found["notes"] == [
        "no count was written in the recording (this is a dry run): each decision starts from the recorded count"
    ]
    (row,) = found["steps"]
    assert (row["changed"]["desired"], row["changed"]["written"]) == (5, False)


def test_each_hpa_has_a_comparison(tmp_path: Path, capsys: Captured) -> None:
    rows = [scenario(*STEPS), scenario(*STEPS)]
    rows[1]["hpa"]["metadata"] = {"name": "api", "namespace": "shop"}
    file = written(tmp_path, *rows)
    assert called(file, "--set", "spec.maxReplicas=20", "-o", "json") == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["items"]] == ["web", "api"]
    assert as_json(capsys, file, "--set", "spec.maxReplicas=20", "--hpa", "shop/api")["name"] == "api"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--set", "spec.maxReplica=20"], "--set spec.maxReplica=20: default/web: spec.maxReplica: strict decoding"),
        (["--set", "spec.maxReplicas"], "--set spec.maxReplicas: there is no value after spec.maxReplicas"),
        (["--set", "spec.maxReplicas=20", "--explain"], "--set has a form of its own: leave out --explain"),
        (["--set", "spec.maxReplicas=20", "--check"], "--set has a form of its own: leave out --check"),
        (["--set", "spec.maxReplicas=20", "--hpa", "api"], "--hpa: no recording of the HPA 'api'"),
        (["--set", "spec.maxReplicas=20", "--to", "2025-01-01T00:00:00Z"], "--to 2025-01-01T00:00:00Z: no step was"),
        (["--until-different"], "--until-different needs --set"),
        (["--trace"], "--trace needs --set"),
        (["-o", "json"], "-o needs --set"),
    ],
)
def test_errors_are_one_line_and_status_2(flags: list[str], message: str, file: str, capsys: Captured) -> None:
    assert called(file, *flags) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"hpad replay: {message}")
    assert printed.err.count("\n") == 1


def test_an_error_of_the_recording_names_its_place(tmp_path: Path, capsys: Captured) -> None:
    file = written(tmp_path, scenario(step(0, time="yesterday")))
    assert called(file, "--set", "spec.maxReplicas=20") == 2
    assert capsys.readouterr().err.startswith(f"hpad replay: {file}, line 1: steps[0].time: ")


def test_the_output_has_colors_only_where_wanted(file: str, capsys: Captured) -> None:
    assert called(file, "--set", "spec.maxReplicas=20", "--color=always") == 0
    colored = capsys.readouterr().out
    assert called(file, "--set", "spec.maxReplicas=20") == 0
    assert "\x1b[" in colored
    assert "\x1b[" not in capsys.readouterr().out


def test_times_are_utc_in_every_zone(file: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for zone in ("UTC", "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        seen.append(as_json(capsys, file, "--set", "spec.maxReplicas=20", "--to", "2026-01-01T07:00:30-05:00"))
    monkeypatch.undo()
    time.tzset()
    assert seen[0] == seen[1]
    assert seen[0]["end"] == "2026-01-01T12:00:30Z"
