"""Writes each reconcile's inputs and results to disk, in the format that `hpad replay` reads.

There is one file per HPA and run of the daemon, `NAMESPACE.NAME.START.jsonl`. A line is one scenario. It grows in place
by one step per reconcile and is complete after each of them. A new line begins after a day's worth of steps, after a
step that does not follow from the one before (an HPA created again, a gap, a clock step), and after a failed write.

Only the user of the daemon may read a recording (mode 0600; 0700 for a folder that is created). `Rotation` limits the
size of the folder: a large file is continued in START-1, START-2, and so on, and the files written to longest ago are
deleted first.
"""

import asyncio
import contextlib
import hashlib
import os
import re
from collections import deque
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

import msgspec
import structlog

from hpad.api.hpa import HorizontalPodAutoscalerSpec
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.engine.history import History
from hpad.recording.encode import RecordedReconcile, encode_head, encode_reconcile
from hpad.recording.format import RecordingError
from hpad.telemetry.episode import Episode

_PART: Final = 16
"""A file may take this part of the limit, so that a deletion removes little of what is recorded."""
_LOWERED: Final = 0.9
"""Deletion goes down to this part of the limit, so that the folder is not listed at each write."""


class Rotation:
    """Limits the size of a folder. Files that match `names` count. `limit` is in bytes; 0 means no limit."""

    def __init__(self, folder: Path, names: re.Pattern[str], limit: int) -> None:
        self.limit = limit
        self._folder = folder
        self._names = names
        self._taken = 0

    @property
    def largest(self) -> int | None:
        """The size in bytes from which a file is continued in another one; None without a limit."""
        return self.limit // _PART or None

    def measure(self) -> set[Path]:
        """Measures the folder, with the files of earlier processes; returns and raises as `grew`."""
        self._taken = sum(size for _, size, _ in self._files())
        return self.grew(0)

    def grew(self, size: int) -> set[Path]:
        """Counts `size` added bytes; returns the files that were deleted to make room. Raises OSError."""
        self._taken += size
        if not self.limit or self._taken <= self.limit:
            return set()
        removed = set()
        files = sorted(self._files())
        self._taken = sum(size for _, size, _ in files)
        for _, held, path in files:
            if self._taken <= self.limit * _LOWERED:
                break
            path.unlink(missing_ok=True)
            self._taken -= held
            removed.add(path)
        return removed

    def _files(self) -> list[tuple[int, int, Path]]:
        """Returns the time of the last write, the size and the path of each file."""
        found = []
        for path in self._folder.iterdir():
            if self._names.search(path.name):
                with contextlib.suppress(FileNotFoundError):
                    told = path.stat()
                    found.append((told.st_mtime_ns, told.st_size, path))
        return found


_LONGEST = 5760
_QUEUED = 10_000
_TAIL = b"]}\n"
_NAMES: Final = re.compile(r"\.[0-9]{8}T[0-9]{6}Z(-[0-9]+)?\.jsonl$")
_LONGEST_NAME: Final = 255
_NUMBER: Final = len("-9999999")


class _File(msgspec.Struct):
    """A file, its last scenario (`steps` 0: it cannot be continued), and the HPA and history after the last step."""

    path: Path
    scenarios: int = 0
    steps: int = 0
    uid: str = ""
    spec: HorizontalPodAutoscalerSpec | None = None
    history: History | None = None
    size: int = 0
    number: int = 0


class RecordingWriter:
    """Queues reconciles (`note`) and writes them in a thread; failures are logged.

    `limit` is the size of the folder in bytes, including the recordings of earlier processes; 0 means no limit.
    """

    def __init__(self, folder: Path, clock: Clock, limit: int = 0) -> None:
        self._folder = folder
        self._rotation = Rotation(folder, _NAMES, limit)
        self._clock = clock
        self._queue: deque[RecordedReconcile | Key] = deque(maxlen=_QUEUED)
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
        """Raises RecordingError."""
        try:
            await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
            await asyncio.to_thread(self._rotation.measure)
        except OSError as error:
            raise RecordingError(f"cannot record to {self._folder}: {error.strerror or error}") from None
        self._started = f"{self._clock.now():%Y%m%dT%H%M%SZ}"
        self._writer = asyncio.create_task(self._write())

    async def stop(self) -> None:
        """Writes the queued reconciles and ends."""
        self._closing = True
        self._filled.set()
        if self._writer is not None:
            await self._writer

    def note(self, done: RecordedReconcile) -> None:
        """Queues a reconcile; never waits."""
        if len(self._queue) == _QUEUED:
            self._slow.occurred(waiting=_QUEUED)
        self._queue.append(done)
        self._filled.set()

    def forget(self, key: Key) -> None:
        """The HPA was deleted: drops everything but its file."""
        self._queue.append(key)
        self._filled.set()

    def __len__(self) -> int:
        """The number of queued reconciles."""
        return len(self._queue)

    async def _write(self) -> None:
        while self._queue or not self._closing:
            if not self._queue:
                self._slow.ended()
                self._filled.clear()
                await self._filled.wait()
                continue
            done = self._queue.popleft()
            if isinstance(done, Key):
                self._files.pop(done, None)
                continue
            try:
                await asyncio.to_thread(self._append, done)
                self._failing.ended()
            except (OSError, ValueError, RuntimeError) as error:  # no room, nothing JSON can say, no thread
                self._failing.occurred(hpa=str(done.view.hpa.metadata.key), error=str(error))

    def _append(self, done: RecordedReconcile) -> None:
        """Runs in a thread, one call at a time."""
        key = done.view.hpa.metadata.key
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = _opened(self._folder / file_name(key.namespace, key.name, self._started))
        elif file.size >= (self._rotation.largest or file.size + 1):
            number = file.number + 1
            path = self._folder / file_name(key.namespace, key.name, f"{self._started}-{number}")
            file = self._files[key] = _File(path, number=number)
        before = file.size
        self._put(file, done)
        self._drop(self._rotation.grew(file.size - before))

    def _put(self, file: _File, done: RecordedReconcile) -> None:
        hpa, steps, file.steps = done.view.hpa, file.steps, 0
        if steps in (0, _LONGEST) or done.view.history != file.history or hpa.metadata.uid != file.uid:
            self._begin(file, done)
        else:
            self._grow(file, done)
            file.steps = steps + 1
        file.uid, file.spec, file.history = hpa.metadata.uid, hpa.spec, done.settlement.history

    def _drop(self, removed: set[Path]) -> None:
        """Starts new files for the HPAs whose files were deleted."""
        if removed:
            self._log.info("recordings were removed to make room", files=len(removed), limit=self._rotation.limit)
            self._files = {key: file for key, file in self._files.items() if file.path not in removed}

    def _begin(self, file: _File, done: RecordedReconcile) -> None:
        head = msgspec.json.encode(encode_head(done, f"{file.path.stem}-{file.scenarios}"))
        step = msgspec.json.encode(encode_reconcile(done, new_spec=False))
        with open(file.path, "a+b", opener=_private) as out:
            if _is_cut(out):
                out.write(b"\n")
            out.write(head[:-1] + b',"steps":[' + step + _TAIL)
            file.size = out.tell()
        file.scenarios, file.steps = file.scenarios + 1, 1

    def _grow(self, file: _File, done: RecordedReconcile) -> None:
        """Overwrites the end of the line with the step and a new end, in one write: a reader sees a complete line."""
        step = msgspec.json.encode(encode_reconcile(done, new_spec=done.view.hpa.spec != file.spec))
        with file.path.open("r+b") as out:
            out.seek(-len(_TAIL), os.SEEK_END)
            out.write(b"," + step + _TAIL)
            file.size = out.tell()


def _opened(path: Path) -> _File:
    """Returns the file to continue: it has scenarios if the HPA was deleted and created again."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as held:
        return _File(path, scenarios=sum(1 for _ in held), size=held.tell())
    return _File(path)


def _private(path: str, flags: int) -> int:
    """Opens a file; if it is created, no other user can ever read it."""
    return os.open(path, flags, 0o600)


def _is_cut(out: BinaryIO) -> bool:
    """Whether the last line of the file is incomplete, after a partial write."""
    if not out.tell():
        return False
    out.seek(-1, os.SEEK_END)
    return out.read(1) != b"\n"


def file_name(namespace: str, name: str, started: str) -> str:
    """Returns the name of a recording: always one file name, never a path, whatever the HPA is called.

    A name that is too long for file systems is cut and gets a digest.
    """
    stem, tail = f"{quote(namespace, safe='')}.{quote(name, safe='')}", f".{started}.jsonl"
    room = _LONGEST_NAME - len(tail) - _NUMBER
    if len(stem) > room:
        digest = hashlib.sha256(stem.encode()).hexdigest()[:16]
        stem = f"{stem[: room - 1 - len(digest)]}-{digest}"
    return stem + tail
