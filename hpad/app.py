"""The composition root: each object is built once, here, and started and stopped in the order written down here."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import structlog

from hpad import __version__
from hpad.adapter import AdapterError, Query
from hpad.clock import Clock, SystemClock
from hpad.control import leader, ownership
from hpad.control.claims import Claims
from hpad.control.controller import Controller
from hpad.control.reconcile import Reconciler, Ways
from hpad.control.world import HpaSource
from hpad.gather import contexts, fanout, limits, swap
from hpad.kube import client, cluster, config, history, lease, limiter, recorder, watch
from hpad.manifests import folder
from hpad.model.terms import Fallback
from hpad.serve import review, server
from hpad.settings import Settings
from hpad.store import lasting, memory, recording, sqlite
from hpad.telemetry import Telemetry

DRAIN_SECONDS = 10.0
STOP_SECONDS = 17.0
"""Below the 20 s after which systemd kills; a Pod's grace period is longer."""
_LEAST_SECONDS = 0.2
LIVE = frozenset({"sources", "routes", "tunables", "sync_period", "workers", "log_level", "log_format"})
"""Settings that can change in a running daemon."""
_FLUSH_SECONDS = 2.0
_GAP = 4
"""Periods that a restart or a change of leader may take before what is remembered has a hole in it."""
_WAITING = "waiting for the cluster and the HPAs"
_FIRST_WORD, _NEXT_WORD = 5.0, 30.0
"""Seconds until hpad says that it is still waiting for its cluster, and from then on."""


class Part(NamedTuple):
    """Something that is started and, in reverse order, stopped; and why it has its place."""

    name: str
    why: str
    start: Callable[[], Awaitable[object]]
    stop: Callable[[], Awaitable[object]]


class App:
    """The daemon as an object: `async with App(settings)` inside any event loop, or `run` until an event is set.

    `cluster_config` says which API server; without it the settings' kubeconfig does, read at the start; `pace` how
    patient its watches are. `hpas`, `cluster`, `server`, `controller` and, where leaders are elected, `leader` are
    there once started.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        cluster_config: config.ClusterConfig | None = None,
        pace: watch.Pace | None = None,
    ) -> None:
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.telemetry = Telemetry()
        self.store: memory.Store = memory.InMemory()
        self.cluster: cluster.Cluster
        self.hpas: HpaSource
        self.controller: Controller
        self.server: server.Server | None = None
        self._metrics: swap.Sources
        self._reconciler: Reconciler
        self.leader: leader.Leader | None = None
        self._folder: folder.Folder | None = None
        self._cluster_config = cluster_config
        self._pace = pace
        self._beating = asyncio.Event()
        self._failed = asyncio.Event()
        self._started: list[Part] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._log = structlog.get_logger("hpad.app")

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
        """Wait until `stop` is set. Raises what a background task raised, should one ever fail."""
        watched = [asyncio.create_task(event.wait()) for event in (stop, self._failed)]
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in watched:
                task.cancel()
        for running in self._tasks.values():
            if running.done():
                running.result()

    async def start(self) -> None:
        """Build and start everything; waiting for the cluster goes on in the background (see `ready`).

        Raises kube.config.ConfigError, serve.server.ServeError or store.recording.RecordError, leaving nothing behind.
        """
        self._log.info("hpad starts", version=__version__, dry_run=self.settings.dry_run)
        if self._cluster_config is None:
            kubeconfig, context = self.settings.kubeconfig, self.settings.context
            self._cluster_config = await asyncio.to_thread(config.load, kubeconfig, context)
        for part in self._parts(self._cluster_config):
            self._started.append(part)
            try:
                await part.start()
            except BaseException:
                await self.stop()
                raise

    async def stop(self) -> None:
        """Stop everything in reverse order; reconciles under way get DRAIN_SECONDS to end, everything STOP_SECONDS.

        What takes longer is left as it is: the process is about to end, and a part that hangs must not keep the others.
        """
        deadline = self.clock.monotonic() + STOP_SECONDS
        while self._started:
            part = self._started.pop()
            left = deadline - self.clock.monotonic()
            try:
                async with asyncio.timeout(max(left, _LEAST_SECONDS)):
                    await part.stop()
            except TimeoutError:
                self._log.error("did not stop in time", part=part.name)
            except Exception as error:  # noqa: BLE001  # the others are to be stopped all the same
                self._log.error("did not stop cleanly", part=part.name, error=repr(error))
        self._log.info("hpad stopped")

    async def reload(self, told: Settings) -> list[str]:
        """Take on those settings that can change in a running daemon, all of them or none.

        Returns the names of those that differ, too, but stay as they are until a restart.
        Raises gather.swap.SourcesRefused, having changed nothing, if a new source does not work.
        """
        changed = [name for name in Settings.__struct_fields__ if getattr(told, name) != getattr(self.settings, name)]
        taken = {name: getattr(told, name) for name in changed if name in LIVE}
        new = msgspec.structs.replace(self.settings, **taken)
        if {"sources", "routes", "sync_period"} & set(taken):
            patience = self.settings.sync_period.total_seconds()
            await self._metrics.exchange(self._gatherer(new), patience=patience)
        before, self.settings = self.settings, new
        self._reconciler.retune(_ways(new), self._fallbacks(new))
        self.controller.retune(period=new.sync_period.total_seconds(), workers=new.workers)
        if self.server is not None:
            await self.server.refresh()
        kept = [name for name in changed if name not in LIVE]
        if self._folder is not None and new.tunables.gates.HPAScaleToZero != before.tunables.gates.HPAScaleToZero:
            kept.append("HPAScaleToZero for what a file may say")
        self._log.info("settings read anew", changed=list(taken), needs_restart=kept)
        return kept

    def status(self) -> str:
        """One sentence on what hpad is doing, for people."""
        if not self._started:
            return "Starting"
        first = next(iter(self.troubles()), None)
        if not self._beating.is_set():
            return f"Waiting for the cluster and the HPAs{'' if first is None else f': {first}'}"
        if self.leader is not None and not self.leader.leading:
            return "Standing by: another leads"
        count = sum(1 for _ in self.hpas.values())
        doing = f"{'Deciding for' if self.settings.dry_run else 'Scaling by'} {count} HPAs"
        return doing if first is None else f"{doing}; {first}"

    async def ready(self) -> None:
        """Wait until everything has synced and the heartbeat runs."""
        await self._beating.wait()

    def unready(self) -> list[str]:
        """Why hpad is not ready yet, none if it is; a cluster that is lost later on does not make it unready again.

        Whoever stands by while another leads is ready: to take over.
        """
        return [] if self._beating.is_set() else [_WAITING, *self.troubles()]

    def troubles(self) -> list[str]:
        """What is wrong with the cluster's watches, with histories and with the folder's files, a sentence each."""
        found = list(self.cluster.troubles)
        if isinstance(self.store, lasting.Lasting) and self.store.trouble is not None:
            found.append(self.store.trouble)
        if self._folder is not None:
            found += [self._folder.trouble] if self._folder.trouble else []
            found += [str(problem) for problems in self._folder.errors.values() for problem in problems]
        return found

    def _parts(self, cluster_config: config.ClusterConfig) -> list[Part]:
        """Build every object, and say in which order they start."""
        settings, clock = self.settings, self.clock
        api = client.Client(cluster_config, clock, observe=self.telemetry.requested, limiter=_limiter(settings, clock))
        self.cluster = cluster.Cluster(
            api,
            clock,
            namespaces=settings.namespaces,
            hpa_selector=settings.hpa_selector,
            watch_hpas=settings.manifests is None,
            component=settings.event_component,
            pace=self._pace,
            max_staleness=settings.max_staleness.total_seconds(),
        )
        self._metrics = metrics = swap.Sources(self._gatherer(settings), clock)
        self.telemetry.before_scrape(self._refresh_series)
        parts = [
            Part("connections", "everything below speaks through them", _nothing, api.aclose),
            self._source_of_hpas(),
            self._sources(metrics),
        ]
        journal = None
        if settings.record is not None:
            journal = recording.Journal(settings.record, clock)
            parts.append(Part("journal", "outlives the last reconcile", journal.start, journal.stop))
        election = self._election(cluster_config) if settings.election.enabled and not settings.dry_run else []
        histories = self._histories(cluster_config.namespace, api)
        self._build_heartbeat(metrics, journal)
        if settings.listen is not None:
            self.server = self._window(settings.listen)
            parts.append(Part("windows", "a daemon that still waits can say so", self.server.start, self.server.stop))
        parts.append(self._background("caches", "what decisions read", self._keep_caches, self._flush_events))
        parts.extend(election)
        parts.extend(histories)
        parts.append(self._background("heartbeat", "last to start, first to stop", self._begin, self._drain))
        return parts

    def _gatherer(self, settings: Settings) -> fanout.Gatherer:
        for source in settings.sources:
            self.telemetry.source(source.name)
        return fanout.Gatherer(
            settings.sources,
            settings.routes,
            contexts=contexts.Contexts(self.clock, api=self.cluster.api),
            observer=self._answered,
            period=settings.sync_period.total_seconds(),
        )

    def _source_of_hpas(self) -> Part:
        if self.settings.manifests is None:
            self.hpas = self.cluster.hpas
            return Part("hpas", "the API server's, kept by the caches", _nothing, _nothing)
        to_zero = self.settings.tunables.gates.HPAScaleToZero
        self.hpas = self._folder = folder.Folder(self.settings.manifests, self.clock, scale_to_zero=to_zero)
        return self._background("hpas", "a folder needs nobody else", self._folder.run, _nothing)

    def _sources(self, metrics: swap.Sources) -> Part:
        async def start() -> None:
            await metrics.start()
            for name, error in metrics.problems().items():
                self._log.error("a metric source does not work", source=name, error=error.message)

        return Part("sources", "a broken one is known before it is asked", start, metrics.aclose)

    def _build_heartbeat(self, metrics: swap.Sources, journal: recording.Journal | None) -> None:
        settings, period = self.settings, self.settings.sync_period.total_seconds()
        owner = self.leader or ownership.EVERYTHING
        self._reconciler = reconciler = Reconciler(
            ways=_ways(settings),
            clock=self.clock,
            world=self.cluster,
            metrics=metrics,
            store=self.store,
            claims=Claims(),
            telemetry=self.telemetry,
            journal=journal,
            fallbacks=self._fallbacks(settings),
            owner=owner,
        )
        self.controller = Controller(
            self.hpas, reconciler, self.telemetry, self.clock, period=period, workers=settings.workers, owner=owner
        )
        if self.leader is not None:
            self.leader.subscribe(self.controller.reconsider)

    def _fallbacks(self, settings: Settings) -> Callable[[Query], Fallback | None] | None:
        return self._metrics.fallback if any(source.fallback for source in settings.sources) else None

    def _histories(self, namespace: str, api: client.Client) -> list[Part]:
        """Build the store; what is left to save is saved while the Lease is still held."""
        told, period = self.settings.store, self.settings.sync_period.total_seconds()
        if told.kind == "memory" or self.settings.dry_run:
            if not told.chosen and not self.settings.dry_run:
                self._log.info("histories will not survive a restart: name a file with --store sqlite:FILE")
            self._refreshed_before_all(self.store)
            return []
        owns = self.leader.owns if self.leader is not None else ownership.EVERYTHING.owns
        if told.kind == "sqlite" and told.path is not None:
            shelf: lasting.Shelf = sqlite.Sqlite(told.path, self.clock)
            pace = lasting.Pace(tick=min(0.25, period / 8), rest=min(1.0, period / 4))
        else:
            home = self.settings.election.namespace if self.settings.election.enabled else namespace
            shelf = history.ConfigMaps(api, told.namespace or home, told.name, owns)
            pace = lasting.Pace(tick=min(1.0, period / 8), rest=period)
        store = self.store = lasting.Lasting(shelf, self.clock, self.telemetry, pace, owns)
        self._refreshed_before_all(store)

        async def keep() -> None:
            await store.run(lambda key: self.hpas.get(key) is not None)

        running = self._background("histories", "read before the first decision, saved after the last", keep, _nothing)

        async def stop() -> None:
            await running.stop()
            await store.stop()

        return [running._replace(stop=stop)]

    def _refreshed_before_all(self, store: memory.Store) -> None:
        """Before anybody else hears that we lead (again): another may have decided since."""
        if self.leader is not None:
            self.leader.subscribe(store.refresh)

    def _election(self, cluster_config: config.ClusterConfig) -> list[Part]:
        """Connections of its own: no reconcile may keep a renewal waiting."""
        election = self.settings.election
        agent = f"hpad/{__version__}/leader-election"
        api = client.Client(cluster_config, self.clock, user_agent=agent, observe=self.telemetry.requested)
        events = recorder.Recorder(api, component=election.name)
        elector = lease.Elector(api, election, identity=lease.identity(), recorder=events)
        stands = self.leader = leader.Leader(elector, election, self.telemetry, self.clock)

        async def stand() -> None:
            async with api, asyncio.TaskGroup() as group:
                writing = group.create_task(events.run(), name="election events")
                try:
                    await self._beating.wait()  # a leader that cannot work would only be in the way
                    await stands.run()
                finally:
                    await self._flush(events)
                    writing.cancel()

        return [self._background("election", "the Lease is held for as long as there is work", stand, _nothing)]

    def _window(self, address: tuple[str, int]) -> server.Server:
        return server.Server(
            address,
            source=self.hpas,
            store=self.store,
            telemetry=self.telemetry,
            unready=self.unready,
            troubles=self.troubles,
            reports=self._metrics.reports,
            serving=self.settings.serving,
            reviewer=review.Reviewer(self.cluster.client, self.clock),
            clock=self.clock,
        )

    def _background(
        self,
        name: str,
        why: str,
        main: Callable[[], Coroutine[Any, Any, None]],
        before_end: Callable[[], Awaitable[object]],
    ) -> Part:
        """A part that runs as a task; stopping it does `before_end`, then cancels it."""

        async def start() -> None:
            self._tasks[name] = asyncio.create_task(main(), name=name)
            self._tasks[name].add_done_callback(self._ended)

        async def stop() -> None:
            await before_end()
            task = self._tasks.pop(name, None)
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        return Part(name, why, start, stop)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._log.error("bug: a part of hpad failed", part=task.get_name(), error=repr(task.exception()))
            self._failed.set()

    async def _keep_caches(self) -> None:
        await self.cluster.run()

    async def _begin(self) -> None:
        """Let the heart beat as soon as everything it needs is known; until then say, now and then, what is missing."""
        saying = asyncio.create_task(self._say_waiting())
        try:
            await self.hpas.synced.wait()
            self.cluster.follow([hpa.spec.scale_target_ref for hpa in self.hpas.values()])
            await self.cluster.ready()
        finally:
            saying.cancel()
        self.controller.start()
        self._beating.set()
        self._log.info("at work", hpas=sum(1 for _ in self.hpas.values()), url=self._url)

    async def _say_waiting(self) -> None:
        pause = _FIRST_WORD
        while True:
            await self.clock.sleep(pause)
            self._log.warning(f"still {_WAITING}", troubles=self.troubles())
            pause = _NEXT_WORD

    async def _drain(self) -> None:
        await self.controller.stop(DRAIN_SECONDS)

    async def _flush_events(self) -> None:
        await self._flush(self.cluster.recorder)

    async def _flush(self, events: recorder.Recorder) -> None:
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await events.flush()
        except TimeoutError:
            self._log.warning("some events were not written")

    @property
    def _url(self) -> str | None:
        return self.server.url if self.server is not None else None

    def _answered(self, source: str, seconds: float, error: AdapterError | None) -> None:
        self.telemetry.answered(source, seconds, None if error is None else error.blame)

    def _refresh_series(self) -> None:
        self.telemetry.sources(self._metrics.reports())
        for resource, seconds in self.cluster.staleness().items():
            self.telemetry.stale(resource, seconds)


def _ways(settings: Settings) -> Ways:
    return Ways(
        tunables=settings.tunables,
        patience=settings.sync_period.total_seconds() * limits.PATIENCE,
        owned=settings.manifests is None,
        dry_run=settings.dry_run,
        gap=settings.sync_period * _GAP,
    )


def _limiter(settings: Settings, clock: Clock) -> limiter.Limiter | None:
    if settings.kube_api_qps is None:
        return None
    return limiter.Limiter(clock, settings.kube_api_qps, settings.kube_api_burst)


async def _nothing() -> None:
    """Neither to be started nor to be stopped."""
