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


@pytest.mark.parametrize("name", ROWS)
def test_no_recorded_row_is_missing(name: str) -> None:
    with gzip.open(ROOT / "tests" / "data" / "vectors" / f"{name}.jsonl.gz", "rb") as lines:
        assert sum(1 for _ in lines) == ROWS[name]


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
    wanted = {"PATH": "/bin", "HOME": "/root", "KUBEBUILDER_ASSETS": "/k8s", "HPAD_NO_SKIPS": "1", "PIP_INDEX_URL": "x"}
    strange = {"HPAD_SHARED": "x", "HPAD_WORKERS": "none", "KUBECONFIG": "/mine", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    environ = {**wanted, **strange, "NOTIFY_SOCKET": "/run/x", "RABBITMQ_NODE_PORT": "1", "TZ": "Asia/Tokyo"}
    environment.settle(environ)
    assert {name: environ[name] for name in environ if name not in ("LANG", "NO_PROXY", "no_proxy")} == wanted


def test_no_test_sees_such_a_variable() -> None:
    """However the run was started: this is what daemons under test inherit."""
    assert [name for name in os.environ if name.startswith("HPAD_") and name not in environment.OURS] == []


def test_a_strange_variable_makes_no_test_fail() -> None:
    """A daemon that found these would refuse to start."""
    named = "tests/e2e/test_heartbeat.py::test_the_command_runs_until_it_is_told_to_stop"
    strange = {"HPAD_SHARED": "x", "HPAD_WORKERS": "none", "HPAD_CONFIG": "/nowhere", "KUBECONFIG": "/nowhere"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", named]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **strange}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("option", ["randomly_seed", "hypothesis_seed"])
def test_nothing_random_decides_a_run(option: str, pytestconfig: pytest.Config) -> None:
    """Without a word from whoever runs them, the tests have the same order, dice and inputs each time."""
    assert re.search(rf"--{option.replace('_', '-')}=1\b", " ".join(pytestconfig.getini("addopts")))
    assert str(pytestconfig.getoption(option)).isdigit()
    assert hypothesis.settings.default.database is None
