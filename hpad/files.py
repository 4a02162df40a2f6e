"""Opens files that others may replace at any time."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens a regular file for reading. Raises OSError, also for anything else, such as a pipe. Blocks.

    The file may be replaced between a look at it and its opening. So what was opened is checked, and opening or reading
    it never waits: opening a FIFO without O_NONBLOCK would wait for its writer.
    """
    _check_regular(path.stat())  # to open a device may have effects
    with open(path, "rb", opener=_open_at_once) as file:
        _check_regular(os.fstat(file.fileno()))
        yield file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _check_regular(stat: os.stat_result) -> None:
    if not S_ISREG(stat.st_mode):
        raise OSError(errno.EINVAL, "not a file")
