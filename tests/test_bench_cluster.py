"""`make bench-cluster` in its short form: a documented command must not rot. No figure of time is judged here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
STATUS, METRICS = "update horizontalpodautoscalers/status", "list pods.metrics.k8s.io"


def run(tmp_path: Path, *arguments: str) -> tuple[str, list[dict[str, Any]]]:
    """Returns the text and the runs of the JSON file."""
    found = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.cluster", "--short", "--json", str(found), *arguments],
        cwd=ROOT,
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
    assert found["cpu"].keys() == {"hpad", server}
    assert found["resident"]["hpad"] > 0


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
