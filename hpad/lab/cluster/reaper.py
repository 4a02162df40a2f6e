"""A process of its own that outlives the cluster by a moment and ends what a killed one left running.

`Reaper` starts this file as a program and tells it, through its standard input, which processes the containers
are. However the cluster ends, SIGKILL included, that input ends with it; what then still runs is killed. The program
half uses the standard library alone and starts without site-packages, so that it costs next to nothing.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

MARKER = "HPAD_CLUSTER"
"""Environment variable by which a process that left its session is still found."""
_ROUNDS = 20


class Reaper:
    """The cluster's side: `mark` goes into the environment of containers, `began` and `ended` name their pids."""

    def __init__(self, mark: str, directory: Path | None) -> None:
        """`directory` is removed as well, unless None."""
        self.mark = mark
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Raises OSError when no process can be started."""
        told = [self.mark, *([str(self._directory)] if self._directory else [])]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", __file__, *told),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def began(self, pid: int) -> None:
        self._tell(f"+{pid}\n")

    def ended(self, pid: int) -> None:
        self._tell(f"-{pid}\n")

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None and self._process.returncode is None:
            self._process.stdin.write(line.encode())

    async def stop(self) -> None:
        """Returns when it has looked for the last time and is gone."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()
            self._process = None


def main(mark: str, directory: str = "") -> None:
    """The program's side: wait for the end of the cluster, then clean up."""
    roots: set[int] = set()
    for line in sys.stdin:
        pid = int(line[1:])
        if line.startswith("+"):
            roots.add(pid)
        else:
            roots.discard(pid)
    for _ in range(_ROUNDS):  # what is forked while we look is found in the next round
        if not _kill(set(_members(mark, roots))):
            break
    if directory:
        shutil.rmtree(directory, ignore_errors=True)


def _members(mark: str, roots: Iterable[int]) -> Iterator[int]:
    """Processes that carry the mark, and those in a session that a container began."""
    sessions, entry = set(roots), f"{MARKER}={mark}".encode()
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
            state, session = fields[0], int(fields[3])
            marked = entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone meanwhile, or not ours
        if state not in "ZX" and pid != os.getpid() and (marked or session in sessions):
            yield pid


def _kill(pids: Iterable[int]) -> bool:
    """Whether there was any."""
    found = False
    for pid in pids:
        found = True
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
