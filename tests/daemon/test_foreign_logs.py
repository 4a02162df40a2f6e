"""What libraries log."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from hpad.daemon import logs
from hpad.telemetry.episode import AGAIN_SECONDS

SAY = """
import logging
from hpad.daemon import logs
logs.configure("info", "json")
log = logging.getLogger("library")
log.{say}
"""


def said(say: str) -> list[dict[str, object]]:
    code = SAY.format(say=say)
    environ = {name: value for name, value in os.environ.items() if name != "JOURNAL_STREAM"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    return [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("say", "level"),
    [("warning('100%% of %s', 3)", "warning"), ("error('100% of 3')", "error"), ("critical('100% of 3')", "error")],
)
def test_it_is_a_line_like_all_others(say: str, level: str) -> None:
    (line,) = said(say)
    assert (line["event"], line["level"], line["logger"]) == ("100% of 3", level, "library")


def test_what_is_less_than_a_warning_is_not_said() -> None:
    assert said("info('x')") == []


def test_an_exception_is_told_with_its_traceback() -> None:
    (line,) = said("error('failed', exc_info=ZeroDivisionError('x'))")
    assert str(line["exception"]).endswith("ZeroDivisionError: x")


KEPT = """
import linecache, runpy, sys
import structlog
from hpad.daemon import logs
logs.configure("info", sys.argv[1])
try:
    runpy.run_path(sys.argv[2])
except ZeroDivisionError:
    structlog.get_logger().exception("failed")
print(len(linecache.cache))
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_of_the_source_that_a_traceback_shows_nothing_is_kept(tmp_path: Path, form: str) -> None:
    (tmp_path / "bad.py").write_text("1 / 0  # the line at fault\n")
    command = [sys.executable, "-c", KEPT, form, str(tmp_path / "bad.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "the line at fault" in done.stderr
    assert int(done.stdout) == 0


def test_what_a_library_logs_with_each_attempt_is_said_once() -> None:
    """What differs in the arguments alone is of one sort; another message, or kind of exception, is another sort."""
    lines = said(
        "warning('no transport: %s', 0)\nfor n in range(50): log.warning('no transport: %s', n)\n"
        "log.warning('other')\nlog.error('failed', exc_info=OSError())\nlog.error('failed', exc_info=ValueError())"
    )
    assert [line["event"] for line in lines] == ["no transport: 0", "other", "failed", "failed"]


def test_it_is_said_again_after_a_while_with_how_often_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    handler = logs.Handler()
    monkeypatch.setattr(handler._clock, "monotonic", lambda: now)
    with structlog.testing.capture_logs() as logged:
        for now in (0.0, 10.0, AGAIN_SECONDS - 1, AGAIN_SECONDS, AGAIN_SECONDS + 1):  # noqa: B007
            handler.handle(logging.makeLogRecord({"name": "x", "levelno": logging.WARNING, "msg": "down"}))
        for number in range(1000):
            handler.handle(logging.makeLogRecord({"name": "x", "levelno": logging.WARNING, "msg": f"sort {number}"}))
    assert [line.get("times") for line in logged[:3]] == [None, 3, None]
    assert len(handler._logged) == 256
