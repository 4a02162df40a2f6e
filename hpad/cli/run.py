"""`hpad run`: the daemon.

Variables of the environment that look like hpad's but are not: most often a typing error.
"""

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

from hpad import settings
from hpad.daemon import app, logs, process
from hpad.daemon.log_writer import Writer
from hpad.kube.auth.credentials import ConfigError
from hpad.manifests import folder
from hpad.recording.format import RecordingError
from hpad.serve import server
from hpad.sources import manager
from hpad.store import memory

_OTHERS: Final = ("config", "rabbitmq_url", "rabbitmq_username", "rabbitmq_password_file")
_ALIKE: Final = 0.85
"""How near a name must be; those that a Service called hpad puts into pods (HPAD_PORT_80_TCP and the like) are not."""


def misspelt(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names that are probably meant for hpad, each with the one that it would have to be."""
    known = {f"HPAD_{name.upper()}" for name in (*_OTHERS, *settings.PARSERS, *settings.RENAMED, *settings.REMOVED)}
    strange = sorted(name for name in environ if name.startswith("HPAD_") and name not in known)
    near = ((name, difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)) for name in strange)
    return [(name, match[0]) for name, match in near if match]


_DESCRIPTION = """\
Scale the targets of HorizontalPodAutoscalers, as kube-controller-manager's HPA controller does, until stopped by
SIGTERM or SIGINT. The HPAs are those of the API server, or those of the files of a folder (--manifests).
SIGHUP has it read its settings anew: sources, routes, pace, tunables and log level change without a restart.

Turn the built-in controller off first (kube-controller-manager --controllers=*,-horizontal-pod-autoscaler-controller),
or use --manifests where that is not possible: two controllers must not own the same HPA.
"""
_EPILOG = """\
Settings come from --config, then from the environment (HPAD_SYNC_PERIOD=5s for --sync-period=5s, and so on), then from
flags; the later one wins. HPAD_RABBITMQ_URL (with HPAD_RABBITMQ_USERNAME and HPAD_RABBITMQ_PASSWORD_FILE) makes the
metrics queue_messages, queue_messages_ready and queue_messages_unacknowledged of that broker available.

examples:
  hpad run --kubeconfig ~/.kube/config --dry-run     see what would be decided; nothing is written
  hpad run --namespace shop --hpa-selector autoscaler=hpad
  hpad run --manifests ./hpas --record ./records     HPAs from files; keep records for `hpad replay`
"""
_ELECTION = """\
Needed where several hpads could act on the same HPAs, as with two replicas of a Deployment. It is off by default
because hpad most often runs alone, as a service of a machine or beside one application. A dry run never takes part.
With --shards instead of --leader-elect nobody stands by: the replicas share the HPAs, each with a Lease NAME-... of its
own, and take over from one that ends or dies. All of them must look after the same HPAs.
With the Lease kube-system/kube-controller-manager hpad stands in for a kube-controller-manager as a whole, none of
whose controllers works meanwhile: sensible only where that one runs nothing but the HPA controller.
"""


class _Flag(argparse.Action):
    """Keep the flag as it was typed beside its value, so that an error can name it; a flag given twice adds a comma."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        held = namespace.flags.get(self.dest)
        joined = f"{held[1]},{values}" if held is not None and self.dest in ("namespaces", "feature_gates") else values
        namespace.flags = {**namespace.flags, self.dest: (option, joined)}


_FLAGS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("kubeconfig", "FILE", "else $KUBECONFIG, ~/.kube/config, or the pod's service account", ("--kubeconfig",)),
    ("context", "NAME", "a context of the kubeconfig (default: its current one)", ("--context",)),
    ("namespaces", "NAME", "only this namespace; may be given several times (default: all)", ("-n", "--namespace")),
    ("hpa_selector", "LABELS", "only HPAs with these labels, e.g. autoscaler=hpad", ("--hpa-selector",)),
    ("manifests", "DIR", "HPAs from the files of this folder instead of the API server's", ("--manifests",)),
    (
        "competing_hpas",
        "WHAT",
        "where an HPA that is not hpad's scales the same target: yield or write",
        ("--competing-hpas",),
    ),
    ("record", "DIR", "write what every decision saw and did, for `hpad replay`", ("--record",)),
    ("record_limit", "SIZE", "what recordings may take, the oldest go: 1Gi (default), or none", ("--record-limit",)),
    ("store", "KIND", "where histories survive: sqlite[:FILE], cluster or memory (what fits)", ("--store",)),
    ("listen", "HOST:PORT", "metrics, health, JSON, status page (127.0.0.1:8473); none: not at all", ("--listen",)),
    ("max_staleness", "DURATION", "keep replicas when a watch brings nothing for so long (5m)", ("--max-staleness",)),
    ("event_component", "NAME", "source of events (horizontal-pod-autoscaler)", ("--event-component",)),
    ("log_level", "LEVEL", "debug, info (default), warning or error", ("--log-level",)),
    ("log_format", "FORMAT", "text, json or auto (default): text on a terminal", ("--log-format",)),
)
_ORIGINAL_FLAGS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "sync_period",
        "DURATION",
        "reconcile every HPA once in this time (15s)",
        ("--sync-period", "--horizontal-pod-autoscaler-sync-period"),
    ),
    (
        "workers",
        "N",
        "reconciles at work at a time, those waiting for metrics not counted (64)",
        ("--workers", "--concurrent-horizontal-pod-autoscaler-syncs"),
    ),
    (
        "tolerance",
        "FRACTION",
        "how far a metric may be off its goal without scaling (0.1)",
        ("--tolerance", "--horizontal-pod-autoscaler-tolerance"),
    ),
    (
        "downscale_stabilization",
        "DURATION",
        "window of HPAs whose behavior sets none (5m)",
        ("--downscale-stabilization", "--horizontal-pod-autoscaler-downscale-stabilization"),
    ),
    (
        "cpu_initialization_period",
        "DURATION",
        "how long a pod's CPU is judged with care after its start (5m)",
        ("--cpu-initialization-period", "--horizontal-pod-autoscaler-cpu-initialization-period"),
    ),
    (
        "initial_readiness_delay",
        "DURATION",
        "how long a pod that was never ready counts as starting (30s)",
        ("--initial-readiness-delay", "--horizontal-pod-autoscaler-initial-readiness-delay"),
    ),
    ("feature_gates", "A=BOOL,…", "e.g. HPAScaleToZero=true", ("--feature-gates",)),
    ("kube_api_qps", "N", "requests a second to the API server (no limit of our own)", ("--kube-api-qps",)),
    ("kube_api_burst", "N", "requests at once, where --kube-api-qps is set (30)", ("--kube-api-burst",)),
)
_SERVING_FLAGS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("tls_cert_file", "FILE", "serve TLS with this certificate (PEM), read anew when it changes", ("--tls-cert-file",)),
    ("tls_private_key_file", "FILE", "its key (PEM)", ("--tls-private-key-file",)),
    ("client_ca_file", "FILE", "let in who shows a certificate of these authorities (PEM)", ("--client-ca-file",)),
    ("listen_token_file", "FILE", "let in who shows a bearer token of this file", ("--listen-token-file",)),
)
_ELECTION_FLAGS: tuple[tuple[str, str, str], ...] = (
    ("lease-duration", "DURATION", "how long others wait for a leader that is not heard of (15s)"),
    ("renew-deadline", "DURATION", "how long after its last renewal a leader stops working (10s)"),
    ("retry-period", "DURATION", "how often the Lease is renewed or looked at (2s)"),
    ("resource-lock", "KIND", "leases; nothing else is supported"),
    ("resource-name", "NAME", "the Lease (hpad)"),
    ("resource-namespace", "NAME", "the Lease's namespace (kube-system)"),
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
    """Add the flags that `read_settings` reads; the caller sets the default of `flags` to an empty dict.

    The usage names the first of them: all would hide the one line that says what is wrong with a call.
    """
    parser.usage = "%(prog)s [-h] [--config FILE] [--kubeconfig FILE] [-n NAME] [FLAG ...]"
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in YAML (also HPAD_CONFIG)")
    for field, metavar, text, names in _FLAGS:
        _add(parser, field, metavar, text, *names)
    parser.add_argument("--dry-run", action="store_true", help="decide and say so, but write nothing")
    pace = parser.add_argument_group("pace and decisions (kube-controller-manager's own flags work, too)")
    for field, metavar, text, names in _ORIGINAL_FLAGS:
        _add(pace, field, metavar, text, *names)
    _add_serving(parser)
    _add_election(parser)


def _add(group: argparse._ActionsContainer, field: str, metavar: str, text: str, *names: str, **more: Any) -> None:
    group.add_argument(*names, dest=field, metavar=metavar, help=text, action=_Flag, default=argparse.SUPPRESS, **more)


def _add_switch(group: argparse._ActionsContainer, field: str, text: str) -> None:
    """A flag that means yes where it is given without a value."""
    _add(group, field, "BOOL", text, f"--{field.replace('_', '-')}", nargs="?", const="true")


def _add_serving(parser: argparse.ArgumentParser) -> None:
    about = (
        "By default every client that can connect to --listen may look; on loopback, if it asks for a local name, such "
        "as localhost. /livez, /readyz and /healthz stay open in any case."
    )
    group = parser.add_argument_group("who may look at --listen (each way that is set suffices)", about)
    for field, metavar, text, names in _SERVING_FLAGS:
        _add(group, field, metavar, text, *names)
    review = "let in whose bearer token the cluster accepts for `get` of the path (as a non-resource URL)"
    _add_switch(group, "listen_review", review)


def _add_election(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "several replicas (kube-controller-manager's own flags, but for --shards)", _ELECTION
    )
    _add_switch(group, "leader_elect", "work only while leading (default: no; the original's default is yes)")
    shared = "share the HPAs among all replicas (default: no); histories are kept in the cluster"
    _add_switch(group, "shards", shared)
    for name, metavar, text in _ELECTION_FLAGS:
        _add(group, f"leader_elect_{name.replace('-', '_')}", metavar, text, f"--leader-elect-{name}")


def run(args: argparse.Namespace) -> int:
    """0 after an orderly stop, 1 if the daemon failed, 2 if it could not start as told."""
    try:
        told = read_settings(args)
        check_manifests(told)
    except (settings.SettingsError, folder.FolderError) as error:
        print(f"hpad: {error}".replace("\n", "\nhpad: "), file=sys.stderr)
        return 2
    process.configure_allocator()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload; the default would be to die
    try:
        with logs.background_writer() as writer, asyncio.Runner(loop_factory=process.loop_factory()) as runner:
            logs.configure(told.log_level, told.log_format, writer=writer)
            for name, meant in misspelt(os.environ):
                structlog.get_logger("hpad").warning("a variable means nothing to hpad", variable=name, meant=meant)
            runner.run(_serve(told, functools.partial(read_settings, args), writer))
    except (ConfigError, server.ServeError, memory.StoreError, RecordingError) as error:
        print(f"hpad: {error}", file=sys.stderr)
        return 2
    return 0


def read_settings(args: argparse.Namespace) -> settings.Settings:
    """The settings that file, environment and flags add up to; raises SettingsError."""
    return settings.load(*_told(args))


def check_manifests(told: settings.Settings) -> None:
    """Raises folder.FolderError where there is no folder of manifests; in a pod, a sidecar may yet bring it."""
    if told.manifests is not None:
        folder.check(told.manifests, may_come="KUBERNETES_SERVICE_HOST" in os.environ)


def origins(args: argparse.Namespace) -> list[tuple[str, str, Any]]:
    """What file, environment and flags say, each with where it stands (see settings.origins)."""
    return settings.origins(*_told(args))


def _told(args: argparse.Namespace) -> tuple[Path | None, Mapping[str, str], Mapping[str, tuple[str, Any]]]:
    named = os.environ.get("HPAD_CONFIG")
    file = args.config or (Path(named) if named else None)
    flags = dict(args.flags)
    if args.dry_run:
        flags["dry_run"] = ("--dry-run", True)
    return file, os.environ, flags


async def _serve(told: settings.Settings, read: Callable[[], settings.Settings], writer: Writer) -> None:
    daemon = app.App(told)
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
        gc.freeze()  # what is loaded by now stays: there is no need to look through it again and again
        if not await process.run_until(stop, daemon.start()):
            return
        stack.push_async_callback(daemon.stop)
        async with process.reload_on_hangup(reload):
            await daemon.wait(stop)
            notifier.stopping()


async def _reload(daemon: app.App, read: Callable[[], settings.Settings], writer: Writer) -> None:
    """What SIGHUP asks for: all that file, environment and flags say now, or nothing of it."""
    log = structlog.get_logger("hpad.reload")
    try:
        told = await asyncio.to_thread(read)
        await daemon.reload(told)
    except (settings.SettingsError, manager.SourcesRejected) as error:
        log.error("the settings are not good, and stay as they were", problems=str(error).splitlines())
    except Exception:  # a reload that fails must not end a daemon that works
        log.exception("bug: the reload failed in a way nobody expected")
    else:
        logs.configure(daemon.settings.log_level, daemon.settings.log_format, writer=writer)
