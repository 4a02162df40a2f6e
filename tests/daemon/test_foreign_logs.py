"""Log records of libraries."""

import json
import logging
import os
import subprocess
import sys

import pytest
import structlog

from hpad.daemon import logs
from hpad.telemetry.episode import AGAIN_SECONDS

LOG_CALL = """
import logging
from hpad.daemon import logs
logs.configure("info", "json")
log = logging.getLogger("library")
log.{call}
"""


def logged(call: str) -> list[dict[str, object]]:
    """Returns the lines of a process that makes this call of a library's logger."""
    code = LOG_CALL.format(call=call)
    environ = {name: value for name, value in os.environ.items() if name != "JOURNAL_STREAM"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    return [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.parametrize(
    ("call", "level"),
    [("warning('100%% of %s', 3)", "warning"), ("error('100% of 3')", "error"), ("critical('100% of 3')", "error")],
)
def test_a_record_of_a_library_becomes_a_line(call: str, level: str) -> None:
    (line,) = logged(call)
    assert (line["event"], line["level"], line["logger"]) == ("100% of 3", level, "library")


def test_records_below_warning_are_dropped() -> None:
    assert logged("info('x')") == []


def test_an_exception_is_logged_with_its_traceback() -> None:
    (line,) = logged("error('failed', exc_info=ZeroDivisionError('x'))")
    assert str(line["exception"]).endswith("ZeroDivisionError: x")


def test_a_record_that_repeats_is_logged_once() -> None:
    """Other arguments do not make another record; another template or exception type does."""
    lines = logged(
        "warning('no transport: %s', 0)\nfor n in range(50): log.warning('no transport: %s', n)\n"
        "log.warning('other')\nlog.error('failed', exc_info=OSError())\nlog.error('failed', exc_info=ValueError())"
    )
    assert [line["event"] for line in lines] == ["no transport: 0", "other", "failed", "failed"]


def test_a_record_that_repeats_is_logged_again_later_with_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    handler = logs.Handler()
    monkeypatch.setattr(handler._clock, "monotonic", lambda: now)
    with structlog.testing.capture_logs() as logged:
        for now in (0.0, 10.0, AGAIN_SECONDS - 1, AGAIN_SECONDS, AGAIN_SECONDS + 1):  # noqa: B007
            handler.handle(logging.makeLogRecord({"name": "x", "levelno": logging.WARNING, "msg": "down"}))
        for number in range(1000):
            handler.handle(logging.makeLogRecord({"name": "x", "levelno": logging.WARNING, "msg": f"kind {number}"}))
        handler.handle(logging.makeLogRecord({"name": "x", "levelno": logging.WARNING, "msg": "kind 0"}))
    assert [line.get("times") for line in logged[:2]] == [None, 3]
    events = [line["event"] for line in logged]
    assert events.count("kind 0") == 2, "only the last 256 kinds are remembered"
    assert events.count("kind 999") == 1
