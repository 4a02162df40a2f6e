"""One reconcile of one HPA: observe, examine, gather, decide, write, settle, publish."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.api.sample import Answer, HPAIdentity
from hpad.clock import Clock, Moment
from hpad.controller import report
from hpad.controller.budgets import Budgets
from hpad.controller.observe import Observer, Options, Turn
from hpad.controller.overlap import Overlap
from hpad.controller.planning import Record, Timing
from hpad.controller.sparing import Sparing
from hpad.controller.workers import Worker
from hpad.controller.write import Discarded, Writes
from hpad.election.owner import Edited, Permit
from hpad.engine import annotations, examine, settle
from hpad.engine.examine import UNOBSERVABLE, Halt, Proceed, Queries, Verdict
from hpad.engine.turn import (
    Answered,
    Ask,
    AskBudget,
    AskWork,
    Effect,
    Reconcile,
    Reply,
    TimingTrace,
    held_back,
)
from hpad.engine.turn import turn as steps_of
from hpad.kube.cluster import Cluster
from hpad.notify.notices import Notices
from hpad.records.history import DecisionHistory
from hpad.records.recent import RecentReconciles
from hpad.records.writer import RecordingWriter
from hpad.sources.replacement import Sources
from hpad.store.store import Store
from hpad.telemetry import Telemetry

_OUTDATED = 2
"""Turns in succession that may end without a decision because the HPA's labels or its target were edited."""
_ANNOUNCED: Final = 200
"""HPAs whose queries are announced in one turn of their namespace: about ten milliseconds of work."""


class Keepers(NamedTuple):
    """Keeps reconciles: `recorders` before the status is written, the others after it. No call waits."""

    recorders: Sequence[RecordingWriter | RecentReconciles]
    decisions: DecisionHistory
    notices: Notices


class _Driven(msgspec.Struct):
    """A turn that is being driven, and the queries that were asked for it with their answers.

    The answers took `seconds`. `identity` is the HPA as the sources see it; None before they were asked.
    """

    turn: Turn
    worker: Worker
    identity: HPAIdentity | None = None
    queries: Queries = ()
    answers: Sequence[Answer] = ()
    seconds: float = 0.0


class Announcements:
    """The HPAs, by namespace, whose queries have still to be announced to the sources.

    One call to a source answers the queries that wait and those that it expects soon, which are those that came a
    period before. In the first period after a start, and after a change of the leader, it would expect none: each tick
    would cause a call of its own, ten lists of the metrics of a namespace instead of one or a few.
    """

    def __init__(self, cluster: Cluster, metrics: Sources) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._waiting: defaultdict[str, dict[Key, None]] = defaultdict(dict)

    def add(self, keys: Collection[Key]) -> None:
        """Notes HPAs that are going to have their first turns."""
        for key in keys:
            self._waiting[key.namespace][key] = None

    def discard(self, key: Key) -> None:
        """Forgets an HPA; others than those that were added are ignored."""
        others = self._waiting.get(key.namespace)
        if others is None:
            return
        others.pop(key, None)
        if not others:
            del self._waiting[key.namespace]

    def make(self, permit: Permit, own: annotations.AnnotationReader) -> None:
        """Announces queries of the namespace before the first turn of the permit's HPA."""
        waiting = self._waiting.get(permit.key.namespace)
        if waiting is None or permit.key not in waiting:
            return
        for key in list(itertools.islice(waiting, _ANNOUNCED)):
            self.discard(key)
            hpa = permit.current(key)
            if hpa is not None and permit.owner.leading and not own.reads_files(hpa):
                self._announce(hpa, own)
        self.discard(permit.key)

    def _announce(self, hpa: HorizontalPodAutoscaler, own: annotations.AnnotationReader) -> None:
        scale = self._cluster.peek_scale(hpa.metadata.namespace, hpa.spec.scale_target_ref)
        pods = None if scale is None or not scale.spec.replicas else scale.pod_selector
        controls = own.of(hpa).controls
        if pods is not None and controls.sync_period is None and not hpa.spec.invalid:
            self._metrics.announce(examine.queries(hpa, pods, controls.ignored_containers), HPAIdentity.of(hpa))


class Reconciler:
    """Runs reconciles. The state of an HPA is in its record, in the store and in the overlap index."""

    def __init__(
        self,
        *,
        options: Options,
        clock: Clock,
        cluster: Cluster,
        metrics: Sources,
        store: Store,
        telemetry: Telemetry,
        keepers: Keepers,
    ) -> None:
        self._clock = clock
        self._cluster = cluster
        self._metrics = metrics
        self._store = store
        self.overlap = Overlap(cluster, clock)
        self._observer = Observer(cluster, store, self.overlap, options)
        self.budgets = Budgets(cluster, store, clock)
        self.budgets.retune(options.budgets, dry_run=options.dry_run)
        self.announcements = Announcements(cluster, metrics)
        self._sparing = Sparing(cluster, metrics, clock)
        self._telemetry = telemetry
        self._writes = Writes(self._observer, cluster, store, self._sparing, clock)
        self._keepers = keepers

    def retune(self, options: Options) -> None:
        """Changes the options from the next reconcile on."""
        self._observer.options = options
        self.budgets.retune(options.budgets, dry_run=options.dry_run)

    async def reconcile(self, permit: Permit, worker: Worker, timing: Timing, record: Record) -> settle.Settlement:
        """Scales the target of the permit's HPA as decided, and reports it in status, events, log and series.

        The worker is released during waits for metrics and for the store. An HPA that was edited meanwhile is decided
        again, with the answers that still fit.

        Returns the settlement, which includes refusals of the API server. Raises write.TooEarly before anything is
        written; NotLeading or Edited instead of a write, after which another turn decides. Other exceptions are bugs.
        """
        began = self._clock.monotonic()
        turn = await self._observer.observe(permit, worker, timing, record)
        observed = self._clock.monotonic() - began
        # Before the metrics are known: a recommendation that a crash could lose must not be made.
        await self._writes.note_early(permit.key, worker, timing.moment)
        driven = _Driven(turn, worker)
        done = await self._drive(driven)
        self.budgets.note(done)
        for recorder in self._keepers.recorders:
            recorder.note(done)
        acted = self._clock.monotonic()
        await self._writes.publish(driven.turn, done)
        self._keepers.notices.note(done)
        series, now = self._telemetry.controller, self._clock.monotonic()
        report.count(series, done, driven.seconds, began, now)
        stages = TimingTrace(
            late=max(0.0, began - timing.moment.monotonic),
            observe=observed,
            gather=driven.seconds,
            act=max(0.0, acted - began - observed - driven.seconds),
            publish=now - acted,
        )
        kept = self._keepers.decisions.add(replace(done, timing=stages))
        series.decisions.decided(kept)  # the series share what the history keeps
        return done.settlement

    def forget(self, key: Key) -> None:
        """Drops the state, the selector and the series of a deleted HPA."""
        self._store.forget(key)
        self.announcements.discard(key)
        self._sparing.forget(key)
        self.overlap.release(key)
        self.budgets.forget(key)
        self._keepers.decisions.release((key,))
        self._keepers.notices.forget(key)
        self._telemetry.controller.forget(key)
        self._writes.forget(key)

    def share(self, hpa: HorizontalPodAutoscaler) -> None:
        """Notes which budget the HPA shares, if any."""
        self.budgets.register(hpa, self._observer.options.own)

    def sync_period(self, hpa: HorizontalPodAutoscaler) -> float | None:
        """Returns the HPA's own sync period in seconds; None where that of the controller applies."""
        return self._observer.options.own.sync_period(hpa)

    async def loaded(self, key: Key) -> None:
        """Waits until the stored state of the HPA has been read."""
        await self._store.get_loaded(key)

    def last(self, key: Key) -> Moment | None:
        """Returns the moment of the HPA's last turn; None if there was none in this boot of the machine."""
        memory, now = self._store.get(key), Moment.now(self._clock)
        if memory.at is None or memory.validity is None or not memory.validity.comparable(now):
            return None
        return replace(now, wall=memory.at, monotonic=memory.validity.ticks)

    async def _drive(self, driven: _Driven) -> Reconcile:
        """Does what the engine asks for, until a turn is complete. Raises as `reconcile` does."""
        # An edit closes a turn, and another begins at once: an HPA whose edits come faster than a period would
        # otherwise never be scaled.
        while True:
            view, options = driven.turn.view, self._observer.options
            steps = steps_of(view, held_back(view, dry_run=options.dry_run, yields=options.yields))
            try:
                step = next(steps)
                while True:
                    step = steps.send(await self._reply(step, driven))
            except StopIteration as end:
                driven.turn.record.outdated = 0
                done: Reconcile = end.value
                return done
            except Discarded:
                steps.close()
                driven.turn = await self._observer.observe_again(driven.turn, driven.worker)

    async def _reply(self, step: Effect, driven: _Driven) -> Reply:
        if isinstance(step, Ask):
            return await self._answered(step.verdict, driven)
        if isinstance(step, AskBudget):
            await self.budgets.learn(step, driven.turn.view, driven.worker)
            return self.budgets.ask(step, driven.turn.view)
        if isinstance(step, AskWork):
            return await self._sparing.ask(step.queries, driven.turn, driven.worker)
        if step.to is None:
            return await self._writes.scale(step, driven.turn, driven.worker)
        with self.budgets.granted(driven.turn.permit.key, step.to) as grant:
            grant.outcome = await self._writes.scale(step, driven.turn, driven.worker)
        return grant.outcome

    async def _answered(self, verdict: Verdict, driven: _Driven) -> Answered:
        """Returns the answers to the HPA's queries, after an edit those that are there already.

        Registers the selector of an HPA that needs its metrics. Raises Edited if other metrics have to be read.
        """
        turn = driven.turn
        # Competing HPAs register their selectors as well, before the check (horizontal.go: validateAndParseSelector).
        unobservable = isinstance(verdict, Halt) and verdict.kind == UNOBSERVABLE
        if unobservable or isinstance(verdict, Proceed):
            self.overlap.register_selector(turn.permit.key, turn.view.scale)
        if driven.identity is None or not verdict.queries:
            await self._gather(verdict.queries, driven)
        else:
            self._require_fitting(verdict.queries, driven)
        answers = driven.answers
        if turn.own_pods is not None:
            answers = turn.own_pods.of(verdict, answers)
        moment = turn.timing.answered(self._clock)
        if moment != turn.moment:
            driven.turn = replace(turn, moment=moment)
        return Answered(answers, moment.wall)

    async def _gather(self, queries: Queries, driven: _Driven) -> None:
        """Asks the sources."""
        turn = driven.turn
        driven.identity, driven.queries = HPAIdentity.of(turn.view.hpa), queries
        driven.answers, driven.seconds = (), 0.0
        if not queries:
            return
        self.announcements.make(turn.permit, self._observer.options.own)
        began = self._clock.monotonic()
        patience, period = turn.patience(self._observer.options.patience), turn.record.period
        asked = self._metrics.ask(queries, deadline=patience, identity=driven.identity, period=period)
        if not asked.done:  # most answers are there: those to another HPA of the namespace
            async with driven.worker.released():
                await asked.wait()
        driven.answers, driven.seconds = asked.answers(), self._clock.monotonic() - began

    def _require_fitting(self, queries: Queries, driven: _Driven) -> None:
        """Raises Edited unless the answers fit the HPA after an edit."""
        # The answers of some sources depend on the HPA's labels and target. After an edit of these another turn queries
        # again; after `_OUTDATED` such turns in succession the old answers are used.
        turn = driven.turn
        usable = HPAIdentity.of(turn.view.hpa) == driven.identity or turn.record.outdated >= _OUTDATED
        if queries != driven.queries or not usable:
            turn.record.outdated += 1
            raise Edited(str(turn.permit.key))
