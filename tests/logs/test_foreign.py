"""What libraries log."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SAY = """
import logging
from hpad import logs
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
from hpad import logs
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
