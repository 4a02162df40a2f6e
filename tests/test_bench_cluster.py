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


@pytest.mark.parametrize("server", ["stub", "embedded"])
def test_a_run_counts_reconciles_and_their_requests(tmp_path: Path, server: str) -> None:
    text, (found,) = run(tmp_path, "--server", server)
    assert "CPU-s per 1,000" in text
    assert (found["server"], found["controller"], found["hpas"]) == (server, "hpad", 10)
    assert found["first_round"] is not None, "each HPA has a status"
    assert found["reconciles"] > 0
    assert found["requests"][STATUS] > 0
    assert found["requests"][METRICS] > 0
    assert found["stretch"] is not None
    assert found["wait"] > 0
    assert found["cpu"].keys() == {"hpad", server}
    assert found["resident"]["hpad"] > 0


def test_the_real_server_needs_its_programs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.cluster", "--short", "--server", "real"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "tests", "KUBEBUILDER_ASSETS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "lacks etcd and kube-apiserver" in done.stderr


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


def test_a_chart_and_a_profile_are_written(tmp_path: Path) -> None:
    chart, profile = tmp_path / "found.svg", tmp_path / "found.txt"
    run(tmp_path, "--no-tls", "--rounds", "2", "--chart", str(chart), "--profile", str(profile))
    texts = [each.text for each in ElementTree.parse(chart).getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("10 HPAs, hpad") == 2 * 5, "two bars in each of five panels"
    assert "functions, own time" in profile.read_text()


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
