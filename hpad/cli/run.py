"""`hpad run`: the daemon, and the flags that other commands share with it."""

import argparse
import asyncio
import contextlib
import difflib
import functools
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from hpad import settings as hpad_settings
from hpad.cli import config
from hpad.daemon import app, logs, process
from hpad.daemon.log_writer import Writer
from hpad.kube.auth.credentials import ConfigError
from hpad.manifests import folder
from hpad.recording.format import RecordingError
from hpad.serve import server
from hpad.settings import Settings, SettingsError
from hpad.sources import manager
from hpad.store import memory

_OTHER_VARIABLES: Final = ("config", "rabbitmq_url", "rabbitmq_username", "rabbitmq_password_file")
_SIMILARITY: Final = 0.85
"""Excludes the variables that a Service named hpad adds to pods, such as HPAD_PORT_80_TCP."""
_DESCRIPTION = """\
Scale the targets of HorizontalPodAutoscalers, as kube-controller-manager's HPA controller does, until stopped by
SIGTERM or SIGINT. The HPAs come from the API server, or from the files of a folder (--manifests).
SIGHUP reloads the settings: sources, routes, intervals, tunables and log level change without a restart.

Turn the built-in controller off first (kube-controller-manager --controllers=*,-horizontal-pod-autoscaler-controller),
or use --manifests if that is not possible: only one controller may own an HPA.
"""
_EPILOG = """\
Settings come from --config, then from the environment (HPAD_SYNC_PERIOD=5s for --sync-period=5s, and so on), then from
flags; the later one wins. HPAD_RABBITMQ_URL (with HPAD_RABBITMQ_USERNAME and HPAD_RABBITMQ_PASSWORD_FILE) adds a source
for the metrics queue_messages, queue_messages_ready and queue_messages_unacknowledged of that broker.

examples:
  hpad run --kubeconfig ~/.kube/config --dry-run     log what hpad would decide; write nothing
  hpad run --namespace shop --hpa-selector autoscaler=hpad
  hpad run --manifests ./hpas --record ./records     HPAs from files; record decisions for `hpad replay`

exit status: 0 after SIGTERM or SIGINT, 1 if the daemon fails, 2 for wrong use, invalid settings, or if it cannot start
"""
_ELECTION = """\
Needed if several instances of hpad could own the same HPAs, such as two replicas of a Deployment. Off by default, since
hpad usually runs alone, as a service of a machine or beside one application. A dry run never takes part.
With --shards instead of --leader-elect there is no standby: the replicas divide the HPAs among them, each with a Lease
NAME-... of its own, and take over from a replica that stops or crashes. All of them need the same settings for HPAs.
With the Lease kube-system/kube-controller-manager hpad takes the place of a whole kube-controller-manager, whose
controllers all pause meanwhile: sensible only if that one runs nothing but the HPA controller.
"""


class _Flag(argparse.Action):
    """Keeps the flag as typed beside its value, for error messages. Values of a repeated list flag are joined."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        earlier = namespace.flags.get(self.dest)
        if earlier is not None and self.dest in ("namespaces", "feature_gates"):
            values = f"{earlier[1]},{values}"
        namespace.flags = {**namespace.flags, self.dest: (option, values)}


_FLAGS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "kubeconfig",
        "FILE",
        "how to reach the API server (default: $KUBECONFIG, ~/.kube/config, or the pod's service account)",
        ("--kubeconfig",),
    ),
    ("context", "NAME", "context of the kubeconfig (default: its current one)", ("--context",)),
    ("namespaces", "NAME", "only this namespace; may be repeated (default: all)", ("-n", "--namespace")),
    ("hpa_selector", "LABELS", "only HPAs with these labels, such as autoscaler=hpad", ("--hpa-selector",)),
    ("manifests", "DIR", "read HPAs from the files of this folder, not from the API server", ("--manifests",)),
    (
        "competing_hpas",
        "WHAT",
        "if an HPA that hpad does not own scales the same target: yield (default) or write",
        ("--competing-hpas",),
    ),
    ("record", "DIR", "record the inputs and outputs of every decision, for `hpad replay`", ("--record",)),
    (
        "record_limit",
        "SIZE",
        "disk space for recordings, the oldest are deleted first: 1Gi (default), or none",
        ("--record-limit",),
    ),
    ("store", "KIND", "where the state of HPAs survives a restart: sqlite[:FILE], cluster or memory", ("--store",)),
    (
        "listen",
        "HOST:PORT",
        "address of metrics, health, JSON API and status page (127.0.0.1:8473), or none",
        ("--listen",),
    ),
    ("max_staleness", "DURATION", "keep replicas if a watch delivers nothing for this long (5m)", ("--max-staleness",)),
    ("event_component", "NAME", "component named in events (horizontal-pod-autoscaler)", ("--event-component",)),
    ("log_level", "LEVEL", "debug, info (default), warning or error", ("--log-level",)),
    ("log_format", "FORMAT", "text, json or auto (default): text on a terminal", ("--log-format",)),
)
_ORIGINAL_FLAGS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "sync_period",
        "DURATION",
        "reconcile every HPA once per period (15s)",
        ("--sync-period", "--horizontal-pod-autoscaler-sync-period"),
    ),
    (
        "workers",
        "N",
        "concurrent reconciles, not counting those that wait for metrics (64)",
        ("--workers", "--concurrent-horizontal-pod-autoscaler-syncs"),
    ),
    (
        "tolerance",
        "FRACTION",
        "how far a metric may be off its target without scaling (0.1)",
        ("--tolerance", "--horizontal-pod-autoscaler-tolerance"),
    ),
    (
        "downscale_stabilization",
        "DURATION",
        "scale-down window of HPAs whose behavior sets none (5m)",
        ("--downscale-stabilization", "--horizontal-pod-autoscaler-downscale-stabilization"),
    ),
    (
        "cpu_initialization_period",
        "DURATION",
        "how long after a pod's start its CPU counts only while it is ready (5m)",
        ("--cpu-initialization-period", "--horizontal-pod-autoscaler-cpu-initialization-period"),
    ),
    (
        "initial_readiness_delay",
        "DURATION",
        "how long after a pod's start its readiness changes count as its first (30s)",
        ("--initial-readiness-delay", "--horizontal-pod-autoscaler-initial-readiness-delay"),
    ),
    ("feature_gates", "A=BOOL,…", "feature gates, such as HPAScaleToZero=true", ("--feature-gates",)),
    ("kube_api_qps", "N", "requests per second to the API server (default: no limit)", ("--kube-api-qps",)),
    ("kube_api_burst", "N", "requests at once, if --kube-api-qps is set (30)", ("--kube-api-burst",)),
)
_SERVING_FLAGS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("tls_cert_file", "FILE", "serve TLS with this certificate (PEM), reloaded when it changes", ("--tls-cert-file",)),
    ("tls_private_key_file", "FILE", "private key of the certificate (PEM)", ("--tls-private-key-file",)),
    ("client_ca_file", "FILE", "admit clients with a certificate of these authorities (PEM)", ("--client-ca-file",)),
    ("listen_token_file", "FILE", "admit clients with a bearer token of this file", ("--listen-token-file",)),
)
_ELECTION_FLAGS: tuple[tuple[str, str, str], ...] = (
    ("lease-duration", "DURATION", "time without a renewal after which another replica takes over (15s)"),
    ("renew-deadline", "DURATION", "time without a renewal after which the leader stops working (10s)"),
    ("retry-period", "DURATION", "time between renewals, or between attempts to become leader (2s)"),
    ("resource-lock", "KIND", "kind of the lock; only leases is supported"),
    ("resource-name", "NAME", "name of the Lease (hpad)"),
    ("resource-namespace", "NAME", "namespace of the Lease (kube-system)"),
)


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "run",
        help="run the daemon",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings(parser)
    parser.set_defaults(run=run, flags={})


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that `read_settings` reads; the caller sets the default of `flags` to an empty dict.

    The usage names only the first flags: a list of all would hide the error message below it.
    """
    parser.usage = "%(prog)s [-h] [--config FILE] [--kubeconfig FILE] [-n NAME] [FLAG ...]"
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in YAML (also HPAD_CONFIG)")
    for field, metavar, text, names in _FLAGS:
        _add(parser, field, metavar, text, *names)
    parser.add_argument("--dry-run", action="store_true", help="decide and log the decisions, but write nothing")
    group = parser.add_argument_group("intervals and decisions (the flags of kube-controller-manager work as well)")
    for field, metavar, text, names in _ORIGINAL_FLAGS:
        _add(group, field, metavar, text, *names)
    _add_serving(parser)
    _add_election(parser)


def _add(group: argparse._ActionsContainer, field: str, metavar: str, text: str, *names: str, **more: Any) -> None:
    group.add_argument(*names, dest=field, metavar=metavar, help=text, action=_Flag, default=argparse.SUPPRESS, **more)


def _add_switch(group: argparse._ActionsContainer, field: str, text: str) -> None:
    """Adds a flag that means true without a value."""
    _add(group, field, "BOOL", text, f"--{field.replace('_', '-')}", nargs="?", const="true")


def _add_serving(parser: argparse.ArgumentParser) -> None:
    about = (
        "By default hpad admits every client that can connect to --listen; on a loopback address only for requests to "
        "a local host name, such as localhost. /livez, /readyz and /healthz need no authentication."
    )
    group = parser.add_argument_group("authentication of clients of --listen (any one of these suffices)", about)
    for field, metavar, text, names in _SERVING_FLAGS:
        _add(group, field, metavar, text, *names)
    review = "admit clients whose bearer token the cluster accepts for `get` of the path (as a non-resource URL)"
    _add_switch(group, "listen_review", review)


def _add_election(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "several replicas (the flags of kube-controller-manager, except --shards)", _ELECTION
    )
    _add_switch(group, "leader_elect", "work only as leader (default: no; kube-controller-manager's default is yes)")
    _add_switch(group, "shards", "divide the HPAs among all replicas (default: no); keeps their state in the cluster")
    for name, metavar, text in _ELECTION_FLAGS:
        _add(group, f"leader_elect_{name.replace('-', '_')}", metavar, text, f"--leader-elect-{name}")


def run(args: argparse.Namespace) -> int:
    """Runs the daemon; 0 after an orderly stop, 2 if it cannot start."""
    try:
        settings = read_settings(args)
        check_manifests(settings)
    except (SettingsError, folder.FolderError) as error:
        print(f"hpad: {error}".replace("\n", "\nhpad: "), file=sys.stderr)
        return 2
    process.configure_allocator()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the daemon can reload; by default SIGHUP ends the process
    try:
        with logs.background_writer() as writer, asyncio.Runner(loop_factory=process.loop_factory()) as runner:
            logs.configure(settings.log_level, settings.log_format, writer=writer)
            for name, meant in misspelt(os.environ):
                structlog.get_logger("hpad").warning("unknown environment variable", variable=name, meant=meant)
            runner.run(_serve(settings, functools.partial(read_settings, args), writer))
    except (ConfigError, server.ServeError, memory.StoreError, RecordingError) as error:
        print(f"hpad: {error}", file=sys.stderr)
        return 2
    return 0


def misspelt(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Unknown variables that resemble one of hpad's, each with the similar one."""
    names = (*_OTHER_VARIABLES, *hpad_settings.PARSERS, *hpad_settings.RENAMED, *hpad_settings.REMOVED)
    known = {f"HPAD_{name.upper()}" for name in names}
    unknown = sorted(name for name in environ if name.startswith("HPAD_") and name not in known)
    near = ((name, difflib.get_close_matches(name, known, n=1, cutoff=_SIMILARITY)) for name in unknown)
    return [(name, match[0]) for name, match in near if match]


def read_settings(args: argparse.Namespace) -> Settings:
    """The settings of file, environment and flags; raises SettingsError."""
    return config.load(args.config, _flags(args))


def check_manifests(settings: Settings) -> None:
    """Raises folder.FolderError if the folder of manifests is missing. In a pod a sidecar may create it later."""
    if settings.manifests is not None:
        folder.check(settings.manifests, may_come="KUBERNETES_SERVICE_HOST" in os.environ)


def origins(args: argparse.Namespace) -> list[tuple[str, str, Any]]:
    """The settings of file, environment and flags with their origins (see hpad.settings.origins)."""
    return hpad_settings.origins(config.path(args.config), os.environ, _flags(args))


def _flags(args: argparse.Namespace) -> Mapping[str, tuple[str, Any]]:
    return {**args.flags, "dry_run": ("--dry-run", True)} if args.dry_run else args.flags


async def _serve(settings: Settings, read: Callable[[], Settings], writer: Writer) -> None:
    daemon = app.App(settings)
    daemon.telemetry.before_scrape(lambda: daemon.telemetry.process.log_lines_dropped(writer.dropped))
    notifier = process.Notifier()

    async def reload() -> None:
        with notifier.reloading():
            await _reload(daemon, read, writer)

    async with contextlib.AsyncExitStack() as stack:
        stop = await stack.enter_async_context(process.stop_on_signals())
        stack.enter_context(process.StallDetector(daemon.telemetry.process.stalled))
        notifying = asyncio.create_task(notifier.run(daemon.clock, daemon.ready, daemon.status))
        stack.callback(notifying.cancel)
        gc.freeze()  # modules stay loaded: the garbage collector need not visit them again
        if not await process.run_until(stop, daemon.start()):
            return
        stack.push_async_callback(daemon.stop)
        async with process.reload_on_hangup(reload):
            await daemon.wait(stop)
            notifier.stopping()


async def _reload(daemon: app.App, read: Callable[[], Settings], writer: Writer) -> None:
    """Applies the settings of file, environment and flags as they are now; none of them if they are invalid."""
    log = structlog.get_logger("hpad.reload")
    try:
        settings = await asyncio.to_thread(read)
        await daemon.reload(settings)
    except (SettingsError, manager.SourcesRejected) as error:
        problems = str(error).splitlines()
        log.error("reload rejected: the settings are invalid; the previous ones stay in force", problems=problems)
    except Exception:  # a failed reload must not end the daemon
        log.exception("bug: the reload failed with an unexpected exception")
    else:
        logs.configure(daemon.settings.log_level, daemon.settings.log_format, writer=writer)
