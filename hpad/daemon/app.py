"""The daemon: start and stop order, changed settings, and the start of the controller once the caches have synced."""

import asyncio
import functools
from collections.abc import Callable
from typing import Self

import msgspec
import structlog

from hpad import __version__
from hpad.clock import Clock, SystemClock
from hpad.daemon import assembly, process
from hpad.daemon.assembly import Components
from hpad.daemon.lifecycle import Component, Lifecycle
from hpad.election import owner
from hpad.kube import access
from hpad.kube.auth import credentials
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.auth.kubeconfig import load_cluster_config
from hpad.kube.reflector import ReflectorOptions
from hpad.serve.api import Shown
from hpad.serve.api_types import Status
from hpad.serve.authentication import Reviewer
from hpad.serve.server import Server
from hpad.settings import TABLE, Settings, rows
from hpad.settings.model import AUTOSCALERS, BOTH, HPAS
from hpad.sources.limits import SOURCE_STATES
from hpad.store import persistent
from hpad.telemetry import Telemetry

DRAIN_SECONDS = 10.0
STOP_SECONDS = 17.0
"""Less than the 20 s after which systemd kills the process; a pod has 30 s."""
RELOADABLE = frozenset({*(row.field for row in TABLE.values() if row.setting.reloadable), "names_zero"})
"""Fields of Settings that take effect without a restart."""
FLUSH_SECONDS = 2.0
_FIRST_REMINDER, _NEXT_REMINDERS = 5.0, 30.0
"""Seconds until the first log line about a cluster that does not answer, and between later ones."""
_OWNED = {
    HPAS: "HPAs of the API server",
    AUTOSCALERS: "Autoscalers of the API server",
    BOTH: "HPAs and Autoscalers of the API server",
}
WAITING = "waiting for the cluster and the HPAs"
_SHOWN_ERRORS = 5
"""Errors of rejected settings that the page and the API show."""


class DaemonStatus:
    """Reads the components. `settings` returns the settings in force; `started` is set once the controller runs.

    `of_settings` returns the problems with changed settings, one sentence each.
    """

    def __init__(
        self,
        components: Components,
        settings: Callable[[], Settings],
        started: asyncio.Event,
        of_settings: Callable[[], list[str]],
    ) -> None:
        self._components = components
        self._settings = settings
        self._started = started
        self._of_settings = of_settings

    def sentence(self) -> str:
        """Returns one sentence on the activity of hpad, with the first problem."""
        problem = self.problems()[:1]
        if not self._started.is_set():
            return ": ".join(["Waiting for the cluster and the HPAs", *problem])
        return "; ".join([self._activity(), *problem])

    def mode(self) -> Status:
        """Returns the head of the status page."""
        coordinator, settings = self._components.coordinator, self._settings()
        facts = (
            "no leader election" if coordinator is None else coordinator.owner.replicas()[0].role,
            _OWNED[settings.kinds] if settings.manifests is None else f"HPAs of the manifests in {settings.manifests}",
            f"version {__version__}",
        )
        return Status(doing=self._activity(), facts=facts, dry_run=settings.dry_run)

    def unready(self) -> list[str]:
        """Returns the reasons why hpad is not ready; none if it is.

        A standby replica is ready. A cluster that is lost later does not make hpad unready
        again.
        """
        if not self._started.is_set():
            return [WAITING, *self.problems()]
        coordinator = self._components.coordinator
        # A replica that has never read the Lease could not take over.
        if coordinator is None or coordinator.owner.holder_known or not coordinator.owner.trouble:
            return []
        return [coordinator.owner.trouble]

    def problems(self) -> list[str]:
        """Returns problems with watches, the Lease, the store, manifests and changed settings, one sentence each."""
        coordinator, store, files = self._components.coordinator, self._components.store, self._components.folder
        found = list(self._components.cluster.troubles)
        if coordinator is not None and coordinator.owner.trouble is not None:
            found.append(coordinator.owner.trouble)
        if isinstance(store, persistent.PersistentStore) and store.trouble is not None:
            found.append(f"a restart would lose the state of the HPAs: {store.trouble}")
        if files is not None:
            found += [files.trouble] if files.trouble else []
            found += [problem.at(file) for file, problems in files.errors.items() for problem in problems]
        found += self._components.notices.troubles
        found += self._of_settings()
        return [text.encode("utf-8", "backslashreplace").decode() for text in found]  # file names are arbitrary bytes

    def _activity(self) -> str:
        coordinator = self._components.coordinator
        count = len(self._components.hpas.keys())
        if coordinator is not None:
            return coordinator.describe(count)
        verb = "Deciding for" if self._settings().dry_run else "Scaling by"
        return f"{verb} {count} HPA{'' if count == 1 else 's'}"


class App:
    """The daemon: `async with App(settings)` in any event loop; `wait` until it is to stop.

    `cluster_config` names the API server; by default the settings' kubeconfig is read at the start.
    `reflector_options` are the timeouts and backoffs of lists and watches. `components`, and `server` if the settings
    have an address, are set by the start. `rejected` are the errors of changed settings that were rejected, and
    `needs_restart` the names of changed ones that only a restart applies.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        cluster_config: ClusterConfig | None = None,
        reflector_options: ReflectorOptions | None = None,
    ) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.telemetry = Telemetry()
        self.components: assembly.Components
        self.server: Server | None = None
        self.rejected: tuple[str, ...] = ()
        self.needs_restart: tuple[str, ...] = ()
        self._status: DaemonStatus
        self._versions: access.VersionFollower
        self._version: tuple[int, int] | None = None
        self._cluster_config = cluster_config
        self._reflector_options = reflector_options
        self._controller_started = asyncio.Event()
        self._lifecycle = Lifecycle(self.clock)
        self._log = structlog.get_logger("hpad.daemon.app")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def wait(self, stop: asyncio.Event) -> None:
        """Waits until `stop` is set. Raises the exception of a background task that failed."""
        await self._lifecycle.wait(stop)

    async def start(self) -> None:
        """Builds and starts all components. The controller starts later, in the background (see `ready`).

        Raises ConfigError, ServeError, StoreError or RecordingError, after stopping what it has started.
        """
        self._log.info("hpad starts", version=__version__, dry_run=self.settings.dry_run)
        if self._cluster_config is None:
            kubeconfig, context = self.settings.kubeconfig, self.settings.context
            self._cluster_config = await credentials.run_in_thread(
                functools.partial(load_cluster_config, kubeconfig, context)
            )
        try:
            self._build(self._cluster_config)
            await self._lifecycle.start(self._start_order())
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stops all components in reverse order. Running reconciles get DRAIN_SECONDS, everything STOP_SECONDS."""
        await self._lifecycle.stop(STOP_SECONDS)
        self._log.info("hpad stopped")

    async def reload(self, settings: Settings) -> list[str]:
        """Applies all reloadable settings, and returns the names of other changed ones, which need a restart.

        Metric sources whose settings and files have not changed go on as they are. Raises SourcesRejected if a new or
        changed source does not work; nothing has changed then.
        """
        settings = settings.on_server(self._version)
        changed = rows.differing(self.settings, settings)
        values = {field: getattr(settings, field) for field in RELOADABLE}
        applied = {field: value for field, value in values.items() if value != getattr(self.settings, field)}
        new = msgspec.structs.replace(self.settings, **applied)
        metrics = self.components.metrics
        outdated = await metrics.outdated()
        # First the sources, the only step that can fail.
        if outdated or {"sources", "routes", "sync_period"} & applied.keys():
            gatherer = assembly.gatherer(new, self.components.cluster, self.clock, self.telemetry)
            await metrics.replace(gatherer, patience=self.settings.sync_period.total_seconds())
        self.settings = new = new.on_server(self._version)  # which may have become known meanwhile
        if applied:
            assembly.apply(new, self.components)
        needs_restart = [name for name in changed if not TABLE[name].setting.reloadable]
        self.needs_restart = tuple(needs_restart)
        reported = [name for name in changed if TABLE[name].setting.reloadable]
        if outdated and "sources" not in reported:
            reported.append("sources")
        self._log.info("settings reloaded", changed=reported, needs_restart=needs_restart)
        return needs_restart

    async def ready(self) -> None:
        """Waits until the caches have synced and the controller runs."""
        await self._controller_started.wait()

    def status(self) -> str:
        """Returns one sentence on the activity of hpad."""
        return self._status.sentence() if self._lifecycle else "Starting"

    def unready(self) -> list[str]:
        """Returns the reasons why hpad is not ready (see DaemonStatus)."""
        return self._status.unready()

    def problems(self) -> list[str]:
        """Returns all present problems, one sentence each."""
        return self._status.problems()

    def _build(self, cluster_config: ClusterConfig) -> None:
        settings = self.settings
        self.components = made = assembly.build(
            settings, cluster_config, self.clock, self.telemetry, self._reflector_options
        )
        self._status = DaemonStatus(made, lambda: self.settings, self._controller_started, self._problems_of_settings)
        self._versions = access.VersionFollower(made.api, self._follow_version)
        self.telemetry.before_scrape(self._refresh_series)
        if settings.listen is not None:
            self.server = Server(
                settings.listen,
                Shown(
                    made.hpas,
                    made.store,
                    made.decisions,
                    made.recent,
                    reports=made.metrics.reports,
                    replicas=owner.alone if made.coordinator is None else made.coordinator.owner.replicas,
                ),
                self._status,
                self.telemetry,
                serving=settings.serving,
                reviewer=Reviewer(made.cluster.client, self.clock),
                clock=self.clock,
            )

    def _start_order(self) -> list[Component]:
        """Returns all components in the order of their start. They stop in the reverse order."""
        made, background = self.components, self._lifecycle.background
        ordered = [
            # An unusable store is reported before anything starts.
            Component("store check", start=lambda: assembly.check_store(self.settings)),
            # All components below use the client.
            Component("API client", stop=made.api.aclose),
            # Defaults of feature gates depend on the version of the API server.
            background("API server version", self._versions.run),
        ]
        if made.folder is not None:
            # The feature gates decide whether a manifest may set minReplicas to 0.
            ordered.append(background("manifests", self._follow_manifests))
        # A broken source is reported before the first query.
        ordered.append(Component("metric sources", start=self._start_sources, stop=made.metrics.aclose))
        if made.recorder is not None:
            # The recording ends after the last reconcile.
            ordered.append(Component("recording", start=made.recorder.start, stop=made.recorder.stop))
        ordered.append(background("memory trimming", lambda: process.trim_regularly(self.clock)))
        if self.server is not None:
            # Before the caches, so that a daemon that waits for the cluster reports it.
            ordered.append(Component("HTTP server", start=self.server.start, stop=self.server.stop))
        ordered.append(background("caches", made.cluster.run))
        # Before the store, so that it saves after the state, which is more important.
        ordered.append(background("decision history", made.decisions.run, after_end=made.decisions.stop))
        if made.coordinator is not None:
            # Started before the store, so that the Lease is released after the last state was saved.
            ordered.append(background("election", functools.partial(made.coordinator.run, self._controller_started)))
        # The last events are written after the last state, and before the Lease is released: then none may be.
        flush = functools.partial(made.cluster.event_recorder.flush, FLUSH_SECONDS)
        ordered.append(Component("events", stop=flush))
        # What the last reconciles tell is sent before anything else stops.
        ordered.append(Component("messages", start=made.notices.start, stop=made.notices.stop))
        if isinstance(made.store, persistent.PersistentStore):
            # State is read before the first decision, and saved after the last.
            keep = functools.partial(made.store.run, made.hpas.may_exist)
            ordered.append(background("store", keep, after_end=made.store.stop))
        if not self.settings.dry_run:
            ordered.append(background("removal of deletion costs", made.costs.run))
        ordered.append(background("controller", self._run_controller, before_end=self._drain))
        return ordered

    def _problems_of_settings(self) -> list[str]:
        found = [f"changed settings are rejected, the previous ones stay in force: {each}" for each in self.rejected]
        if len(found) > _SHOWN_ERRORS:
            found[_SHOWN_ERRORS:] = [f"changed settings have {len(found) - _SHOWN_ERRORS} more errors; the log has all"]
        if self.needs_restart:
            found.append(f"changed settings need a restart: {', '.join(self.needs_restart)}")
        return [*found, *(self.server.troubles if self.server is not None else ())]

    async def _follow_manifests(self) -> None:
        assert self.components.folder is not None
        if not self.settings.names_zero:
            await self._versions.known.wait()
        await self.components.folder.run()

    async def _start_sources(self) -> None:
        metrics = self.components.metrics
        await metrics.start()
        for name, error in metrics.current.problems().items():
            settings = metrics.current.origin(name)
            self._log.error("a metric source does not work", source=name, settings=settings, error=error.message)

    async def _run_controller(self) -> None:
        """Starts the controller once the caches have synced, and waits for its end."""
        made = self.components
        reminding = asyncio.create_task(self._log_waiting())
        try:
            await (made.cluster.kinds.wait_synced() if made.folder is None else made.folder.synced.wait())
            made.cluster.follow([hpa.spec.scale_target_ref for hpa in made.hpas.values()])
            await made.cluster.ready()
            await self._versions.known.wait()
        finally:
            reminding.cancel()
        made.controller.start()
        self._controller_started.set()
        self._log.info("at work", hpas=len(made.hpas.keys()), url=self.server and self.server.url)
        await made.controller.wait_stopped()

    async def _log_waiting(self) -> None:
        seconds = _FIRST_REMINDER
        while True:
            await self.clock.sleep(seconds)
            self._log.warning(f"still {WAITING}", problems=self.problems())
            seconds = _NEXT_REMINDERS

    async def _drain(self) -> None:
        if self.components.takeover is not None:
            self.components.takeover.stop()
        await self.components.controller.stop(DRAIN_SECONDS)

    def _follow_version(self, version: tuple[int, int]) -> None:
        """Applies defaults of feature gates that depend on the version of the API server."""
        self._version = version
        new = self.settings.on_server(version)
        if new == self.settings:
            return
        self.settings = new
        self._log.info(
            "the feature gate HPAScaleToZero is on, as in the API server", version=".".join(map(str, version))
        )
        assembly.apply(new, self.components)

    def _refresh_series(self) -> None:
        self.telemetry.sources.report(self.components.metrics.reports(), SOURCE_STATES)
        troubles = self.server.troubles if self.server is not None else []
        self.telemetry.settings.rejected(bool(self.rejected or troubles))
        kept = self.components.decisions.usage()
        self.telemetry.decision_history.report(
            memory=kept.memory, disk=kept.disk, dropped=kept.dropped, saved=not kept.trouble
        )
        for resource, seconds in self.components.cluster.staleness().items():
            self.telemetry.process.cache_staleness(resource, seconds)
