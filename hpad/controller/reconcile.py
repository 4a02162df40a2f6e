"""One reconcile of one HPA: observe, examine, gather, decide, write, settle, publish."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import structlog
from msgspec.structs import replace

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.api.sample import HPAIdentity
from hpad.clock import Clock, Moment
from hpad.controller import report, rescale, schedule
from hpad.controller.announcements import Announcements
from hpad.controller.cluster import Cluster, Metrics
from hpad.controller.observe import Observer, Options, Turn, target_of
from hpad.controller.overlap import Overlap
from hpad.controller.sparing import Sparing
from hpad.controller.workers import Worker
from hpad.election.owner import Edited, Permit
from hpad.engine import conditions, settle, shadow
from hpad.engine.examine import UNOBSERVABLE, Halt, Proceed, Queries, Verdict
from hpad.engine.history import Last, Memory, PendingRescale
from hpad.engine.settle import next_history
from hpad.engine.turn import (
    Answer,
    Answered,
    Ask,
    AskWork,
    Effect,
    Reconcile,
    Reply,
    TimingTrace,
    Write,
    held_back,
)
from hpad.engine.turn import turn as steps_of
from hpad.kube import errors
from hpad.store.store import Store
from hpad.telemetry import Telemetry
from hpad.telemetry.episode import Episode

_OUTDATED = 2
"""Turns in succession that may end without a decision because the HPA's labels or its target were edited."""


class ReconcileRecorder(Protocol):
    """Records reconciles. Must not wait."""

    def note(self, done: Reconcile) -> None: ...


class DecisionLog(Protocol):
    """Keeps the decisions of each HPA. Must not wait. `add` returns the reconcile as it is kept."""

    def add(self, done: Reconcile) -> Reconcile: ...
    def forget(self, key: Key) -> None: ...


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


class _Discarded(Exception):
    """The HPA was edited before the write: it is decided again, in the same turn."""


class Reconciler:
    """Runs reconciles. The state of an HPA is in its record, in the store and in the overlap index."""

    def __init__(
        self,
        *,
        options: Options,
        clock: Clock,
        cluster: Cluster,
        metrics: Metrics,
        store: Store,
        telemetry: Telemetry,
        recorders: Sequence[ReconcileRecorder] = (),
        decisions: DecisionLog | None = None,
    ) -> None:
        self._clock = clock
        self._cluster = cluster
        self._metrics = metrics
        self._store = store
        self.overlap = Overlap(cluster, clock)
        self._observer = Observer(cluster, store, self.overlap, options)
        self.announcements = Announcements(cluster, metrics)
        self._sparing = Sparing(cluster, metrics, clock)
        self._telemetry = telemetry
        self._recorders = recorders
        self._decisions = decisions
        self._log = structlog.get_logger("hpad.reconcile")
        self._unwritten = Episode(self._log, clock, "status not written", "statuses are written again")

    @property
    def _options(self) -> Options:
        return self._observer.options

    def retune(self, options: Options) -> None:
        """Changes the options from the next reconcile on."""
        self._observer.options = options

    async def reconcile(
        self, permit: Permit, worker: Worker, timing: schedule.Timing, record: schedule.Record
    ) -> settle.Settlement:
        """Scales the target of the permit's HPA as decided, and reports it in status, events, log and series.

        The worker is released during waits for metrics and for the store. An HPA that was edited meanwhile is decided
        again, with the answers that still fit.

        Returns the settlement, which includes refusals of the API server. Raises schedule.TooEarly before anything is
        written; NotLeading or Edited instead of a write, after which another turn decides. Other exceptions are bugs.
        """
        began = self._clock.monotonic()
        turn = await self._observer.observe(permit, worker, timing, record)
        observed = self._clock.monotonic() - began
        # Before the metrics are known: a recommendation that a crash could lose must not be made.
        await schedule.announce(self._store, permit.key, worker, timing.moment)
        driven = _Driven(turn, worker)
        done = await self._drive(driven)
        for recorder in self._recorders:
            recorder.note(done)
        acted = self._clock.monotonic()
        await self._publish(driven.turn, done)
        series, now = self._telemetry.controller, self._clock.monotonic()
        report.count(series, permit.key, done.view, done.settlement, driven.seconds, began, now)
        stages = TimingTrace(
            late=max(0.0, began - timing.moment.monotonic),
            observe=observed,
            gather=driven.seconds,
            act=max(0.0, acted - began - observed - driven.seconds),
            publish=now - acted,
        )
        done = replace(done, timing=stages)
        kept = done if self._decisions is None else self._decisions.add(done)
        report.decided(series.decisions, kept)  # the series share what the history keeps
        return done.settlement

    def forget(self, key: Key) -> None:
        """Drops the state, the selector and the series of a deleted HPA."""
        self._store.forget(key)
        self.announcements.discard(key)
        self._sparing.forget(key)
        self.overlap.release(key)
        if self._decisions is not None:
            self._decisions.forget(key)
        self._telemetry.controller.forget(key)
        self._unwritten.ended(subject=key)

    def sync_period(self, hpa: HorizontalPodAutoscaler) -> float | None:
        """Returns the HPA's own sync period in seconds; None where that of the controller applies."""
        return self._options.own.sync_period(hpa)

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
            view, options = driven.turn.view, self._options
            steps = steps_of(view, held_back(view, dry_run=options.dry_run, yields=options.yields))
            try:
                step = next(steps)
                while True:
                    step = steps.send(await self._reply(step, driven))
            except StopIteration as end:
                driven.turn.record.outdated = 0
                done: Reconcile = end.value
                return done
            except _Discarded:
                steps.close()
                driven.turn = await self._observer.observe_again(driven.turn, driven.worker)

    async def _reply(self, step: Effect, driven: _Driven) -> Reply:
        if isinstance(step, Ask):
            return await self._answered(step.verdict, driven)
        if isinstance(step, AskWork):
            return await self._sparing.ask(step.queries, driven.turn, driven.worker)
        return await self._written(step, driven)

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
        self.announcements.make(turn.permit, self._options.own)
        began = self._clock.monotonic()
        patience, period = turn.patience(self._options.patience), turn.record.period
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

    async def _written(self, write: Write, driven: _Driven) -> settle.Outcome | None:
        """Writes the scale if the decision changes the count. Raises _Discarded if the HPA was edited meanwhile."""
        turn, scale = driven.turn, write.view.scale
        try:
            turn.permit.require()  # while the metrics were read, the HPA may have been edited, or the lease lost
            if write.to is None or scale is None:
                return None
            if write.decision.spared is not None:
                await self._set_costs(write, driven)
            await self._begin(write, turn, write.to)
            return await rescale.scale_target(self._cluster, self._clock, turn.permit, scale, write.to)
        except Edited:
            self._give_up(write, turn)
            raise _Discarded from None

    async def _set_costs(self, write: Write, driven: _Driven) -> None:
        """Makes idle pods go first in a scale-down; an error becomes an event."""
        error = await self._sparing.mark(write, driven.turn, driven.worker)
        if error is not None:
            text = f"pods are removed in any order, since their deletion costs could not be written: {error}"
            self._record(driven.turn, conditions.Event(conditions.WARNING, "FailedDeletionCost", text))

    async def _begin(self, write: Write, turn: Turn, to: int) -> None:
        """Stores the pending rescale before it is written, so that a crash cannot lose it."""
        done = write.settlement
        ups, downs = done.history.scale_ups, done.history.scale_downs
        pending = PendingRescale(write.view.replicas, to, ups, downs, done.status, turn.last_scale_time)
        self._remember(write, turn, pending)
        await self._store.flush_now(turn.permit.key)

    def _remember(self, write: Write, turn: Turn, pending: PendingRescale | None) -> None:
        """Stores the recommendation of this reconcile before anything is written for it."""
        view = write.view
        memory = replace(
            self._memory(turn),
            uid=view.hpa.metadata.uid,
            target=target_of(view.hpa),
            history=next_history(view, write.decision, rescaled=False),
            at=view.now,
            last_count=view.target_replicas,
            pending=pending,
            loaded=False,
            validity=turn.validity,
            shadow=view.replicas if view.shadow is not None and view.shadow.replicas else None,
        )
        self._store.put(turn.permit.key, memory)

    def _give_up(self, write: Write, turn: Turn) -> None:
        """Keeps the recommendation of a decision that an edit has discarded."""
        # As in Kubernetes, which stores a recommendation before it writes (horizontal.go: stabilizeRecommendation).
        if write.view.scale is not None and turn.permit.is_same:
            self._remember(write, turn, turn.unreported)
        self._log.info("the HPA was edited during the turn: decided again", hpa=str(turn.permit.key))

    async def _publish(self, turn: Turn, done: Reconcile) -> None:
        view, decision, outcome, settlement = done.view, done.decision, done.outcome, done.settlement
        key = turn.permit.key
        if turn.unreported is not None:
            self._log.info("writing the status of an earlier rescale", hpa=str(key), scale_to=turn.unreported.to)
        for event in settlement.events:
            self._record(turn, event)
        before, last = self._memory(turn), report.last(view, decision, outcome, settlement)
        writes = (settlement.status_changed or turn.unreported is not None) and self._options.writes_status
        memory = self._next_memory(turn, done, before, last, writes=writes)
        self._store.put(key, memory)
        reported = writes and await self._report_status(turn, settlement.status)
        unsure = outcome is not None and outcome.unsure
        if reported and view.scale is not None and memory.pending is not None and not unsure:
            # The status reports the rescale now; only a rescale of unknown outcome stays pending.
            self._store.put(key, replace(memory, pending=None))
        report.report_zero(self._log, view, decision.verdict, turn.record)
        report.report_annotations(self._log, view, turn.record)
        report.report_competitors(self._log, self._telemetry.controller, view, turn.record, yields=self._options.yields)
        report.log_decision(self._log, view, decision, last, before.last)

    def _next_memory(self, turn: Turn, done: Reconcile, before: Memory, last: Last, *, writes: bool) -> Memory:
        """Returns the state after the decision was carried out; `writes`: the status has still to be written."""
        view, decision, outcome, settlement = done.view, done.decision, done.outcome, done.settlement
        memory = replace(
            before,
            uid=view.hpa.metadata.uid,
            target=target_of(view.hpa),
            status=None if self._options.writes_status else settlement.status,
            last=last,
        )
        if view.scale is None:  # nothing was decided: history and time of the earlier turn stay
            if before.validity is not None and (before.complete or not before.loaded):
                memory = replace(memory, validity=before.validity.prolonged(turn.validity))
            return memory
        written = decision.scale_to is not None and outcome is not None and outcome.written
        unreported = before.pending if written else turn.unreported  # until its status is written
        uncertain = before.pending if outcome is not None and outcome.unsure else None  # the next turn reads the count
        return replace(
            memory,
            history=settlement.history,
            at=view.now,
            last_count=decision.scale_to if written else view.target_replicas,
            pending=uncertain or (unreported if writes else None),
            loaded=False,
            validity=turn.validity,
            shadow=None if view.shadow is None else shadow.count_after(view, decision),
        )

    def _memory(self, turn: Turn) -> Memory:
        return self._observer.relevant(turn.view.hpa, self._store.get(turn.permit.key))

    async def _report_status(self, turn: Turn, status: HorizontalPodAutoscalerStatus) -> bool:
        """Writes the status, and notes when. Returns whether it needs no further attempt."""
        record, done = turn.record, False
        record.status_written = turn.timing.moment.monotonic  # before the write: an edit meanwhile clears it
        try:
            done = await self._write_status(turn, status)
        finally:
            if not done:
                record.status_written = None
        return done

    async def _write_status(self, turn: Turn, status: HorizontalPodAutoscalerStatus) -> bool:
        """Writes the status. Returns whether it needs no further attempt."""
        hpa = turn.view.hpa
        try:
            await self._cluster.write_status(hpa, status, turn.permit.require)
        except Edited:  # the next turn reports the rescale of this one
            return False
        except errors.ApiError as error:
            if error.not_found:  # deleted meanwhile: there is no status to write
                return True
            self._record(turn, conditions.Event(conditions.WARNING, "FailedUpdateStatus", error.message))
            key = turn.permit.key
            self._unwritten.occurred(subject=key, hpa=str(key), error=error.message)
            return False
        self._unwritten.ended(subject=turn.permit.key)
        return True

    def _record(self, turn: Turn, event: conditions.Event) -> None:
        view = turn.view
        if view.shadow is not None or self._options.dry_run:
            # At debug: the decision is logged as well, and a failure repeats its event in each turn.
            self._log.debug("event not sent", hpa=str(view.key), reason=event.reason, message=event.message)
            return
        self._cluster.event_recorder.record(view.hpa, event, turn.permit.require_leading)
