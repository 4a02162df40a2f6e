"""A folder of manifests whose files are added, changed, broken, repaired and removed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.manifests import hpas
from hpad.manifests.documents import Document
from hpad.manifests.folder import Folder
from hpad.manifests.hpas import Loaded

WEB, API = Key("default", "web"), Key("default", "api")


def manifest(name: str = "web", maximum: object = 3, extra: str = "") -> str:
    return (
        f"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{name: {name}}}\nspec:\n"
        f"  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}\n  maxReplicas: {maximum}\n"
        f"{extra}---\n"
    )


class Watched:
    """A folder and its reported changes: (key, maxReplicas before, maxReplicas after)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = Folder(path, SystemClock(), poll_seconds=0.005)
        self.changes: list[tuple[str, int | None, int | None]] = []
        self.source.subscribe(self._note)

    def _note(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        assert self.source.get(key) is new
        self.changes.append((str(key), old.spec.max_replicas if old else None, new.spec.max_replicas if new else None))

    def write(self, name: str, text: str) -> None:
        """Replaces a file by renaming a complete new one."""
        fresh = self.path / ".fresh"
        fresh.write_text(text)
        fresh.rename(self.path / name)

    async def scan_twice(self) -> None:
        """Scans as often as the removal of an HPA takes."""
        await self.source.refresh()
        await self.source.refresh()

    def maximum(self, key: Key = WEB) -> int | None:
        hpa = self.source.get(key)
        return None if hpa is None else hpa.spec.max_replicas

    def problems(self) -> list[str]:
        return [
            problem.at(file).removeprefix(f"{self.path}/")
            for file, found in self.source.errors.items()
            for problem in found
        ]


@pytest.fixture
def folder(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


async def test_hpas_are_added_changed_and_removed(folder: Watched) -> None:
    folder.write("a.yaml", manifest())
    await folder.source.refresh()
    assert folder.source.synced.is_set()
    folder.write("b.yml", manifest("api", 7))
    await folder.source.refresh()
    folder.write("a.yaml", manifest(maximum=5))
    await folder.source.refresh()
    (folder.path / "b.yml").unlink()
    await folder.scan_twice()
    assert folder.changes == [
        ("default/web", None, 3),
        ("default/api", None, 7),
        ("default/web", 3, 5),
        ("default/api", 7, None),
    ]
    assert [hpa.metadata.name for hpa in folder.source.values()] == ["web"]
    assert len(folder.source) == 1


async def test_a_change_has_a_new_version_and_generation(folder: Watched) -> None:
    folder.write("a.yaml", manifest())
    await folder.source.refresh()
    before = folder.source.get(WEB)
    folder.write("a.yaml", "# a comment\n" + manifest())
    await folder.source.refresh()
    assert folder.source.get(WEB) is before
    folder.write("a.yaml", manifest(maximum=4))
    await folder.source.refresh()
    after = folder.source.get(WEB)
    assert before is not None
    assert after is not None
    assert (before.metadata.generation, after.metadata.generation) == (1, 2)
    assert before.metadata.resource_version != after.metadata.resource_version
    assert len(folder.changes) == 2


async def test_a_status_in_a_file_is_ignored(folder: Watched) -> None:
    folder.write("a.yaml", manifest(extra="status: {currentReplicas: 5, desiredReplicas: 5}\n"))
    await folder.source.refresh()
    hpa = folder.source.get(WEB)
    assert hpa is not None
    assert hpa.status.desired_replicas == 0


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (
            manifest(maximum="ten"),
            'a.yaml:6: HorizontalPodAutoscaler default/web: spec.maxReplicas: Invalid value: "ten"',
        ),
        (manifest(maximum=0), "a.yaml:6: HorizontalPodAutoscaler default/web: spec.maxReplicas: Required value"),
        (
            manifest(extra="  colour: red\n"),
            "a.yaml:7: HorizontalPodAutoscaler default/web: spec.colour: strict decoding",
        ),
        ("a: [", "a.yaml:2: not valid YAML: "),
        (
            manifest().replace("name: web}\nspec", "nme: web}\nspec"),
            "a.yaml:3: HorizontalPodAutoscaler default/?: metadata.n",
        ),
    ],
)
async def test_a_broken_document_keeps_its_last_valid_hpa(folder: Watched, broken: str, problem: str) -> None:
    folder.write("a.yaml", manifest())
    folder.write("b.yaml", manifest("api"))
    await folder.source.refresh()
    folder.write("a.yaml", broken)
    folder.write("b.yaml", manifest("api", 9))
    await folder.source.refresh()
    assert (folder.maximum(WEB), folder.maximum(API)) == (3, 9)
    assert folder.problems()[0].startswith(problem)
    assert list(folder.source.errors) == [str(folder.path / "a.yaml")]
    folder.write("a.yaml", manifest(maximum=8))
    await folder.source.refresh()
    assert (folder.maximum(), folder.problems()) == (8, [])


async def test_a_document_that_was_never_valid_is_only_a_problem(folder: Watched) -> None:
    folder.write("a.yaml", manifest(maximum=0) + manifest("api"))
    await folder.source.refresh()
    assert (folder.maximum(WEB), folder.maximum(API)) == (None, 3)
    assert folder.problems()


async def test_an_hpa_is_removed_with_its_document(folder: Watched) -> None:
    folder.write("a.yaml", manifest() + manifest("api"))
    await folder.source.refresh()
    folder.write("a.yaml", manifest("api"))
    await folder.scan_twice()
    assert folder.maximum(WEB) is None
    folder.write("a.yaml", "")
    await folder.scan_twice()
    assert not folder.source.values()


async def test_scans_of_a_half_written_file_remove_no_hpa(folder: Watched) -> None:
    folder.write("a.yaml", manifest() + manifest("api"))
    await folder.source.refresh()
    for text in ("", manifest()[:10], manifest(), manifest() + manifest("api", 4)):
        (folder.path / "a.yaml").write_text(text)
        await folder.source.refresh()
        assert len(folder.source) == 2
    assert folder.changes == [("default/web", None, 3), ("default/api", None, 3), ("default/api", 3, 4)]


async def test_the_first_of_two_documents_of_one_name_counts(folder: Watched) -> None:
    folder.write("a.yaml", manifest(maximum=1))
    folder.write("b.yaml", manifest(maximum=2))
    await folder.source.refresh()
    assert folder.maximum() == 1
    [problem] = folder.problems()
    assert problem.startswith("b.yaml:3: HorizontalPodAutoscaler default/web: metadata.name: Duplicate value: ")
    assert f"{folder.path}/a.yaml:1" in problem
    (folder.path / "a.yaml").unlink()
    await folder.source.refresh()
    assert (folder.maximum(), folder.problems()) == (2, [])


async def test_an_autoscaler_stands_beside_the_hpa_of_its_name(folder: Watched) -> None:
    autoscaler = (
        manifest(maximum=5).replace("autoscaling/v2", "hpad.io/v1").replace("HorizontalPodAutoscaler", "Autoscaler")
    )
    folder.write("a.yaml", manifest() + autoscaler)
    await folder.source.refresh()
    assert sorted(folder.changes) == [("default/autoscaler/web", None, 5), ("default/web", None, 3)]
    assert folder.problems() == []


async def test_one_name_in_two_namespaces_is_two_hpas(folder: Watched) -> None:
    folder.write("a.yaml", manifest() + manifest().replace("name: web}\nspec", "name: web, namespace: shop}\nspec"))
    await folder.source.refresh()
    assert {str(hpa.key) for hpa in folder.source.values()} == {"default/web", "shop/web"}


async def test_other_files_and_kinds_are_ignored(folder: Watched) -> None:
    folder.write("notes.txt", "a: [")
    folder.write("deployment.yaml", "apiVersion: apps/v1\nkind: Deployment\n")
    folder.write("a.yaml", manifest())
    (folder.path / "b.yaml").mkdir()
    await folder.source.refresh()
    assert folder.maximum() == 3
    assert [problem.partition(": ")[0] for problem in folder.problems()] == ["b.yaml:1"]


async def test_a_mounted_config_map_replaces_all_files_at_once(folder: Watched) -> None:
    for version, maximum in (("..1", 3), ("..2", 4)):
        (folder.path / version).mkdir()
        (folder.path / version / "a.yaml").write_text(manifest(maximum=maximum))
    (folder.path / "..data").symlink_to("..1")
    (folder.path / "a.yaml").symlink_to("..data/a.yaml")
    await folder.source.refresh()
    assert folder.maximum() == 3
    (folder.path / "..fresh").symlink_to("..2")
    (folder.path / "..fresh").rename(folder.path / "..data")
    await folder.source.refresh()
    assert folder.changes == [("default/web", None, 3), ("default/web", 3, 4)]


async def test_a_folder_that_cannot_be_read_keeps_its_hpas(folder: Watched) -> None:
    folder.write("a.yaml", manifest())
    await folder.source.refresh()
    away = folder.path.with_name("away")
    folder.path.rename(away)
    await folder.source.refresh()
    assert folder.maximum() == 3
    assert folder.source.trouble == f"cannot read {folder.path}: No such file or directory"
    away.rename(folder.path)
    await folder.source.refresh()
    assert folder.maximum() == 3
    assert not folder.source.trouble


async def test_a_single_file_of_any_name_is_followed(folder: Watched) -> None:
    folder.write("other.yaml", manifest("api"))
    folder.write("web", manifest())
    alone = Watched(folder.path / "web")
    await alone.source.refresh()
    folder.write("web", manifest(maximum=4))
    await alone.source.refresh()
    assert alone.changes == [("default/web", None, 3), ("default/web", 3, 4)]
    (folder.path / "web").unlink()
    await alone.scan_twice()
    assert alone.maximum() == 4
    assert alone.source.trouble == f"cannot read {alone.path}: No such file or directory"
    folder.write("web", manifest(maximum=5))
    await alone.source.refresh()
    assert (alone.maximum(), alone.source.trouble) == (5, None)


async def test_a_missing_folder_is_not_synced(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "none")
    await watched.source.refresh()
    assert not watched.source.synced.is_set()
    assert watched.source.staleness(SystemClock().monotonic() + 5) >= 5


@asynccontextmanager
async def running(source: Folder) -> AsyncIterator[None]:
    task = asyncio.create_task(source.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_run_applies_changes(folder: Watched) -> None:
    folder.write("a.yaml", manifest())
    changed = asyncio.Event()
    async with running(folder.source), asyncio.timeout(60):
        await folder.source.synced.wait()
        folder.source.subscribe(lambda key, old, new: changed.set())
        folder.write("a.yaml", manifest(maximum=6))
        await changed.wait()
    assert folder.maximum() == 6


async def test_an_unexpected_exception_is_a_problem_of_its_file_alone(
    folder: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("a.yaml", manifest())
    folder.write("b.yaml", manifest("api", 7))
    await folder.source.refresh()
    load = hpas.load

    def broken(document: Document, **options: Any) -> Loaded:
        if document.file.endswith("a.yaml"):
            raise ZeroDivisionError("secret")
        return load(document, **options)

    monkeypatch.setattr(hpas, "load", broken)
    folder.write("a.yaml", manifest(maximum=4))
    folder.write("b.yaml", manifest("api", 8))
    await folder.source.refresh()
    assert folder.changes[2:] == [("default/api", 7, 8)]
    [(problem,)] = folder.source.errors.values()
    assert problem.text.startswith("cannot be read, because of a bug of hpad: ZeroDivisionError at ")
    assert "secret" not in problem.text
