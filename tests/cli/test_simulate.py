"""`hpad simulate`: its output, and what it refuses."""

import csv
import io
import json
from pathlib import Path

import pytest

from hpad import cli

WEB = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 20
  metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
"""
LOAD = ("--load", "step:from=50,to=400,at=10m,for=5m", "--color", "never")


@pytest.fixture
def web(tmp_path: Path) -> str:
    file = tmp_path / "web.yaml"
    file.write_text(WEB)
    return str(file)


def test_the_output_names_parameters_rescales_and_figures(web: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The goal needs 8 replicas for 400 units; a saturated one shows twice the goal, so the count doubles twice."""
    assert cli.main(["simulate", web, *LOAD, "--price", "0.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    text = "\n".join(lines)
    assert "HPA:       shop/web" in lines
    assert "Time:      1h, 240 reconciles" in lines
    assert "capacity 100" in text
    assert "seed 1" in text
    rescales = [line.split()[:4] for line in lines if " -> " in line]
    assert [row[1:] for row in rescales] == [["2", "->", "4"], ["4", "->", "8"], ["8", "->", "2"]]
    assert "rescales         3" in lines
    assert "lowest, highest  2, 8" in lines
    hours = float(next(line.split()[-1] for line in lines if line.startswith("replica-hours")))
    cost = float(next(line.split()[-1] for line in lines if line.startswith("cost")))
    # About 10 of 60 minutes with 8 replicas, and 50 with 2.
    assert hours == pytest.approx(3, abs=0.2)
    assert cost == pytest.approx(hours / 2, abs=0.01)


def test_csv_and_json_hold_every_turn(web: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", web, *LOAD, "-o", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert cli.main(["simulate", web, *LOAD, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(rows) == len(found["turns"]) == 240
    assert [int(row["desired"]) for row in rows] == [turn["desired"] for turn in found["turns"]]
    assert max(turn["desired"] for turn in found["turns"]) == found["summary"]["highest"] == 8
    assert found["parameters"]["capacity"] == "100"


def test_set_and_config_change_what_is_tried(web: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", web, *LOAD, "--set", "spec.maxReplicas=5", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["highest"] == 5
    config = tmp_path / "hpad.yaml"
    config.write_text("downscale_stabilization: 30s\nsync_period: 10s\n")
    assert cli.main(["simulate", web, *LOAD, "--config", str(config), "-o", "json"]) == 0
    turns = json.loads(capsys.readouterr().out)["turns"]
    assert len(turns) == 360
    down = next(turn["seconds"] for turn in turns if turn["desired"] < turn["replicas"])
    assert 15 * 60 + 20 <= down <= 15 * 60 + 60


def test_annotations_apply(web: str, capsys: pytest.CaptureFixture[str]) -> None:
    wide = 'metadata.annotations["hpad.io/tolerance-up"]=9'
    assert cli.main(["simulate", web, *LOAD, "--set", wide, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["highest"] == 2


def test_the_period_of_the_hpa_applies_unless_another_is_given(web: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = ("--set", 'metadata.annotations["hpad.io/sync-period"]=5s')
    counts = []
    for more in ((), own, (*own, "--period", "30s")):
        assert cli.main(["simulate", web, "--load", "constant:50", "--for", "10m", *more, "-o", "json"]) == 0
        counts.append(len(json.loads(capsys.readouterr().out)["turns"]))
    assert counts == [40, 120, 20]


def test_a_queue_without_a_rescale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "worker.yaml"
    target = "{type: AverageValue, averageValue: 50}"
    file.write_text(
        WEB.partition("  metrics:")[0]
        + f"  metrics: [{{type: External, external: {{metric: {{name: queue_messages}}, target: {target}}}}}]\n"
    )
    args = ["--workload", "queue", "--load", "constant:1", "--service-time", "100ms", "--color", "never"]
    assert cli.main(["simulate", str(file), *args]) == 0
    text = capsys.readouterr().out
    assert "No decision changes the count." in text
    assert "metric queue_messages backlog" in " ".join(text.split())


@pytest.mark.parametrize(
    ("args", "status", "error"),
    [
        (["--load", "stairs:1"], 2, "there is no shape 'stairs'"),
        (["--load", "constant:1", "--prefetch", "2"], 2, "--prefetch is for --workload queue"),
        (["--load", "constant:1", "--shows", "cpu=load"], 2, "--shows: the Resource metric cpu cannot show 'load'"),
        (["--load", "constant:1", "--shows", "cpu"], 2, "--shows 'cpu': METRIC=QUANTITY is needed"),
        (["--load", "constant:1", "--hpa", "mail"], 1, "there is no HPA 'mail'"),
        (["--load", "constant:1", "--set", "spec.maxReplicas=1"], 2, "--set spec.maxReplicas=1"),
        (["--load", "constant:1", "--for", "10000h", "--period", "1s"], 2, "at most 1000000 are simulated"),
        (
            ["--load", "constant:1", "--workload", "queue", "--distribution", "normal", "--shows", "cpu=cpu"],
            2,
            "--distribution 'normal': there are constant, exponential, lognormal",
        ),
    ],
)
def test_mistakes(web: str, args: list[str], status: int, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", web, *args]) == status
    captured = capsys.readouterr()
    assert error in captured.err
    assert captured.out == ""


def test_a_manifest_that_cannot_be_read_is_no_invalid_hpa(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", str(tmp_path / "none.yaml"), "--load", "constant 1"]) == 1
    assert capsys.readouterr().err == f"hpad: {tmp_path / 'none.yaml'}: cannot be read: No such file or directory\n"


def test_an_invalid_manifest_is_refused_with_its_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(WEB.replace("maxReplicas: 20", "maxReplicas: 0"))
    assert cli.main(["simulate", str(file), *LOAD]) == 1
    error = capsys.readouterr().err
    assert f"{file}: " in error
    assert "spec.maxReplicas" in error
