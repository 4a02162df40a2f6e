"""Tests that run in forked workers are reported as in one process, whatever becomes of a worker."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parent
SHARED = """
import os
import pathlib
import pytest

LOG = pathlib.Path(__file__).with_name("log")

@pytest.fixture(scope="session", autouse=True)
def server():
    note("start")
    yield
    note("stop")

def note(text):
    with LOG.open("a") as log:
        log.write(f"{text} {os.getpid()}\\n")
"""


def started(folder: Path, *arguments: str, workers: int = 2) -> subprocess.Popen[str]:
    """Starts pytest in a folder, which gets a fixture that notes in a file when it starts and stops in a process."""
    (folder / "conftest.py").write_text(SHARED)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = (sys.executable, "-m", "pytest", "-p", "support.workers", "-p", "no:randomly", "-p", "no:schemathesis")
    return subprocess.Popen(
        [*command, f"--workers={workers}", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=120)[0]


def noted(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def test_each_worker_has_fixtures_of_its_own_and_reports_what_its_tests_print(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(
            "import time\n"
            "def test_good(): time.sleep(0.5)\n"
            f"def test_bad(): print('printed by {name}'); assert not 'reason {name}'\n"
        )
    process = started(tmp_path)
    text = output(process)
    assert process.returncode == 1
    assert "2 failed, 2 passed" in text
    for name in "ab":
        assert text.count(f"printed by {name}\n") == 1
        assert f"assert not 'reason {name}'" in text
    starts, stops = ({line.split()[1] for line in noted(tmp_path) if line.startswith(what)} for what in ("sta", "sto"))
    assert starts == stops
    assert len(starts) == 2
    assert str(process.pid) not in starts


def test_a_test_that_ends_its_worker_has_failed_and_the_others_of_its_file_run(tmp_path: Path) -> None:
    (tmp_path / "test_end.py").write_text(
        "import os\n"
        "def test_first(): pass\n"
        "def test_killed(): os.kill(os.getpid(), 9)\n"
        "def test_left(): os._exit(3)\n"
        "def test_last(): pass\n"
    )
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")
    process = started(tmp_path)
    text = output(process)
    assert process.returncode == 1
    assert "2 failed, 3 passed" in text
    assert "test_end.py::test_killed - its process ended: SIGKILL" in text
    assert "test_end.py::test_left - its process ended: status 3" in text


def test_the_first_failure_stops_all_workers_if_so_told(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"test_{name}.py").write_text(
            "import time, pytest\n"
            "def test_bad(): assert False\n"
            "@pytest.mark.parametrize('number', range(100))\n"
            "def test_slow(number): time.sleep(0.2)\n"
        )
    process = started(tmp_path, "--exitfirst")
    text = output(process)
    assert process.returncode == 1
    assert "stopping after" in text
    assert len([line for line in noted(tmp_path) if line.startswith("stop")]) == 2


def test_an_interruption_lets_fixtures_stop_what_they_have_started(tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text("import time\ndef test_long(): time.sleep(600)\n")
    (tmp_path / "test_none.py").write_text("def test_none(): pass\n")
    process = started(tmp_path)
    while not (tmp_path / "log").exists() or len(noted(tmp_path)) < 3:  # the second worker has started and stopped
        assert process.poll() is None, output(process)
        time.sleep(0.05)
    worker = next(line.split()[1] for line in noted(tmp_path) if noted(tmp_path).count(line.replace("art", "op")) == 0)
    for pid in (int(worker), process.pid):
        os.kill(pid, signal.SIGINT)
    text = output(process)
    assert process.returncode == 2
    assert "KeyboardInterrupt" in text
    assert f"stop {worker}" in noted(tmp_path)


def test_a_fixture_that_cannot_stop_is_reported(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def stuck():\n"
        "    yield\n"
        "    raise OSError('cannot stop')\n"
        "def test_a(stuck): pass\n"
    )
    process = started(tmp_path)
    text = output(process)
    assert process.returncode == 3
    assert "OSError: cannot stop" in text
