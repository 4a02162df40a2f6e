"""Builds the sdist and, from it, the wheel: `make dist`, or `python .ci/dist.py [FOLDER [--no-isolation]]`.

With --no-isolation the setuptools of this environment builds them, as in the tests; else the newest one.

They contain the files tracked by git, as they are in the working tree, and hpad/build.json with commit and date. The
build is reproducible: the same commit and tools give the same bytes, because every time in the files is
SOURCE_DATE_EPOCH, by default the commit's. An unpacked sdist, which has no git, uses its own files and build.json.
"""

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path("hpad/build.json")
_MADE = ("*.egg-info", "PKG-INFO", "setup.cfg", "__pycache__", "dist", "build", ".venv", ".*_cache", ".cache")
_EARLIEST = 315532800
"""1980-01-01, the earliest time in zip archives, and so in wheels."""


class Origin(NamedTuple):
    """The commit of the files, and its time in seconds since 1970."""

    commit: str
    epoch: int


def main(arguments: list[str]) -> None:
    """Builds into a folder, and prints the paths of the files."""
    target = Path(arguments[0] if arguments else "dist").resolve()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hpad-dist-") as scratch:
        tree, built = Path(scratch, "tree"), Path(scratch, "built")
        origin = _exported(tree)
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(origin.epoch), "PYTHONHASHSEED": "0"}
        how = arguments[1:] or [f"--installer={'uv' if shutil.which('uv') else 'pip'}"]
        command = [sys.executable, "-m", "build", *how, "--outdir", str(built)]
        subprocess.run([*command, "--sdist", str(tree)], check=True, env=environ, stdout=subprocess.DEVNULL)
        (sdist,) = built.iterdir()
        _settle(sdist, origin.epoch)
        unpacked = Path(scratch, "unpacked")
        with tarfile.open(sdist) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # absent before Python 3.11.4
            archive.extractall(unpacked)
        (source,) = unpacked.iterdir()
        subprocess.run([*command, "--wheel", str(source)], check=True, env=environ, stdout=subprocess.DEVNULL)
        for file in sorted(built.iterdir()):
            print(shutil.copy(file, target))


def _exported(tree: Path) -> Origin:
    """Copies the files to `tree`, and writes build.json there."""
    if not (ROOT / ".git").exists():
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*_MADE))
        noted = json.loads((tree / BUILD).read_text(encoding="utf-8")) if (tree / BUILD).exists() else None
        when = datetime.fromisoformat(noted["date"]) if noted else datetime.fromtimestamp(_EARLIEST, UTC)
        return Origin(noted["commit"] if noted else "", _epoch(int(when.timestamp())))
    for name in _git("ls-files", "-z").split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    changed = "+changes" if _git("status", "--porcelain", "--untracked-files=no") else ""
    origin = Origin(_git("rev-parse", "HEAD").strip() + changed, _epoch(int(_git("log", "-1", "--format=%ct"))))
    date = datetime.fromtimestamp(origin.epoch, UTC).isoformat()
    (tree / BUILD).write_text(json.dumps({"commit": origin.commit, "date": date}) + "\n", encoding="utf-8")
    return origin


def _epoch(committed: int) -> int:
    return max(_EARLIEST, int(os.environ.get("SOURCE_DATE_EPOCH") or committed))


def _git(*arguments: str) -> str:
    safe = f"safe.directory={ROOT}"  # git refuses a checkout of another user, as in a container
    return subprocess.run(["git", "-c", safe, *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _settle(sdist: Path, epoch: int) -> None:
    """Rewrites the archive with constant values for all that depends on the builder and the time."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with sdist.open("wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=epoch) as squeezed:
        squeezed.write(packed.getvalue())


if __name__ == "__main__":
    main(sys.argv[1:])
