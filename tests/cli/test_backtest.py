"""`hpad backtest`: over a CSV file and a recording, its report, its search, and what it refuses."""

import json
import re
from pathlib import Path

import pytest
from support.replays import scenario, step

from hpad import cli

WEB = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 20
  metrics:
    - {type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: "10"}}}
"""


@pytest.fixture
def web(tmp_path: Path) -> str:
    file = tmp_path / "web.yaml"
    file.write_text(WEB)
    return str(file)


@pytest.fixture
def past(tmp_path: Path) -> str:
    """Twenty minutes with 20 in all, twenty with 80, and twenty with 20 again; as recorded always 5 replicas."""
    file = tmp_path / "past.csv"
    rows = [f"{minute * 60},{80 if 20 <= minute < 40 else 20},5" for minute in range(60)]
    file.write_text("\n".join(["time,queue,replicas", *rows]) + "\n")
    return str(file)


def found(args: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, float]]:
    assert cli.main(["backtest", *args, "-o", "json"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    return {each["name"]: each["summary"] for each in results}


def test_a_lower_maximum_is_measured_against_what_the_load_needs(
    web: str, past: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight replicas are needed from minute 20 to 40: four of them are four too few for all that time."""
    _, own, lower = found([web, "--csv", past, "--set", "spec.maxReplicas=4"], capsys).values()
    assert own["secondsAboveGoal"] < 120
    assert lower["secondsAboveGoal"] == pytest.approx(1200, rel=0.05)
    assert lower["replicaSecondsUnder"] == pytest.approx(4 * 1200, rel=0.05)


def test_two_specs_beside_the_recorded_curve(web: str, past: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The manifest wants 2 and 8 replicas; with the larger goal 1 and 4."""
    goal = "spec.metrics[0].external.target.averageValue=20"
    summaries = found([web, "--csv", past, "--set", goal, "--price", "2"], capsys)
    assert list(summaries) == ["recorded", web, goal]
    recorded, own, changed = summaries.values()
    assert recorded["replicaHours"] == pytest.approx(5 * 59 / 60, rel=1e-3)
    assert "secondsAboveGoal" not in recorded
    # From 5: 2 after the window of five minutes, 8 from minute 20 to 45, then 2.
    assert own["replicaHours"] == pytest.approx((5 * 5 + 2 * 15 + 8 * 25 + 2 * 14) / 60, rel=0.05)
    assert (own["lowest"], own["highest"]) == (2, 8)
    assert (changed["lowest"], changed["highest"]) == (1, 5)  # it begins with 5
    assert own["cost"] == pytest.approx(2 * own["replicaHours"], rel=1e-3)


def test_a_second_manifest(web: str, past: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(WEB.replace("maxReplicas: 20", "maxReplicas: 3"))
    summaries = found([web, str(other), "--csv", past], capsys)
    assert summaries[str(other)]["highest"] == 3  # the first turn takes it from 5 to 3
    assert summaries[str(other)]["secondsAtMax"] > 20 * 60


def test_the_output_and_the_report_agree(
    web: str, past: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have the same rows with the same units, and the verdict."""
    report = tmp_path / "report.html"
    goal = "spec.metrics[0].external.target.averageValue=20"
    args = [web, "--csv", past, "--set", goal, "--price", "2", "--report", str(report), "--color", "never"]
    assert cli.main(["backtest", *args]) == 0
    text = capsys.readouterr().out
    page = report.read_text()
    rows = re.findall(r'<tr><th scope="row">([^<]+)</th>(.+?)</tr>', page)
    found = [[label, *re.findall("<td>(.*?)</td>", cells)[:3]] for label, cells in rows]
    assert [each[0] for each in found[:5]] == ["rescales", "flaps", "lowest, highest", "replica-hours", "cost"]
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    assert [each for each in found if each not in lines] == []
    assert re.search(r"above goal +- +\d+s +\d+s", text)
    assert f" Past: {past}; period 15s; startup " in " ".join(text.split())
    (verdict,) = re.findall(r'<p class="lead">(.+?)</p>', page)
    assert verdict.replace("\u00a0", " ") in " ".join(text.split())
    assert "queue: does not depend on the replica count" in " ".join(text.split())
    assert "<script" not in page
    assert "http:" not in page
    assert len(re.findall('role="img"', page)) == 2


def test_a_report_escapes_what_it_quotes(web: str, past: str, tmp_path: Path) -> None:
    manifest = tmp_path / "a<b>&c.yaml"
    manifest.write_text(WEB)
    report = tmp_path / "report.html"
    assert cli.main(["backtest", str(manifest), "--csv", past, "--report", str(report)]) == 0
    assert "a&lt;b&gt;&amp;c.yaml" in report.read_text()
    assert "a<b>" not in report.read_text()


def test_a_recording_with_its_own_spec_and_another_one(
    web: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """30 of 10 per replica want 3 replicas; with a goal of 5 per replica they want 6."""
    row = scenario(*(step(15 * index, "30", replicas=3) for index in range(4)))
    row["hpa"]["metadata"] = {"name": "web", "namespace": "default"}
    file = tmp_path / "web.jsonl"
    file.write_text(json.dumps(row) + "\n")
    goal = "spec.metrics[0].external.target.averageValue=5"
    summaries = found([web, "--recording", str(file), "--set", goal], capsys)
    recorded, own, changed = summaries.values()
    assert own == recorded
    assert (changed["highest"], changed["rescales"]) == (6, 1)


@pytest.mark.parametrize("more", [(), ("-o", "json"), ("--report", "report.html")])
def test_an_interval_without_reconciles_of_the_recording(
    web: str, more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    row = scenario(step(0, "30", replicas=3))
    row["hpa"]["metadata"] = {"name": "web", "namespace": "default"}
    file = tmp_path / "web.jsonl"
    file.write_text(json.dumps(row) + "\n")
    assert cli.main(["backtest", web, "--recording", str(file), "--to", "2020-01-01T00:00:00Z", *more]) == 1
    output = capsys.readouterr()
    assert not output.out
    assert "web.jsonl: has no replica count of HPA default/web in this interval" in output.err


def test_the_report_of_a_recording_shows_its_load(web: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The queue has 30 messages for two minutes and 60 for two more, over 3 replicas, with a goal of 10 each."""
    steps = [step(0, "30" if index < 8 else "60", replicas=3) for index in range(17)]
    for index, each in enumerate(steps):
        each["time"] = f"2026-01-01T00:{index // 4:02}:{15 * (index % 4):02}Z"
    row = scenario(*steps)
    row["hpa"]["metadata"] = {"name": "web", "namespace": "default"}
    file, report = tmp_path / "web.jsonl", tmp_path / "report.html"
    file.write_text(json.dumps(row) + "\n")
    assert cli.main(["backtest", web, "--recording", str(file), "--report", str(report)]) == 0
    assert "period" not in capsys.readouterr().out  # the times are those of the recorded reconciles
    page = report.read_text()
    assert re.findall("<b>(Load[^<]*|Replicas)</b>", page) == ["Load, per replica", "Replicas"]
    assert "queue <i>10 to 20</i>" in page
    assert "goal <i>10</i>" in page


def test_annotations_of_manifests_and_changes_hold_for_a_recording(
    web: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """30 of 10 per replica want 3; a window raises that to 5, and another one to 6."""
    row = scenario(*(step(15 * index, "30", replicas=3) for index in range(4)))
    row["hpa"]["metadata"] = {"name": "web", "namespace": "default"}
    file, other = tmp_path / "web.jsonl", tmp_path / "other.yaml"
    file.write_text(json.dumps(row) + "\n")
    window = "* * * * * for 1h: min="
    other.write_text(WEB.replace("default}", f'default, annotations: {{hpad.io/schedule: "{window}6"}}}}'))
    changed = f'metadata.annotations["hpad.io/schedule"]={window}5'
    _, own, five = found([web, "--recording", str(file), "--set", changed], capsys).values()
    assert (own["highest"], five["highest"]) == (3, 5)
    gone = 'metadata.annotations["hpad.io/schedule"]=null'
    _, six, none = found([str(other), "--recording", str(file), "--set", gone], capsys).values()
    assert (six["highest"], none["highest"]) == (6, 3)


def test_an_annotation_without_effect_is_named(
    web: str, past: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WEB.replace("default}", "default, annotations: {hpad.io/schedul: x, hpad.io/sync-period: 2h}}"))
    assert cli.main(["backtest", str(file), "--csv", past, "-o", "json"]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert [note.partition(":")[0] for note in notes[:2]] == [
        "annotation hpad.io/schedul", "annotation hpad.io/sync-period"
    ]  # fmt: skip
    assert all(note.endswith("; it has no effect") for note in notes[:2])


def test_the_settings_annotate_the_hpa(web: str, past: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "hpad.yaml"
    config.write_text("hpas: [{names: [we*], schedule: '* * * * * for 1h: min=7'}, {names: [x], mode: paused}]\n")
    _, own = found([web, "--csv", past, "--config", str(config)], capsys).values()
    assert (own["lowest"], own["highest"]) == (7, 8)


def test_a_search_measures_all_specs_against_the_goal_of_the_manifest(
    web: str, past: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifest wants 2 and 8 replicas. With a goal of 20 there are 1 and 4, except in the windows of 5 minutes."""
    path = "spec.metrics[0].external.target.averageValue"
    assert cli.main(["backtest", web, "--csv", past, "--search", f"{path}=5,10,20", "-o", "json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    above = {item["set"][path]: item["summary"]["secondsAboveGoal"] for item in items}
    assert above["20"] == pytest.approx(49 * 60, abs=45)
    assert (above["10"], above["5"]) == (pytest.approx(30, abs=1), pytest.approx(15, abs=1))
    assert [item["pareto"] for item in items] == [True, True, True]
    args = ["backtest", web, "--csv", past, "--search", "spec.maxReplicas=4,20,30", "-o", "json"]
    assert cli.main(args) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    above = {item["set"]["spec.maxReplicas"]: item["summary"]["secondsAboveGoal"] for item in items}
    assert above["4"] == pytest.approx(20 * 60, abs=30)
    assert above["20"] == above["30"] == pytest.approx(30, abs=1)
    assert [item["pareto"] for item in items] == [True, True, True]  # the last two are the same run


def test_a_search_ranks_and_marks(web: str, past: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = "spec.metrics[0].external.target.averageValue"
    args = ["backtest", web, "--csv", past, "--search", f"{path}=10,20,40", "--search", "spec.maxReplicas=4,20"]
    assert cli.main([*args, "-o", "json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert len(items) == 6
    hours = [item["summary"]["replicaHours"] for item in items]
    assert hours == sorted(hours)
    assert items[0]["pareto"]
    assert items[0]["set"][path] == "40"
    assert cli.main([*args, "--color", "never"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if re.match(r"\*? +\d+ +\d+ ", line)]) == 6


@pytest.mark.parametrize(
    ("args", "status", "error"),
    [
        (["--csv", "none.csv"], 1, "none.csv: cannot be read: No such file or directory"),
        (["--recording", "none.jsonl"], 1, "none.jsonl: cannot be read"),
        (["--csv", "none.csv", "--from", "1h", "--to", "2h"], 2, "--from '1h' is "),
        (["--prometheus", "http://127.0.0.1:9"], 2, "--prometheus needs --from TIME"),
        (["--prometheus", "http://127.0.0.1:9", "--from", "1h"], 2, "--prometheus needs --query COLUMN=PROMQL"),
        (
            ["--prometheus", "http://127.0.0.1:9", "--from", "1h", "--query", "queue"],
            2,
            "--query 'queue': COLUMN=PROMQL is needed",
        ),
        (
            ["--prometheus", "http://127.0.0.1:9", "--from", "1h", "--query", "queue=up"],
            1,
            "queue: 'up': the server cannot be reached",
        ),
    ],
)
def test_mistakes(web: str, args: list[str], status: int, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["backtest", web, *args]) == status
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "status", "error"),
    [
        (["--query", "queue=up"], 2, "--query is for --prometheus"),
        (["--search", "spec.maxReplicas"], 2, "--search 'spec.maxReplicas': PATH=A,B,… is needed"),
        (["--search", "spec.maxReplica=1,2"], 2, "spec.maxReplica"),
        (["--from", "2999-01-01T00:00:00Z"], 2, "is in the future"),
        (["--from", "1970-01-01T00:59:00Z"], 1, "the history has 1 times in this interval; two or more are needed"),
        (["--set", "spec.maxReplicas=0"], 2, "--set spec.maxReplicas=0"),
        (["--period", "1h"], 1, "the history, 59m, is shorter than the period, 1h"),
        (["--period", "1h", "--search", "spec.maxReplicas=4,5"], 1, "the history, 59m, is shorter than the period, 1h"),
    ],
)
def test_mistakes_with_a_history(
    web: str, past: str, args: list[str], status: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["backtest", web, "--csv", past, *args]) == status
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("last", "error"),
    [
        ("60,20,-3", "the history has -3 replicas at 1970-01-01T00:01:00Z; 0 to 50000 are simulated"),
        ("60,20,1e9", "the history has 1e+09 replicas at 1970-01-01T00:01:00Z; 0 to 50000 are simulated"),
        ("99999999999,20,5", "the history of 1970-01-01 to 5138-11-16 has 6666666666 reconciles; at most 2500000 are"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--search", "spec.maxReplicas=4,5")])
def test_counts_and_times_that_cannot_be(
    web: str, last: str, more: tuple[str, ...], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "odd.csv"
    file.write_text(f"time,queue,replicas\n0,20,5\n{last}\n")
    assert cli.main(["backtest", web, "--csv", str(file), *more]) == 1
    assert error in capsys.readouterr().err
