"""Writes reconciles to disk in the format that `hpad replay` reads: one by one, or many into a new file.

A daemon that records writes one file per HPA and run, `NAMESPACE.NAME.START.jsonl`. A line is one
scenario. It grows in place by one step per reconcile and is complete after each of them. A new line begins after 5,760
steps, after a step that does not follow from the one before (an HPA created again, a gap, a clock step), and after a
failed write.

Only the user of the daemon may read a recording (mode 0600; 0700 for a folder that is created). `Rotation` limits the
size of the folder: a large file is continued in START-1, START-2, and so on, and the files that were modified longest
ago are deleted first.

`write` makes a whole file, which gets its name only once it is complete. The last reconciles of a running daemon are
fetched in this way.
"""

import asyncio
import contextlib
import gzip
import hashlib
import os
import re
import tempfile
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO, BinaryIO, Final
from urllib.parse import quote

import msgspec
import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.engine.turn import Reconcile
from hpad.records.encode import LINE_END, Progress, encode_start
from hpad.records.format import RecordingError
from hpad.records.recent import weight
from hpad.telemetry.episode import Episode

_FILES_PER_LIMIT: Final = 16
"""A file is continued in another one at this fraction of the limit, so that each deletion removes little."""
_LOW_WATER: Final = 0.9
"""Deletion goes down to this fraction of the limit, so that the folder is not listed at each write."""
_MAX_QUEUED: Final = 10_000
_MAX_BYTES: Final = 1 << 27
"""The estimated memory of the queue."""
MAX_FILES: Final = 20_000
"""The number of HPAs whose scenarios can be continued: twice as many as hpad is made for."""
_NAMES: Final = re.compile(r"\.[0-9]{8}T[0-9]{6}Z(-[0-9]+)?\.jsonl$")
_MAX_NAME_BYTES: Final = 255
"""Limit of most file systems (NAME_MAX)."""
_NUMBER_BYTES: Final = len("-9999999")


class Rotation:
    """Limits the size of all recordings of a folder. `limit` is in bytes; 0 means no limit."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.limit = limit
        self._folder = folder
        self._size = 0

    def is_large(self, size: int) -> bool:
        """Returns whether a file of `size` bytes is to be continued in another one."""
        return 0 < self.limit <= size * _FILES_PER_LIMIT

    def measure(self) -> None:
        """Measures the folder, with the files of earlier processes, and makes room. Raises OSError."""
        self._size = sum(size for _, size, _ in self._files())
        self.add(0)

    def add(self, size: int) -> set[Path]:
        """Counts `size` added bytes; returns the files that were deleted to make room. Raises OSError."""
        self._size += size
        if not self.limit or self._size <= self.limit:
            return set()
        removed = set()
        files = sorted(self._files())
        # Measured again: other processes may have added or deleted files.
        self._size = sum(size for _, size, _ in files)
        for _, file_size, path in files:
            if self._size <= self.limit * _LOW_WATER:
                break
            path.unlink(missing_ok=True)
            self._size -= file_size
            removed.add(path)
        return removed

    def _files(self) -> list[tuple[int, int, Path]]:
        """Returns the time of the last write, the size and the path of each file."""
        found = []
        for path in self._folder.iterdir():
            if _NAMES.search(path.name):
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    found.append((status.st_mtime_ns, status.st_size, path))
        return found


class _File(msgspec.Struct):
    """A file and its last scenario.

    `scenarios` counts the lines of the file, `number` is that in the name of a continued file.
    """

    path: Path
    scenarios: int = 0
    last: Progress = msgspec.field(default_factory=Progress)
    size: int = 0
    number: int = 0


class RecordingWriter:
    """Queues reconciles (`note`) and writes them in a thread. Logs failures.

    `limit` is the size of the folder in bytes, including the recordings of earlier processes; 0 means no limit.
    """

    def __init__(self, folder: Path, clock: Clock, limit: int = 0) -> None:
        self._folder = folder
        self._rotation = Rotation(folder, limit)
        self._clock = clock
        self._queue: deque[tuple[Reconcile, int]] = deque()
        self._queued = 0
        """The estimated bytes of the queue."""
        self._filled = asyncio.Event()
        self._files: dict[Key, _File] = {}
        self._writer: asyncio.Task[None] | None = None
        self._started = ""
        self._closing = False
        self._log = structlog.get_logger("hpad.record")
        slow = "the disk is too slow: reconciles are not recorded"
        self._slow = Episode(self._log, clock, slow, "all reconciles are recorded again")
        self._failing = Episode(self._log, clock, "not recorded", "reconciles can be recorded again", level="error")

    async def start(self) -> None:
        """Creates and measures the folder. Raises RecordingError."""
        try:
            await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
            await asyncio.to_thread(self._rotation.measure)
        except OSError as error:
            raise RecordingError(f"cannot record to {self._folder}: {error.strerror or error}") from None
        self._started = f"{self._clock.now():%Y%m%dT%H%M%SZ}"
        self._writer = asyncio.create_task(self._write())

    async def stop(self) -> None:
        """Writes the queued reconciles and stops."""
        self._closing = True
        self._filled.set()
        if self._writer is not None:
            await self._writer

    def note(self, done: Reconcile) -> None:
        """Queues a reconcile without blocking. If the queue is full, the oldest entries are dropped."""
        size = weight(done)
        while self._queue and (len(self._queue) >= _MAX_QUEUED or self._queued + size > _MAX_BYTES):
            self._slow.occurred(waiting=len(self._queue))
            self._queued -= self._queue.popleft()[1]
        self._queue.append((done, size))
        self._queued += size
        self._filled.set()

    def __len__(self) -> int:
        """Returns the number of queued reconciles."""
        return len(self._queue)

    async def _write(self) -> None:
        while self._queue or not self._closing:
            if not self._queue:
                self._slow.ended()
                self._filled.clear()
                await self._filled.wait()
                continue
            done, size = self._queue.popleft()
            self._queued -= size
            try:
                await asyncio.to_thread(self._append, done)
                self._failing.ended()
            except (OSError, ValueError, RuntimeError) as error:  # disk full, text that is not UTF-8, no thread
                self._failing.occurred(hpa=str(done.view.hpa.key), error=str(error))

    def _append(self, done: Reconcile) -> None:
        """Writes one reconcile. Runs in a thread, one call at a time."""
        key = done.view.hpa.key
        file = self._files.pop(key, None)
        if file is None:
            file = _reopened(self._folder / file_name(key.namespace, key.local, self._started))
        elif self._rotation.is_large(file.size):
            number = file.number + 1
            path = self._folder / file_name(key.namespace, key.local, f"{self._started}-{number}")
            file = _File(path, number=number)
        self._files[key] = file  # the end of the dict: the HPA recorded last
        if len(self._files) > MAX_FILES:
            del self._files[next(iter(self._files))]  # most likely of a deleted HPA; else it starts another scenario
        before = file.size
        _write_step(file, done)
        removed = self._rotation.add(file.size - before)
        if removed:
            self._log.info("recordings were removed to make room", files=len(removed), limit=self._rotation.limit)
            self._files = {key: file for key, file in self._files.items() if file.path not in removed}


def _write_step(file: _File, done: Reconcile) -> None:
    """Adds a step to the last scenario, or starts a new one. Raises OSError; ValueError for text that is not UTF-8."""
    last, file.last = file.last, Progress()  # after a failed write, an incomplete line, the next step starts a new one
    if last.continued_by(done):
        _continue_scenario(file, last.step(done))
    else:
        last = Progress()
        _start_scenario(file, encode_start(done, f"{file.path.stem}-{file.scenarios}") + last.step(done))
    last.add(done)
    file.last = last


def _start_scenario(file: _File, begin: bytes) -> None:
    # Mode 0600 from the start: a later chmod would leave a moment in which others can open the file.
    with open(file.path, "a+b", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
        if _is_cut(out):
            out.write(b"\n")
        out.write(begin + LINE_END)
        file.size = out.tell()
    file.scenarios += 1


def _continue_scenario(file: _File, step: bytes) -> None:
    """Overwrites the end of the line with the step and a new end, in one write: a reader sees a complete line."""
    with file.path.open("r+b") as out:
        out.seek(-len(LINE_END), os.SEEK_END)
        out.write(b"," + step + LINE_END)
        file.size = out.tell()


def _reopened(path: Path) -> _File:
    """Returns the file of an HPA without one in memory. It exists if the HPA was deleted and created again."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
        return _File(path, scenarios=sum(1 for _ in lines), size=lines.tell())
    return _File(path)


def _is_cut(out: BinaryIO) -> bool:
    """Returns whether the last line of the file is incomplete, after a partial write."""
    if not out.tell():
        return False
    out.seek(-1, os.SEEK_END)
    return out.read(1) != b"\n"


def of_hpa(file: str) -> str:
    """Returns the part of a file name that is the same for all recordings of one HPA; "" for other names."""
    found = _NAMES.search(file.removesuffix(".gz"))
    return "" if found is None else file[: found.start()]


def file_name(namespace: str, name: str, started: str) -> str:
    """Returns the file name of a recording. Quoting keeps it one name: an HPA cannot name a path.

    A name that is too long for file systems is cut and gets a digest.
    """
    stem, tail = f"{quote(namespace, safe='')}.{quote(name, safe='')}", f".{started}.jsonl"
    # Names with and without a number are cut alike, so that the files of one HPA share their beginning.
    room = _MAX_NAME_BYTES - len(tail) - _NUMBER_BYTES
    if len(stem) > room:
        digest = hashlib.sha256(stem.encode()).hexdigest()[:16]
        stem = f"{stem[: room - 1 - len(digest)]}-{digest}"
    return stem + tail


_GZIP_LEVEL: Final = 6
"""The default of gzip(1): the higher levels take twice the time or more for a few percent."""
_PREFIX_LENGTH: Final = 100


def write(path: Path, lines: Iterable[bytes]) -> None:
    """Writes the lines of a recording, compressed if the name ends in .gz. Blocks.

    Only the user of the process may read the file. Raises RecordingError, also if the file exists; it stays as it is.
    """
    try:
        if path.exists():
            raise FileExistsError("it exists; name a new file")
        _write(path, lines)
    except (OSError, ValueError) as error:  # ValueError: text that is not UTF-8
        raise RecordingError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from None


def _write(path: Path, lines: Iterable[bytes]) -> None:
    # In the same folder, because a rename cannot lead to another file system. Its mode is 0600.
    number, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:_PREFIX_LENGTH]}.")
    try:
        with os.fdopen(number, "wb") as file:
            _fill(file, lines, compressed=path.suffix == ".gz")
            file.flush()
            os.fsync(file.fileno())
        os.rename(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _fill(file: IO[bytes], lines: Iterable[bytes], *, compressed: bool) -> None:
    if not compressed:
        file.writelines(lines)
        return
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as out:
        out.writelines(lines)
