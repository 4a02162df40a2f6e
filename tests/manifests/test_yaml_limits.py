"""Files of manifests that are too large: refused before they are built, and no burden to the others."""

import asyncio
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.manifests import documents, folder, yaml_reader
from hpad.manifests.documents import Document
from hpad.manifests.folder import Folder

SOON = 120.0
MIB = 1 << 20
GOOD = (
    "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{name: {0}}}\nspec:\n"
    "  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: w}}\n  maxReplicas: {1}\n---\n"
)


def parse(text: str, suffix: str = ".yaml") -> list[Document]:
    return documents.parse(text.encode(), "file", suffix)


def refused(found: list[Document]) -> bool:
    """Whether the last document says that the file holds too much."""
    return [fault.message for fault in found[-1].faults] == [yaml_reader.TOO_MANY]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """A file may hold 1,000 nodes."""
    monkeypatch.setattr(yaml_reader, "MAX_NODES", 1000)
    return 1000


MANY = 200_000
LARGE = {
    "items of a list": "a:\n" + "- b\n" * MANY,
    "keys": "".join(f"a{number}: 1\n" for number in range(MANY)),
    "items in a row": "[" + "a," * MANY + "a]",
    "pairs": "[" + "a: ," * MANY + "a]",
    "tags": "- !!str a\n" * MANY,
    "aliases": "a: &a [x, x]\nb:\n" + "- *a\n" * MANY,
    "documents": "--- a\n" * MANY,
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_file_of_too_many_nodes_is_refused_before_they_are_made(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Composed, each of these would take some 100 MiB."""
    monkeypatch.setattr(yaml_reader, "MAX_NODES", 20_000)
    text = LARGE[kind]
    tracemalloc.start()
    try:
        found = parse(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    repeated = "not valid YAML: its aliases stand for far more than was written"
    assert [fault.message for fault in found[-1].faults] == [repeated if kind == "aliases" else yaml_reader.TOO_MANY]
    if kind != "documents":  # those before the limit are there, each with its nodes
        assert len(found) == 1
        assert peak < 5 * len(text) + 8 * MIB  # copies of the text, and next to nothing else


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("a:\n" + "- b\n" * 1000, ".yaml"),
        ("- &a [" + "x," * 98 + "x]\n" + "- *a\n" * 10, ".yaml"),
        ('{"a": [' + "1," * 1000 + "1]}", ".json"),
        ("\n" + '{"a": [' + "{}," * 600 + "1]}", ".json"),
        ('{"a": "' + ",[{:" * 500 + '", "b": [' + "1," * 1000 + "1]}", ".json"),
        ("{}\n" * 600, ".jsonl"),
        ('{"a": [' + "1," * 400 + "1]}\n" + '{"a": [' + "1," * 600 + "1]}\n", ".jsonl"),
    ],
)
def test_more_nodes_than_a_file_may_hold(few: int, text: str, suffix: str) -> None:
    found = parse(text, suffix)
    assert refused(found)
    assert "split it" in found[-1].faults[0].message


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("a:\n" + "- b\n" * 997, ".yaml"),
        ("- &a [" + "x," * 98 + "x]\n" + "- *a\n" * 8, ".yaml"),
        ('{"a": [' + "1," * 990 + "1]}", ".json"),
        ('{"a": "' + ",[{:" * 500 + '"}', ".json"),
        ('{"a": "' + ',[{:\\"' * 500 + '"}\n', ".jsonl"),
        ('{"a": 1}\n' * 300, ".jsonl"),
    ],
)
def test_as_many_nodes_as_a_file_may_hold(few: int, text: str, suffix: str) -> None:
    """For YAML to the node: a map, its key, a list, and 997 values are 1,000."""
    assert [fault for document in parse(text, suffix) for fault in document.faults] == []


def test_what_stands_before_the_limit_is_read(few: int) -> None:
    found = parse(GOOD.format("a", 3) + "b: [" + "x," * 1000 + "x]\n")
    assert found[0].value["metadata"] == {"name": "a"}
    assert refused(found[1:])


class Watched:
    """A folder that is followed; `large.yaml` is read when `go` is set."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.folder = Folder(path, SystemClock(), poll_seconds=0.005)
        self.reading, self.go = threading.Event(), threading.Event()
        self.threads: set[threading.Thread] = set()
        read = documents.read

        def slowly(file: Path) -> list[Document]:
            self.threads.add(threading.current_thread())
            if file.name.startswith("large"):
                self.reading.set()
                assert self.go.wait(SOON)
            return read(file)

        monkeypatch.setattr(documents, "read", slowly)

    def write(self, name: str, text: str) -> None:
        (self.path / ".fresh").write_text(text)
        (self.path / ".fresh").rename(self.path / name)

    def maximum(self, name: str) -> int | None:
        held = self.folder.get(Key("default", name))
        return None if held is None else held.spec.max_replicas

    async def until(self, name: str, maximum: int | None) -> None:
        async with asyncio.timeout(SOON):
            while self.maximum(name) != maximum:  # noqa: ASYNC110  # the state of the world
                await asyncio.sleep(0.002)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Watched(tmp_path, monkeypatch)
    yield made
    made.go.set()


def large(*hpas: str) -> str:
    return "".join(hpas) + "#" * folder._LARGE


async def test_changes_of_others_are_taken_up_while_a_large_file_is_read(watched: Watched) -> None:
    watched.write("z.yaml", GOOD.format("good", 5))
    running = asyncio.create_task(watched.folder.run())
    await watched.until("good", 5)
    watched.write("large.yaml", large(GOOD.format("other", 1)))
    async with asyncio.timeout(SOON):
        await asyncio.to_thread(watched.reading.wait)
    watched.write("z.yaml", GOOD.format("good", 9))
    await watched.until("good", 9)
    watched.write("y.yaml", GOOD.format("new", 2))
    await watched.until("new", 2)
    (watched.path / "y.yaml").unlink()
    assert watched.maximum("other") is None
    watched.go.set()
    await watched.until("other", 1)
    await watched.until("new", None)
    assert threading.main_thread() not in watched.threads
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_hpa_that_moves_into_a_large_file_is_never_gone(watched: Watched) -> None:
    gone: list[Key] = []
    watched.go.set()
    watched.write("a.yaml", GOOD.format("web", 3))
    await watched.folder.refresh()
    watched.folder.subscribe(lambda key, old, new: gone.append(key) if new is None else None)
    watched.write("large.yaml", large(GOOD.format("web", 3), GOOD.format("api", 4)))
    (watched.path / "a.yaml").unlink()
    for _ in range(4):
        await watched.folder.refresh()
    assert (watched.maximum("web"), watched.maximum("api"), gone) == (3, 4, [])


async def test_an_hpa_that_moves_into_a_file_that_is_still_being_read_is_never_gone(watched: Watched) -> None:
    gone: list[Key] = []
    watched.write("a.yaml", GOOD.format("web", 3))
    running = asyncio.create_task(watched.folder.run())
    await watched.until("web", 3)
    watched.folder.subscribe(lambda key, old, new: gone.append(key) if new is None else None)
    watched.write("large.yaml", large(GOOD.format("web", 3)))
    async with asyncio.timeout(SOON):
        await asyncio.to_thread(watched.reading.wait)
    (watched.path / "a.yaml").unlink()
    for number in range(4):  # each of these takes a look at the folder
        watched.write("b.yaml", GOOD.format("other", number + 1))
        await watched.until("other", number + 1)
    watched.go.set()
    await watched.until("web", 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert gone == []


async def test_one_look_is_one_look_however_many_large_files_there_are(watched: Watched) -> None:
    """What is gone is believed to be only when two looks in a row did not find it."""
    watched.folder = Folder(watched.path, SystemClock(), poll_seconds=3600)
    watched.go.set()
    watched.write("a.yaml", GOOD.format("web", 3))
    await watched.folder.refresh()
    (watched.path / "a.yaml").unlink()
    for name in "bcd":
        watched.write(f"large-{name}.yaml", large(GOOD.format(name, 1)))
    await watched.folder.refresh()
    assert watched.maximum("web") == 3
    await watched.folder.refresh()
    assert watched.maximum("web") is None


async def test_at_the_start_large_files_are_waited_for(watched: Watched) -> None:
    """Else their HPAs would begin without what is remembered of them."""
    watched.write("large.yaml", large(GOOD.format("web", 3)))
    running = asyncio.create_task(watched.folder.run())
    async with asyncio.timeout(SOON):
        await asyncio.to_thread(watched.reading.wait)
    assert not watched.folder.synced.is_set()
    watched.go.set()
    async with asyncio.timeout(SOON):
        await watched.folder.synced.wait()
    assert watched.maximum("web") == 3
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_of_many_problems_the_first_are_told_and_how_many_more_there_are(tmp_path: Path) -> None:
    followed = Folder(tmp_path, SystemClock())
    (tmp_path / "a.yaml").write_text("--- text\n" * 500)
    await followed.refresh()
    (problems,) = followed.errors.values()
    assert len(problems) == 101
    assert str(problems[100]).endswith("a.yaml:101: 400 more problems from here on")


async def test_what_was_read_is_not_kept_beside_what_was_made_of_it(tmp_path: Path) -> None:
    followed = Folder(tmp_path, SystemClock())
    (tmp_path / "a.yaml").write_text(GOOD.format("web", 3) + GOOD.format("bad", 0))
    await followed.refresh()
    (file,) = followed._files.values()
    assert [(each.document.node, each.document.value) for each in file.loaded] == [(None, None)] * 2
    (problems,) = followed.errors.values()
    assert {problem.line for problem in problems} == {13}
