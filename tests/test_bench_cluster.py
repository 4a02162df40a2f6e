"""`make bench-cluster` in its short form: a documented command must not rot. No figure of time is judged here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support import apiserver

from tools.bench.cluster import __main__ as bench

ROOT = Path(__file__).resolve().parent.parent
STATUS, METRICS = "update horizontalpodautoscalers/status", "list pods.metrics.k8s.io"


def run(tmp_path: Path, *arguments: str) -> tuple[str, list[dict[str, Any]]]:
    """Returns the text and the runs of the JSON file."""
    found = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.cluster", "--short", "--json", str(found), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(found.read_text())["runs"]


def test_a_run_on_the_embedded_server(tmp_path: Path) -> None:
    text, (found,) = run(tmp_path, "--server", "embedded")
    assert "CPU-s per 1,000" in text
    judge(found, "embedded")


def test_two_rounds_on_the_stub_with_a_chart_and_a_profile(tmp_path: Path) -> None:
    chart, profile = tmp_path / "found.svg", tmp_path / "found.txt"
    _, runs = run(tmp_path, "--rounds", "2", "--chart", str(chart), "--profile", str(profile))
    assert len(runs) == 2
    for found in runs:
        judge(found, "stub")
    texts = [each.text for each in ElementTree.parse(chart).getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("10 HPAs, hpad") == 2 * 5, "two bars in each of five panels"
    assert "functions, own time" in profile.read_text()


def judge(found: dict[str, Any], server: str) -> None:
    """Asserts that a run counted reconciles, their requests and their cost."""
    assert (found["server"], found["controller"], found["hpas"]) == (server, "hpad", 10)
    assert found["first_round"] is not None, "each HPA has a status"
    assert found["reconciles"] > 0
    assert found["requests"][STATUS] > 0
    assert found["requests"][METRICS] > 0
    assert found["stretch"] is not None
    assert found["wait"] > 0
    assert found["cpu"].keys() == {"hpad", server}
    assert found["resident"]["hpad"] > 0


def test_the_real_server_needs_its_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["bench", "--short", "--server", "real"])
    with pytest.raises(RuntimeError, match="lacks etcd and kube-apiserver"):
        bench.main()


@pytest.mark.real_kube_apiserver
def test_a_run_beside_a_real_api_server(tmp_path: Path) -> None:
    if (reason := apiserver.missing()) is not None:
        pytest.skip(reason)
    _, runs = run(tmp_path, "--server", "real")
    for found in runs:
        assert found["first_round"] is not None
        assert found["requests"][STATUS] > 0
        assert found["requests"][METRICS] > 0
        assert {"etcd", "kube-apiserver", "metrics-server"} < found["cpu"].keys()


def test_a_flag_that_hpad_refuses_ends_the_bench_with_its_words() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.cluster", "--short", "--no-tls", "--", "--sync-period", "soon"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "hpad is not at work" in done.stderr
    assert "soon" in done.stderr
