"""The samples: all of config/hpas can be applied at once, and no two samples claim one name or one target."""

from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from support import kubectl_binaries

pytest_plugins = ("support.kubectl_fixtures",)
ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("hpas", "manifests")


def samples(folder: str) -> list[dict[str, Any]]:
    files = sorted((ROOT / "config" / folder).glob("*.yaml"))
    return [document for path in files for document in yaml.safe_load_all(path.read_text("utf-8"))]


def test_no_sample_takes_the_name_or_the_target_of_another() -> None:
    every = [each for folder in FOLDERS for each in samples(folder)]
    assert len(every) >= 13
    names = Counter(each["metadata"]["name"] for each in every)
    targets = Counter(tuple(sorted(each["spec"]["scaleTargetRef"].items())) for each in every)
    assert {name: count for name, count in (names | targets).items() if count > 1} == {}
    assert {each["metadata"].get("namespace") for each in every} == {None}


async def test_the_folder_is_applied_as_a_whole(processes: kubectl_binaries.Kubectl) -> None:
    said = await processes(f"apply -f {ROOT / 'config' / 'hpas'}")
    expected = {each["metadata"]["name"] for each in samples("hpas")}
    assert len(said.splitlines()) == len(expected)
    assert all(line.endswith(" created") for line in said.splitlines()), said
    assert await processes.names("hpa") == expected
    again = await processes(f"apply -f {ROOT / 'config' / 'hpas'}")
    assert len(again.splitlines()) == len(expected)
    assert all(line.endswith(" unchanged") for line in again.splitlines()), again
