"""hpad beside the embedded cluster, in the process of `hpad cluster`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hpad.cli.output import Failure
from hpad.daemon import process
from hpad.files import Stamps

if TYPE_CHECKING:
    from hpad.daemon.reload import Reloader
    from hpad.settings.model import Settings


@contextlib.asynccontextmanager
async def running(
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
