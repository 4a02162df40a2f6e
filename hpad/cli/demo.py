"""`hpad demo`: shows hpad scaling real processes, in about two minutes."""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

from hpad.api.text import shown
from hpad.cli import output
from hpad.cli.output import Failure
from hpad.daemon import process
from hpad.lab.demo.timing import DEFAULT, MINIMUM

HELP: Final = "show real processes being scaled"
DESCRIPTION: Final = """\
Starts an API server, hpad, and a few real programs on this machine, and shows hpad scaling them:

  cpu    php-apache, a web server that burns CPU for each request, by its CPU usage (1 to 7 replicas and back)
  queue  worker, Celery workers or plain consumers of a real RabbitMQ queue, by a goal in seconds (3 to 16 and back,
         idle ones first); skipped unless Debian's package rabbitmq-server is installed

Everything listens on 127.0.0.1 only and is stopped and removed at the end. The applied manifests are
hpad/lab/demo/manifests/*.yaml; their `behavior` shortens the stabilization windows, so that the demo is short.
"""
EPILOG: Final = """\
examples:
  hpad demo                        both halves, in about two minutes
  hpad demo --only cpu             the first half alone
  hpad demo --keep-logs ./logs     keep the logs, and a kubeconfig to watch with kubectl meanwhile

exit status: 0 if the replicas reached the expected counts, 1 if they did not (with the reason), 2 for wrong use, 130
after Ctrl-C
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", choices=("cpu", "queue"), help="run one half alone")
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=DEFAULT,
        metavar="N",
        help=f"take about N seconds for both halves, {MINIMUM:.0f} to 3600 (default {DEFAULT:.0f})",
    )
    parser.add_argument(
        "--workers",
        choices=("celery", "plain"),
        help="of the second half: Celery's (default where it is installed, as with the extra demo), or a plain program",
    )
    parser.add_argument("--no-color", action="store_true", help="no colors (also: NO_COLOR in the environment)")
    parser.add_argument(
        "--keep-logs",
        type=Path,
        metavar="DIR",
        help="keep the logs of hpad and of the programs in this folder, and while it runs a kubeconfig for kubectl",
    )
    parser.add_argument("-o", "--output", choices=("json",), help="json: print one JSON line at the end as well")


def run(args: argparse.Namespace) -> int:
    """Runs the demo. Returns 0 if the replicas reached the expected counts, 130 if a signal stopped it, otherwise 1."""
    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        return runner.run(_play(args))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not MINIMUM <= seconds <= 3600:
        raise ValueError(f"{shown(text)} is not a number of seconds from {MINIMUM:.0f} to 3600")
    return seconds


async def _play(args: argparse.Namespace) -> int:
    from hpad.lab.demo import DemoError, report, screen, show, style, workers  # imported late, so that --help is quick

    terminal = output.raw(sys.stdout)
    ink = style.Style.of(terminal, os.environ, enabled=not args.no_color)
    on = screen.of(terminal, ink)
    halves = (args.only,) if args.only else show.HALVES
    try:
        options = show.Options(halves, args.seconds, args.keep_logs, workers.chosen(args.workers))
    except DemoError as error:
        raise Failure(f"--workers: {error}") from error
    playing = asyncio.create_task(show.run(options, on))
    _stop_on_signals(playing)
    played = None
    try:
        played = await playing
    except asyncio.CancelledError:
        pass
    except BrokenPipeError:
        raise  # of standard output, not of the demo, although FAILURES has OSError
    except show.FAILURES as error:
        raise Failure(f"the demo cannot run here: {_reason(error)}") from error
    finally:
        on.clear()
    if played is None:
        print("stopped; nothing is left running", file=sys.stderr)
        return 130
    width, _ = screen.terminal_size()
    program = "hpad" if shutil.which("hpad") else sys.argv[0]  # for the commands that the report suggests
    print("\n".join(report.text(played, width, ink, program)), file=terminal)  # with colours, which are escapes
    if args.output == "json":
        print(json.dumps(report.machine(played)))
    return 0 if played.ok else 1


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _stop_on_signals(playing: "asyncio.Task[object]") -> None:
    """Cancels the demo at the first signal, which stops all its processes; ignores later signals."""

    def stop() -> None:
        if not playing.cancelling():
            playing.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop)
