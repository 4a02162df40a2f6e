"""The controllers that are measured: hpad, and the HPA controller of Kubernetes."""

import contextlib
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tools.bench.cluster import processes
from tools.bench.cluster.scraped import Scrape, fetch
from tools.bench.cluster.worlds import ROOT, World

RECONCILES: Final = "horizontal_pod_autoscaler_controller_reconciliations_total"
DURATIONS: Final = "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds"
LATENESS: Final = "hpad_reconcile_lateness_seconds"
STALLS: Final = "hpad_event_loop_stall_seconds"
WAITS: Final = "workqueue_queue_duration_seconds"
QUEUE: Final = "horizontalpodautoscaler"
HPAD: Final = "hpad"
_SERIES: Final = (RECONCILES, DURATIONS, LATENESS, STALLS, WAITS)
_START_SECONDS: Final = 120.0


class Controller(NamedTuple):
    """A running controller: its pid, the URL of its series, and the monotonic time of its start."""

    name: str
    pid: int
    url: str
    started: float
    trust: ssl.SSLContext | None = None

    def scrape(self) -> Scrape:
        return Scrape.of(fetch(f"{self.url}/metrics", self.trust), _SERIES)


class Program(NamedTuple):
    """How hpad is run: its sync period in seconds, further flags, and how Python starts it."""

    period: float
    flags: Sequence[str] = ()
    start: Sequence[str] = ("-m", "hpad")


@contextlib.contextmanager
def hpad(folder: Path, world: World, program: Program) -> Iterator[Controller]:
    """Runs `hpad run` with defaults but for the period, the flags and what keeps runs apart."""
    own = ("--kubeconfig", str(world.kubeconfig), "--listen", "127.0.0.1:0", "--log-format", "json")
    options = ("--sync-period", f"{program.period:g}s", "--store", f"sqlite:{folder / 'history.db'}")
    command = [sys.executable, *program.start, "run", *own, *options, *program.flags]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HPAD_")}
    log, started = folder / "hpad.log", time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT, env=environment)
    try:
        yield Controller(HPAD, process.pid, _at_work(process, log), started)
    finally:
        processes.stop(process)


def _at_work(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Waits for the log line that names the URL. Raises RuntimeError with the end of the log if there is none."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                decoded = json.loads(line)
                if decoded["event"] == "at work":
                    return str(decoded["url"])
        time.sleep(0.1)
    raise RuntimeError(f"hpad is not at work:\n{log.read_text()[-2000:]}")
