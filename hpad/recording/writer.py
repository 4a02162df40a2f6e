"""The flight recorder: each reconcile's inputs and outputs on disk, readable by `hpad replay`.

A file per HPA and run of the daemon, `NAMESPACE.NAME.START.jsonl`. A line is one whole scenario: it grows by a step per
reconcile, in place, and is complete after every one of them. The next line begins, with the history as it is then,
after a day's worth of steps, where a step does not follow from the last one (an HPA made anew, a break, a clock that
was set), and where a step could not be written (to a file that somebody took away, say).

Only the user of the daemon may read a recording (mode 0600; 0700 for a folder that is created).

The folder is kept to a limit (see `rotation`): a file that has become large is gone on with in START-1, START-2, ...

The files of a folder, kept to so many bytes in all: those that were written to longest ago go first.
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
from hpad.recording import reconciled
from hpad.recording.format import RecordingError
from hpad.telemetry.episode import Episode

_PART: Final = 16
"""The largest file is this part of all, so that what goes at a time is little of what is kept."""
_LOWERED: Final = 0.9
"""To this part of the limit the files are brought when they have passed it: looking at all of them takes time."""


class Rotation:
    """`names` are those of our files: no other one counts, or is removed. `limit` in bytes; 0: none."""

    def __init__(self, folder: Path, names: re.Pattern[str], limit: int) -> None:
        self.limit = limit
        self._folder = folder
        self._names = names
        self._taken = 0

    @property
    def largest(self) -> int | None:
        """From this size on a file should be gone on with in another one, None: never."""
        return self.limit // _PART or None

    def measure(self) -> set[Path]:
        """Take stock, of what earlier processes left, too; returns and raises as `grew`."""
        self._taken = sum(size for _, size, _ in self._files())
        return self.grew(0)

    def grew(self, size: int) -> set[Path]:
        """So many bytes were added; returns the files that were removed to make room for them. Raises OSError."""
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
        """When each was last written to, its size and itself."""
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
    """A file being written, the scenario at its end (no steps: none to go on with), and what was left by its last."""

    path: Path
    scenarios: int = 0
    steps: int = 0
    uid: str = ""
    spec: HorizontalPodAutoscalerSpec | None = None
    history: History | None = None
    size: int = 0
    number: int = 0


class RecordingWriter:
    """Takes reconciles at once (`note`) and writes them in a thread; what cannot be written is reported.

    `limit` is what all recordings of the folder may take in bytes, those of earlier processes included; 0: no limit.
    """

    def __init__(self, folder: Path, clock: Clock, limit: int = 0) -> None:
        self._folder = folder
        self._rotation = Rotation(folder, _NAMES, limit)
        self._clock = clock
        self._queue: deque[reconciled.Reconciled | Key] = deque(maxlen=_QUEUED)
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
        """Write what is left."""
        self._closing = True
        self._filled.set()
        if self._writer is not None:
            await self._writer

    def note(self, done: reconciled.Reconciled) -> None:
        """Take a reconcile; never waits."""
        if len(self._queue) == _QUEUED:
            self._slow.occurred(waiting=_QUEUED)
        self._queue.append(done)
        self._filled.set()

    def forget(self, key: Key) -> None:
        """The HPA is gone: nothing is kept of it but its file."""
        self._queue.append(key)
        self._filled.set()

    def __len__(self) -> int:
        """Reconciles that wait to be written."""
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

    def _append(self, done: reconciled.Reconciled) -> None:
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

    def _put(self, file: _File, done: reconciled.Reconciled) -> None:
        hpa, steps, file.steps = done.view.hpa, file.steps, 0
        if steps in (0, _LONGEST) or done.view.history != file.history or hpa.metadata.uid != file.uid:
            self._begin(file, done)
        else:
            self._grow(file, done)
            file.steps = steps + 1
        file.uid, file.spec, file.history = hpa.metadata.uid, hpa.spec, done.settlement.history

    def _drop(self, removed: set[Path]) -> None:
        """What is recorded next of these HPAs begins anew."""
        if removed:
            self._log.info("recordings were removed to make room", files=len(removed), limit=self._rotation.limit)
            self._files = {key: file for key, file in self._files.items() if file.path not in removed}

    def _begin(self, file: _File, done: reconciled.Reconciled) -> None:
        head = msgspec.json.encode(reconciled.head(done, f"{file.path.stem}-{file.scenarios}"))
        step = msgspec.json.encode(reconciled.step(done, new_spec=False))
        with open(file.path, "a+b", opener=_private) as out:
            if _is_cut(out):
                out.write(b"\n")
            out.write(head[:-1] + b',"steps":[' + step + _TAIL)
            file.size = out.tell()
        file.scenarios, file.steps = file.scenarios + 1, 1

    def _grow(self, file: _File, done: reconciled.Reconciled) -> None:
        """Put the step where the line's end was: one write, so that a reader sees the line whole."""
        step = msgspec.json.encode(reconciled.step(done, new_spec=done.view.hpa.spec != file.spec))
        with file.path.open("r+b") as out:
            out.seek(-len(_TAIL), os.SEEK_END)
            out.write(b"," + step + _TAIL)
            file.size = out.tell()


def _opened(path: Path) -> _File:
    """A file to go on with: an HPA that was gone for a while has some scenarios in it already."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as held:
        return _File(path, scenarios=sum(1 for _ in held), size=held.tell())
    return _File(path)


def _private(path: str, flags: int) -> int:
    """Opens a file that, if it is created, no other user can read at any moment: it tells what each HPA sees."""
    return os.open(path, flags, 0o600)


def _is_cut(out: BinaryIO) -> bool:
    """Whether the last line of the file has no end, since a step was written in part."""
    if not out.tell():
        return False
    out.seek(-1, os.SEEK_END)
    return out.read(1) != b"\n"


def file_name(namespace: str, name: str, started: str) -> str:
    """Of a record; whatever an HPA is called, it is one name and no path.

    One that would be longer than file systems let it be is cut, and told from others by a digest.
    """
    stem, tail = f"{quote(namespace, safe='')}.{quote(name, safe='')}", f".{started}.jsonl"
    room = _LONGEST_NAME - len(tail) - _NUMBER
    if len(stem) > room:
        digest = hashlib.sha256(stem.encode()).hexdigest()[:16]
        stem = f"{stem[: room - 1 - len(digest)]}-{digest}"
    return stem + tail
