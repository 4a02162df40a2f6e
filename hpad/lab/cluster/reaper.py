"""A separate process that kills the remaining processes of containers after the cluster has ended, even by SIGKILL.

`Reaper` starts this file as a program and writes the pids of containers to its standard input. The end of this input
means the end of the cluster; then the program kills what still runs. It uses the standard library only and starts
without site-packages, so that it starts fast and needs little memory.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

MARKER = "HPAD_CLUSTER"
"""Environment variable by which a cluster's processes are found after they left their session."""
_ROUNDS = 20
"""Upper bound of the rounds of killing; it ends the program even against a process that forks all the time."""


class Reaper:
    """Starts and stops the reaper program, in the process of the cluster.

    `mark` is in the environment of containers. Call `began` and `ended` with their pids.
    """

    def __init__(self, mark: str, directory: Path | None) -> None:
        """`directory` is removed when the cluster ends, unless it is None."""
        self.mark = mark
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts the program; raises OSError."""
        arguments = [self.mark, *([str(self._directory)] if self._directory else [])]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", __file__, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def began(self, pid: int) -> None:
        self._send(f"+{pid}\n")

    def ended(self, pid: int) -> None:
        self._send(f"-{pid}\n")

    def _send(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None and self._process.returncode is None:
            self._process.stdin.write(line.encode())

    async def stop(self) -> None:
        """Ends the program; returns after it has killed the remaining processes and exited."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()
            self._process = None


def main(mark: str, directory: str = "") -> None:
    """Runs the program: waits for the end of the cluster, then kills its processes and removes `directory`."""
    roots: set[int] = set()
    for line in sys.stdin:
        pid = int(line[1:])
        if line.startswith("+"):
            roots.add(pid)
        else:
            roots.discard(pid)
    for _ in range(_ROUNDS):  # a process forked during one round is found in the next
        if not _kill(set(_members(mark, roots))):
            break
    if directory:
        shutil.rmtree(directory, ignore_errors=True)


def _members(mark: str, roots: Iterable[int]) -> Iterator[int]:
    """Yields the pids of processes that have the mark or belong to the session of a container."""
    sessions, entry = set(roots), f"{MARKER}={mark}".encode()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
            state, session = fields[0], int(fields[3])
            marked = entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # the process has ended meanwhile, or belongs to another user
        if state not in "ZX" and pid != os.getpid() and (marked or session in sessions):
            yield pid


def _kill(pids: Iterable[int]) -> bool:
    """Kills processes; returns whether there was one."""
    found = False
    for pid in pids:
        found = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
