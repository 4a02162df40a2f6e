"""Writes a recording to a new file at once: a file of its name is complete.

So are the last reconciles of a running daemon saved.
"""

import asyncio
import contextlib
import gzip
import os
import tempfile
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Final

import structlog

from hpad.clock import Clock
from hpad.engine.turn import Reconcile
from hpad.records import recent
from hpad.records.format import RecordingError

_LEVEL: Final = 6
"""The default of gzip(1): the higher levels take twice the time or more for a few percent."""
_PREFIX_LENGTH: Final = 100
_NAME: Final = "recent"
_LONGEST: Final = timedelta(hours=1)
"""A save that takes longer has ended without its file."""


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


def remove_parts(folder: Path, name: str, before: datetime) -> None:
    """Removes unfinished files of names that begin with `name`, last changed before that time. Blocks, never raises."""
    with contextlib.suppress(OSError):
        for part in folder.glob(f".{name}*"):
            if part.stat().st_mtime < before.timestamp():
                part.unlink()


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
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0) as out:
        out.writelines(lines)


async def save_recent(kept: recent.RecentReconciles, folder: Path | None, clock: Clock) -> None:
    """Saves the reconciles in memory as a recording. Logs the file, or why there is none."""
    log = structlog.get_logger("hpad.record")
    if not kept.is_on:
        log.warning("nothing saved: record_recent is off; `record_recent: 10m` keeps the decisions of ten minutes")
        return
    if folder is None:
        log.error("nothing saved: no folder; name one with record_recent_dir")
        return
    reconciles = kept.all()
    if not reconciles:
        log.warning("nothing saved: no decision is in memory")
        return
    try:
        path = await asyncio.to_thread(write_recent, reconciles, folder, clock.now())
    except RecordingError as error:
        log.error("nothing saved", error=str(error))
    except Exception:  # a failed save must not end the daemon
        log.exception("bug: saving failed with an unexpected exception")
    else:
        hpas = len({done.view.key for done in reconciles})
        log.info("saved the last decisions", file=str(path), hpas=hpas, reconciles=len(reconciles))


def write_recent(reconciles: Sequence[Reconcile], folder: Path, now: datetime) -> Path:
    """Writes `recent.TIME.jsonl.gz`, with the time in microseconds so that each signal has a file of its own.

    Removes what processes that were killed during a save have left in the folder. Blocks. Raises RecordingError.
    """
    path = folder / f"{_NAME}.{now:%Y%m%dT%H%M%S.%fZ}.jsonl.gz"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RecordingError(f"cannot save to {folder}: {error.strerror or error}") from None
    remove_parts(folder, f"{_NAME}.", now - _LONGEST)
    write(path, recent.lines(reconciles))
    return path
