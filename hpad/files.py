"""Reads files within a limit, opens those that others may replace at any time, and recognizes that they were."""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Final

LARGEST: Final = 64 << 20
"""Bytes of a file that a person names: more than any manifest, table or configuration has."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens a regular file for reading. Raises OSError, also for anything else, such as a pipe. Blocks.

    The file may be replaced between a look at it and its opening. So what was opened is checked, and opening or reading
    it never waits: opening a FIFO without O_NONBLOCK would wait for its writer.
    """
    regular(path)  # to open a device may have effects
    with open(path, "rb", opener=_open_at_once) as file:
        _check_regular(os.fstat(file.fileno()))
        yield file


def regular(path: str | Path) -> os.stat_result:
    """Returns the status of a regular file, of that at the end of a link. Raises OSError, also for anything else."""
    found = Path(path).stat()
    try:
        _check_regular(found)
    except OSError as error:
        error.filename = str(path)
        raise
    return found


def content(path: Path, most: int = LARGEST) -> bytes:
    """Returns the content of a file, or of a pipe, as of the shell's `<(command)`, which is waited for.

    Raises OSError if it cannot be read, also for more than `most` bytes. Blocks.
    """
    with path.open("rb") as file:
        found = file.read(most + 1)
    check_size(len(found), most)
    return found


def check_size(size: int, most: int = LARGEST) -> None:
    """Raises OSError for more than `most` bytes, a whole number of MiB."""
    if size > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB")


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _check_regular(stat: os.stat_result) -> None:
    if not S_ISREG(stat.st_mode):
        raise OSError(errno.EINVAL, "not a file")


Stamps = Mapping[str, tuple[int, ...]]
"""The stamp of each file by its path: it changes when the file is written, replaced, removed, or gets other rights."""


def stamps(paths: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Returns the stamp of each file. Never raises. Blocks.

    Links are followed: a mounted ConfigMap replaces the link to the folder of its files. The new file may have size and
    time of the old one, but not its inode. Anything else than a file keeps its stamp: a pipe cannot be read again.
    """
    return {path: _stamp(path) for path in paths}


def _stamp(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError as error:
        return (error.errno or 0,)
    except ValueError:  # a null character in the path
        return (errno.ENOENT,)
    if not S_ISREG(found.st_mode):
        return (0,)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
