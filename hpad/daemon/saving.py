"""Saves the last reconciles of a running daemon as a recording, and says in the log what was written."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import structlog

from hpad.daemon.app import App
from hpad.engine.turn import Reconcile
from hpad.records import recent, save
from hpad.records.format import RecordingError

_NAME: Final = "recent"
_LONGEST: Final = timedelta(hours=1)
"""A save that takes longer has ended without its file."""


async def save_recent(daemon: App) -> None:
    """Saves the reconciles in memory to the folder of the settings. Logs the file, or why there is none."""
    log = structlog.get_logger("hpad.record")
    kept, folder = daemon.components.recent, daemon.settings.recent_folder
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
        path = await asyncio.to_thread(write, reconciles, folder, daemon.clock.now())
    except RecordingError as error:
        log.error("nothing saved", error=str(error))
    except Exception:  # a failed save must not end the daemon
        log.exception("bug: saving failed with an unexpected exception")
    else:
        hpas = len({done.view.key for done in reconciles})
        log.info("saved the last decisions", file=str(path), hpas=hpas, reconciles=len(reconciles))


def write(reconciles: Sequence[Reconcile], folder: Path, now: datetime) -> Path:
    """Writes `recent.TIME.jsonl.gz`, with the time in microseconds so that each signal has a file of its own.

    Removes what processes that were killed during a save have left in the folder. Blocks. Raises RecordingError.
    """
    path = folder / f"{_NAME}.{now:%Y%m%dT%H%M%S.%fZ}.jsonl.gz"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RecordingError(f"cannot save to {folder}: {error.strerror or error}") from None
    save.remove_parts(folder, f"{_NAME}.", now - _LONGEST)
    save.write(path, recent.lines(reconciles))
    return path
