"""The flight recorder: each reconcile's inputs and outputs on disk, readable by `hpad replay`.

A file per HPA and run of the daemon, `NAMESPACE.NAME.START.jsonl`. A line is one whole scenario: it grows by a step per
reconcile, in place, and is complete after every one of them. The next line begins, with the history as it is then,
after a day's worth of steps, where a step does not follow from the last one (an HPA made anew, a break, a clock that
was set), and where a step could not be written (to a file that somebody took away, say).
"""

import asyncio
import os
from collections import deque
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import msgspec
import structlog

from hpad.clock import Clock
from hpad.model import snapshot
from hpad.model.history import History
from hpad.model.hpa import HorizontalPodAutoscalerSpec
from hpad.model.key import Key
from hpad.store import scenario

_LONGEST = 5760
_QUEUED = 10_000
_TAIL = b"]}\n"


class RecordError(Exception):
    """The folder of the records cannot be written to; the message names it and says why."""


class _File(msgspec.Struct):
    """A file being written, the scenario at its end (no steps: none to go on with), and what was left by its last."""

    path: Path
    scenarios: int = 0
    steps: int = 0
    uid: str = ""
    spec: HorizontalPodAutoscalerSpec | None = None
    history: History | None = None


class Journal:
    """Takes reconciles at once (`note`) and writes them in a thread; what cannot be written is reported."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._queue: deque[scenario.Reconciled] = deque(maxlen=_QUEUED)
        self._filled = asyncio.Event()
        self._files: dict[Key, _File] = {}
        self._writer: asyncio.Task[None] | None = None
        self._started = ""
        self._closing = False
        self._log = structlog.get_logger("hpad.record")

    async def start(self) -> None:
        """Raises RecordError."""
        try:
            await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(f"cannot record to {self._folder}: {error.strerror or error}") from None
        self._started = f"{self._clock.now():%Y%m%dT%H%M%SZ}"
        self._writer = asyncio.create_task(self._write())

    async def stop(self) -> None:
        """Write what is left."""
        self._closing = True
        self._filled.set()
        if self._writer is not None:
            await self._writer

    def note(self, done: scenario.Reconciled) -> None:
        """Take a reconcile; never waits."""
        if len(self._queue) == _QUEUED:
            self._log.warning("the disk is too slow: a reconcile is not recorded")
        self._queue.append(done)
        self._filled.set()

    async def _write(self) -> None:
        while self._queue or not self._closing:
            if not self._queue:
                self._filled.clear()
                await self._filled.wait()
                continue
            done = self._queue.popleft()
            try:
                await asyncio.to_thread(self._append, done)
            except (OSError, snapshot.SnapshotError) as error:
                self._log.error("not recorded", hpa=str(done.view.hpa.metadata.key), error=str(error))

    def _append(self, done: scenario.Reconciled) -> None:
        """Runs in a thread, one call at a time."""
        key = done.view.hpa.metadata.key
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = _File(self._folder / file_name(key.namespace, key.name, self._started))
        hpa, steps, file.steps = done.view.hpa, file.steps, 0
        if steps in (0, _LONGEST) or done.view.history != file.history or hpa.metadata.uid != file.uid:
            self._begin(file, done)
        else:
            self._grow(file, done)
            file.steps = steps + 1
        file.uid, file.spec, file.history = hpa.metadata.uid, hpa.spec, done.settlement.history

    def _begin(self, file: _File, done: scenario.Reconciled) -> None:
        head = msgspec.json.encode(scenario.head(done, f"{file.path.stem}-{file.scenarios}"))
        step = msgspec.json.encode(scenario.step(done, new_spec=False))
        with file.path.open("a+b") as out:
            if _is_cut(out):
                out.write(b"\n")
            out.write(head[:-1] + b',"steps":[' + step + _TAIL)
        file.scenarios, file.steps = file.scenarios + 1, 1

    def _grow(self, file: _File, done: scenario.Reconciled) -> None:
        """Put the step where the line's end was: one write, so that a reader sees the line whole."""
        step = msgspec.json.encode(scenario.step(done, new_spec=done.view.hpa.spec != file.spec))
        with file.path.open("r+b") as out:
            out.seek(-len(_TAIL), os.SEEK_END)
            out.write(b"," + step + _TAIL)


def _is_cut(out: BinaryIO) -> bool:
    """Whether the last line of the file has no end, since a step was written in part."""
    if not out.tell():
        return False
    out.seek(-1, os.SEEK_END)
    return out.read(1) != b"\n"


def file_name(namespace: str, name: str, started: str) -> str:
    """Of a record; whatever an HPA is called, it is one name and no path."""
    return f"{quote(namespace, safe='')}.{quote(name, safe='')}.{started}.jsonl"
