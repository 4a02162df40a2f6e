"""What containers use of this machine: cgroups, output, and the kill of everything when the cluster ends."""

import asyncio
import errno
import os
import shutil
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from hpad.lab.cluster import cgroups, podlogs, procfs
from hpad.lab.cluster.reaper import Reaper

ENTER: Final = ("/bin/sh", "-c", 'echo 0 >"$0" && exec "$@"')
"""Starts a program in a cgroup; arguments: the group's door, the program and its arguments."""


@dataclass(frozen=True, slots=True)
class Host:
    """`reaping` learns of each process. With `is_service` the cluster runs for months, as a service of the machine:

    output goes to the journal instead of files, folders of pods are removed with them, and a container that crashes
    waits as long for its restart as under a real kubelet. `groups` is None where systemd has delegated no cgroup.
    """

    reaping: Reaper
    is_service: bool = False
    groups: cgroups.Groups | None = None

    @property
    def backoff(self) -> tuple[float, float]:
        """Seconds before a restart: the delay doubles from the first to the second (kubelet: 10 s to 5 min)."""
        return (10.0, 300.0) if self.is_service else (1.0, 10.0)

    def output(self, directory: Path, container: str, identifier: str) -> BinaryIO:
        """Opens the output of a new run: a log in `directory`, or the journal under `identifier`. Blocks.

        Raises OSError.
        """
        if not self.is_service:
            return podlogs.begin(directory, container)
        directory.mkdir(parents=True, exist_ok=True)
        return os.fdopen(journal_stream(identifier), "wb", buffering=0)

    async def enter(self, name: str, resources: Mapping[str, Any]) -> cgroups.Group | None:
        """Creates the cgroup of a new run; raises OSError."""
        return await asyncio.to_thread(self.groups.create, name, resources) if self.groups else None

    def began(self, pid: int, group: cgroups.Group | None) -> None:
        self.reaping.began(pid)
        if self.groups and group:
            self.groups.began(pid, group)

    def ended(self, pid: int) -> None:
        self.reaping.ended(pid)
        if self.groups:
            self.groups.ended(pid)

    def usage(self, roots: Iterable[int]) -> dict[int, tuple[float, int]]:
        """Maps the pid of each container's main process to its CPU seconds and bytes. Blocks."""
        return self.groups.usage(roots) if self.groups else procfs.usage(roots)


def inside(group: cgroups.Group, argv: Sequence[str], path: str, cwd: str) -> list[str]:
    """Returns the command that runs `argv` in a cgroup; raises FileNotFoundError without such a program. Blocks."""
    program = os.path.join(cwd, argv[0]) if "/" in argv[0] else argv[0]
    if shutil.which(program, path=path) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    return [*ENTER, str(group.door), *argv]


JOURNAL: Final = Path("/run/systemd/journal/stdout")
_INFO: Final = 6


def journal_stream(identifier: str, path: Path = JOURNAL) -> int:
    """Returns a descriptor; each line written to it is an entry with this SYSLOG_IDENTIFIER, at the level info.

    Without a journal it leads to this process's standard error. Close it in any case. Blocks; raises OSError.
    Source: systemd, src/libsystemd/sd-journal/journal-send.c: sd_journal_stream_fd.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        try:
            channel.connect(str(path))
        except FileNotFoundError:
            return os.dup(2)
        channel.shutdown(socket.SHUT_RD)
        # no unit: the journal finds it by the cgroup; no levels in lines; no copy to syslog, kmsg or the console
        head = (identifier, "", str(_INFO), "0", "0", "0", "0")
        channel.sendall("".join(f"{line}\n" for line in head).encode())
        return channel.detach()
