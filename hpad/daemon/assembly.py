"""The composition root: builds the objects of the daemon and connects them."""

import asyncio
import functools
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from hpad import __version__
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.controller.controller import Controller, HpaSource
from hpad.controller.observe import GAP_PERIODS, Options
from hpad.controller.reconcile import Keepers, Reconciler
from hpad.controller.sparing import CostRemoval, kept_seconds
from hpad.controller.takeover import Takeover
from hpad.election import lease
from hpad.election.owner import ALONE, Authority, Coordinator, require
from hpad.engine import annotations
from hpad.kube import client, cluster
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.reflector import ReflectorOptions
from hpad.manifests import folder
from hpad.notify.notices import Notices
from hpad.records import recent, writer
from hpad.records.archive import HistoryLimits
from hpad.records.history import DecisionHistory
from hpad.settings import Settings, hpas
from hpad.settings.model import AUTOSCALERS, HPAS, YIELD
from hpad.sources import limits, manager, plugins, replacement
from hpad.store import configmaps, persistent, sqlite
from hpad.store.store import Backend, InMemory, Store
from hpad.telemetry import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """The objects of a daemon. Building them starts nothing and sends nothing.

    `folder` exists if HPAs come from files, `recorder` if reconciles are recorded, `coordinator` and `takeover` if
    other replicas may act on the same HPAs.
    """

    api: client.Client
    cluster: cluster.Cluster
    folder: folder.Folder | None
    hpas: HpaSource
    metrics: replacement.Sources
    recorder: writer.RecordingWriter | None
    recent: recent.RecentReconciles
    decisions: DecisionHistory
    coordinator: Coordinator | None
    store: Store
    reconciler: Reconciler
    controller: Controller
    takeover: Takeover | None
    costs: CostRemoval
    notices: Notices


class _Given(NamedTuple):
    """What all components are built from. `identity` names this process in the election, "" without one."""

    settings: Settings
    cluster_config: ClusterConfig
    clock: Clock
    telemetry: Telemetry
    identity: str


def build(
    settings: Settings,
    cluster_config: ClusterConfig,
    clock: Clock,
    telemetry: Telemetry,
    reflector_options: ReflectorOptions | None = None,
) -> Components:
    """Builds the components. `reflector_options` are the timeouts and backoffs of lists and watches."""
    given = _Given(settings, cluster_config, clock, telemetry, lease.identity() if settings.election.enabled else "")
    api = _api(given)
    watched = _cluster(given, api, reflector_options or ReflectorOptions())
    files = _folder(given, watched)
    hpas: HpaSource = watched.kinds if files is None else files
    metrics = replacement.Sources(gatherer(settings, watched, clock, telemetry), clock)
    limit = settings.record_limit
    recorder = None if settings.record is None else writer.RecordingWriter(settings.record, clock, limit)
    recents = recent.RecentReconciles(clock, seconds=settings.record_recent.total_seconds())
    decisions = _decisions(settings, metrics, clock)
    coordinator = _coordinator(given)
    owner: Authority = ALONE if coordinator is None else coordinator.owner
    store = _store(given, api, owner)
    notices = Notices(settings.notify, clock, telemetry.notify)
    reconciler = Reconciler(
        options=options(settings, metrics),
        clock=clock,
        cluster=watched,
        metrics=metrics,
        store=store,
        telemetry=telemetry,
        keepers=Keepers((recents,) if recorder is None else (recorder, recents), decisions, notices),
    )
    period, workers = settings.sync_period.total_seconds(), settings.workers
    controller = Controller(hpas, reconciler, telemetry, clock, period=period, workers=workers, owner=owner)
    takeover = None
    if coordinator is not None:

        def release(keys: Collection[Key]) -> None:
            decisions.release(keys)
            notices.clear()

        takeover = Takeover(hpas, controller, store, clock, release=release)
        coordinator.owner.subscribe(takeover.changed)
    return Components(
        api=api,
        cluster=watched,
        folder=files,
        hpas=hpas,
        metrics=metrics,
        recorder=recorder,
        recent=recents,
        decisions=decisions,
        coordinator=coordinator,
        store=store,
        reconciler=reconciler,
        controller=controller,
        takeover=takeover,
        costs=CostRemoval(watched, owner, clock, kept=kept_seconds(period)),
        notices=notices,
    )


def apply(settings: Settings, components: Components) -> None:
    """Applies changed settings to running components, except to the metric sources and the HTTP server."""
    components.reconciler.retune(options(settings, components.metrics))
    components.notices.retune(settings.notify)
    components.recent.retune(seconds=settings.record_recent.total_seconds())
    period = settings.sync_period.total_seconds()
    components.controller.retune(period=period, workers=settings.workers)
    components.costs.kept = kept_seconds(period)
    if isinstance(components.store, persistent.PersistentStore):
        components.store.retune(_save_intervals(settings))
    if components.folder is not None:
        components.folder.allow_zero(settings.tunables.gates.HPAScaleToZero)


async def check_store(settings: Settings) -> None:
    """Raises StoreError if the file of the SQLite store cannot be written."""
    if settings.store.kind == "sqlite" and settings.store.path is not None and not settings.dry_run:
        await asyncio.to_thread(sqlite.check, settings.store.path)


def store_namespace(settings: Settings, home: str) -> str:
    """Returns the namespace of the ConfigMaps. `home` is that of hpad's pod, or of the kubeconfig's context."""
    return settings.store.namespace or (settings.election.namespace if settings.election.enabled else home)


def options(settings: Settings, metrics: replacement.Sources) -> Options:
    """Returns the options of a reconcile. HPAs may have fallbacks by the metric sources that are configured."""
    fallbacks = metrics.fallback if any(source.fallback for source in settings.sources) else None
    return Options(
        tunables=settings.tunables,
        patience=settings.sync_period.total_seconds() * limits.PATIENCE,
        owned=settings.manifests is None,
        dry_run=settings.dry_run,
        yields=settings.competing_hpas == YIELD,
        own=annotations.AnnotationReader(fallbacks, hpas.defaults(settings.hpas)),
        budgets=settings.budgets,
        gap=settings.sync_period * GAP_PERIODS,
        status_refresh=settings.status_refresh,
    )


def gatherer(settings: Settings, watched: cluster.Cluster, clock: Clock, telemetry: Telemetry) -> manager.Gatherer:
    """Returns the metric sources of these settings."""
    for source in settings.sources:
        telemetry.sources.configured(source.name)
    return manager.Gatherer(
        settings.sources,
        settings.routes,
        contexts=plugins.Contexts(clock, api=watched.api),
        observer=telemetry.sources.answered,
        period=settings.sync_period.total_seconds(),
    )


def _api(given: _Given) -> client.Client:
    qps, identity = given.settings.kube_api_qps, given.identity
    return client.Client(
        given.cluster_config,
        given.clock,
        user_agent=f"hpad/{__version__} ({identity})" if identity else client.USER_AGENT,
        observe=given.telemetry.controller.requested,
        limiter=None if qps is None else client.Limiter(given.clock, qps),
    )


def _cluster(given: _Given, api: client.Client, options: ReflectorOptions) -> cluster.Cluster:
    settings = given.settings
    watching = cluster.Watching(
        namespaces=settings.namespaces,
        hpa_selector=settings.hpa_selector,
        hpas=settings.manifests is None and settings.kinds != AUTOSCALERS,
        autoscalers=settings.manifests is None and settings.kinds != HPAS,
        others=settings.manifests is not None or settings.kinds == AUTOSCALERS or bool(settings.hpa_selector),
        alone=not settings.election.enabled,
        max_staleness=settings.max_staleness.total_seconds(),
        options=options,
    )
    return cluster.Cluster(api, watching, bug=given.telemetry.process.bugs.count)


def _folder(given: _Given, watched: cluster.Cluster) -> folder.Folder | None:
    settings = given.settings
    if settings.manifests is None:
        return None
    files = folder.Folder(settings.manifests, given.clock, scale_to_zero=settings.tunables.gates.HPAScaleToZero)
    files.subscribe(watched.hpa_changed)
    return files


def _coordinator(given: _Given) -> Coordinator | None:
    """Returns what takes part in an election: in a dry run nothing, or it would keep another replica from leading."""
    election, telemetry, clock = given.settings.election, given.telemetry, given.clock
    if not election.enabled or given.settings.dry_run:
        return None
    # A client of its own: renewals of the Lease must not wait for the rate limit of other requests.
    agent, observe = f"hpad/{__version__}/leader-election", telemetry.controller.requested_by_election
    api = client.Client(given.cluster_config, clock, user_agent=agent, observe=observe)
    return Coordinator(api, election, telemetry, clock, identity=given.identity)


def _store(given: _Given, api: client.Client, owner: Authority) -> Store:
    settings, clock = given.settings, given.clock
    if settings.store.kind == "memory" or settings.dry_run:
        if not settings.store.chosen and not settings.dry_run:
            log = structlog.get_logger("hpad.daemon.app")
            log.info("state will not survive a restart: name a file with --store sqlite:FILE")
        return InMemory()
    if settings.store.kind == "sqlite" and settings.store.path is not None:
        backend: Backend = sqlite.Sqlite(settings.store.path, clock)
    else:
        namespace = store_namespace(settings, given.cluster_config.namespace)
        backend = configmaps.ConfigMaps(api, namespace, settings.store.name, functools.partial(require, owner))
    intervals = _save_intervals(settings)
    return persistent.PersistentStore(backend, clock, given.telemetry, intervals, lambda: owner.leading)


def _decisions(settings: Settings, metrics: replacement.Sources, clock: Clock) -> DecisionHistory:
    """Returns the decision history: in a file beside the state file if there is one, else in memory."""
    limits = HistoryLimits(span=settings.decision_history, disk=settings.decision_history_disk)
    state = settings.store.path
    in_file = settings.store.kind == "sqlite" and not settings.dry_run and limits.disk
    file = state.with_name(f"{state.stem}-decisions.db") if state is not None and in_file else None
    return DecisionHistory(metrics.source_of, file=file, limits=limits, clock=clock)


def _save_intervals(settings: Settings) -> persistent.SaveIntervals:
    """Returns how often state is saved. A write to a file is cheap; ConfigMaps are written once per period."""
    period = settings.sync_period.total_seconds()
    if settings.store.kind == "sqlite":
        return persistent.SaveIntervals(shortest=min(0.25, period / 8), longest=min(1.0, period / 4))
    return persistent.SaveIntervals(shortest=min(1.0, period / 8), longest=period)
