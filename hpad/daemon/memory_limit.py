"""How much memory hpad may take, how much it takes, and what is done before that is too much.

What it may take is what was told, else what the surroundings allow: the limits of the process's cgroup (a container's
memory limit, systemd's MemoryMax= and MemoryHigh=) and RLIMIT_AS (systemd's LimitAS=). Whoever goes beyond a cgroup's
limit is killed without a word; so long before, and aloud:

- From TIGHT_AT of it on, what is only kept for convenience is let go of, again and again: all of it comes back by
  itself, at the cost of a little work.
- From SHORT_AT on, less is done: HPAs that did not ask for more replicas the last time are looked at less often. Those
  that did keep their turns: capacity that comes late costs more than capacity that leaves late.

Both end when there is more room again by SLACK of the limit.

And in good times, too, what is free goes back to the system every TRIM_SECONDS. By itself the C library returns the end
of its heap alone (mallopt(3), M_TRIM_THRESHOLD): each burst, of HPAs that wait for a source that hangs, say, would
leave holes in it, and a process that lives for years would creep from one high water mark to the next.
"""

import asyncio
import ctypes
import functools
import gc
import os
import resource
from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import structlog

from hpad.api import quantity, selector
from hpad.clock import Clock
from hpad.telemetry import Telemetry

T = TypeVar("T")
TIGHT_AT: Final = 0.8
SHORT_AT: Final = 0.9
SLACK: Final = 0.05
LOOK_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 15.0
"""How long after caches were emptied they are emptied again, should that not have helped."""
TRIM_SECONDS: Final = 60.0
_STATM: Final = Path("/proc/self/statm")
"""Made once: the parts of each new Path go through Python's table of interned strings, which grows by what passes."""
_MEBI: Final = 1 << 20
_NO_LIMIT: Final = 1 << 60
"""Where cgroups of version 1 have no limit they name a number beyond all memories."""


class Level(IntEnum):
    """How things stand."""

    EASY = 0
    TIGHT = 1
    SHORT = 2


class Limit(NamedTuple):
    """At most so many bytes, by whose order. `of_addresses`: they count address space, not what is in memory."""

    bytes: int
    origin: str
    of_addresses: bool = False


class Taken(NamedTuple):
    """Bytes that the process takes: in memory, and of addresses."""

    resident: int
    addresses: int

    def share(self, limit: Limit) -> float:
        return (self.addresses if limit.of_addresses else self.resident) / limit.bytes


class Cache(Protocol):
    """Something that is kept for convenience alone."""

    @property
    def name(self) -> str: ...
    def __len__(self) -> int: ...
    def clear(self) -> None: ...


class Remembered:
    """The results of a function under `functools.lru_cache`."""

    def __init__(self, name: str, function: Any) -> None:
        self.name = name
        self._function = function

    def __len__(self) -> int:
        return int(self._function.cache_info().currsize)

    def clear(self) -> None:
        self._function.cache_clear()


class Kept:
    """What somebody else keeps: how many entries, and how to let go of them."""

    def __init__(self, name: str, size: Callable[[], int], clear: Callable[[], object]) -> None:
        self.name = name
        self._size = size
        self._clear = clear

    def __len__(self) -> int:
        return self._size()

    def clear(self) -> None:
        self._clear()


def remembered() -> list[Cache]:
    """The caches of pure functions, each of them bounded. (Not those by which equal parts of pods are shared.)"""
    names = {"quantities": quantity.parse_milli, "goals": quantity.parsed, "selectors": selector.parse}
    return [Remembered(name, function) for name, function in names.items()]


def limits(told: int | None, root: Path = Path("/")) -> list[Limit]:
    """What is told (bytes; 0: nothing limits hpad), else every limit of the surroundings. Reads files: blocks."""
    if told is not None:
        return [Limit(told, "memory_limit")] if told else []
    found = [Limit(size, f"the cgroup's {name}") for size, name in _of_cgroups(root)]
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:
        found.append(Limit(addresses, "RLIMIT_AS", of_addresses=True))
    return found


def taken() -> Taken | None:
    """What this process takes (proc(5), statm); None where the system does not say. Blocks, for microseconds."""
    try:
        addresses, resident, *_ = _STATM.read_text().split()
    except (OSError, ValueError):
        return None
    page = os.sysconf("SC_PAGE_SIZE")
    return Taken(int(resident) * page, int(addresses) * page)


def trim() -> None:
    """Return what is free to the system, where the C library has a way to (malloc_trim(3)). Blocks."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return


class Guard:
    """Looks at the memory once a second in `run`. `shed` is told when load is to be shed, and when no longer."""

    def __init__(
        self,
        told: int | None,
        clock: Clock,
        telemetry: Telemetry,
        caches: Iterable[Cache],
        shed: Callable[[bool], None],
        *,
        measure: Callable[[], Taken | None] = taken,
        trim: Callable[[], None] = trim,
    ) -> None:
        self.level = Level.EASY
        self._told = told
        self._clock = clock
        self._telemetry = telemetry
        self._caches = tuple(caches)
        self._shed = shed
        self._measure = measure
        self._limits: list[Limit] = []
        self._worst: tuple[Limit, Taken] | None = None
        self._trim = trim
        self._emptied = -AGAIN_SECONDS
        self._trimmed = clock.monotonic()
        self._log = structlog.get_logger("hpad.memory")

    @property
    def trouble(self) -> str | None:
        """What is wrong, as a sentence; None while there is room."""
        if self.level is Level.EASY or self._worst is None:
            return None
        limit, taken = self._worst
        done = "HPAs that do not grow are looked at less often" if self.level is Level.SHORT else "caches are emptied"
        return f"memory: {taken.share(limit):.0%} of {limit.bytes // _MEBI} MiB ({limit.origin}) are taken: {done}"

    async def start(self) -> None:
        """Find out about the limits."""
        await self.retune(self._told)

    async def retune(self, told: int | None) -> None:
        """Another limit from now on."""
        self._told = told
        self._limits = await _aside(functools.partial(limits, told))
        self._telemetry.memory_limits({limit.origin: limit.bytes for limit in self._limits})
        for limit in self._limits:
            self._log.info("memory is limited", mebibytes=limit.bytes // _MEBI, by=limit.origin)

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """See how things stand, and do what is to be done about it."""
        found = await _aside(self._measure)
        if found is None:
            return
        worst = max(self._limits, key=found.share, default=None)
        self._worst = None if worst is None else (worst, found)
        share = 0.0 if worst is None else found.share(worst)
        before, self.level = self.level, _level(share, self.level)
        if before is not self.level:
            self._changed(before)
        if self.level is not Level.EASY and self._clock.monotonic() - self._emptied >= AGAIN_SECONDS:
            await self._empty()
        elif self._clock.monotonic() - self._trimmed >= TRIM_SECONDS:
            await self._give_back()

    def sizes(self) -> dict[str, int]:
        """Entries of each cache."""
        return {cache.name: len(cache) for cache in self._caches}

    def _changed(self, before: Level) -> None:
        self._telemetry.memory_level(self.level)
        if self.level is Level.EASY:
            self._log.info("there is enough memory again")
        elif self.level > before:
            say = self._log.error if self.level is Level.SHORT else self._log.warning
            say(self.trouble)
        else:
            self._log.warning(self.trouble)
        if Level.SHORT in (before, self.level):
            self._shed(self.level is Level.SHORT)

    async def _empty(self) -> None:
        self._emptied = self._clock.monotonic()
        entries = sum(map(len, self._caches))
        for cache in self._caches:
            cache.clear()
        self._telemetry.caches_emptied()
        await _aside(gc.collect)
        await self._give_back()
        self._log.info("caches were emptied", entries=entries)

    async def _give_back(self) -> None:
        self._trimmed = self._clock.monotonic()
        await _aside(self._trim)


async def _aside(work: Callable[[], T]) -> T:
    """In a thread; or here where there is no room for one more, of all times while memory is short."""
    try:
        return await asyncio.to_thread(work)
    except RuntimeError:
        return work()


def _level(share: float, before: Level) -> Level:
    """Where that share of the limit stands; levels are left a little below where they are entered."""
    for level, begins in ((Level.SHORT, SHORT_AT), (Level.TIGHT, TIGHT_AT)):
        if share >= begins - (SLACK if before >= level else 0.0):
            return level
    return Level.EASY


def _of_cgroups(root: Path) -> list[tuple[int, str]]:
    """The least limit of the process's cgroup and all above it, each as (bytes, name of the file)."""
    held: dict[str, int] = {}
    for folder, names in _cgroups(root):
        for name in names:
            size = _number(folder / name)
            if size is not None and size < held.get(name, _NO_LIMIT):
                held[name] = size
    return [(size, name) for name, size in held.items()]


def _cgroups(root: Path) -> list[tuple[Path, tuple[str, ...]]]:
    """The folders of the process's cgroups (cgroups(7)) that may limit memory, and the files that would say so.

    In a container the path may be the host's, which is not there: the top of what is mounted is then its own.
    """
    mount = root / "sys/fs/cgroup"
    found: list[tuple[Path, tuple[str, ...]]] = []
    names: tuple[str, ...]
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            top, names = mount, ("memory.max", "memory.high")
        elif "memory" in controllers.split(","):
            top, names = mount / "memory", ("memory.limit_in_bytes",)
        else:
            continue
        folder = top / path.strip("/")
        while folder != top:
            found.append((folder, names))
            folder = folder.parent
        found.append((top, names))
    return found


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except (OSError, ValueError):
        return []


def _number(file: Path) -> int | None:
    text = "".join(_lines(file)[:1]).strip()
    return int(text) if text.isascii() and text.isdigit() and int(text) else None
