"""Archives of the decision history in a file, for tests."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from support import virtual_time

from hpad.api.metadata import Key
from hpad.decisions.archive import DEFAULT, Limits, Search
from hpad.decisions.compact import Stored
from hpad.decisions.file import FileArchive

T = TypeVar("T")
WEB, API = Key("shop", "web"), Key("shop", "api")
EVERYTHING = Search(limit=1 << 30, traces=True)
FAR = 1 << 60


def stored(number: int, *, ended: int | None = None, size: int = 300) -> Stored:
    """An entry that began at its number and ended one later."""
    end = number + 1 if ended is None else ended
    return Stored(number, number, end, b"head-%d" % number, random.Random(number).randbytes(size))


def use(path: Path, work: Callable[[FileArchive], Awaitable[T]], limits: Limits = DEFAULT) -> T:
    """Opens the archive, loads it, runs `work`, and closes it."""

    async def main() -> T:
        archive = FileArchive(path, virtual_time.VirtualClock(), limits)
        await archive.load()
        result = await work(archive)
        await archive.close()
        return result

    return virtual_time.run(main())


def put(path: Path, *entries: Stored, key: Key = WEB, limits: Limits = DEFAULT) -> None:
    async def work(archive: FileArchive) -> None:
        for each in entries:
            archive.put(key, each)

    use(path, work, limits)


def numbers(path: Path, key: Key = WEB, search: Search = EVERYTHING) -> list[int]:
    async def work(archive: FileArchive) -> list[int]:
        return [each.number for each in await archive.find(key, search)]

    return use(path, work)


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.damaged-*Z"))
