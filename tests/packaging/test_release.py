"""sdist and wheel: built as for a release; the wheel is installed in an empty environment, and used there.

The sdist needs no environment of its own: installing it installs the wheel that it builds, the same byte for byte.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from hpad import __version__

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / ".git").exists():
    pytest.skip("releases are built in a clone", allow_module_level=True)
KNOWN = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
SCENARIO = {
    "id": "one",
    "hpa": {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
            "minReplicas": 1,
            "maxReplicas": 20,
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {"name": "queue"},
                        "target": {"type": "AverageValue", "averageValue": "15"},
                    },
                }
            ],
        },
    },
    "steps": [
        {
            "time": "2026-01-01T12:00:00Z",
            "scale": {"spec": {"replicas": 3}, "status": {"replicas": 3, "selector": "app=web"}},
            "externalMetrics": {"queue": {"items": [{"metricName": "queue", "value": "80"}]}},
        }
    ],
}
"""80 messages at 15 per worker need 6 replicas, which is also twice the present 3, the most at once."""
LOAD = """
import importlib.metadata
from hpad.sources import plugins
names = [point.name for point in importlib.metadata.entry_points(group=plugins.GROUP)]
print(*sorted(name for name in names if plugins.adapter_class(name)))
"""


class Release(NamedTuple):
    sdist: Path
    wheel: Path


def output(command: Sequence[object], cwd: Path, **environ: str) -> str:
    """Returns the output of a command, which must not fail, without this checkout in its environment."""
    foreign = ("PYTHON", "HPAD", "COV", "SSL_CERT")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    kept.pop("SOURCE_DATE_EPOCH", None)
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env={**kept, **environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def built(source: Path, target: Path) -> Release:
    output([sys.executable, source / ".ci/dist.py", target, "--no-isolation"], source)
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return Release(sdist, wheel)


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return built(ROOT, tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="session")
def unpacked(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(release.sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not before Python 3.11.4
        archive.extractall(folder)
    return folder / f"hpad-{__version__}"


def install_of_the_image(wheels: Path, environment: Path) -> str:
    """Returns the command by which the Containerfile installs the wheels, for other folders."""
    text = (ROOT / "Containerfile").read_text("utf-8").replace("\\\n", "")
    found = re.search(r"^RUN (python -m venv .*)$", text, re.M)
    assert found is not None
    command = found[1].replace("--no-cache-dir", "--quiet --no-compile --disable-pip-version-check")
    here = command.replace("/opt/hpad", str(environment)).replace("/wheels", str(wheels))
    return re.sub(r"(^| )python -m", rf"\1{sys.executable} -m", here)


@pytest.fixture(scope="module")
def installed(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of programs of an environment with only hpad and its dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    python = folder / "env/bin/python"
    if shutil.which("uv"):
        output(["uv", "venv", "--quiet", "--python", sys.executable, folder / "env"], folder)
        output(["uv", "pip", "install", "--quiet", "--python", python, release.wheel], folder)
    else:
        output(["sh", "-e", "-c", install_of_the_image(release.wheel.parent, folder / "env")], folder, EXTRAS="")
    return folder / "env/bin"


def files(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def test_the_wheel_has_all_files_of_the_packages(release: Release) -> None:
    listed = {name.removeprefix("adapters/") for name in KNOWN if name.startswith(("hpad/", "adapters/"))}
    packed = {name for name in files(release.wheel) if ".dist-info/" not in name}
    assert packed == listed | {"hpad/build.json"}


def test_the_sdist_has_configuration_and_tests(unpacked: Path) -> None:
    for name in (
        "config/hpad.yaml",
        "systemd/hpad.service",
        "tests/conftest.py",
        "CHANGELOG.md",
        "Makefile",
        ".ci/run",
    ):
        assert (unpacked / name).is_file(), name
    assert [name for name in KNOWN if name.startswith("tests/") and not (unpacked / name).is_file()] == []
    assert not list(unpacked.rglob("*.pyc"))


def test_an_sdist_builds_the_same_sdist_and_wheel_byte_for_byte(
    release: Release, unpacked: Path, tmp_path: Path
) -> None:
    again = built(unpacked, tmp_path)
    assert files(again.wheel) == files(release.wheel)
    assert again.wheel.read_bytes() == release.wheel.read_bytes()
    assert again.sdist.read_bytes() == release.sdist.read_bytes()


def test_the_version_names_the_commit(installed: Path, tmp_path: Path) -> None:
    version = json.loads(output([installed / "hpad", "version", "-o", "json"], tmp_path))
    assert version["version"] == __version__
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", version["commit"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", version["date"])
    assert version["executable"].startswith(str(installed.parent))


def test_the_commands_work(installed: Path, tmp_path: Path) -> None:
    assert output([installed / "hpad", "demo", "--help"], tmp_path).startswith("usage: hpad demo")
    scenario = tmp_path / "one.json"
    scenario.write_text(json.dumps(SCENARIO))
    (step,) = json.loads(output([installed / "hpad", "replay", scenario], tmp_path))["steps"]
    assert (step["scaleTo"], step["error"]) == (6, None)


def test_the_adapters_load(installed: Path, tmp_path: Path) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["hpad.adapters"]
    assert output([installed / "python", "-c", LOAD], tmp_path).split() == sorted(declared)


def test_data_files_are_installed(installed: Path, tmp_path: Path) -> None:
    code = "from hpad.lab.demo import documents; print(documents.__file__)"
    package = Path(output([installed / "python", "-c", code], tmp_path).strip()).parent
    assert package.is_relative_to(installed.parent)
    assert {file.name for file in (package / "manifests").iterdir()} == {"php-apache.yaml", "worker.yaml"}
    assert (package.parent.parent / "py.typed").is_file()


def test_changelog_and_package_have_the_same_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changes, re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__
    assert "version" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Asserts that building leaves no files in the checkout."""
    made = [ROOT / name for name in ("dist", "build", "hpad/build.json") if not (ROOT / name).exists()]
    yield
    assert not [path for path in made if path.exists()]
