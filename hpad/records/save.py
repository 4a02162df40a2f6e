"""Writes a recording to a new file at once: a file of its name is complete."""

import contextlib
import gzip
import os
import tempfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import IO, Final

from hpad.records.format import RecordingError

_LEVEL: Final = 6
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
