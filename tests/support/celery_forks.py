"""Workers of Celery as processes forked from one that has imported Celery, which takes most of a worker's start."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
_PRELOADED = (
    "celery.apps.worker", "celery.bin.celery", "celery.concurrency.thread", "celery.worker.consumer",
    "kombu.transport.pyamqp", "kombu.transport.redis",
)  # fmt: skip


class Forks:
    """The process that forks."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "support.celery_forks"]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Starts `celery` with these arguments and returns the id of its process, which is not a child. Blocks."""
        order = json.dumps({"arguments": arguments, "environment": dict(environment), "log": str(log)})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{order}\n".encode())
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """Ends the process; the workers must have ended."""
        self._process.communicate(timeout=60)


def main() -> None:
    """Forks a worker per line of standard input, and writes its process id."""
    for module in _PRELOADED:
        __import__(module)
    signal.signal(signal.SIGCHLD, _reap)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(json.loads(line))
        print(pid, flush=True)


def _reap(*_: Any) -> None:
    """Waits for the workers that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _become(order: dict[str, Any]) -> None:
    """Runs `celery`, and ends the process."""
    from celery.__main__ import main as celery

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with Path(order["log"]).open("wb") as log, Path(os.devnull).open("rb") as nothing:
        for stream, number in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(stream.fileno(), number)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["celery", *order["arguments"]]
    try:
        celery()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
