"""Control groups (cgroup v2) of containers, below the one that systemd has delegated to the service (`Delegate=yes`).

All functions read and write files: call them in a thread. Source of the numbers: Kubernetes 1.36,
pkg/kubelet/cm/helpers_linux.go and pkg/kubelet/cm/cgroup_manager_linux.go; files: the kernel's cgroup-v2.rst.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from hpad.api.quantity import Quantity

_MOUNT: Final = Path("/sys/fs/cgroup")
_DELEGATED: Final = "user.delegate"
"""The extended attribute by which systemd marks a delegated cgroup. Without it, its files belong to systemd alone."""
_OWN: Final = "hpad"
_OWN_WEIGHT: Final = "1000"
"""Ten times the default of a group: busy workers must not starve the process that looks after them."""
_PERIOD_US: Final = 100_000
_LEAST_QUOTA_US: Final = 1_000
_ROUNDS, _PAUSE_S = 40, 0.05


@dataclass(frozen=True, slots=True)
class Group:
    """The cgroup of one run of a container."""

    folder: Path

    @property
    def door(self) -> Path:
        """The file to which a process writes 0 to enter."""
        return self.folder / "cgroup.procs"

    def usage(self) -> tuple[float, int]:
        """Returns CPU seconds, and the bytes of the working set, as cAdvisor counts it; raises OSError."""
        cpu = _numbers(self.folder / "cpu.stat")["usage_usec"] / 1e6
        used = int((self.folder / "memory.current").read_text())
        return cpu, max(0, used - _numbers(self.folder / "memory.stat")["inactive_file"])

    def is_out_of_memory(self) -> bool:
        """Returns whether the kernel has killed a process because of the memory limit."""
        try:
            return _numbers(self.folder / "memory.events")["oom_kill"] > 0
        except (OSError, KeyError):
            return False

    def remove(self) -> None:
        """Kills what is left inside, and removes the group once it is empty; leaves it if that takes two seconds."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")
        for _ in range(_ROUNDS):
            try:
                self.folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(_PAUSE_S)  # killed processes leave when they are reaped
            else:
                return


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of all containers. `folder` is the delegated cgroup."""

    folder: Path
    _by_pid: dict[int, Group] = field(default_factory=dict)

    @classmethod
    def delegated(cls) -> Self | None:
        """Moves this process into a group of its own, for a cgroup with groups in it may not contain processes.

        Returns None if systemd has delegated no cgroup v2 with CPU and memory. Raises OSError.
        """
        line = next((each for each in _lines(Path("/proc/self/cgroup")) if each.startswith("0::/")), "0::/")
        folder = _MOUNT / line.removeprefix("0::/")
        try:
            if os.getxattr(folder, _DELEGATED) != b"1":
                return None
        except OSError:
            return None
        if not {"cpu", "memory"} <= set((folder / "cgroup.controllers").read_text().split()):
            return None
        (folder / _OWN).mkdir(exist_ok=True)
        (folder / _OWN / "cgroup.procs").write_text("0")
        (folder / "cgroup.subtree_control").write_text("+cpu +memory")
        (folder / _OWN / "cpu.weight").write_text(_OWN_WEIGHT)
        return cls(folder)

    def create(self, name: str, resources: Mapping[str, Any]) -> Group:
        """Creates a group with the limits of a container's `resources`; raises OSError."""
        group = Group(self.folder / name)
        group.folder.mkdir()
        for file, value in settings(resources).items():
            try:
                (group.folder / file).write_text(value)
            except FileNotFoundError:
                if file != "memory.swap.max":  # a kernel without swap accounting has no such file
                    raise
        return group

    def began(self, pid: int, group: Group) -> None:
        self._by_pid[pid] = group

    def ended(self, pid: int) -> None:
        self._by_pid.pop(pid, None)

    def usage(self, roots: Iterable[int]) -> dict[int, tuple[float, int]]:
        """Maps the pid of each container's main process to its CPU seconds and bytes; leaves out those that ended."""
        found = {}
        for pid in roots:
            if group := self._by_pid.get(pid):
                with contextlib.suppress(OSError):
                    found[pid] = group.usage()
        return found


def settings(resources: Mapping[str, Any]) -> dict[str, str]:
    """Returns the contents of a group's files, by name; raises QuantityError."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    found: dict[str, str] = {}
    if "memory" in limits:
        memory = Quantity.parse(limits["memory"]).value()
        found |= {"memory.max": str(memory), "memory.swap.max": "0", "memory.oom.group": "1"}
    if "cpu" in limits:
        quota = Quantity.parse(limits["cpu"]).milli() * _PERIOD_US // 1000
        found["cpu.max"] = f"{max(_LEAST_QUOTA_US, quota)} {_PERIOD_US}"
    if "cpu" in requests or "cpu" in limits:
        milli = Quantity.parse((requests if "cpu" in requests else limits)["cpu"]).milli()
        shares = min(262_144, max(2, milli * 1024 // 1000))
        found["cpu.weight"] = str(1 + (shares - 2) * 9999 // 262_142)
    return found


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def _numbers(file: Path) -> dict[str, int]:
    return {name: int(number) for name, _, number in (line.partition(" ") for line in _lines(file))}
