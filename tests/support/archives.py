"""Archives of the decision history, for tests."""

import functools
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from support import virtual_time
from support.decisions import scaled

from hpad.api.metadata import Key
from hpad.clock import moment_of
from hpad.engine.turn import Reconcile
from hpad.records.archive import DEFAULT, Archive, HistoryLimits
from hpad.records.entry import Stored
from hpad.records.stretch import Reason, Stretch, reason
from hpad.records.tables import Search

T = TypeVar("T")
WEB, API = Key("shop", "web"), Key("shop", "api")
EVERYTHING = Search(limit=1 << 30, steps=True)
FAR = 1 << 60


def stretch(number: int, key: Key = WEB, *, ended: int | None = None, size: int = 300) -> Stretch:
    """A stretch that began at its number, in microseconds since 1970, and ended one later."""
    done, why = _reconcile()
    made = Stretch(done, why, done)
    made.number, made.key = number, key
    made.began, made.ended = moment_of(number), moment_of(number + 1 if ended is None else ended)
    made.readings = [(made.began, (5, (number,)))]
    made.unsaved = Stored(b"said-%d" % number, hashlib.shake_128(b"%d" % number).digest(size))
    return made


@functools.cache
def _reconcile() -> tuple[Reconcile, Reason]:
    (done,) = scaled(50).done
    return done, reason(done)


def use(path: Path | None, work: Callable[[Archive], Awaitable[T]], limits: HistoryLimits = DEFAULT) -> T:
    """Opens the archive, loads it, runs `work`, and closes it."""

    async def main() -> T:
        archive = Archive(path, virtual_time.VirtualClock(), limits)
        await archive.load()
        result = await work(archive)
        await archive.close()
        return result

    return virtual_time.run(main())


def put(path: Path, *stretches: Stretch, limits: HistoryLimits = DEFAULT) -> None:
    async def work(archive: Archive) -> None:
        for each in stretches:
            archive.put(each)

    use(path, work, limits)


async def found(archive: Archive, key: Key = WEB, search: Search = EVERYTHING) -> list[int]:
    """Returns the numbers of the entries that the archive has."""
    return [each.number for each in await archive.find(key, search, None)]


def numbers(path: Path, key: Key = WEB, search: Search = EVERYTHING) -> list[int]:
    return use(path, lambda archive: found(archive, key, search))


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.damaged-*Z"))
