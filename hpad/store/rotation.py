"""The files of a folder, kept to so many bytes in all: those that were written to longest ago go first."""

import contextlib
import re
from pathlib import Path
from typing import Final

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
