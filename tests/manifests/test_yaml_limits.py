"""Limits of manifest files: too large ones are refused early, and large ones do not stop the event loop."""

import asyncio
import gc
import threading
import tracemalloc
from pathlib import Path

import pytest
import yaml

from hpad.api import yaml_reader
from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.manifests import documents
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


async def test_a_file_is_read_in_a_thread_and_the_hpas_stay_in_force_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only then is the folder synced: an HPA that appeared later would start without its stored state."""
    followed, reading, go = Folder(tmp_path, SystemClock()), asyncio.Event(), threading.Event()
    loop, parse = asyncio.get_running_loop(), documents.parse

    def slowly(content: bytes, file: str, suffix: str) -> list[Document]:
        loop.call_soon_threadsafe(reading.set)
        assert go.wait(SOON)
        return parse(content, file, suffix)

    monkeypatch.setattr(documents, "parse", slowly)
    for maximum, before in ((3, None), (4, 3)):
        reading.clear()
        go.clear()
        (tmp_path / "a.yaml").write_text(GOOD.format("web", maximum) + "#" * maximum)
        scan = asyncio.create_task(followed.refresh())
        async with asyncio.timeout(SOON):
            await reading.wait()
        hpa = followed.get(Key("default", "web"))
        assert (hpa and hpa.spec.max_replicas) == before
        assert followed.synced.is_set() == (before is not None)
        go.set()
        await scan
        (found,) = followed.values()
        assert found.spec.max_replicas == maximum
    assert followed.synced.is_set()


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
