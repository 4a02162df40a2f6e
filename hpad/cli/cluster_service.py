"""`hpad cluster --service`: its files at the start and on SIGHUP, and what systemd is told."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from hpad.cli.output import Failure
from hpad.clock import SystemClock
from hpad.daemon import process
from hpad.manifests.documents import Document

if TYPE_CHECKING:
    from hpad.daemon.reload import Reloader
    from hpad.lab.cluster import Cluster
    from hpad.settings.model import Settings

LOG = structlog.get_logger("hpad.cluster")
OBJECTS: Final = "objects.json"
_STOP_SECONDS: Final = 20
"""What hpad and the API server need beside the pods' own time to stop."""
_NO_LIMITS: Final = (
    "limits of containers are not enforced, and memory is measured by process: systemd has delegated no cgroup v2 with "
    "CPU and memory (Delegate=yes)"
)


@dataclass(slots=True)
class ClusterService:
    """The cluster as a service of systemd. `read` reads the manifests; it blocks, and raises Failure."""

    read: Callable[[], list[Document]]
    notifier: process.Notifier = field(default_factory=process.Notifier)
    _cluster: "Cluster | None" = None
    _started: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.asynccontextmanager
    async def notifying(self, settings: "Settings | None") -> AsyncIterator[None]:
        """Logs as hpad's settings say, and tells systemd of the start, the state, and that the event loop runs."""
        from hpad.daemon import logs

        logs.configure(*((settings.log_level, settings.log_format) if settings else ("info", "auto")))
        async with process.running(self._notify(), "notifier"):
            yield

    async def start(self, cluster: "Cluster") -> None:
        """Applies the files; if they are invalid, the objects of before the restart stay, or Failure is raised."""
        self._cluster = cluster
        has_earlier = any(cluster.files.earlier())
        if not cluster.limits_apply:
            LOG.warning(_NO_LIMITS)
        try:
            await self._apply(cluster)
        except Failure as error:
            if not has_earlier:
                raise
            LOG.error("the files are not applied; the objects of before the restart stay", problem=str(error))

    @contextlib.asynccontextmanager
    async def running(self, reloader: "Reloader | None") -> AsyncIterator[None]:
        """Reads the files and hpad's settings again on SIGHUP. Tells systemd that it is ready, and how long it ends."""

        async def reload() -> None:
            await self.reload()
            if reloader is not None:
                await reloader.reload()

        async with process.call_on_signal(signal.SIGHUP, reload):
            self._started.set()
            yield
        self.notifier.stopping()
        if self._cluster is not None:
            seconds = self._cluster.longest_grace + _STOP_SECONDS
            self.notifier.notify(f"STATUS=Stopping: workers end their work\nEXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    async def reload(self) -> None:
        """Applies the files as they are now; none of them, with a line in the log, if one is invalid."""
        if self._cluster is None:
            return
        with self.notifier.reloading():
            try:
                await self._apply(self._cluster)
            except Failure as error:
                LOG.error("the files are not applied; the objects stay as they are", problem=str(error))
            except Exception:
                LOG.exception("bug: the files could not be applied")

    async def _apply(self, cluster: "Cluster") -> None:
        """Applies all files or none; raises Failure."""
        from hpad.lab.cluster import ApiError

        documents = await asyncio.to_thread(self.read)
        for document in documents:
            try:
                cluster.files.check(document.value)
            except (ApiError, ValueError) as error:
                raise Failure(f"{document.file}:{document.line}: {error}") from error
        try:
            changed, removed = cluster.files.apply([document.value for document in documents])
        except ApiError as error:
            raise Failure(f"applied in part only: {error}") from error
        LOG.info("files applied", objects=len(documents), changed=changed, removed=removed)

    async def _notify(self) -> None:
        await self._started.wait()  # a slow start must not count as a hang: systemd watches from the first signal on
        await self.notifier.run(SystemClock(), self._started.wait, self._status)

    def _status(self) -> str:
        pods = self._cluster.list("pods") if self._cluster else []
        conditions = [each for pod in pods for each in pod.get("status", {}).get("conditions", ())]
        ready = sum(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return f"{ready} of {len(pods)} pods are ready"
