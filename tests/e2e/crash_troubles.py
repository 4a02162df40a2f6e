"""What befalls the store of `crashing`: between two lives, for the whole of one, or at its clock."""

import contextlib
import os
import random
import resource
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

SPOILS = ("truncated", "garbage", "lost", "newer")
ALL = (*SPOILS, "full", "locked", "readonly", "deleted", "clock")
JUMPS = (timedelta(0), timedelta(hours=1), -timedelta(hours=1), timedelta(hours=3), -timedelta(hours=26))
NOBODY = 65534
STRIKES = 0.1
"""How often, in a life whose file is deleted while it is in use."""


class Trouble:
    """One life's, drawn from the dice. `kind` is one of ALL, "any" of them, or ""."""

    def __init__(self, kind: str, path: Path, dice: random.Random) -> None:
        self.kind = dice.choice(ALL) if kind == "any" else kind
        self.shift = dice.choice(JUMPS) if self.kind == "clock" else timedelta(0)
        """How far the clock is off."""
        self.spoils = self.kind in SPOILS and dice.random() < 0.5
        """Whether records are damaged that have been saved."""
        self._path = path
        self._dice = random.Random(dice.randrange(1 << 30))

    @contextlib.contextmanager
    def befalls(self) -> Iterator[None]:
        """For the parent, around a life."""
        if self.spoils:
            self._spoil()
        if self.kind != "locked" or not self._path.exists() or self._dice.random() < 0.5:
            yield
            return
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as other:
            with contextlib.suppress(sqlite3.DatabaseError):  # what is no database can't be locked
                other.execute("BEGIN EXCLUSIVE")
            yield

    def suffer(self) -> None:
        """For the child, before its life begins."""
        if self.kind == "full" and self._dice.random() < 0.8:
            sizes = [file.stat().st_size for file in self._files()]
            room = max([*sizes, 0]) + self._dice.choice([0, 0, 4096, 65536])
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        if self.kind == "readonly" and self._dice.random() < 0.6:
            _shut(self._path.parent)

    def strikes(self) -> bool:
        """For the child, before each save; whether all that was saved is gone now."""
        if self.kind != "deleted" or self._dice.random() > STRIKES:
            return False
        for file in self._files():
            file.unlink()
        return True

    def _files(self) -> list[Path]:
        files = (self._path, self._path.with_name(f"{self._path.name}-wal"))
        return [file for file in files if file.exists()]

    def _spoil(self) -> None:
        if self.kind == "lost":
            shutil.rmtree(self._path.parent, ignore_errors=True)
        for file in self._files():
            if self.kind == "truncated" and self._dice.random() < 0.7:
                os.truncate(file, self._dice.randrange(file.stat().st_size + 1))
            elif self.kind == "garbage":
                with file.open("r+b") as out:
                    out.seek(self._dice.choice([0, self._dice.randrange(file.stat().st_size + 1)]))
                    out.write(self._dice.randbytes(self._dice.choice([1, 16, 5000])))
            elif self.kind == "newer" and file == self._path:
                with contextlib.closing(sqlite3.connect(file)) as later, contextlib.suppress(sqlite3.DatabaseError):
                    later.execute("PRAGMA user_version = 99")


def _shut(folder: Path) -> None:
    """Be somebody who may not write there, for the rest of this process; root becomes nobody for that."""
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
