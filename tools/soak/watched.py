"""Observes a running hpad from outside, through /proc, /metrics and /api/v1/hpas."""

import contextlib
import json
import math
import os
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

_PATIENCE = 60.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
TASKS, BLOCKS = "hpad_tasks", "hpad_allocated_blocks"
LATENESS, STALLS = "hpad_reconcile_lateness_seconds", "hpad_event_loop_stall_seconds"
BUGS, RECONCILES = "hpad_bugs_total", "horizontal_pod_autoscaler_controller_reconciliations_total"
Series = dict[str, list[tuple[dict[str, str], float]]]


def of_process(pid: int) -> dict[str, float]:
    """Returns megabytes of memory, and the numbers of open files, sockets and threads."""
    root = Path("/proc") / str(pid)
    opened = _opened(root / "fd")
    sockets = sum(name.startswith("socket:") for name in opened)
    resident = int((root / "statm").read_text().split()[1])
    status = dict(line.split(":", 1) for line in (root / "status").read_text().splitlines())
    return {
        "memory": resident * _PAGE / 2**20,
        "files": float(len(opened) - sockets),
        "sockets": float(sockets),
        "threads": float(status["Threads"]),
    }


def _opened(folder: Path) -> list[str]:
    """Returns the targets of the open file descriptors (proc(5)); some may be closed meanwhile."""
    found = []
    for each in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(each))
    return found


def cpu_seconds(pid: int) -> float:
    fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fetched(url: str, method: str = "GET") -> bytes:
    request = urllib.request.Request(url, method=method)
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        body: bytes = answer.read()
    return body


def series(url: str) -> Series:
    """Returns the samples by name, with their labels."""
    found: Series = {}
    for family in text_string_to_metric_families(fetched(f"{url}/metrics").decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def total(found: Series, name: str) -> float:
    return sum(value for _, value in found[name])


def of_series(found: Series) -> dict[str, float]:
    """Returns the number of tasks, and of memory blocks in use."""
    return {"tasks": total(found, TASKS), "blocks": total(found, BLOCKS)}


def quantile(found: Series, histogram: str, share: float) -> float:
    """Returns the upper bound of the bucket that contains a quantile of a histogram; 0 without observations."""
    buckets = sorted((float(labels["le"]), count) for labels, count in found[f"{histogram}_bucket"])
    count = buckets[-1][1]
    return next((edge for edge, below in buckets if count and below >= share * count), math.inf) if count else 0.0


def decided(url: str, now: datetime) -> dict[str, float]:
    """Maps each HPA to the seconds since its last decision, infinity before the first one."""
    rows: list[dict[str, Any]] = json.loads(fetched(f"{url}/api/v1/hpas?limit=5000"))["items"]
    found = {}
    for row in rows:
        last = row.get("lastDecision")
        age = math.inf if last is None else (now - datetime.fromisoformat(last["time"])).total_seconds()
        found[f"{row['namespace']}/{row['name']}"] = age
    return found
