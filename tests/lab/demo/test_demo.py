"""`hpad demo` as a process: real workloads, a real broker, and the removal of all processes and files."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpad.api.quantity import Quantity
from hpad.lab.demo.view import UNKNOWN
from hpad.lab.servers import rabbitmq

BUDGET = "40"
LIMIT = 600
PATIENCE = 240


@pytest.fixture
def demo(tmp_path: Path) -> Iterator["Demo"]:
    """A demo that is not started yet; the test fails if processes or files remain after it."""
    made = Demo(tmp_path)
    try:
        yield made
        assert made.remaining_processes() == {}
        assert [path.name for path in made.temporary.iterdir()] == []
    finally:
        made.kill()


class Demo:
    """`hpad demo` in its own folders, by which its processes are found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary, self.cwd = folder / "tmp", folder / "cwd"
        self.temporary.mkdir()
        self.cwd.mkdir()
        self._process: subprocess.Popen[str] | None = None

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hpad", "demo", "--seconds", BUDGET, *arguments],
            cwd=self.cwd,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self._process

    def play(self, *arguments: str) -> dict[str, Any]:
        """Runs the demo to its end; returns its JSON report."""
        process = self.start(*arguments, "-o", "json")
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, out + err
        assert "\x1b" not in out
        assert err == ""
        summary: dict[str, Any] = json.loads(out.splitlines()[-1])
        return summary

    def still_running(self) -> dict[int, str]:
        """Maps the pids of processes that run in its folders, also in deleted ones, to the folder."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                where = os.readlink(entry / "cwd") if entry.name.isdecimal() else ""
            except OSError:
                continue
            if where.startswith(str(self.folder)):
                found[int(entry.name)] = where
        return found

    def remaining_processes(self) -> dict[int, str]:
        """Returns the processes that still run after up to PATIENCE seconds.

        The children of a killed broker need a moment to notice its end.
        """
        until = time.monotonic() + PATIENCE
        while (remaining := self.still_running()) and time.monotonic() < until:
            time.sleep(0.05)
        return remaining

    def kill(self) -> None:
        for pid in self.still_running():
            os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.communicate()


@pytest.mark.cluster
@pytest.mark.rabbitmq
@pytest.mark.skipif(not rabbitmq.RabbitMQServer.installed(), reason=rabbitmq.ABSENT)
def test_celery_workers_are_scaled_by_a_goal_in_seconds(demo: Demo):
    """The tasks are slow, so that the queue is still long when all consumers run, also on a busy machine.

    80 messages within the rest of the goal, which is 5 times the time of one, need 16 consumers. A machine that starts
    them slowly needs more; a queue that is read before the last message came, fewer, by the tolerance of the target.
    """
    summary = demo.play("--only", "queue", "--seconds", "80", "--workers", "celery")
    (half,) = summary["halves"]
    assert summary["ok"]
    peak = half["replicas"]["peak"]
    assert half["replicas"] == {"start": 3, "peak": peak, "end": 3}
    assert max(each["to"] for each in half["rescales"]) == peak
    assert 10 < half["consumers"] <= peak < 40  # the goal decides, neither the minimum nor the maximum
    reading, target = half["targetsAtScaleUp"].removesuffix(" (avg)").split("/")
    assert target == "1"
    first = half["rescales"][0]
    if reading != UNKNOWN:  # the metric may have failed again before the demo looked at the status
        needed = Quantity.parse(reading).milli() * 3 / 1000
        assert 3 < needed < 24  # 16 if the queue is read when all messages have come; averages are rounded up
        # More where two rescales were seen as one: the second average is over the pods that exist by then.
        assert needed - 1 <= first["to"]
    assert first["from"] == 3 < first["to"] < 24 + 1
    # The broker shows which pod is at the long job.
    assert any("go first" in each["why"] for each in half["rescales"])


@pytest.mark.cluster
def test_a_signal_stops_all_processes_and_removes_all_files(demo: Demo):
    """Later signals are ignored, so that nothing is left."""
    process = demo.start()
    assert process.stdout is not None
    for line in process.stdout:
        if "1 real process" in line:
            break
    assert len(demo.still_running()) > 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process.send_signal(number)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert "nothing is left running" in err


def test_an_invalid_log_folder_is_named(demo: Demo, tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    process = demo.start("--only", "cpu", "--keep-logs", str(file))
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (1, f"hpad: the demo cannot run here: {file}: File exists\n")


def test_too_short_a_duration_is_rejected(demo: Demo):
    process = demo.start("--seconds", "5")
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert "'5' is not a number of seconds from 40 to 3600" in err
