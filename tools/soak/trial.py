"""Runs hpad as a process under load and faults, and checks its resources and its decisions."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tools.soak import watched
from tools.soak.slopes import Bound, Slope, fitted, leaks
from tools.soak.world import HASTE

BOUNDS = {
    "memory": Bound("MB", 5.0, "the peak of usage fragments the memory, and may still rise"),
    "blocks": Bound("blocks", 50_000, "blocks of Python's allocator: 50,000 are about 4 MB"),
    "files": Bound("files", 8.0, "some are open for a moment only; the limit is 1,024"),
    "sockets": Bound("sockets", 48.0, "32 to the API server and 16 to the source are kept for 75 s after a burst", 8),
    "tasks": Bound("tasks", 5.0, "the number of running tasks varies"),
    "threads": Bound("threads", 3.0, "thread pools grow to their sizes on first use"),
}
DELETED_HPA = {"memory": 0.0006, "blocks": 5.0}
"""What a deleted HPA needs until the end of a soak: its record, with a window of five minutes, is kept for an hour.
Other bounded caches are full, or as large as their contents, when the measurement begins."""
NEWS_SECONDS = 60.0
"""How long an HPA may be unknown to hpad: a watch that failed several times is retried after up to 45 s."""
BRIEF_SECONDS = 600.0
"""In a shorter run thread pools may still grow, and a fault may last longer than a block of `slopes`."""
WARM_UP = 1 / 3
"""The part of the run that is not measured: caches fill, pools grow, and each fault happens once."""
POOL = float(min(32, (os.cpu_count() or 1) + 4))
"""The number of threads in a loop's default executor (concurrent.futures.ThreadPoolExecutor)."""
_END_SECONDS = 60.0
_START_SECONDS = 180.0


class Plan(NamedTuple):
    """`seconds` with faults, then three periods without; `period` is hpad's sync period. All times are in seconds."""

    seconds: float = 1800.0
    hpas: int = 1000
    period: float = 15.0
    sample: float = 5.0
    reload: float = 90.0
    seed: int = 1

    @property
    def warm_up(self) -> float:
        return WARM_UP * self.seconds

    @property
    def patience(self) -> float:
        """How long a known HPA may be without a decision: three turns and the timeout of a request."""
        return 3 * self.period + 15.0


def bounds(plan: Plan, deleted: float) -> dict[str, Bound]:
    """Returns BOUNDS plus the needs of the HPAs `deleted` during the measurement.

    A brief plan also allows for a growing thread pool and for HPAs that wait for a source.
    """
    found = dict(BOUNDS)
    for name, each in DELETED_HPA.items():
        bound = BOUNDS[name]
        why = f"{bound.why}, and the state of {deleted:.0f} deleted HPAs is kept"
        found[name] = bound._replace(growth=bound.growth + deleted * each, why=why)
    if plan.seconds < BRIEF_SECONDS:
        found["tasks"] = Bound("tasks", float(plan.hpas), "each HPA may wait for the source")
        found["threads"] = Bound("threads", POOL, BOUNDS["threads"].why)
    return found


class Verdict(NamedTuple):
    """The faults, one sentence each, and the lines of the report."""

    faults: list[str]
    report: list[str]


def run(plan: Plan, folder: Path, say: Callable[[str], None] = lambda line: None) -> Verdict:
    """Runs a plan; the folder keeps logs and settings."""
    with world(plan, folder) as where, daemon(plan, folder, where["server"], where["source"]) as hpad:
        trial = _Trial(plan, hpad, where["source"], say)
        trial.weather()
        trial.calm()
        trial.end()
        return trial.verdict()


@contextlib.contextmanager
def world(plan: Plan, folder: Path) -> Iterator[dict[str, str]]:
    """Starts the process with the cluster; yields the URLs of its API server and its metric source."""
    arguments = (plan.hpas, plan.period, plan.seed, plan.warm_up)
    command = [sys.executable, "-m", "tools.soak.world", *map(str, arguments)]
    with (folder / "world.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=_environ())
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.stdout.close()
            _ended(process)


class Daemon(NamedTuple):
    process: "subprocess.Popen[bytes]"
    url: str
    settings: Path
    log: Path

    def reload(self, number: int) -> None:
        """Changes a setting between two values, and sends SIGHUP."""
        settings = yaml.safe_load(self.settings.read_text())
        settings["sources"]["numbers"]["timeout"] = ("5s", "6s")[number % 2]
        self.settings.write_text(yaml.safe_dump(settings))
        self.process.send_signal(signal.SIGHUP)


@contextlib.contextmanager
def daemon(plan: Plan, folder: Path, server: str, source: str) -> Iterator[Daemon]:
    """Starts `hpad run`, and stops it with the context."""
    settings, log = _settings(plan, folder, server, source), folder / "hpad.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hpad", "run", "--config", str(settings)], stderr=out, env=_environ()
        )
        try:
            yield Daemon(process, _url(process, log), settings, log)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            _ended(process)


def _environ() -> dict[str, str]:
    root = Path(__file__).resolve().parents[2]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root), str(root / "tests"), os.environ.get("PYTHONPATH", "")]).rstrip(
            os.pathsep
        ),
    }


def _ended(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _settings(plan: Plan, folder: Path, server: str, source: str) -> Path:
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    cluster = {"name": "x", "cluster": {"server": server}}
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [context], "clusters": [cluster],
        "users": [{"name": "x", "user": {}}],
    }  # fmt: skip
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    numbers = {
        "adapter": "http-json",
        "metrics": {"load": {"url": f"{source}/load", "path": "load", "params": ["app"]}},
        "limits": {"rate": 100},
        "timeout": "5s",
    }
    content = {
        "kubeconfig": str(folder / "kubeconfig"),
        "listen": "127.0.0.1:0",
        "sync_period": f"{plan.period:g}s",
        "store": f"sqlite:{folder / 'history.db'}",
        "log_format": "json",
        "cpu_initialization_period": "0s",
        "initial_readiness_delay": "0s",
        "sources": {"numbers": numbers},
    }
    path = folder / "hpad.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def _url(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Waits until the daemon has started; returns its URL. Raises RuntimeError with its log."""
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        *whole, _ = log.read_text().split("\n")
        for line in whole:
            decoded = json.loads(line)
            if decoded["event"] == "at work":
                return str(decoded["url"])
        time.sleep(0.05)
    raise RuntimeError(f"hpad has not started:\n{log.read_text()[-4000:]}")


class _Trial:
    """Samples the daemon, and collects faults."""

    def __init__(self, plan: Plan, daemon: Daemon, source: str, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._daemon = daemon
        self._source = source
        self._say = say
        self._started = time.monotonic()
        self._points: dict[str, list[tuple[float, float]]] = {}
        self._faults: list[str] = []
        self._late: dict[str, str] = {}
        self._gone: dict[str, float] = {}
        self._deleted = 0
        self._state: dict[str, Any] = {}
        self._series: watched.Series = {}
        self._reloads = 0
        self._cpu = 0.0

    def weather(self) -> None:
        """Samples, checks that each HPA is reconciled, and reloads settings, until the end of the time."""
        due = reload = checked = self._started
        while (now := time.monotonic()) < self._started + self._plan.seconds and not self._is_dead():
            if now - reload >= self._plan.reload / (HASTE if self._is_warming_up() else 1):
                reload, self._reloads = now, self._reloads + 1
                self._daemon.reload(self._reloads)
            self._sample()
            if now - checked >= self._plan.period:
                checked = now
                try:
                    self._check_all_reconciled()
                except OSError as error:  # a process got no CPU time; the samples so far are still useful
                    self._faults.append(f"{now - self._started:.0f}s: the check failed: {error}")
            due += self._plan.sample
            time.sleep(max(0.0, due - time.monotonic()))
        self._cpu = watched.cpu_seconds(self._daemon.process.pid) / (time.monotonic() - self._started)

    def calm(self) -> None:
        """Ends the faults; within three periods each target must have the right count."""
        watched.fetched(f"{self._source}/calm", "POST")
        until = time.monotonic() + 3 * self._plan.period + NEWS_SECONDS
        while time.monotonic() < until and not self._is_dead():
            time.sleep(min(2.0, self._plan.period))
            self._state = json.loads(watched.fetched(f"{self._source}/state"))
            if not self._state["unsettled"]:
                break
        self._faults += [f"after the end of the faults: {each}" for each in self._state["unsettled"][:10]]
        self._faults += [f"wrong scale: {each}" for each in self._state["wrong"][:10]]
        self._faults += [f"the soak's own cluster failed: {each}" for each in self._state["failed"]]
        time.sleep(2 * self._plan.period)
        self._check_all_reconciled(patience=2 * self._plan.period + 2)
        self._series = watched.series(self._daemon.url)

    def end(self) -> None:
        """Stops the daemon, which must end in good order and must not have logged a bug."""
        self._daemon.process.send_signal(signal.SIGTERM)
        _ended(self._daemon.process)
        if self._daemon.process.returncode:
            self._faults.append(f"hpad ended with {self._daemon.process.returncode}")
        for line in self._daemon.log.read_text(errors="replace").splitlines():
            if "bug" in line.partition('"event":')[2][:12] or "Traceback" in line or not line.startswith("{"):
                self._faults.append(f"in the log: {line[:1000]}")

    def verdict(self) -> Verdict:
        judged = {name: self._warm(points) for name, points in self._points.items()}
        faults = [*self._faults, *self._late.values()]
        if all(len(points) >= 3 for points in judged.values()):
            deleted = self._state["counts"]["deleted"] - self._deleted
            faults += leaks(judged, bounds(self._plan, deleted))
        if watched.total(self._series, watched.BUGS):
            faults.append("hpad_bugs_total is not zero")
        lines = [*self._story(), *(_row(name, points) for name, points in judged.items())]
        return Verdict(faults, lines)

    def _story(self) -> list[str]:
        counts, faults, found = self._state["counts"], self._state["faults"], self._series
        happened = ", ".join(f"{count} {what}" for what, count in sorted(faults.items()))
        late = [watched.quantile(found, watched.LATENESS, share) for share in (0.5, 0.99, 1.0)]
        return [
            f"{self._plan.hpas} HPAs, period {self._plan.period:g}s, {self._plan.seconds / 60:g} min, "
            f"CPU {self._cpu:.0%} of a core, {self._reloads} reloads",
            f"{counts['made']} HPAs made, {counts['deleted']} deleted, {counts['changed']} changed; "
            f"{watched.total(found, watched.RECONCILES):.0f} reconciles, {counts['scales']} scales, "
            f"{len(self._state['wrong'])} of them wrong",
            f"{counts['requests']} requests to the source, {counts['spoilt']} with a bad answer; faults: {happened}",
            f"lateness: half below {late[0]:g}s, 99 % below {late[1]:g}s, all below {late[2]:g}s; "
            f"{watched.total(found, watched.STALLS + '_count'):.0f} stalls of the event loop",
        ]

    def _warm(self, points: list[tuple[float, float]]) -> list[tuple[float, float]]:
        first = self._started + self._plan.warm_up
        return [point for point in points if point[0] >= first]

    def _is_warming_up(self) -> bool:
        return time.monotonic() < self._started + self._plan.warm_up

    def _is_dead(self) -> bool:
        return self._daemon.process.poll() is not None

    def _sample(self) -> None:
        found = watched.of_process(self._daemon.process.pid)
        try:
            found |= watched.of_series(watched.series(self._daemon.url))
        except OSError as error:
            self._faults.append(f"no metrics: {error}")
        now = time.monotonic()
        for name, value in found.items():
            self._points.setdefault(name, []).append((now, value))
        self._say(f"{now - self._started:6.0f}s " + "  ".join(f"{name} {value:.1f}" for name, value in found.items()))

    def _check_all_reconciled(self, patience: float | None = None) -> None:
        """Records each HPA that hpad has not reconciled for `patience` seconds, and each deleted one it still has."""
        patience = self._plan.patience if patience is None else patience
        seen = json.loads(watched.fetched(f"{self._source}/state"))
        before = seen["ages"]
        if self._is_warming_up():
            self._deleted = seen["counts"]["deleted"]
        decided = watched.decided(self._daemon.url, datetime.now(UTC))
        after = json.loads(watched.fetched(f"{self._source}/state"))["ages"]
        ages = {name: age for name, age in before.items() if name in after}
        for name, age in ages.items():
            known = decided.get(name, math.inf)
            if (known if known < age else age - NEWS_SECONDS) > patience:
                self._late[name] = f"{name}, which is {age:.0f}s old, was not reconciled for {known:.0f}s"
        now, gone = time.monotonic(), decided.keys() - before.keys() - after.keys()
        self._gone = {name: self._gone.get(name, now) for name in gone}
        for name, since in self._gone.items():
            if now - since > patience + NEWS_SECONDS:
                self._late[name] = f"{name} was deleted {now - since:.0f}s ago, and hpad still has it"


def _row(name: str, points: list[tuple[float, float]]) -> str:
    """Formats the slopes of the whole time and of its second half.

    A leak has the same slope in both; a cache that fills and fragmented memory have a smaller one in the second half.
    """
    later = points[len(points) // 2 :]
    if len(later) < 3:
        return f"  {name:24} too few samples"
    unit, _, _, blocks = BOUNDS.get(name, Bound("entries", 0.0, ""))
    slope: Slope = fitted(points, blocks)
    half = fitted(later, blocks // 2)
    flat = "rises" if slope.is_up else "flat"
    return (
        f"  {name:24} {slope.floor:12.1f} at least, {slope.per_hour:+10.2f} ±{slope.margin:.2f} {unit}/h ({flat}), "
        f"in the second half {half.per_hour:+.2f} ±{half.margin:.2f}"
    )
