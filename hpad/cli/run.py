"""`hpad run`: the daemon."""

import argparse
import asyncio
import contextlib
import difflib
import functools
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from hpad import settings as hpad_settings
from hpad.cli import flags
from hpad.clock import LoopClock
from hpad.daemon import app, logs, process
from hpad.daemon.logs import Writer
from hpad.daemon.reload import Reloader
from hpad.files import Stamps, stamps
from hpad.kube.auth.credentials import ConfigError
from hpad.manifests import folder
from hpad.records.format import RecordingError
from hpad.serve import server
from hpad.settings import Settings, SettingsError
from hpad.store.store import StoreError

_OTHER_VARIABLES: Final = ("config", "rabbitmq_url", "rabbitmq_username", "rabbitmq_password_file")
_SIMILARITY: Final = 0.85
"""Excludes the variables that a Service named hpad adds to pods, such as HPAD_PORT_80_TCP."""
HELP: Final = "run the daemon"
DESCRIPTION: Final = """\
Scale the targets of HorizontalPodAutoscalers, as kube-controller-manager's HPA controller does, until stopped by
SIGTERM or SIGINT. The HPAs come from the API server, or from a folder of files or one file (--manifests).
The settings are read again within seconds after their file, or a file that they name, has changed, and on SIGHUP:
sources, routes, intervals, tunables and log level change without a restart. Invalid ones change nothing.

Turn the built-in controller off first (kube-controller-manager --controllers=*,-horizontal-pod-autoscaler-controller),
or use --manifests if that is not possible: only one controller may own an HPA.
"""
EPILOG: Final = """\
Settings come from --config, then from the environment (HPAD_SYNC_PERIOD=5s for --sync-period=5s, and so on), then from
flags; the later one wins. HPAD_RABBITMQ_URL (with HPAD_RABBITMQ_USERNAME and HPAD_RABBITMQ_PASSWORD_FILE) adds a source
for the metrics of that broker that need no configuration, such as queue_messages_ready and queue_workers_to_clear.

examples:
  hpad run --kubeconfig ~/.kube/config --dry-run     log what hpad would decide; write nothing
  hpad run --namespace shop --hpa-selector autoscaler=hpad
  hpad run --manifests ./hpas --record ./records     HPAs from files; record decisions for `hpad replay`

exit status: 0 after SIGTERM or SIGINT, 1 if the daemon fails, 2 for wrong use, invalid settings, or if it cannot start
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the daemon; 0 after an orderly stop, 2 if it cannot start."""
    config = flags.config_file(args.config)
    files = stamps([] if config is None else [str(config)])  # before it is read, so that a later change is noticed
    try:
        settings = flags.read(args)
        check_manifests(settings)
    except (SettingsError, folder.FolderError) as error:
        print(f"hpad: {error}".replace("\n", "\nhpad: "), file=sys.stderr)
        return 2
    files |= stamps(map(str, settings.serving.files))
    process.configure_allocator()
    # By default both end the process. SIGHUP has an effect once the daemon runs, SIGUSR1 had one in earlier builds.
    for number in (signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    try:
        with logs.background_writer() as writer, asyncio.Runner(loop_factory=process.loop_factory()) as runner:
            logs.configure(settings.log_level, settings.log_format, writer=writer)
            for name, meant in misspelt(os.environ):
                structlog.get_logger("hpad").warning("unknown environment variable", variable=name, meant=meant)
            runner.run(_serve(settings, functools.partial(flags.read, args), files, writer))
    except (ConfigError, server.ServeError, StoreError, RecordingError) as error:
        print(f"hpad: {error}", file=sys.stderr)
        return 2
    return 0


def misspelt(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns the unknown variables that resemble one of hpad's, each with the similar one."""
    names = (*_OTHER_VARIABLES, *hpad_settings.TABLE, *hpad_settings.REMOVED)
    known = {f"HPAD_{name.upper()}" for name in names}
    unknown = sorted(name for name in environ if name.startswith("HPAD_") and name not in known)
    near = ((name, difflib.get_close_matches(name, known, n=1, cutoff=_SIMILARITY)) for name in unknown)
    return [(name, match[0]) for name, match in near if match]


def check_manifests(settings: Settings) -> None:
    """Raises folder.FolderError if the path of the manifests is missing. In a pod a sidecar may create it later."""
    if settings.manifests is not None:
        folder.check(settings.manifests, may_come="KUBERNETES_SERVICE_HOST" in os.environ)


async def _serve(settings: Settings, read: Callable[[], Settings], files: Stamps, writer: Writer) -> None:
    daemon = app.App(settings, clock=LoopClock(asyncio.get_running_loop().time))
    daemon.telemetry.before_scrape(lambda: daemon.telemetry.process.log_lines_dropped(writer.dropped))
    notifier = process.Notifier()
    async with contextlib.AsyncExitStack() as stack:
        stop = await stack.enter_async_context(process.stop_on_signals())
        stack.enter_context(process.StallDetector(daemon.telemetry.process.stalls.observe))
        notifying = asyncio.create_task(notifier.run(daemon.clock, daemon.ready, daemon.status))
        stack.callback(notifying.cancel)
        process.switch_threads_quickly()
        if not await process.run_until(stop, daemon.start()):
            return
        process.keep_all()
        stack.push_async_callback(daemon.stop)
        reloader = Reloader(daemon, read, files, applied=functools.partial(_log_as_set, writer), notifier=notifier)
        await stack.enter_async_context(process.running(reloader.run(), "reload of changed files"))
        await stack.enter_async_context(process.call_on_signal(signal.SIGHUP, reloader.reload))
        await daemon.wait(stop)
        notifier.stopping()


def _log_as_set(writer: Writer, settings: Settings) -> None:
    logs.configure(settings.log_level, settings.log_format, writer=writer)
