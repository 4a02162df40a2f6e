"""`hpad replay --hpa --from --to`: the part of a recording that is shown."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.replays import called, scenario, step

from hpad.api.hpa import AUTOSCALER, KIND

Captured = pytest.CaptureFixture[str]


def of(name: str, namespace: str, *steps: dict[str, Any], kind: str = KIND) -> dict[str, Any]:
    made = scenario(*steps, id=f"{namespace}.{name}" if kind == KIND else f"{namespace}.{kind}.{name}")
    made["hpa"] |= {"metadata": {"name": name, "namespace": namespace}, "kind": kind}
    return made


@pytest.fixture
def file(tmp_path: Path) -> str:
    rows = [
        of("web", "shop", step(0), step(15, "30"), step(30, "90")),
        of("web", "blog", step(0)),
        of("queue", "shop", step(15)),
        of("web", "shop", step(15), kind=AUTOSCALER),
    ]
    path = tmp_path / "all.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def printed(capsys: Captured) -> dict[str, int]:
    """Returns the number of steps of each scenario."""
    found = map(json.loads, capsys.readouterr().out.splitlines())
    return {each["id"]: len(each["steps"]) for each in found}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {"shop.web": 3, "blog.web": 1, "shop.queue": 1, "shop.Autoscaler.web": 1}),
        (["--hpa", "autoscaler/web"], {"shop.Autoscaler.web": 1}),
        (["--hpa", "shop/autoscaler/web"], {"shop.Autoscaler.web": 1}),
        (["--hpa", "web"], {"shop.web": 3, "blog.web": 1}),
        (["--hpa", "shop/web"], {"shop.web": 3}),
        (["--hpa", "shop/web", "--hpa", "queue"], {"shop.web": 3, "shop.queue": 1}),
        (["--from", "2026-01-01T12:00:15Z"], {"shop.web": 2, "shop.queue": 1, "shop.Autoscaler.web": 1}),
        (["--to", "2026-01-01T12:00:14Z"], {"shop.web": 1, "blog.web": 1}),
        (["--from", "2026-01-01T13:00:30+01:00", "--to", "2026-01-01T12:00:30Z"], {"shop.web": 1}),
    ],
)
def test_only_the_selected_steps_are_printed(
    flags: list[str], expected: dict[str, int], file: str, capsys: Captured
) -> None:
    assert called(file, *flags) == 0
    assert printed(capsys) == expected


def test_the_state_of_a_selected_step_has_the_steps_before(file: str, capsys: Captured) -> None:
    assert called("--hpa", "shop/web", file) == 0
    whole = json.loads(capsys.readouterr().out)["steps"]
    assert called("--hpa", "shop/web", "--from", "2026-01-01T12:00:30Z", file) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == whole[2:]


def test_explain_and_check_select_as_well(file: str, capsys: Captured) -> None:
    selected = ["--hpa", "shop/web", "--from", "2026-01-01T12:00:30Z", file]
    assert called("--explain", *selected) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head == "shop.web:"
    assert line.startswith("  2026-01-01T12:00:30Z ")
    assert called("--explain", "-v", *selected) == 0
    assert capsys.readouterr().out.count("Decision:") == 1
    assert called("--check", *selected) == 0
    assert capsys.readouterr().out == "0 of 0 steps as expected\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--hpa", "shop/wep"], "--hpa: no recording of the HPA 'shop/wep' (did you mean \"shop/web\"?)"),
        (["--hpa", "zzz"], "--hpa: no recording of the HPA 'zzz'; there are shop/web, blog/web, shop/queue, "),
        (["--from", "noon"], "--from: 'noon' is not a time such as 02:40 (local time)"),
        (["--to", "2999-01-01T00:00:00Z"], "--to: '2999-01-01T00:00:00Z' is in the future"),
        (
            ["--from", "2026-01-01T12:00:15Z", "--to", "2026-01-01T12:00:10Z"],
            "--from '2026-01-01T12:00:15Z' is 2026-01-01T12:00:15Z, after --to '2026-01-01T12:00:10Z'",
        ),
        (
            ["--from", "2026-01-02T00:00:00Z"],
            "--from 2026-01-02T00:00:00Z: no step was recorded in that time; "
            "the recording is of 2026-01-01T12:00:00Z to 2026-01-01T12:00:30Z",
        ),
    ],
)
def test_the_error_of_a_selection_says_what_there_is(
    flags: list[str], message: str, file: str, capsys: Captured
) -> None:
    assert called(file, *flags) == 2
    assert capsys.readouterr().err.startswith(f"hpad replay: {message}")


def test_times_of_the_output_do_not_depend_on_the_zone(
    file: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clocks of Berlin were set back at 2025-10-26T01:00:00Z: 02:30 local time occurred twice."""
    rows = [of("web", "shop", *(step(0, time=f"2025-10-26T0{hour}:30:00+02:00") for hour in (2, 3)))]
    Path(file).write_text(json.dumps(rows[0]))
    for zone in ("UTC", "Europe/Berlin"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert called("--explain", "--from", "2025-10-26T01:30:00Z", file) == 0
        (line,) = capsys.readouterr().out.splitlines()[1:]
        assert line.startswith("  2025-10-26T01:30:00Z ")
    monkeypatch.undo()
    time.tzset()


def test_continued_files_of_a_folder_come_in_the_order_of_their_numbers(tmp_path: Path, capsys: Captured) -> None:
    started = "shop.web.20260101T000000Z"
    names = [f"{started}.jsonl", *(f"{started}-{number}.jsonl" for number in (1, 2, 10)), "shop.web-1.jsonl"]
    for name in names:
        (tmp_path / name).write_text(json.dumps(scenario(step(0), id=name)))
    assert called(str(tmp_path)) == 0
    assert list(printed(capsys)) == ["shop.web-1.jsonl", *names[:-1]]
