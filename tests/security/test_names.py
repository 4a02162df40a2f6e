"""Names and texts from untrusted users: in file names, in files, on a terminal."""

import asyncio
import io
import json
import os
import threading
from pathlib import Path
from stat import S_ISREG

import pytest
import structlog

from hpad import clock
from hpad.api.problem import Problem
from hpad.daemon import logs
from hpad.manifests import documents
from hpad.manifests.folder import Folder
from hpad.records import writer

ESCAPES = "\x1b[2J\x1b[31mred\x9b\r\nfake line\x07\u202eenil\u2028\x7f\udc80"
GOOD = (
    "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n"
    "spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: web, apiVersion: apps/v1}}\n"
)


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_has_no_control_characters(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(written, encoding="utf-8", write_through=True))
    before = structlog.get_config()
    try:
        logs.configure("info", form, {})
        log = structlog.get_logger("hpad")
        log.info(ESCAPES, hpa=ESCAPES, error=ValueError(ESCAPES), lines=[ESCAPES], **{"a\x1b": {ESCAPES: 1}})
        log.info("short", bare="\x1b[31mred", plain="größer")
        try:
            raise ValueError(ESCAPES)
        except ValueError:
            log.exception("failed")
    finally:
        structlog.configure(**before)
    lines = written.getvalue()
    assert b"red" in lines
    assert not set(lines) & {0x1B, 0x07, ord("\r")}
    assert not set(lines.decode()) & set("\x9b\u202e\u2028\x7f")
    assert "größer" in lines.decode()
    if form == "json":  # also the decoded values
        texts = str([json.loads(line) for line in lines.splitlines()])
        assert not set(texts.replace("\\\\u", "")) & set("\x1b\x9b\r\u202e\u2028\x7f\udc80")
    first = lines.splitlines()[0]
    assert b"fake line" in first


def test_a_recording_stays_in_its_folder(tmp_path: Path) -> None:
    """An API server rejects such names, but hpad does not rely on it."""
    name = writer.file_name("../../etc", "/passwd\n", "20260101T000000Z")
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert name == "..%2F..%2Fetc.%2Fpasswd%0A.20260101T000000Z.jsonl"
    assert writer.file_name("shop", "web.v1-2", "20260101T000000Z") == "shop.web.v1-2.20260101T000000Z.jsonl"


def test_entries_that_are_not_files_are_problems_and_block_no_other_manifest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "device.yaml").symlink_to("/dev/zero")
    (tmp_path / "round.yaml").symlink_to("round.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "gone.yaml").symlink_to("nowhere.yaml")
    with (tmp_path / "large.yaml").open("wb") as large:
        large.truncate(1 << 40)
    (tmp_path / "web.yaml").write_text(GOOD)

    async def refreshed() -> Folder:
        folder = Folder(tmp_path, clock.SystemClock())
        await folder.refresh()
        return folder

    folder = asyncio.run(refreshed())
    assert [str(hpa.key) for hpa in folder.values()] == ["default/web"]
    found = {Path(file).name: problems[0].text for file, problems in folder.errors.items()}
    assert set(found) == {"pipe.yaml", "device.yaml", "round.yaml", "folder.yaml", "large.yaml"}
    assert found["pipe.yaml"] == found["device.yaml"] == "cannot be read: not a file"
    assert found["large.yaml"] == "cannot be read: larger than 64 MiB"


def test_a_manifest_that_becomes_a_pipe_after_hpad_looked_at_it_blocks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a FIFO without a writer waits for ever, unless O_NONBLOCK is set."""
    (tmp_path / "evil.yaml").write_text(GOOD)
    (tmp_path / "web.yaml").write_text(GOOD)
    stat = Path.stat

    def swapping(path: Path, **options: bool) -> os.stat_result:
        found = stat(path, **options)
        if path.name == "evil.yaml" and S_ISREG(found.st_mode):
            path.unlink()
            os.mkfifo(path)
        return found

    monkeypatch.setattr(Path, "stat", swapping)
    folder = Folder(tmp_path, clock.SystemClock())
    reading = threading.Thread(target=lambda: asyncio.run(folder.refresh()))
    reading.start()
    reading.join(60)
    waits = reading.is_alive()
    os.close(os.open(tmp_path / "evil.yaml", os.O_RDWR))  # a writer that leaves ends the wait
    reading.join()
    assert not waits
    assert [str(hpa.key) for hpa in folder.values()] == ["default/web"]
    assert folder.errors == {str(tmp_path / "evil.yaml"): (Problem("", "cannot be read: not a file", 1),)}


def test_a_file_longer_than_its_size_is_a_problem(tmp_path: Path) -> None:
    """As of /proc: a file without a size might never end."""
    (tmp_path / "version.yaml").symlink_to("/proc/version")
    folder = Folder(tmp_path, clock.SystemClock())
    asyncio.run(folder.refresh())
    [(problem,)] = folder.errors.values()
    assert problem.text == "cannot be read: longer than its size, 0 bytes"


@pytest.mark.parametrize("suffix", documents.SUFFIXES)
@pytest.mark.parametrize(
    "text",
    [
        "swordfish: [\n",
        "swordfish\n",
        "!swordfish\n",
        "*swordfish",
        "KEY=swordfish\nB=c\n",
        '"swordfish"',
        "- swordfish",
    ],
)
def test_errors_quote_nothing_of_a_linked_file(tmp_path: Path, text: str, suffix: str) -> None:
    """A user who may create links in the folder must not read files of hpad through its log."""
    (tmp_path / "secret").write_text(text)
    (tmp_path / f"web{suffix}").symlink_to("secret")

    async def refreshed() -> Folder:
        folder = Folder(tmp_path, clock.SystemClock())
        await folder.refresh()
        return folder

    [problems] = asyncio.run(refreshed()).errors.values()
    assert "swordfish" not in str(problems)
