"""`hpad cluster`: an embedded cluster on this machine, to try manifests on, or for the workers of one machine."""

import argparse
import asyncio
import contextlib
import errno
import functools
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpad.api import numbers
from hpad.api.text import shown
from hpad.cli import cluster_service
from hpad.cli.output import Failure, WrongUse
from hpad.daemon import process
from hpad.files import Stamps, stamps
from hpad.manifests import documents, hpas
from hpad.manifests.documents import Document

if TYPE_CHECKING:
    from hpad.daemon.reload import Reloader
    from hpad.lab.cluster import Cluster
    from hpad.settings.model import Settings

HELP: Final = "start a cluster on this machine, to try manifests on"
DESCRIPTION: Final = """\
Start an API server on 127.0.0.1 with the controllers of Deployments, ReplicaSets, ReplicationControllers and
StatefulSets, and run pods as processes of this machine: a container's `command` is started, its `image` is not. A
container without a command is simulated: it is running and ready, but has no process, as an event of its pod notes.
The kind Autoscaler is installed; its rules in CEL are not run. Apply the manifests of each FILE (a folder: of all its
files; -: of standard input), print how to reach the cluster with kubectl, and run until Ctrl-C, which stops everything.

This is a place to try things, not a replacement for Kubernetes: it has no authentication (unless --rbac), no isolation
(a pod has all rights of your user), no scheduler, no network of its own and no images, and keeps nothing after its end.
--service makes it a service for the workers of one machine.
"""
EPILOG: Final = """\
examples:
  hpad cluster --hpad shop.yaml                    what hpad does with the manifests in shop.yaml
  hpad cluster --pretend --kubeconfig ./lab.json   objects without processes; writes the kubeconfig to ./lab.json
  hpad cluster --rbac rbac.yaml shop.yaml --hpad --as system:serviceaccount:hpad:hpad
                                                   are the rights in rbac.yaml sufficient for hpad?

exit status: 0 after Ctrl-C or SIGTERM, 1 if the cluster cannot start or a manifest cannot be applied, 2 for wrong use
"""

_ZERO: Final = "0 needs the feature gate HPAScaleToZero: --scale-to-zero, or --hpad with settings that set it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="manifests to apply: a file, a folder, or -")
    parser.add_argument(
        "--hpad", action="store_true", help="run hpad in it; its settings come from --config and the environment"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings of hpad in YAML (also HPAD_CONFIG)")
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="write the kubeconfig to FILE (default: a temporary folder)"
    )
    parser.add_argument(
        "--port", type=numbers.whole(0, 65535), default=0, metavar="N", help="listen on this port (default: a free one)"
    )
    parser.add_argument(
        "--pretend", action="store_true", help="start no processes: pods are ready at once and have no usage"
    )
    parser.add_argument(
        "--scale-to-zero",
        action="store_true",
        help="take minReplicas 0, as with the feature gate HPAScaleToZero (with --hpad also where its settings set it)",
    )
    parser.add_argument(
        "--rbac",
        action="store_true",
        help="authenticate requests, over TLS, and allow what Roles and their bindings grant; the kubeconfig is an "
        "administrator's, `kubectl --as` impersonates another user",
    )
    parser.add_argument(
        "--as", dest="user", metavar="USER", help="with --rbac and --hpad: hpad's user (default: an administrator)"
    )
    parser.add_argument(
        "--service",
        type=Path,
        metavar="FOLDER",
        help="run as a service for one machine (docs/one-machine.md): authenticate requests, as with --rbac; keep the "
        "objects in FOLDER; send the output of containers to the journal; on SIGHUP read the files again",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the cluster until Ctrl-C or SIGTERM; returns 0, raises Failure."""
    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        runner.run(_serve(args))
    return 0


async def _serve(args: argparse.Namespace) -> None:
    from hpad.cli import flags
    from hpad.lab import autoscaler  # imported late, so that --help is quick
    from hpad.lab.cluster import users

    _check(args)
    service = cluster_service.ClusterService(functools.partial(_documents, args.files)) if args.service else None
    documents = [] if service else await asyncio.to_thread(_documents, args.files)
    config = flags.config_file(args.config)
    seen = stamps([] if config is None else [str(config)])  # before it is read: a later change is noticed
    settings = _settings(args) if args.hpad else None
    async with contextlib.AsyncExitStack() as stack:
        # Signals first: Ctrl-C during the start must not leave files or processes behind.
        stop = await stack.enter_async_context(process.stop_on_signals())
        if service:
            await stack.enter_async_context(service.notifying(settings))
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hpad-cluster-")))
        cluster, path = await _started(args, settings, own, stack)
        cluster.apply(autoscaler.definition())
        if service:
            await service.start(cluster)
        else:
            _print_address(cluster.url, path, rbac=args.rbac)
        for document in documents:
            _apply(cluster, document)
        reloader = None
        if settings is not None:
            user = users.named(args.user) if args.user else users.ADMINISTRATOR
            hpad_kubeconfig = await cluster.kubeconfig(own / "hpad.kubeconfig", user)
            reading = functools.partial(_settings, args)
            reloader = await stack.enter_async_context(_hpad_running(settings, hpad_kubeconfig, reading, seen))
        if service:
            await stack.enter_async_context(service.running(reloader))
        await stop.wait()
        print("stopping", flush=True)


def _check(args: argparse.Namespace) -> None:
    """Raises WrongUse for options that contradict each other, and Failure if there is no folder for the service.

    A service authenticates requests in any case.
    """
    if args.service:
        if args.pretend or not args.files or "-" in args.files:
            raise WrongUse("--service runs processes, from files that it can read again: name them, without --pretend")
        if not args.service.is_dir():
            text = "is no folder: it needs one for its state, such as /var/lib/hpad-cluster"
            raise Failure(f"--service {args.service} {text}")
        args.rbac = True
    if args.user and not (args.rbac and args.hpad):
        raise WrongUse("--as names hpad's user: it needs --hpad and --rbac")
    if args.config and not args.hpad:
        raise WrongUse("--config has hpad's settings: it needs --hpad")


async def _started(
    args: argparse.Namespace, settings: "Settings | None", own: Path, stack: contextlib.AsyncExitStack
) -> "tuple[Cluster, Path]":
    """Starts the cluster, for as long as `stack` lasts; returns it and the path of its kubeconfig. Raises Failure."""
    from hpad.lab.cluster import Cluster, SnapshotError, tls

    zero = args.scale_to_zero or (settings is not None and settings.tunables.gates.HPAScaleToZero)
    path = own / "kubeconfig"
    if args.kubeconfig is not None:
        path = args.kubeconfig
        await asyncio.to_thread(_check_kubeconfig, path)
        stack.callback(path.unlink, missing_ok=True)
    try:
        cluster = Cluster(
            port=args.port,
            auto_ready=args.pretend,
            authorization=args.rbac,
            tls=await tls.made(own) if args.rbac else None,
            scale_to_zero=zero,
            service=args.service / cluster_service.OBJECTS if args.service else None,
        )
        await stack.enter_async_context(cluster)
        await cluster.kubeconfig(path)
    except OSError as error:
        taken = f"another process listens on port {args.port} already" if error.errno == errno.EADDRINUSE else ""
        raise Failure(f"the cluster cannot be started: {taken or error.strerror or error}") from error
    except SnapshotError as error:
        raise Failure(f"the cluster cannot be started: {error}") from error
    return cluster, path


def _settings(args: argparse.Namespace) -> "Settings":
    """Returns hpad's settings; with --scale-to-zero they have the gate, unless they set it themselves."""
    from hpad.cli import flags

    settings = flags.load(args.config)
    return settings.on_server((1, 37)) if args.scale_to_zero else settings


def _print_address(url: str, path: Path, *, rbac: bool) -> None:
    lacks = "no isolation" if rbac else "no authentication, no isolation"
    print(f"A place to try things, not a replacement for Kubernetes: {lacks}, nothing is kept.")
    print(f"API server: {url}")
    print(f"kubeconfig: {path}")
    print(f"try:        kubectl --kubeconfig={path} get all")
    print("Ctrl-C stops everything.", flush=True)


def _documents(names: Iterable[str]) -> list[Document]:
    """Returns the documents to apply; raises Failure for the first one that is not valid YAML or not an object."""
    found = list(documents.read_all(names))
    for document in found:
        for fault in document.faults:
            raise Failure(fault._replace(line=document.line).at(document.file))
        if not isinstance(document.value, dict):
            raise Failure(f"{document.file}:{document.line}: not an object, but {shown(document.value)}")
    return found


def _apply(cluster: Any, document: Document) -> None:
    from hpad.lab.cluster import ApiError

    try:
        unknown = cluster.unknown_fields(document.value)
        made = cluster.apply(document.value)
    except ApiError as error:
        about_zero = hpas.is_hpa(document.value) and any(map(hpas.is_about_zero, hpas.load(document).errors))
        hint = f" ({_ZERO})" if about_zero and not cluster.writer.scale_to_zero else ""
        raise Failure(f"{document.file}:{document.line}: {error}{hint}") from error
    print(f"applied:    {made['kind'].lower()}/{made['metadata']['name']}", flush=True)
    for path in unknown:
        print(f"warning:    {document.file}:{document.line}: unknown field {path}: dropped", flush=True)


def _check_kubeconfig(file: Path) -> None:
    """Raises Failure if the file exists and is not from an earlier `hpad cluster`, or cannot be written."""
    from hpad.lab.cluster import kubeconfig

    if file.exists() and not kubeconfig.is_ours(file):
        raise Failure(f"{file} exists already and is not from an earlier `hpad cluster`; name another file")
    if not file.absolute().parent.is_dir():
        raise Failure(f"{file} cannot be written: {file.absolute().parent} is no folder")


@contextlib.asynccontextmanager
async def _hpad_running(
    settings: "Settings", kubeconfig: Path, read: Callable[[], "Settings"], files: Stamps
) -> "AsyncIterator[Reloader]":
    """Runs hpad on the cluster of the kubeconfig; raises Failure if it cannot start.

    Settings are read again by `read` when one of `files` has changed, which are as they were before they were read.
    """
    from hpad.daemon import app, logs  # imported late, so that --help is quick
    from hpad.daemon.reload import Reloader
    from hpad.kube.auth.kubeconfig import load_cluster_config
    from hpad.records.format import RecordingError
    from hpad.serve import server

    def applied(now: "Settings") -> None:
        logs.configure(now.log_level, now.log_format)

    applied(settings)
    daemon = app.App(settings, cluster_config=await asyncio.to_thread(load_cluster_config, str(kubeconfig)))
    try:
        await daemon.start()
    except (server.ServeError, RecordingError) as error:
        raise Failure(f"hpad cannot be started: {error}") from error
    reloader = Reloader(daemon, read, files, applied=applied, notifier=process.Notifier({}))
    try:
        async with process.running(reloader.run(), "reload of changed files"):
            yield reloader
    finally:
        await daemon.stop()
