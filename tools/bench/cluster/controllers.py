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

from hpad.lab.servers.ports import free
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
ORIGINAL: Final = "kube-controller-manager"
_SERIES: Final = (RECONCILES, DURATIONS, LATENESS, STALLS, WAITS)
_START_SECONDS: Final = 120.0


class Controller(NamedTuple):
    """A running controller: its pid, the URL of its series, the monotonic time of its start, and its log.

    `python` is the interpreter whose pace is measured (`pace`): that of hpad.
    """

    name: str
    pid: int
    url: str
    started: float
    log: Path
    trust: ssl.SSLContext | None = None
    python: str = sys.executable

    def scrape(self) -> Scrape:
        return Scrape.of(fetch(f"{self.url}/metrics", self.trust), _SERIES)


class Program(NamedTuple):
    """How a controller is run.

    `period` is the sync period in seconds. For hpad: further `flags`, and kind and file of a profile (see `profiled`);
    for the original: the number of its workers, `syncs`. `python` is the interpreter that runs hpad.
    """

    period: float
    flags: Sequence[str] = ()
    profile: tuple[str, Path] | None = None
    syncs: int = 5
    python: str = sys.executable

    @property
    def start(self) -> Sequence[str]:
        """Returns how Python starts it."""
        if self.profile is None:
            return ("-m", "hpad")
        kind, file = self.profile
        return ("-m", "tools.bench.cluster.profiled", kind, str(file.absolute()))


@contextlib.contextmanager
def hpad(folder: Path, world: World, program: Program) -> Iterator[Controller]:
    """Runs `hpad run` with defaults but for the period, the flags and what keeps runs apart."""
    own = ("--kubeconfig", str(world.kubeconfig), "--listen", "127.0.0.1:0", "--log-format", "json")
    options = ("--sync-period", f"{program.period:g}s", "--store", f"sqlite:{folder / 'history.db'}")
    command = [program.python, *program.start, "run", *own, *options, *program.flags]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HPAD_")}
    log, started = folder / "hpad.log", time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT, env=environment)
    try:
        yield Controller(HPAD, process.pid, _at_work(process, log), started, log, python=program.python)
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


@contextlib.contextmanager
def original(folder: Path, world: World, program: Program) -> Iterator[Controller]:
    """Runs the HPA controller of kube-controller-manager alone, without limits of its requests."""
    (port,) = free(1)
    flags = (
        f"--kubeconfig={world.kubeconfig}",
        "--leader-elect=false",
        "--controllers=horizontal-pod-autoscaler-controller",
        f"--horizontal-pod-autoscaler-sync-period={program.period:g}s",
        f"--concurrent-horizontal-pod-autoscaler-syncs={program.syncs}",
        "--kube-api-qps=10000",
        "--kube-api-burst=10000",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
    )
    log, started = folder / "kube-controller-manager.log", time.monotonic()
    with log.open("wb") as output:
        command = [str(Path(os.environ["KUBEBUILDER_ASSETS"], ORIGINAL)), *flags]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        url = f"https://127.0.0.1:{port}"
        controller = Controller(ORIGINAL, process.pid, url, started, log, _unverified(), program.python)
        _wait_for(controller, process, log)
        yield controller
    finally:
        processes.stop(process)


def _wait_for(controller: Controller, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Waits until the port answers. Raises RuntimeError with the end of the log if it does not."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            fetch(f"{controller.url}/healthz", controller.trust)
            return
        time.sleep(0.1)
    raise RuntimeError(f"{controller.name} is not at work:\n{log.read_text()[-2000:]}")


def _unverified() -> ssl.SSLContext:
    """Returns the context for a certificate that the controller signs itself."""
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


def started(name: str, folder: Path, world: World, program: Program) -> contextlib.AbstractContextManager[Controller]:
    """Starts a controller by its name."""
    world.mark()
    return hpad(folder, world, program) if name == HPAD else original(folder, world, program)
