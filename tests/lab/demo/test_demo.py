"""The demo as people run it: real processes, a real broker, and nothing left of them afterwards."""

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
from hpad.lab.servers import rabbitmq

BUDGET = "40"
LIMIT = 240
PATIENCE = 60


@pytest.fixture
def demo(tmp_path: Path) -> Iterator["Demo"]:
    """A demo that was not started yet; whatever is left of it is an error, and removed."""
    made = Demo(tmp_path)
    try:
        yield made
        assert made.lasting_processes() == {}
        assert [path.name for path in made.temporary.iterdir()] == []
    finally:
        made.kill()


class Demo:
    """`hpad demo` in folders of its own, by which everything it started can be told from everything else."""

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
        """The whole of it; returns the summary for machines."""
        process = self.start(*arguments, "-o", "json")
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, out + err
        assert "\x1b" not in out
        assert err == ""
        summary: dict[str, Any] = json.loads(out.splitlines()[-1])
        return summary

    def left_processes(self) -> dict[int, str]:
        """What runs in its folders, by process id (a deleted folder still counts)."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                where = os.readlink(entry / "cwd") if entry.name.isdecimal() else ""
            except OSError:
                continue
            if where.startswith(str(self.folder)):
                found[int(entry.name)] = where
        return found

    def lasting_processes(self) -> dict[int, str]:
        """What still runs after a while: children of a broker that was killed take a moment to see that it is gone."""
        until = time.monotonic() + PATIENCE
        while (left := self.left_processes()) and time.monotonic() < until:
            time.sleep(0.05)
        return left

    def kill(self) -> None:
        for pid in self.left_processes():
            os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.communicate()


@pytest.mark.cluster
def test_a_web_server_is_scaled_by_the_cpu_it_uses(demo: Demo):
    summary = demo.play("--only", "cpu")
    (half,) = summary["halves"]
    assert summary["ok"]
    assert half["replicas"]["start"] == half["replicas"]["end"] == 1
    assert half["replicas"]["peak"] >= 5
    reading, goal = half["targetsAtScaleUp"].split("/")
    assert goal == "50%"
    assert 55 < int(reading.rstrip("%")) < 1000  # 300 where nobody else wants the machine
    assert half["rescales"][0]["from"] == 1
    assert "cpu" in half["rescales"][0]["why"]
    assert half["decisions"] >= 15


@pytest.mark.cluster
@pytest.mark.rabbitmq
@pytest.mark.skipif(not rabbitmq.RabbitMQServer.installed(), reason=rabbitmq.ABSENT)
def test_consumers_are_scaled_by_the_depth_of_their_queue(demo: Demo):
    """Slow tasks, so that the queue is still long when all consumers have started, also on a busy machine."""
    summary = demo.play("--only", "queue", "--seconds", "80")
    (half,) = summary["halves"]
    assert summary["ok"]
    assert half["replicas"] == {"start": 3, "peak": 16, "end": 3}
    assert half["consumers"] == 16
    reading, goal = half["targetsAtScaleUp"].removesuffix(" (avg)").split("/")
    assert goal == "5"
    depth = round(Quantity.parse(reading).milli() * 3 / 1000)
    assert 15 < depth <= 80  # 80 where the queue is looked at before a message is acknowledged
    assert half["rescales"][0]["from"] == 3
    assert half["rescales"][0]["to"] == -(-depth // 5)


@pytest.mark.cluster
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_it_leaves_nothing_behind(demo: Demo, number: signal.Signals):
    process = demo.start()
    assert process.stdout is not None
    for line in process.stdout:
        if "1 real process" in line:
            break
    assert len(demo.left_processes()) > 2
    process.send_signal(number)
    process.send_signal(number)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert "nothing is left running" in err


def test_a_folder_for_logs_that_cannot_be_is_named(demo: Demo, tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    process = demo.start("--only", "cpu", "--keep-logs", str(file))
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (1, f"hpad: the demo cannot run here: {file}: File exists\n")


def test_a_pace_that_cannot_be_is_refused(demo: Demo):
    process = demo.start("--seconds", "5")
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert "'5' is not a number of seconds from 40 to 3600" in err
