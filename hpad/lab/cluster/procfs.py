"""Reads /proc (Linux only): the processes of a container, and their usage.

All functions read files: call them in a thread.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MARKER = "HPAD_CONTAINER"
"""Environment variable by which a container's processes are found after they left its session."""

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """A line of /proc/PID/stat. `cpu` is in seconds and includes waited-for children; `rss` is in bytes."""

    pid: int
    parent: int
    group: int
    session: int
    cpu: float
    rss: int


def table() -> dict[int, Process]:
    """Returns all processes of the machine by pid."""
    found = (_read(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {process.pid: process for process in found if process is not None}


def _read(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None  # the process has ended meanwhile
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may contain blanks and brackets
    return Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        cpu=sum(map(int, fields[11:15])) / _TICKS,
        rss=int(fields[21]) * _PAGE,
    )


def tree(processes: Mapping[int, Process], root: int) -> list[Process]:
    """Returns `root`, the members of its session and group, and all their descendants."""
    members = {p.pid for p in processes.values() if root in (p.pid, p.group, p.session)}
    grown = True
    while grown:
        more = {p.pid for p in processes.values() if p.parent in members} - members
        members |= more
        grown = bool(more)
    return [processes[pid] for pid in members]


def usage(roots: Iterable[int]) -> dict[int, tuple[float, int]]:
    """Maps each running root to the CPU seconds and resident bytes of its tree; roots that ended are left out."""
    processes = table()
    found = {}
    for root in roots:
        members = tree(processes, root)
        if members:
            found[root] = sum(each.cpu for each in members), sum(each.rss for each in members)
    return found


def stragglers(root: int, mark: str) -> list[int]:
    """Returns the remaining pids of a container: its tree, and all processes with its mark."""
    processes = table()
    marked = {pid for pid in processes if _environment_has(pid, f"{MARKER}={mark}".encode())}
    return sorted(marked | {each.pid for each in tree(processes, root)})


def _environment_has(pid: int, entry: bytes) -> bool:
    try:
        return entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
