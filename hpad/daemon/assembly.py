"""The objects of a daemon: each is built once, here, and wired to those it needs.

Where histories are kept, as the settings say.
"""

import asyncio
from collections.abc import Callable

import structlog

from hpad import __version__
from hpad.adapter import AdapterError, Query
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.controller.cluster import HpaSource
from hpad.controller.controller import Controller
from hpad.controller.handoff import Handoff
from hpad.controller.overlap import SelectorIndex
from hpad.controller.reconcile import Options, Reconciler
from hpad.election import lease, owner
from hpad.election.owner import Coordinator
from hpad.engine.fallback_policy import Fallback
from hpad.kube import client, cluster, watch
from hpad.kube.auth.credentials import ClusterConfig
from hpad.manifests import folder
from hpad.recording import writer
from hpad.settings import Settings
from hpad.settings.model import YIELD
from hpad.sources import limits, manager, plugins
from hpad.store import configmaps, memory, persistent, sqlite
from hpad.telemetry import Telemetry


async def check(told: Settings) -> None:
    """Raise memory.StoreError where the settings name a place in which nothing can be kept."""
    if told.store.kind == "sqlite" and told.store.path is not None and not told.dry_run:
        await asyncio.to_thread(sqlite.check, told.store.path)


def build(
    told: Settings, home: str, api: client.Client, telemetry: Telemetry, clock: Clock, may_save: Callable[[Key], bool]
) -> memory.Store:
    """Returns the store that the settings ask for; the caller runs a `PersistentStore`.

    `home` is the namespace hpad runs in. `may_save` tells whether this process may save the state of an HPA.
    """
    if told.store.kind == "memory" or told.dry_run:
        if not told.store.chosen and not told.dry_run:
            log = structlog.get_logger("hpad.daemon.app")
            log.info("histories will not survive a restart: name a file with --store sqlite:FILE")
        return memory.InMemory()
    if told.store.kind == "sqlite" and told.store.path is not None:
        backend: persistent.Backend = sqlite.Sqlite(told.store.path, clock)
    else:
        backend = configmaps.ConfigMaps(api, place(told, home), told.store.name, may_save)
    return persistent.PersistentStore(backend, clock, telemetry, pace(told), may_save)


def place(told: Settings, home: str) -> str:
    """The namespace of the ConfigMaps; `home` is the one that hpad counts as its own: that of its pod, or, outside of
    one, of the kubeconfig's context."""
    return told.store.namespace or (told.election.namespace if told.election.enabled else home)


def pace(told: Settings) -> persistent.Pace:
    """How often is saved: a file costs little, an object of the cluster one write a period."""
    period = told.sync_period.total_seconds()
    if told.store.kind == "sqlite":
        return persistent.Pace(tick=min(0.25, period / 8), rest=min(1.0, period / 4))
    return persistent.Pace(tick=min(1.0, period / 8), rest=period)


_GAP = 4
"""Periods that a restart or a change of leader may take before what is remembered has a hole in it."""


class Assembly:
    """What a daemon with these settings is made of. Nothing of it has been started, or has spoken to anybody, yet.

    `folder` is there where HPAs come from files, `recorder` where reconciles are recorded; `coordinator` and `handoff`
    where there may be several hpads.
    """

    def __init__(
        self,
        settings: Settings,
        cluster_config: ClusterConfig,
        clock: Clock,
        telemetry: Telemetry,
        reflector_options: watch.ReflectorOptions | None,
    ) -> None:
        self._settings = settings
        self._cluster_config = cluster_config
        self._clock = clock
        self._telemetry = telemetry
        self._identity = lease.identity() if settings.election.enabled else ""
        self.api = self._build_api()
        self.cluster = self._build_cluster(reflector_options)
        self.folder = self._build_folder()
        self.hpas: HpaSource = self.cluster.hpas if self.folder is None else self.folder
        self.metrics = manager.Sources(self.gatherer(settings), clock)
        self.recorder: writer.RecordingWriter | None = None
        if settings.record is not None:
            self.recorder = writer.RecordingWriter(settings.record, clock, settings.record_limit)
        self.coordinator = self._build_coordinator()
        self.store = self._build_store()
        self.reconciler = self._build_reconciler()
        self.controller = self._build_controller()
        self.handoff = self._build_handoff()

    def gatherer(self, settings: Settings) -> manager.Gatherer:
        """The sources of these settings, for a start or in the place of others."""
        for source in settings.sources:
            self._telemetry.sources.configured(source.name)
        return manager.Gatherer(
            settings.sources,
            settings.routes,
            contexts=plugins.Contexts(self._clock, api=self.cluster.api),
            observer=self._answered,
            period=settings.sync_period.total_seconds(),
        )

    def fallbacks(self, settings: Settings) -> Callable[[Query], Fallback | None] | None:
        """What stands in for metrics that fail, where any source has something that does."""
        return self.metrics.fallback if any(source.fallback for source in settings.sources) else None

    def cooldown(self, settings: Settings) -> float:
        """Seconds that an HPA rests which was another hpad's."""
        return 0.0 if self.coordinator is None else self.coordinator.cooldown(options(settings).patience)

    def _build_api(self) -> client.Client:
        settings, identity, qps = self._settings, self._identity, self._settings.kube_api_qps
        return client.Client(
            self._cluster_config,
            self._clock,
            user_agent=f"hpad/{__version__} ({identity})" if identity else client.USER_AGENT,
            observe=self._telemetry.controller.requested,
            limiter=None if qps is None else client.Limiter(self._clock, qps, settings.kube_api_burst),
        )

    def _build_cluster(self, reflector_options: watch.ReflectorOptions | None) -> cluster.Cluster:
        settings = self._settings
        return cluster.Cluster(
            self.api,
            self._clock,
            namespaces=settings.namespaces,
            hpa_selector=settings.hpa_selector,
            watch_hpas=settings.manifests is None,
            alone=not settings.election.enabled,
            watch_others=settings.manifests is not None or bool(settings.hpa_selector),
            component=settings.event_component,
            reflector_options=reflector_options,
            max_staleness=settings.max_staleness.total_seconds(),
            bug=self._telemetry.process.bug,
        )

    def _build_folder(self) -> folder.Folder | None:
        if self._settings.manifests is None:
            return None
        to_zero = self._settings.tunables.gates.HPAScaleToZero
        made = folder.Folder(self._settings.manifests, self._clock, scale_to_zero=to_zero)
        made.subscribe(self.cluster.hpa_changed)
        return made

    def _build_coordinator(self) -> Coordinator | None:
        """A dry run takes no part."""
        election = self._settings.election
        if not election.enabled or self._settings.dry_run:
            return None
        agent, observe = f"hpad/{__version__}/leader-election", self._telemetry.controller.requested_by_election
        api = client.Client(self._cluster_config, self._clock, user_agent=agent, observe=observe)
        return Coordinator(api, election, self._telemetry, self._clock, identity=self._identity)

    def _build_store(self) -> memory.Store:
        may_save = self.coordinator.may_save if self.coordinator is not None else owner.EVERYTHING.owns
        namespace = self._cluster_config.namespace
        return build(self._settings, namespace, self.api, self._telemetry, self._clock, may_save)

    def _owner(self) -> owner.Owner:
        return self.coordinator.owner if self.coordinator is not None else owner.EVERYTHING

    def _build_reconciler(self) -> Reconciler:
        return Reconciler(
            options=options(self._settings),
            clock=self._clock,
            cluster=self.cluster,
            metrics=self.metrics,
            store=self.store,
            selectors=SelectorIndex(),
            telemetry=self._telemetry,
            recorder=self.recorder,
            fallbacks=self.fallbacks(self._settings),
            owner=self._owner(),
        )

    def _build_controller(self) -> Controller:
        return Controller(
            self.hpas,
            self.reconciler,
            self._telemetry,
            self._clock,
            period=self._settings.sync_period.total_seconds(),
            workers=self._settings.workers,
            owner=self._owner(),
        )

    def _build_handoff(self) -> Handoff | None:
        if self.coordinator is None:
            return None
        handoff = Handoff(
            self.hpas,
            self.controller,
            self.store,
            self._telemetry,
            self._clock,
            cooldown=self.cooldown(self._settings),
            lease=self.coordinator.lease,
        )
        self.coordinator.connect(handoff)
        return handoff

    def _answered(self, source: str, seconds: float, error: AdapterError | None) -> None:
        self._telemetry.sources.answered(source, seconds, None if error is None else error.blame)


def options(settings: Settings) -> Options:
    """How a reconcile goes about its work."""
    return Options(
        tunables=settings.tunables,
        patience=settings.sync_period.total_seconds() * limits.PATIENCE,
        owned=settings.manifests is None,
        dry_run=settings.dry_run,
        yields=settings.competing_hpas == YIELD,
        gap=settings.sync_period * _GAP,
    )
