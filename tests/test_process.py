"""Signals, systemd's socket, and log lines as bytes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import virtual

from hpad import process


async def test_a_signal_sets_the_event() -> None:
    async with process.stop_on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            await stop.wait()


def test_systemd_is_told_and_its_watchdog_fed(tmp_path: Path) -> None:
    told: list[str] = []

    class Notifier(process.Notifier):
        def tell(self, state: str) -> None:
            told.append(state)

    async def main() -> None:
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "s"), "WATCHDOG_USEC": "20000000"})

        async def ready() -> None:
            await asyncio.sleep(25)

        running = asyncio.create_task(notifier.run(virtual.VirtualClock(), ready))
        await asyncio.sleep(45)
        running.cancel()

    virtual.run(main())
    assert told == ["WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1", "READY=1", "WATCHDOG=1", "WATCHDOG=1"]


async def test_without_systemd_nothing_happens() -> None:
    notifier = process.Notifier({})
    notifier.tell("READY=1")
    assert notifier.watchdog_seconds is None


SAY = "import structlog; from hpad import logs; logs.configure({level!r}, {form!r}); structlog.get_logger().{say}"


def said(say: str, *, level: str = "info", form: str = "json", **environ: str) -> str:
    code = SAY.format(level=level, form=form, say=say)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environ}
    )
    return done.stderr


def test_a_line_is_json_with_the_sentence_in_it() -> None:
    line = json.loads(said("info('keep 3: all is well', hpa='shop/web', scale_to=None)"))
    assert (line["level"], line["event"]) == ("info", "keep 3: all is well")
    assert (line["hpa"], line["scale_to"]) == ("shop/web", None)
    assert line["timestamp"].endswith("Z")


def test_the_journal_gets_priorities() -> None:
    assert said("warning('x')", JOURNAL_STREAM="8:1").startswith("<4>{")


@pytest.mark.parametrize(("level", "lines"), [("info", 0), ("debug", 1)])
def test_what_is_below_the_level_is_not_said(level: str, lines: int) -> None:
    assert len(said("debug('x')", level=level).splitlines()) == lines


def test_text_for_people() -> None:
    assert "keep 3" in said("info('keep 3')", form="text")
