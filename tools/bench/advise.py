"""Benchmark of `hpad advise`: `python -m tools.bench.advise` advises on a week of HPAs in a Prometheus of its own.

Prints wall time, CPU time and peak memory of all processes of hpad and of Prometheus, and what they read. Needs
Debian's prometheus. To write the past of 500 HPAs takes some ten minutes and is not measured; `--keep FOLDER` keeps it
for the next run. `--short` has 2 HPAs and an hour.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from hpad.lab.servers.prometheus import ABSENT, PrometheusServer
from tools.bench.advised import fleet, server
from tools.bench.cluster.processes import cpu_seconds, peak


class Span(NamedTuple):
    """The time that the past covers: its begin in seconds since 1970, and the number of samples of a series."""

    begin: int
    samples: int

    @property
    def end(self) -> int:
        return self.begin + (self.samples - 1) * fleet.INTERVAL


class Run(NamedTuple):
    """What a run of `hpad advise` took: seconds of wall and CPU, bytes at the peak, and what it printed."""

    wall: float
    cpu: float
    memory: float
    answer: dict[str, Any]


def main() -> None:
    options = _options()
    with contextlib.ExitStack() as stack:
        if options.keep is None:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hpad-bench-advise-")))
        else:
            home = options.keep
        span = _prepared(home, options)
        process, url = stack.enter_context(server.running(home / "data"))
        before = cpu_seconds(process.pid)
        run = _advise(home, url, span, options.advise)
        prometheus = cpu_seconds(process.pid) - before
        (home / "answer.json").write_text(json.dumps(run.answer), encoding="utf-8")
        print(
            f"advise: {options.hpas} HPAs, {span.samples:,} samples of {fleet.INTERVAL} s each: {run.wall:.0f} s; "
            f"hpad {run.cpu:.1f} s of CPU, {run.memory / 2**20:.0f} MiB at the peak of all its processes; "
            f"prometheus {prometheus:.1f} s of CPU, {peak(process.pid) / 2**20:.0f} MiB, "
            f"{run.answer['summary']['samples'] / 1e6:.2f} million values read"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hpas", type=int, default=50)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the past here, and use it if it is there")
    parser.add_argument("--short", action="store_true", help="2 HPAs and an hour")
    parser.add_argument("advise", nargs="*", help="further arguments of hpad advise, after --")
    options = parser.parse_args()
    if options.short:
        options.hpas, options.days = 2, 1 / 24
    return options


def _prepared(home: Path, options: argparse.Namespace) -> Span:
    """Writes the past and the manifests, unless they are there."""
    known = home / "span.json"
    if known.exists():
        return Span(*json.loads(known.read_text(encoding="utf-8")))
    samples = round(options.days * 86_400 / fleet.INTERVAL)
    end = int(time.time()) // fleet.INTERVAL * fleet.INTERVAL
    span = Span(end - (samples - 1) * fleet.INTERVAL, samples)
    (home / "data").mkdir(parents=True)
    pasts = [fleet.past(number, samples, span.begin) for number in range(options.hpas)]
    (home / "hpas.yaml").write_text(yaml.safe_dump_all(each.hpa for each in pasts), encoding="utf-8")
    server.load(pasts, span.begin, samples, home / "data")
    if not options.short:
        server.compact(home / "data")
    known.write_text(json.dumps(span), encoding="utf-8")
    return span


def _advise(home: Path, url: str, span: Span, further: list[str]) -> Run:
    times = [f"{datetime.fromtimestamp(each, UTC):%Y-%m-%dT%H:%M:%SZ}" for each in (span.begin, span.end)]
    command = [sys.executable, "-m", "hpad", "advise", "--prometheus", url, "-f", str(home / "hpas.yaml")]
    command += ["--from", times[0], "--to", times[1], "-o", "json", *further]
    started = time.perf_counter()
    with (home / "answer.out").open("wb") as out, (home / "errors.out").open("wb") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        with _watched(process.pid) as seen:
            process.wait()
    wall = time.perf_counter() - started
    if process.returncode:
        raise RuntimeError((home / "errors.out").read_text(encoding="utf-8")[-3000:])
    answer = json.loads((home / "answer.out").read_text(encoding="utf-8"))
    return Run(wall, sum(seen.cpu.values()), seen.memory, answer)


class _Seen:
    """What was seen of a process and its descendants: the highest memory in bytes, and CPU seconds by process."""

    def __init__(self) -> None:
        self.memory = 0.0
        self.cpu: dict[int, float] = {}

    def look(self, pid: int) -> None:
        pids = _tree(pid)
        self.memory = max(self.memory, sum(map(_proportional, pids)))
        for each in pids:
            with contextlib.suppress(OSError):
                self.cpu[each] = _own_cpu(each)


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[_Seen]:
    """Looks at a process and its descendants every quarter of a second; yields what it sees.

    What a process does after the last look is not seen. Workers are no children of hpad's own that it waits for.
    """
    seen, ended = _Seen(), threading.Event()

    def watch() -> None:
        while not ended.wait(0.25):
            seen.look(pid)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _tree(pid: int) -> list[int]:
    """Returns a process and its descendants; those of a fork server are among them."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _tree(int(child))
    return found


def _own_cpu(pid: int) -> float:
    """Returns user and system time of a process without its children (proc_pid_stat(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _proportional(pid: int) -> float:
    """Returns the memory of a process in bytes, with its part of shared pages (proc_pid_smaps(5): Pss)."""
    with contextlib.suppress(OSError, IndexError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(text.split("\nPss:")[1].split()[0]) * 1024.0
    return 0.0


if __name__ == "__main__":
    if PrometheusServer.installed():
        main()
    else:
        print(f"advise: skipped: {ABSENT}")
