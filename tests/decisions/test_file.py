"""The archive in a file: what was saved survives a restart or a crash."""

from pathlib import Path

import pytest
from support import virtual_time
from support.archives import API, EVERYTHING, WEB, numbers, put, stored, use

from hpad.decisions.archive import Limits, Search
from hpad.decisions.compact import Stored
from hpad.decisions.file import FileArchive
from hpad.decisions.memory import MemoryArchive


def test_saved_entries_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "decisions.db"
    put(path, *map(stored, range(1, 6)))
    put(path, stored(10), key=API)
    assert path.stat().st_mode & 0o077 == 0

    async def work(archive: FileArchive) -> tuple[list[Stored], list[Stored], int | None]:
        return await archive.find(WEB, EVERYTHING), await archive.find(API, EVERYTHING), await archive.oldest(WEB)

    assert use(path, work) == ([stored(number) for number in range(5, 0, -1)], [stored(10)], 1)

    async def load() -> int:
        archive = FileArchive(path, virtual_time.VirtualClock(), Limits())
        highest = await archive.load()
        await archive.close()
        return highest

    assert virtual_time.run(load()) == 10


@pytest.mark.parametrize(
    ("search", "found"),
    [
        (Search(), [5, 4, 3, 2, 1]),
        (Search(limit=2), [5, 4]),
        (Search(before=4), [3, 2, 1]),
        (Search(since=40), [5, 4, 3]),
        (Search(until=30), [3, 2, 1]),
        (Search(since=25, until=25), [2]),
    ],
)
def test_entries_are_found_by_time_and_number(tmp_path: Path, search: Search, found: list[int]) -> None:
    """As in memory (`test_memory`), whether the entries were saved or not."""
    entries = [Stored(number, 10 * number, 10 * number + 10 - (number != 3), b"") for number in range(1, 6)]

    async def work(archive: FileArchive) -> None:
        in_memory = MemoryArchive(Limits())
        for each in entries:
            archive.put(WEB, each)
            in_memory.put(WEB, each)
            if each.number % 2:
                await archive.save()
            assert await archive.find(WEB, search) == in_memory.found(WEB, search)

    use(tmp_path / "a.db", work)
    assert numbers(tmp_path / "a.db", search=search) == found


def test_an_entry_that_is_put_again_keeps_its_trace(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    longer = Stored(1, 1, 90, b"longer")
    whole = Stored(1, 1, 90, b"longer", stored(1).trace)

    async def work(archive: FileArchive) -> None:
        archive.put(WEB, stored(1))
        await archive.save()
        archive.put(WEB, longer)
        assert await archive.find(WEB, EVERYTHING) == [whole]
        assert await archive.find(WEB, EVERYTHING._replace(since=50)) == [whole]  # the saved version ended before
        await archive.save()
        assert archive.usage().memory == 0
        assert await archive.find(WEB, EVERYTHING) == [whole]
        assert await archive.find(WEB, Search()) == [longer]  # without its trace

    use(path, work)


def test_a_forgotten_hpa_is_gone_at_once_and_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    put(path, stored(1), stored(2))
    put(path, stored(3), key=API)

    async def work(archive: FileArchive) -> None:
        archive.forget(WEB)
        assert (await archive.find(WEB, EVERYTHING), await archive.oldest(WEB)) == ([], None)
        archive.put(WEB, stored(9))  # created again under the same name
        assert await archive.find(WEB, EVERYTHING) == [stored(9)]

    use(path, work)
    assert (numbers(path), numbers(path, API)) == ([9], [3])


def test_noted_progress_survives_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    later = Stored(2, 2, 500, b"as of the last minute")

    async def crash() -> None:
        archive = FileArchive(path, virtual_time.VirtualClock(), Limits())
        await archive.load()
        archive.put(WEB, stored(1))
        archive.put(API, stored(2))
        await archive.save()
        await archive.refresh([(WEB, Stored(1, 1, 400, b"outdated")), (API, later)])
        archive.put(WEB, Stored(1, 1, 450, b"its end"))
        archive.put(WEB, stored(460))
        await archive.save()
        archive.put(WEB, stored(470))  # lost: it was never saved
        await archive._database.close()

    virtual_time.run(crash())

    async def read(archive: FileArchive) -> tuple[list[Stored], list[Stored]]:
        return await archive.find(WEB, Search()), await archive.find(API, Search())

    first = Stored(1, 1, 450, b"its end")
    assert use(path, read) == ([Stored(460, 460, 461, b"head-460"), first], [later])
