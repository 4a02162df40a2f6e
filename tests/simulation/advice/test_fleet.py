"""Many HPAs in worker processes: in order, without what takes memory, and with those that fail."""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import advice_pasts

from hpad.engine.view import Tunables
from hpad.simulation.advice.assess import assess, assessed, spread
from hpad.simulation.advice.assessment import AdviceOptions, Assessment, NotAssessed
from hpad.simulation.advice.past import HpaPast

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
OPTIONS = AdviceOptions(Tunables())
NAMES = [f"web-{number}" for number in range(12)]
PATIENCE, LONG = 240.0, 600.0
"""Seconds: in which a busy machine ends a program, and of work that would hold it up for longer."""


def past(name: str) -> HpaPast:
    hpa = advice_pasts.spec(CPU, name=name)
    return advice_pasts.painted(hpa, [2.0] * 120, {"cpu": [40.0] * 120})


def one(past: HpaPast, options: AdviceOptions) -> Assessment:
    if past.hpa.key.name == "web-3":
        raise ZeroDivisionError("division by zero")
    return assess(past, options)


@pytest.mark.parametrize("workers", [0, 2])
def test_one_that_fails_leaves_the_others(workers: int) -> None:
    found = list(assessed(map(past, NAMES), OPTIONS, workers, one))
    assert [each.key.name for each in found] == NAMES
    failed = found.pop(3)
    assert failed == NotAssessed(past("web-3").hpa.key, "could not be assessed: ZeroDivisionError: division by zero")
    for each in found:
        assert isinstance(each, Assessment)
        assert each.chart is not None


def test_few_pasts_are_in_memory() -> None:
    """With two workers, at most six are read ahead of what was assessed."""
    read: list[str] = []

    def pasts() -> Iterator[HpaPast]:
        for name in NAMES:
            read.append(name)
            yield past(name)

    for done, _ in enumerate(assessed(pasts(), OPTIONS, 2)):
        assert len(read) - done <= 6


def test_an_error_of_reading_ends_it() -> None:
    def pasts() -> Iterator[HpaPast]:
        yield past("web-0")
        raise ValueError("the server is gone")

    with pytest.raises(ValueError, match="the server is gone"):
        list(assessed(pasts(), OPTIONS, 2))


def slow(number: int) -> int:
    """Returns its process for the first number; is at the others for a long time."""
    if number:
        time.sleep(LONG)
    return os.getpid()


def test_workers_end_at_once_if_the_caller_stops() -> None:
    found = spread(range(6), slow, 2)
    worker = next(found)
    assert worker != os.getpid()
    began = time.monotonic()
    found.close()
    assert time.monotonic() - began < PATIENCE
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


@pytest.fixture
def start(tmp_path: Path) -> Callable[[], subprocess.Popen[str]]:
    """Starts a program that is `interrupted`, with the modules of `tmp_path`."""
    code = "import sys; from hpad.cli import program; from test_fleet import interrupted; "
    code += "sys.exit(program.run('hpad', interrupted))"
    folders = (tmp_path, Path(__file__).parent, Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    pipe = subprocess.PIPE
    return lambda: subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def test_ctrl_c_ends_without_a_traceback(start: Callable[[], subprocess.Popen[str]]) -> None:
    """All processes of a terminal get the signal."""
    process = start()
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (130, "")


def test_ctrl_c_at_the_start_of_the_workers_does_too(
    tmp_path: Path, start: Callable[[], subprocess.Popen[str]]
) -> None:
    """Python imports `sitecustomize` at each start: that of the fork server interrupts all processes."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "if any('forkserver' in each for each in sys.orig_argv):\n"
        "    os.killpg(0, signal.SIGINT)\n"
    )
    process = start()
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (130, "")


def interrupted() -> argparse.Namespace:
    """Says when workers are busy, and waits for them. Another thread runs, as do those that read the pasts."""
    threading.Thread(target=time.sleep, args=(LONG,), daemon=True).start()
    for _ in spread(range(6), slow, 2):
        print("working", flush=True)
    return argparse.Namespace()
