"""A clone proves itself: nothing that the tests read stands outside of it."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from support import environment

ROOT = Path(__file__).resolve().parent.parent
ROWS = {
    "admission_v2": 1000,
    "convert_v1_v2": 500,
    "quantity": 1052,
    "quantity_format": 1000,
    "reconcile": 1200,
    "selector_object": 500,
    "selector_string": 1000,
    "timeline": 120,
}


SKIPPED = ("tests/packaging/test_monitoring.py", "-k", "promtool or quantity")
"""Tests that need a program of the PATH, and what runs beside them."""


def run_tests(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environ = {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ROWS)
def test_no_recorded_row_is_missing(name: str) -> None:
    with gzip.open(ROOT / "tests" / "data" / "vectors" / f"{name}.jsonl.gz") as rows:
        assert sum(1 for _ in rows) == ROWS[name]


def test_the_number_of_compared_rows_is_printed_and_a_test_may_be_skipped() -> None:
    done = run_tests("tests/conformance/test_quantity.py", *SKIPPED, PATH="/nowhere", HPAD_NO_SKIPS="")
    assert done.returncode == 0, done.stdout
    assert "2 skipped" in done.stdout
    for name in ("quantity", "quantity_format"):
        assert f"\nconformance {name}: {ROWS[name]:,} of {ROWS[name]:,}\n" in done.stdout


def test_a_skipped_test_fails_where_nothing_may_be_skipped() -> None:
    done = run_tests(*SKIPPED, PATH="/nowhere", HPAD_NO_SKIPS="1")
    assert done.returncode == 1, done.stdout
    assert "2 skipped" in done.stdout


def test_every_recorded_exchange_is_there() -> None:
    folder = ROOT / "tests" / "data" / "fixtures"
    assert sum(1 for _ in folder.glob("*/*.json")) == 455


def test_no_file_reads_beside_the_clone() -> None:
    beside = re.compile(r"ROOT\s*\.parent\b")
    files = [path for folder in ("hpad", "adapters", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    wrong = [str(path) for path in files if beside.search(path.read_text("utf-8"))]
    assert not wrong, wrong


def test_no_variable_of_the_machine_reaches_what_is_tested() -> None:
    expected = {
        "PATH": "/bin",
        "HOME": "/root",
        "KUBEBUILDER_ASSETS": "/k8s",
        "HPAD_NO_SKIPS": "1",
        "PIP_INDEX_URL": "x",
    }
    strange = {"HPAD_SHARED": "x", "HPAD_WORKERS": "none", "KUBECONFIG": "/mine", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    environ = {**expected, **strange, "NOTIFY_SOCKET": "/run/x", "RABBITMQ_NODE_PORT": "1", "TZ": "Asia/Tokyo"}
    environment.settle(environ)
    assert {name: environ[name] for name in environ if name not in environment.ADDED} == expected


def test_no_test_sees_such_a_variable() -> None:
    """However the run was started: this is what daemons under test inherit."""
    assert [name for name in os.environ if name.startswith("HPAD_") and name not in environment.OURS] == []


def test_a_strange_variable_makes_no_test_fail() -> None:
    """A daemon that found these would refuse to start."""
    named = "tests/e2e/test_heartbeat.py::test_the_command_runs_until_sigterm"
    strange = {"HPAD_SHARED": "x", "HPAD_WORKERS": "none", "HPAD_CONFIG": "/nowhere", "KUBECONFIG": "/nowhere"}
    done = run_tests(named, **strange)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("option", ["randomly_seed", "hypothesis_seed"])
def test_nothing_random_decides_a_run(option: str, pytestconfig: pytest.Config) -> None:
    """By default, the tests have the same order, random choices and inputs in each run."""
    assert re.search(rf"--{option.replace('_', '-')}=1\b", " ".join(pytestconfig.getini("addopts")))
    assert str(pytestconfig.getoption(option)).isdigit()
    assert hypothesis.settings.default.database is None
