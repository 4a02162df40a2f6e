"""Benchmark of tracing: `python tools/bench/tracing.py` prints its cost in CPU time and memory.

A process with the embedded API server has 5,000 HPAs with one CPU metric and 4 pods each; the usage of all pods moves
in each period, so that nearly every status changes. Two such worlds run at the same time, so that other work on the
machine falls upon both: in one `hpad run` works as it is, in the other without the decision log, where no reconcile,
trace or past decision is kept. CPU time and reconciles are counted in steady windows after a warm-up. `--short` has 10
HPAs and short windows.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import yaml

from hpad.daemon.process import loop_factory
from hpad.lab.cluster import Cluster, resources

SHORT = "--short" in sys.argv[1:]
HPAS, PERIOD, WARM, WINDOW, ROUNDS = (10, 1.0, 2.0, 2.0, 1) if SHORT else (5_000, 30.0, 75.0, 60.0, 4)
PODS, PER_NAMESPACE, REQUEST = 4, 50, 200
UNTRACED = """
import sys
from hpad.cli import main
from hpad.records.history import DecisionHistory
DecisionHistory.add = lambda self, done: None
sys.exit(main())
"""
"""hpad without tracing."""
CHANGING = 20
"""One HPA in this many has a load that makes it scale every few periods; the others stay within the tolerance."""


class Running(NamedTuple):
    """A running hpad: its process and its URL."""

    pid: int
    url: str


class Counts(NamedTuple):
    """CPU seconds and reconciles since the start of hpad, and its resident bytes."""

    cpu: float
    reconciles: float
    resident: float


class Figures(NamedTuple):
    """CPU microseconds per reconcile, reconciles in the window, and resident bytes at its end."""

    cpu: float
    reconciles: float
    resident: float


def main() -> None:
    """Measures both variants at the same time, each in a world of its own, and prints the difference."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        processes = {on: stack.enter_context(started(Path(name, "on" if on else "off"), on)) for on in (False, True)}
        time.sleep(WARM)
        found: dict[bool, list[Figures]] = {False: [], True: []}
        for _ in range(ROUNDS):
            before = {on: counts(process) for on, process in processes.items()}
            time.sleep(WINDOW)
            for on, process in processes.items():
                found[on].append(figures(before[on], counts(process)))
            print("; ".join(text(*(found[on][-1] for on in (False, True)))), file=sys.stderr)
    print("tracing: " + "; ".join(text(*(mean(found[on]) for on in (False, True)))))


def text(off: Figures, on: Figures) -> Iterator[str]:
    """Yields the parts of the comparison."""
    more = on.cpu / off.cpu - 1
    yield f"{off.cpu:,.0f} µs of CPU per reconcile without tracing, {on.cpu:,.0f} µs with it ({more:+.1%})"
    memory = f"{off.resident / 2**20:.0f} and {on.resident / 2**20:.0f} MiB resident"
    yield f"{memory} ({(on.resident - off.resident) / 2**20:+.1f} MiB) at {HPAS:,} HPAs"
    yield f"{off.reconciles:,.0f} and {on.reconciles:,.0f} reconciles in {WINDOW:g} s"


def mean(found: Sequence[Figures]) -> Figures:
    return Figures(*(fmean(each) for each in zip(*found, strict=True)))


def figures(before: Counts, now: Counts) -> Figures:
    reconciles = now.reconciles - before.reconciles
    return Figures((now.cpu - before.cpu) / max(reconciles, 1) * 1e6, reconciles, now.resident)


@contextlib.contextmanager
def started(folder: Path, on: bool) -> Iterator[Running]:
    """Starts a world and hpad in it; yields hpad once it is at work."""
    folder.mkdir()
    with world(folder) as server, hpad(folder, server, on) as (process, url):
        yield Running(process.pid, url)


def counts(running: Running) -> Counts:
    return Counts(cpu_seconds(running.pid), counted(running.url), resident(running.pid))


@contextlib.contextmanager
def world(folder: Path) -> Iterator[str]:
    """Starts the process with the cluster; yields the URL of its API server."""
    command = [sys.executable, "-m", "tools.bench.tracing", "--world", *sys.argv[1:]]
    with (folder / "world.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(30)


@contextlib.contextmanager
def hpad(folder: Path, server: str, on: bool) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """Starts `hpad run`; yields its process and its URL once it is at work."""
    settings, log = folder / "hpad.yaml", folder / "hpad.log"
    settings.write_text(yaml.safe_dump(configuration(folder, server)))
    program = ("-m", "hpad") if on else ("-c", UNTRACED)
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, *program, "run", "--config", str(settings)], stderr=out)
    try:
        yield process, at_work(process, log)
    finally:
        process.terminate()
        process.wait(30)


def configuration(folder: Path, server: str) -> dict[str, Any]:
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": server}}], "users": [{"name": "x", "user": {}}],
    }  # fmt: skip
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    return {
        "kubeconfig": str(folder / "kubeconfig"),
        "listen": "127.0.0.1:0",
        "sync_period": f"{PERIOD:g}s",
        "log_format": "json",
        "store": f"sqlite:{folder / 'history.db'}",
    }


def at_work(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Waits for the log line that names the URL. Raises RuntimeError with the log if hpad ends."""
    while process.poll() is None:
        for line in log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                decoded = json.loads(line)
                if decoded["event"] == "at work":
                    return str(decoded["url"])
        time.sleep(0.1)
    raise RuntimeError(log.read_text())


def cpu_seconds(pid: int) -> float:
    """Returns user and system time of a process (proc_pid_stat(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def counted(url: str) -> float:
    """Returns the number of reconciles so far."""
    with urllib.request.urlopen(f"{url}/metrics") as response:
        text = response.read().decode()
    pattern = r"^horizontal_pod_autoscaler_controller_reconciliations_total\{.*\} (.*)$"
    return sum(map(float, re.findall(pattern, text, re.MULTILINE)))


async def serve() -> None:
    """Runs the cluster until standard input ends; prints the URL of its API server."""
    rng = random.Random(1)
    async with Cluster(controllers=False, kubelet=False, history_limit=5_000) as cluster:
        for number in range(HPAS):
            fill(cluster, number)
        print(json.dumps(cluster.url), flush=True)
        moving = asyncio.create_task(move(cluster, rng))
        await asyncio.to_thread(sys.stdin.read)
        moving.cancel()


def fill(cluster: Cluster, number: int) -> None:
    """Creates one HPA with its Deployment and its pods."""
    namespace, name = f"ns{number // PER_NAMESPACE}", f"web-{number}"
    if number % PER_NAMESPACE == 0:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    head = {"name": name, "namespace": namespace}
    container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": f"{REQUEST}m"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": PODS, "selector": {"matchLabels": {"app": name}}, "template": template}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": head, "spec": spec})
    target = {"kind": "Deployment", "name": name, "apiVersion": "apps/v1"}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    hpa = {"scaleTargetRef": target, "maxReplicas": 10, "metrics": [{"type": "Resource", "resource": cpu}]}
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    cluster.apply({**kind, "metadata": head, "spec": hpa})
    since = "2026-01-01T00:00:00Z"
    for index in range(PODS):
        labelled = {"name": f"{name}-{index}", "namespace": namespace, "labels": {"app": name}}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": labelled, "spec": {"containers": [container]}})
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        status = {"phase": "Running", "startTime": since, "conditions": [ready]}
        cluster.set_pod_status(labelled["name"], status, namespace)


async def move(cluster: Cluster, rng: random.Random) -> None:
    """Changes the usage of all pods every half period."""
    while True:
        for number in range(HPAS):
            base = rng.choice((40, 100, 180)) if number % CHANGING == 0 else 100
            for index in range(PODS):
                usage = {"app": {"cpu": f"{base + rng.randint(-4, 4)}m"}}
                cluster.usage.set(f"ns{number // PER_NAMESPACE}/web-{number}-{index}", usage)
        for event in cluster.store.objects(resources.EVENTS)[:-HPAS]:
            meta = event["metadata"]
            cluster.store.remove(resources.EVENTS, meta["namespace"], meta["name"])
        cluster.log.clear()
        await asyncio.sleep(PERIOD / 2)


if __name__ == "__main__":
    if "--world" in sys.argv:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve())
    else:
        main()
