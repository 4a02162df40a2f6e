"""The life of the daemon: what `assembly` has built starts and stops in the order written down here."""

import asyncio
import functools
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

import msgspec
import structlog

from hpad import __version__
from hpad.clock import Clock, SystemClock
from hpad.controller.cluster import HpaSource
from hpad.controller.controller import Controller
from hpad.daemon import assembly, lifecycle, process
from hpad.election import leader as leader_module
from hpad.election import shards
from hpad.election.owner import Coordinator
from hpad.kube import access, cluster, watch
from hpad.kube.auth import credentials
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.auth.kubeconfig import load_cluster_config
from hpad.serve import authentication, page, server
from hpad.settings import Settings
from hpad.store import memory, persistent
from hpad.telemetry import Telemetry

DRAIN_SECONDS = 10.0
STOP_SECONDS = 17.0
"""Below the 20 s after which systemd kills; a Pod's grace period is longer."""
LIVE = frozenset(
    {
        "sources",
        "routes",
        "tunables",
        "sync_period",
        "workers",
        "competing_hpas",
        "log_level",
        "log_format",
        "names_zero",
    }
)
"""Settings that can change in a running daemon."""
_FLUSH_SECONDS = 2.0
_WAITING = "waiting for the cluster and the HPAs"
_FIRST_WORD, _NEXT_WORD = 5.0, 30.0
"""Seconds until hpad says that it is still waiting for its cluster, and from then on."""


class App:
    """The daemon as an object: `async with App(settings)` inside any event loop, or `run` until an event is set.

    `cluster_config` says which API server; without it the settings' kubeconfig does, read at the start.
    `reflector_options` are the timeouts and backoffs of lists and watches. After the start
    `hpas`, `cluster`, `server`, `controller` and, where there may be several hpads, `coordinator` are set.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        cluster_config: ClusterConfig | None = None,
        reflector_options: watch.ReflectorOptions | None = None,
    ) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.telemetry = Telemetry()
        self.store: memory.Store = memory.InMemory()
        self.cluster: cluster.Cluster
        self.hpas: HpaSource
        self.controller: Controller
        self.server: server.Server | None = None
        self.coordinator: Coordinator | None = None
        self._made: assembly.Assembly
        self._version: tuple[int, int] | None = None
        self._versions: access.VersionFollower
        self._cluster_config = cluster_config
        self._reflector_options = reflector_options
        self._controller_started = asyncio.Event()
        self._components = lifecycle.Components(self.clock)
        self._log = structlog.get_logger("hpad.daemon.app")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def run(self, stop: asyncio.Event) -> None:
        """Start, wait until `stop` is set, stop. Raises what a background task raised, should one ever fail."""
        async with self:
            await self.wait(stop)

    async def wait(self, stop: asyncio.Event) -> None:
        """The waiting of `run`."""
        await self._components.wait(stop)

    async def start(self) -> None:
        """Build and start everything; waiting for the cluster goes on in the background (see `ready`).

        Raises kube.config.ConfigError, serve.server.ServeError, StoreError or RecordingError,
        leaving nothing behind.
        """
        self._log.info("hpad starts", version=__version__, dry_run=self.settings.dry_run)
        if self._cluster_config is None:
            kubeconfig, context = self.settings.kubeconfig, self.settings.context
            self._cluster_config = await credentials.aside(functools.partial(load_cluster_config, kubeconfig, context))
        try:
            self._made = self._assemble(self._cluster_config)
            await self._components.start(self._order(self._made))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything in reverse order; reconciles under way get DRAIN_SECONDS to end, everything STOP_SECONDS."""
        await self._components.stop(STOP_SECONDS)
        self._log.info("hpad stopped")

    async def reload(self, told: Settings) -> list[str]:
        """Take on those settings that can change in a running daemon, all of them or none.

        Returns the names of those that differ, too, but stay as they are until a restart.
        Raises SourcesRejected, having changed nothing, if a new source does not work.
        """
        told = told.on_server(self._version)
        changed = [name for name in Settings.__struct_fields__ if getattr(told, name) != getattr(self.settings, name)]
        taken = {name: getattr(told, name) for name in changed if name in LIVE}
        new = msgspec.structs.replace(self.settings, **taken)
        if {"sources", "routes", "sync_period"} & set(taken):
            patience = self.settings.sync_period.total_seconds()
            await self._made.metrics.replace(self._made.gatherer(new), patience=patience)
        self.settings = new
        self._made.reconciler.retune(assembly.options(new), self._made.fallbacks(new))
        self.controller.retune(period=new.sync_period.total_seconds(), workers=new.workers)
        if self._made.handoff is not None:
            self._made.handoff.retune(self._made.cooldown(new))
        if isinstance(self.store, persistent.PersistentStore):
            self.store.retune(assembly.pace(new))
        if self.server is not None:
            await self.server.refresh()
        kept = [name for name in changed if name not in LIVE]
        if self._made.folder is not None:
            self._made.folder.allow_zero(new.tunables.gates.HPAScaleToZero)
        self._log.info("settings read anew", changed=list(taken), needs_restart=kept)
        return kept

    def status(self) -> str:
        """One sentence on what hpad is doing, for people."""
        if not self._components:
            return "Starting"
        first = next(iter(self.troubles()), None)
        if not self._controller_started.is_set():
            return f"Waiting for the cluster and the HPAs{'' if first is None else f': {first}'}"
        doing = self._doing()
        return doing if first is None else f"{doing}; {first}"

    def _shared(self) -> str | None:
        """What this hpad does of what there is, where there may be several."""
        if self.coordinator is None:
            return None
        return self.coordinator.describe(self.controller.ours, sum(1 for _ in self.hpas.values()))

    def _doing(self) -> str:
        shared = self._shared()
        if shared is not None:
            return shared
        count = sum(1 for _ in self.hpas.values())
        return f"{'Deciding for' if self.settings.dry_run else 'Scaling by'} {count} HPA{'' if count == 1 else 's'}"

    def _mode(self) -> page.Mode:
        """What the page says of this hpad."""
        folder = self.settings.manifests
        facts = (
            "no leader election" if self.coordinator is None else self.coordinator.role,
            "HPAs of the API server" if folder is None else f"HPAs of the manifests in {folder}",
            f"version {__version__}",
        )
        return page.Mode(doing=self._doing(), facts=facts, dry_run=self.settings.dry_run)

    @property
    def leader(self) -> leader_module.Leader | shards.Shards | None:
        """Who knows what is ours, where there may be several hpads."""
        return self.coordinator.owner if self.coordinator is not None else None

    async def ready(self) -> None:
        """Wait until everything has synced and the heartbeat runs."""
        await self._controller_started.wait()

    def unready(self) -> list[str]:
        """Why hpad is not ready yet, none if it is; a cluster that is lost later on does not make it unready again.

        Whoever stands by while another leads is ready: to take over. So is who has no share (yet). Who has never found
        out who leads, since it may not have the Lease, is not: it would take nothing over.
        """
        if not self._controller_started.is_set():
            return [_WAITING, *self.troubles()]
        agreed = self.coordinator
        return [agreed.trouble] if agreed is not None and agreed.trouble and not agreed.holder_known else []

    def troubles(self) -> list[str]:
        """What is wrong with the cluster's watches, with the Lease, with histories and with the folder's
        files, a sentence each."""
        found = list(self.cluster.troubles)
        if self.coordinator is not None and self.coordinator.trouble is not None:
            found.append(self.coordinator.trouble)
        if isinstance(self.store, persistent.PersistentStore) and self.store.trouble is not None:
            found.append(f"a restart would lose the state of the HPAs: {self.store.trouble}")
        files = self._made.folder
        if files is not None:
            found += [files.trouble] if files.trouble else []
            found += [str(problem) for problems in files.errors.values() for problem in problems]
        return [text.encode("utf-8", "backslashreplace").decode() for text in found]  # names of files are any bytes

    def _assemble(self, cluster_config: ClusterConfig) -> assembly.Assembly:
        made = assembly.Assembly(self.settings, cluster_config, self.clock, self.telemetry, self._reflector_options)
        self.hpas, self.cluster, self.controller = made.hpas, made.cluster, made.controller
        self.store, self.coordinator = made.store, made.coordinator
        self._versions = access.VersionFollower(made.api, self._take_version)
        return made

    def _take_version(self, version: tuple[int, int]) -> None:
        """Some gates follow the version of the API server unless a setting names them."""
        self._version = version
        new = self.settings.on_server(version)
        if new == self.settings:
            return
        self.settings = new
        self._log.info(
            "the feature gate HPAScaleToZero is on, as in the API server", version=".".join(map(str, version))
        )
        self._made.reconciler.retune(assembly.options(new), self._made.fallbacks(new))
        if self._made.folder is not None:
            self._made.folder.allow_zero(new.tunables.gates.HPAScaleToZero)

    def _order(self, made: assembly.Assembly) -> list[lifecycle.Component]:
        """In which order everything starts."""
        self.telemetry.before_scrape(self._refresh_series)
        ordered = [
            lifecycle.Component(
                "store", "a wrong one is said first", lambda: assembly.check(self.settings), lifecycle.nothing
            ),
            lifecycle.Component(
                "connections", "everything below speaks through them", lifecycle.nothing, made.api.aclose
            ),
            self._components.background("version", "the defaults of gates follow it", self._versions.run),
            self._source_of_hpas(made),
            self._sources(made),
        ]
        if made.recorder is not None:
            recorder = made.recorder
            ordered.append(
                lifecycle.Component("recorder", "outlives the last reconcile", recorder.start, recorder.stop)
            )
        why = "bursts of work leave holes in the heap"
        ordered.append(self._components.background("memory", why, lambda: process.trim_regularly(self.clock)))
        if self.settings.listen is not None:
            self.server = window = self._window(self.settings.listen)
            ordered.append(
                lifecycle.Component("windows", "a daemon that still waits can say so", window.start, window.stop)
            )
        run, flush = self.cluster.run, self._flush_events
        ordered.append(self._components.background("caches", "what decisions read", run, before_end=flush))
        ordered += [*self._election(made), *self._histories(made)]
        why = "last to start, first to stop"
        ordered.append(self._components.background("heartbeat", why, self._begin, before_end=self._drain))
        return ordered

    def _source_of_hpas(self, made: assembly.Assembly) -> lifecycle.Component:
        if made.folder is None:
            return lifecycle.Component(
                "hpas", "the API server's, kept by the caches", lifecycle.nothing, lifecycle.nothing
            )
        folder = made.folder

        async def run() -> None:
            if not self.settings.names_zero:
                await self._versions.known.wait()
            await folder.run()

        return self._components.background("hpas", "what a file may say depends on the gates", run)

    def _sources(self, made: assembly.Assembly) -> lifecycle.Component:
        metrics = made.metrics

        async def start() -> None:
            await metrics.start()
            for name, error in metrics.problems().items():
                said = metrics.origin(name)
                self._log.error("a metric source does not work", source=name, settings=said, error=error.message)

        return lifecycle.Component("sources", "a broken one is known before it is asked", start, metrics.aclose)

    def _election(self, made: assembly.Assembly) -> list[lifecycle.Component]:
        if made.coordinator is None:
            return []
        agreed, why = made.coordinator, "the Lease is held for as long as there is work"
        return [self._components.background("election", why, lambda: agreed.run(self._controller_started))]

    def _histories(self, made: assembly.Assembly) -> list[lifecycle.Component]:
        """What is left to save is saved while the Lease is still held."""
        store = made.store
        if not isinstance(store, persistent.PersistentStore):
            return []

        def keep() -> Coroutine[Any, Any, None]:
            return store.run(lambda key: self.hpas.get(key) is not None)

        why = "read before the first decision, saved after the last"
        return [self._components.background("histories", why, keep, after_end=store.stop)]

    def _window(self, address: tuple[str, int]) -> server.Server:
        return server.Server(
            address,
            source=self.hpas,
            store=self.store,
            telemetry=self.telemetry,
            unready=self.unready,
            troubles=self.troubles,
            mode=self._mode,
            reports=self._made.metrics.reports,
            serving=self.settings.serving,
            reviewer=authentication.Reviewer(self.cluster.client, self.clock),
            clock=self.clock,
        )

    async def _begin(self) -> None:
        """Let the heart beat as soon as everything it needs is known; until then say, now and then, what is missing."""
        saying = asyncio.create_task(self._say_waiting())
        try:
            await self.hpas.synced.wait()
            self.cluster.follow([hpa.spec.scale_target_ref for hpa in self.hpas.values()])
            await self.cluster.ready()
            await self._versions.known.wait()
        finally:
            saying.cancel()
        self.controller.start()
        self._controller_started.set()
        self._log.info("at work", hpas=sum(1 for _ in self.hpas.values()), url=self.server and self.server.url)
        await self.controller.wait_stopped()

    async def _say_waiting(self) -> None:
        pause = _FIRST_WORD
        while True:
            await self.clock.sleep(pause)
            self._log.warning(f"still {_WAITING}", troubles=self.troubles())
            pause = _NEXT_WORD

    async def _drain(self) -> None:
        if self._made.handoff is not None:
            self._made.handoff.stop()
        await self.controller.stop(DRAIN_SECONDS)

    async def _flush_events(self) -> None:
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self.cluster.event_recorder.flush()
        except TimeoutError:
            self._log.warning("some events were not written")

    def _refresh_series(self) -> None:
        self.telemetry.sources.report(self._made.metrics.reports())
        for resource, seconds in self.cluster.staleness().items():
            self.telemetry.process.cache_staleness(resource, seconds)
