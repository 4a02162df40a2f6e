"""`hpad replay --set` with recordings as `hpad run --record` writes them, over several lines and files."""

import json
from pathlib import Path
from typing import Any

import pytest
from support import recorded_world
from support.replays import called

from hpad.api import hpa as v2
from hpad.records import encode, writer

Captured = pytest.CaptureFixture[str]

LOAD = [800] * 5 + [2600] * 20 + [700] * 30


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording of an HPA that hits its maximum, in lines of at most 10 steps and in more than 10 files."""
    monkeypatch.setattr(encode, "_MAX_STEPS", 10)
    monkeypatch.setattr(writer.Rotation, "is_large", lambda _, size: size > 5000)
    path = tmp_path / "records"
    recorded_world.record(path, recorded_world.reconciles(LOAD, most=4))
    assert len(list(path.iterdir())) > 10
    return path


def compared(capsys: Captured, folder: Path, *arguments: str) -> dict[str, Any]:
    assert called(str(folder), "-o", "json", *arguments) == 0
    (found,) = json.loads(capsys.readouterr().out)["items"]
    return dict(found)


def test_the_recorded_spec_gives_the_recorded_decisions(folder: Path, capsys: Captured) -> None:
    assert called("--check", str(folder)) == 0
    assert capsys.readouterr().out == "55 of 55 steps as expected\n"
    spec = v2.to_builtins(recorded_world.hpa(4).spec)
    changes = [f"--set=spec.{name}={json.dumps(value)}" for name, value in spec.items()]
    found = compared(capsys, folder, *changes)
    assert found["reconciles"] == len(LOAD)
    assert found["difference"] is None
    assert all(each["recorded"] == each["changed"] and each["valid"] for each in found["steps"])
    assert found["summary"]["recorded"] == found["summary"]["changed"]


def test_a_higher_maximum_shows_where_the_workload_would_have_grown(folder: Path, capsys: Captured) -> None:
    found = compared(capsys, folder, "--set", "spec.maxReplicas=8")
    assert [(each["time"][11:], each["valid"], each["changed"]["desired"]) for each in found["steps"]] == [
        ("02:40:00Z", True, 4),
        ("02:41:15Z", True, 8),
        ("02:48:00Z", False, 3),
    ]
    assert found["difference"]["text"] == (
        "from 2026-11-22 02:41:15Z on the count differs, 8 instead of 4: usages per pod were recorded for 4 pods"
    )
    assert (found["summary"]["recorded"]["highest"], found["summary"]["changed"]["highest"]) == (4, 8)


def test_a_shorter_window_shows_an_earlier_fall(folder: Path, capsys: Captured) -> None:
    window = "spec.behavior.scaleDown.stabilizationWindowSeconds"
    found = compared(capsys, folder, "--set", f"{window}=0")
    assert found["difference"]["time"] == "2026-11-22T02:46:15Z"
    assert found["difference"]["text"].endswith("3 instead of 4: usages per pod were recorded for 4 pods")
    assert compared(capsys, folder, "--set", f"{window}=300")["difference"]["time"] == "2026-11-22T02:48:00Z"


def test_a_gap_begins_another_comparison(folder: Path, capsys: Captured) -> None:
    """Without a file of the busy time, nobody knows what the changed spec would have decided meanwhile."""
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    files[len(files) // 4].unlink()
    assert called(str(folder), "--set", "spec.maxReplicas=8", "-o", "json") == 0
    first, second = json.loads(capsys.readouterr().out)["items"]
    assert first["end"] < second["begin"] == second["difference"]["time"]
