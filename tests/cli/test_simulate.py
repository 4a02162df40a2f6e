"""`hpad simulate`: its output, and what it refuses."""

import csv
import io
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

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
        (["--load", "constant:1", "--for", "9s"], 2, "--for: 9s is shorter than the period of shop/web, 15s"),
        (["--load", "constant:1", "--replicas", "50001"], 2, "shop/web: 50001 replicas at the start; at most 50000"),
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


def with_budget(name: str, priority: int = 0, budget: str = "nodes") -> str:
    """Returns the HPA of a name, which shares a budget."""
    own = f'annotations: {{hpad.io/budget: {budget}, hpad.io/budget-priority: "{priority}"}}'
    return WEB.replace("name: web, namespace: shop", f"name: {name}, namespace: shop, {own}")


@pytest.fixture
def shop(tmp_path: Path) -> tuple[str, ...]:
    """Arguments for two HPAs that share 16 replicas; the one of the higher priority needs 12 of them for a while."""
    file, config = tmp_path / "shop.yaml", tmp_path / "hpad.yaml"
    file.write_text(f"{with_budget('web', 1)}---\n{with_budget('mail')}")
    config.write_text("budgets: {nodes: {replicas: 16}, cpu: {cores: 3}}\n")
    loads = ("--load", "web=step:from=100,to=600,at=10m,for=20m", "--load", "shop/mail=constant:500")
    return ("simulate", str(file), "--config", str(config), *loads)


def test_hpas_of_one_manifest_share_a_budget(shop: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*shop, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    web, mail = found["hpas"]
    assert (web["hpa"], mail["hpa"]) == ("shop/web", "shop/mail")
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    for each in found["hpas"]:
        for turn in each["turns"]:
            counts[turn["seconds"]][each["hpa"]] = turn["desired"]
    assert max(sum(both.values()) for both in counts.values()) == 16
    # 600 units at half of 100 per replica are 12 replicas; mail would have 10, and has what is left of 16.
    assert counts[25 * 60] == {"shop/web": 12, "shop/mail": 4}
    assert counts[55 * 60] == {"shop/web": 2, "shop/mail": 10}
    (used,) = found["budgets"]
    assert {name: used[name] for name in ("budget", "unit", "amount", "peak")} == {
        "budget": "nodes", "unit": "replicas", "amount": 16, "peak": 16,
    }  # fmt: skip
    short = [turn["seconds"] for turn in mail["turns"] if "its budget nodes" in turn["decision"]]
    assert used["secondsShort"] == pytest.approx(max(short) + 15 - min(short), abs=1)


def test_several_hpas_are_told_apart_in_text_and_csv(shop: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*shop, "--color", "never"]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("HPA:")] == ["HPA:       shop/web", "HPA:       shop/mail"]
    assert "Replicas of shop/mail" in lines
    assert re.search(r"shop/mail +10 -> 8 +scale mail from 10 to 8: .* its budget nodes \(16 replicas\) has 8", text)
    assert lines[-1].startswith("Budget:    nodes: at most 16 of 16 replicas held; short for 24m")
    assert cli.main([*shop, "-o", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["hpa"] for row in rows[:4]] == ["shop/web", "shop/mail", "shop/web", "shop/mail"]
    times = [int(row["seconds"]) for row in rows]
    assert times == sorted(times)


def alone(tmp_path: Path, text: str, budgets: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """Returns what one HPA does under a load for 16 replicas, in JSON."""
    file, config = tmp_path / "web.yaml", tmp_path / "hpad.yaml"
    file.write_text(text)
    config.write_text(budgets)
    args = ("--load", "constant:800", "--for", "20m", "-o", "json")
    assert cli.main(["simulate", str(file), "--config", str(config), *args]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_budget_of_cores_counts_the_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = alone(tmp_path, with_budget("web"), "budgets: {nodes: {cores: 3}}", capsys)
    assert found["summary"]["highest"] == 6  # a pod requests 500m
    assert (found["budgets"][0]["peak"], found["budgets"][0]["unit"]) == (3, "cores")


def test_a_budget_that_the_settings_lack_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = alone(tmp_path, with_budget("web", budget="gpu"), "{}", capsys)
    assert found["summary"]["highest"] == 16
    assert found["notes"] == ["--config has no budget 'gpu': nothing limits this HPA here"]
    assert "budgets" not in found


def test_a_budget_for_other_namespaces_lets_nothing_grow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = alone(tmp_path, with_budget("web"), "budgets: {nodes: {cores: 3, namespaces: [mail]}}", capsys)
    assert found["summary"]["highest"] == 2
    assert "it is not for HPAs of the namespace shop" in found["turns"][5]["decision"]


@pytest.mark.parametrize(
    ("loads", "error"),
    [
        (["web=constant:1"], "the HPA shop/mail has none; --load mail=LOAD gives it one"),
        (["wbe=constant:1"], "--load 'wbe=constant:1': there is no HPA 'wbe'; there are shop/web, shop/mail"),
        (["web=constant", "mail=constant:1"], "'constant'"),
        (["=constant:1"], "there is no HPA ''"),
    ],
)  # fmt: skip
def test_each_hpa_needs_its_load(
    shop: tuple[str, ...], loads: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [part for text in loads for part in ("--load", text)]
    assert cli.main([*shop[:4], *args]) == 2
    assert error in capsys.readouterr().err


def test_one_hpa_of_several_and_one_that_is_there_twice(
    shop: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*shop[:4], "--hpa", "mail", "--load", "constant:500", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["hpa"] == "shop/mail"
    twice = tmp_path / "twice.yaml"
    twice.write_text(f"{WEB}---\n{WEB}")
    assert cli.main(["simulate", str(twice), *LOAD]) == 1
    assert "there is more than one HPA shop/web" in capsys.readouterr().err
