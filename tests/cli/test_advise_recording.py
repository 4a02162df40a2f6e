"""`hpad advise --recording`: the HPAs that hpad has recorded, with its reasons."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import called
from support.replays import scenario

from hpad.records import writer


def step(minute: int, length: int | None, replicas: int = 2) -> dict[str, Any]:
    at = f"2026-01-01T{12 + minute // 60}:{minute % 60:02}:00Z"
    answer = {"error": "the broker is down"} if length is None else {"values": [1000 * length]}
    return {
        "time": at,
        "scale": {"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": "app=web"}},
        "answers": [{**answer, "timestamp": at}],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, lengths in (("web", [20] * 60), ("worker", [20] * 20 + [None] * 40)):
        row = scenario(*(step(minute, length) for minute, length in enumerate(lengths)))
        row["hpa"]["metadata"] = {"name": name, "namespace": "shop"}
        (tmp_path / writer.file_name("shop", name, "20260101T120000Z")).write_text(json.dumps(row) + "\n")
    return tmp_path


def advised(folder: Path, *more: str, begin: str = "2026-01-01T12:00:00Z") -> tuple[int, str, str]:
    span = ("--from", begin, "--to", "2026-01-01T14:00:00Z")
    return called("advise", "--recording", str(folder), *span, *more)


def test_values_counts_and_reasons(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = advised(folder, "-o", "json")
    assert status == 0
    items = {item["name"]: item for item in json.loads(out)["items"]}
    assert set(items) == {"web", "worker"}
    assert items["web"]["readings"] == {"queue": {"source": "hpad's recording", "expression": "", "problem": ""}}
    assert items["web"]["facts"]["secondsFailing"] == {}
    assert items["worker"]["facts"]["secondsFailing"] == {"FailedGetExternalMetric": 39 * 60}
    assert [fault["fault"] for fault in items["worker"]["faults"]] == ["metric-failing"]


def test_one_hpa_and_other_times(folder: Path) -> None:
    status, out, _ = advised(folder, "worker", "-o", "json")
    assert (status, [item["name"] for item in json.loads(out)["items"]]) == (0, ["worker"])
    status, _, err = advised(folder, begin="2026-01-01T13:30:00Z")
    assert status == 1
    assert "has no reconciles of such an HPA since 2026-01-01 13:30Z" in err
    status, _, err = advised(folder, "--step", "3h")
    assert status == 1
    assert "or they span less than two steps (--step 3h)\n" in err


def test_a_file_that_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("{}\n")
    status, _, err = advised(tmp_path)
    assert status == 1
    assert "x.jsonl, line 1: " in err


def test_a_file_that_cannot_be_read_is_a_note(folder: Path) -> None:
    (folder / writer.file_name("shop", "api", "20260101T120000Z")).write_text("")
    note = f"left out: {folder}/shop.api.20260101T120000Z.jsonl: has no scenario"
    status, out, _ = advised(folder, "-o", "json")
    assert (status, json.loads(out)["notes"]) == (0, [note])
    status, _, err = advised(folder, "api")
    assert status == 1
    assert err.endswith(f"; {note}\n")
