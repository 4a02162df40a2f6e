"""Faults of the storage and the clock in `crashing`: between two runs, or during a run."""

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
CLOCK_STEPS = (timedelta(0), timedelta(hours=1), -timedelta(hours=1), timedelta(hours=3), -timedelta(hours=26))
NOBODY = 65534
STRIKES = 0.1
"""Probability per save that the file is deleted, in a run with this fault."""


class Trouble:
    """The fault of one run. `kind` is one of ALL, "any" for a random one, or "" for none."""

    def __init__(self, kind: str, path: Path, dice: random.Random) -> None:
        self.kind = dice.choice(ALL) if kind == "any" else kind
        self.shift = dice.choice(CLOCK_STEPS) if self.kind == "clock" else timedelta(0)
        """The shift of the clock."""
        self.spoils = self.kind in SPOILS and dice.random() < 0.5
        """Whether saved records are damaged."""
        self._path = path
        self._dice = random.Random(dice.randrange(1 << 30))

    @contextlib.contextmanager
    def befalls(self) -> Iterator[None]:
        """Applies the faults that the parent process causes, around a run."""
        if self.spoils:
            self._spoil()
        if self.kind != "locked" or not self._path.exists() or self._dice.random() < 0.5:
            yield
            return
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as other:
            with contextlib.suppress(sqlite3.DatabaseError):  # a damaged file cannot be locked
                other.execute("BEGIN EXCLUSIVE")
            yield

    def suffer(self) -> None:
        """Applies the faults that the child process causes to itself, before its run."""
        if self.kind == "full" and self._dice.random() < 0.8:
            sizes = [file.stat().st_size for file in self._files()]
            limit = max([*sizes, 0]) + self._dice.choice([0, 0, 4096, 65536])
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        if self.kind == "readonly" and self._dice.random() < 0.6:
            _forbid_writes()

    def strikes(self) -> bool:
        """Deletes the files with probability STRIKES, in the child before a save; returns whether it did."""
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


def _forbid_writes() -> None:
    """Takes the right to write files from this process; root becomes the user nobody."""
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
