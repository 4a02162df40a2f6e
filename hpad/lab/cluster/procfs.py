"""Processes as /proc shows them (Linux only): who belongs to a container, and what it uses.

Everything here reads files: call it in a thread.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MARKER = "HPAD_CONTAINER"
"""Environment variable by which processes that left their session are still found."""

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc/PID/stat. `cpu` in seconds, with children that were waited for; `rss` in bytes."""

    pid: int
    parent: int
    group: int
    session: int
    cpu: float
    rss: int


def table() -> dict[int, Process]:
    """All processes of the machine."""
    found = (_read(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {process.pid: process for process in found if process is not None}


def _read(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None  # gone meanwhile
    fields = text[text.rindex(")") + 2 :].split()  # the name before may hold blanks and brackets
    return Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        cpu=sum(map(int, fields[11:15])) / _TICKS,
        rss=int(fields[21]) * _PAGE,
    )


def tree(processes: Mapping[int, Process], root: int) -> list[Process]:
    """`root`, its session and group, and the descendants of all those."""
    members = {p.pid for p in processes.values() if root in (p.pid, p.group, p.session)}
    grown = True
    while grown:
        more = {p.pid for p in processes.values() if p.parent in members} - members
        members |= more
        grown = bool(more)
    return [processes[pid] for pid in members]


def usage(roots: Iterable[int]) -> dict[int, tuple[float, int]]:
    """CPU seconds so far and resident bytes now of each root's tree; roots that are gone are left out."""
    processes = table()
    found = {}
    for root in roots:
        members = tree(processes, root)
        if members:
            found[root] = sum(each.cpu for each in members), sum(each.rss for each in members)
    return found


def stragglers(root: int, mark: str) -> list[int]:
    """What is left of a container: its tree, and processes elsewhere that carry its mark."""
    processes = table()
    marked = {pid for pid in processes if _environment_has(pid, f"{MARKER}={mark}".encode())}
    return sorted(marked | {each.pid for each in tree(processes, root)})


def _environment_has(pid: int, entry: bytes) -> bool:
    try:
        return entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
