"""What the system says about processes: CPU time, memory, and how long a thread works without a pause."""

import os
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGESIZE")
_STOP_SECONDS: Final = 30.0
_MEMORY_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.004


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ends a process by SIGTERM, and by SIGKILL if it takes too long."""
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """Returns user and system time of a process and its ended children (proc_pid_stat(5), fields 14 to 17)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def resident(pid: int) -> int:
    """Returns the resident memory in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def forget_peak(pid: int) -> None:
    """Sets the peak of the resident memory to the present value (proc_pid_clear_refs(5))."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak(pid: int) -> int:
    """Returns the highest resident memory in bytes, since the start or `forget_peak`."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


class MachineTime(NamedTuple):
    """Seconds of all CPUs since the start of the machine (proc_stat(5))."""

    total: float
    idle: float

    @classmethod
    def now(cls) -> Self:
        fields = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return cls(sum(fields) / _TICKS, (fields[3] + fields[4]) / _TICKS)


class Watcher:
    """Observes a process from a thread: samples of its memory, and the longest stretch without a pause.

    The main thread of hpad runs the event loop, and pauses when it waits for input. A stretch is the time for which it
    is busy and gives up its CPU of itself not once (proc_pid_status(5): voluntary_ctxt_switches): an upper bound of
    what a callback may have to wait for the loop. It is known to a few milliseconds.
    """

    def __init__(self, pid: int) -> None:
        self.memory: list[tuple[float, float]] = []
        """Pairs of seconds and MiB."""
        self.longest_stretch = 0.0
        self._pid = pid
        self._status = Path(f"/proc/{pid}/task/{pid}/status")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        switches, since, remembered = -1, 0.0, 0.0
        with self._status.open("rb", buffering=0) as status:
            while not self._ended.wait(_LOOK_SECONDS):
                now = time.monotonic()
                text = os.pread(status.fileno(), 8192, 0)
                if not text:
                    return  # the process has ended
                count, busy = _switches(text)
                if count != switches or not busy:
                    switches, since = count, now
                self.longest_stretch = max(self.longest_stretch, now - since)
                if now - remembered >= _MEMORY_SECONDS:
                    remembered = now
                    self.memory.append((now, resident(self._pid) / 2**20))


def _switches(status: bytes) -> tuple[int, bool]:
    """Returns how often the thread has paused, and whether it does anything now."""
    at = status.index(b"\nvoluntary_ctxt_switches:") + 25
    state = status[status.index(b"State:\t") + 7 : status.index(b"State:\t") + 8]
    return int(status[at : status.index(b"\n", at)]), state != b"S"
