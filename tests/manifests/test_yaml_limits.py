"""Limits of manifest files: too large ones are refused early, and large ones do not delay the others."""

import asyncio
import gc
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpad.api import yaml_reader
from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.manifests import documents, folder
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
    """Whether the last document has the error for too many nodes."""
    return [fault.text for fault in found[-1].faults] == [yaml_reader.TOO_MANY]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Limits a file to 1,000 nodes."""
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
def test_a_file_of_too_many_nodes_is_refused_before_they_are_built(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes of each of these would take about 100 MiB."""
    built = kind == "documents"  # up to the limit
    monkeypatch.setattr(yaml_reader, "MAX_NODES", 2000 if built else 20_000)
    text = LARGE[kind]
    tracemalloc.start()
    try:
        found = parse(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    repeated = "not valid YAML: its aliases stand for far more than was written"
    assert [fault.text for fault in found[-1].faults] == [repeated if kind == "aliases" else yaml_reader.TOO_MANY]
    if not built:
        assert len(found) == 1
        assert peak < 5 * len(text) + 8 * MIB  # copies of the text, and little else


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
def test_more_nodes_than_the_limit_are_refused(few: int, text: str, suffix: str) -> None:
    found = parse(text, suffix)
    assert refused(found)
    assert "split it" in found[-1].faults[0].text


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
def test_as_many_nodes_as_the_limit_are_read(few: int, text: str, suffix: str) -> None:
    """The count of YAML is exact: a map, its key, a list, and 997 values are 1,000."""
    assert [fault for document in parse(text, suffix) for fault in document.faults] == []


def test_documents_before_the_limit_are_read(few: int) -> None:
    found = parse(GOOD.format("a", 3) + "b: [" + "x," * 1000 + "x]\n")
    assert found[0].value["metadata"] == {"name": "a"}
    assert refused(found[1:])


class Watched:
    """A folder whose file `large.yaml` is not read until `go` is set."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.folder = Folder(path, SystemClock(), poll_seconds=0.005)
        self.reading, self.go = threading.Event(), threading.Event()
        self.threads: set[threading.Thread] = set()
        parse = documents.parse

        def slowly(content: bytes, file: str, suffix: str) -> list[Document]:
            self.threads.add(threading.current_thread())
            if Path(file).name.startswith("large"):
                self.reading.set()
                assert self.go.wait(SOON)
            return parse(content, file, suffix)

        monkeypatch.setattr(documents, "parse", slowly)

    def write(self, name: str, text: str) -> None:
        (self.path / ".fresh").write_text(text)
        (self.path / ".fresh").rename(self.path / name)

    def maximum(self, name: str) -> int | None:
        hpa = self.folder.get(Key("default", name))
        return None if hpa is None else hpa.spec.max_replicas

    async def until(self, name: str, maximum: int | None) -> None:
        async with asyncio.timeout(SOON):
            while self.maximum(name) != maximum:  # noqa: ASYNC110  # the folder has no event for it
                await asyncio.sleep(0.002)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    created = Watched(tmp_path, monkeypatch)
    yield created
    created.go.set()


def large(*hpas: str) -> str:
    return "".join(hpas) + "#" * folder.LARGE


async def test_changes_of_other_files_are_applied_while_a_large_file_is_read(watched: Watched) -> None:
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


async def test_an_hpa_that_moves_into_a_large_file_is_never_removed(watched: Watched) -> None:
    removed: list[Key] = []
    watched.go.set()
    watched.write("a.yaml", GOOD.format("web", 3))
    await watched.folder.refresh()
    watched.folder.subscribe(lambda key, old, new: removed.append(key) if new is None else None)
    watched.write("large.yaml", large(GOOD.format("web", 3), GOOD.format("api", 4)))
    (watched.path / "a.yaml").unlink()
    for _ in range(4):
        await watched.folder.refresh()
    assert (watched.maximum("web"), watched.maximum("api"), removed) == (3, 4, [])


async def test_an_hpa_that_moves_into_a_file_that_is_being_read_is_never_removed(watched: Watched) -> None:
    removed: list[Key] = []
    watched.write("a.yaml", GOOD.format("web", 3))
    running = asyncio.create_task(watched.folder.run())
    await watched.until("web", 3)
    watched.folder.subscribe(lambda key, old, new: removed.append(key) if new is None else None)
    watched.write("large.yaml", large(GOOD.format("web", 3)))
    async with asyncio.timeout(SOON):
        await asyncio.to_thread(watched.reading.wait)
    (watched.path / "a.yaml").unlink()
    for number in range(4):  # each of these causes a scan
        watched.write("b.yaml", GOOD.format("other", number + 1))
        await watched.until("other", number + 1)
    watched.go.set()
    await watched.until("web", 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert removed == []


async def test_a_scan_with_several_large_files_counts_as_one(watched: Watched) -> None:
    """An HPA is removed only after two scans in a row did not find it."""
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


async def test_the_folder_is_synced_only_after_its_large_files_are_read(watched: Watched) -> None:
    """Otherwise their HPAs would start without their stored state."""
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


async def test_only_the_first_problems_of_a_file_are_kept_with_the_number_of_the_others(tmp_path: Path) -> None:
    followed = Folder(tmp_path, SystemClock())
    (tmp_path / "a.yaml").write_text("--- text\n" * 500)
    await followed.refresh()
    (problems,) = followed.errors.values()
    assert len(problems) == 101
    assert problems[100].at("a.yaml") == "a.yaml:101: 400 more problems from here on"


def nodes() -> int:
    """Returns the number of YAML nodes in memory."""
    gc.collect()
    return sum(isinstance(each, yaml.Node) for each in gc.get_objects())


async def test_the_nodes_of_a_file_are_not_kept(tmp_path: Path) -> None:
    before = nodes()
    followed = Folder(tmp_path, SystemClock())
    (tmp_path / "a.yaml").write_text(GOOD.format("web", 3) + GOOD.format("bad", 0))
    await followed.refresh()
    assert nodes() <= before
    assert followed.get(Key("default", "web")) is not None
    (problems,) = followed.errors.values()
    assert {problem.line for problem in problems} == {13}
