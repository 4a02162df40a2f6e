"""One reconcile of one HPA: observe, examine, gather, decide, write, settle, publish."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import structlog
from msgspec.structs import replace

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.api.sample import AdapterError, HPAIdentity, Query, Sample
from hpad.clock import Clock, Moment
from hpad.controller import report, rescale, schedule
from hpad.controller.announcements import Announcements
from hpad.controller.cluster import Cluster, Metrics
from hpad.controller.observe import Observer, Options, Turn, target_of
from hpad.controller.overlap import Overlap, SelectorIndex
from hpad.controller.sparing import Answers, Sparing
from hpad.controller.workers import Worker
from hpad.election.owner import Edited, Permit
from hpad.engine import annotations, conditions, decide, examine, settle, shadow
from hpad.engine.history import Last, Memory, PendingRescale
from hpad.engine.status import next_history
from hpad.engine.trace import TimingTrace
from hpad.engine.trace.evidence import Evidence
from hpad.kube import errors
from hpad.recording import encode
from hpad.store.store import Store
from hpad.telemetry import Telemetry
from hpad.telemetry.episode import Episode

_OUTDATED = 2
"""Turns in succession that may end without a decision because the HPA's labels or its target were edited."""


class ReconcileRecorder(Protocol):
    """Records reconciles. Must not wait."""

    def note(self, done: encode.RecordedReconcile) -> None: ...


class DecisionLog(Protocol):
    """Keeps the decisions of each HPA. Must not wait. `add` returns the evidence as it is kept."""

    def add(self, evidence: Evidence) -> Evidence: ...
    def forget(self, key: Key) -> None: ...


class _Gathered(msgspec.Struct, frozen=True, gc=False):
    """The queries of an HPA and their answers, which took `seconds`. `identity` is the HPA as sources see it."""

    verdict: examine.Verdict
    identity: HPAIdentity
    queries: Sequence[Query | AdapterError] = ()
    answers: Sequence[Sample | AdapterError] = ()
    seconds: float = 0.0


class _Done(msgspec.Struct, frozen=True, gc=False):
    """A turn whose decision was carried out; `outcome` is None if no write was needed.

    `work` are the answers about the unfinished work of pods, None where nothing was asked.
    """

    turn: Turn
    gathered: _Gathered
    decision: decide.Decision
    outcome: settle.Outcome | None
    settlement: settle.Settlement
    work: Answers | None = None


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
        selectors: SelectorIndex,
        telemetry: Telemetry,
        recorders: Sequence[ReconcileRecorder] = (),
        decisions: DecisionLog | None = None,
        own: annotations.Reader = annotations.PLAIN,
    ) -> None:
        self._clock = clock
        self._cluster = cluster
        self._metrics = metrics
        self._store = store
        self.overlap = Overlap(cluster, selectors, clock)
        self._observer = Observer(cluster, store, self.overlap, options, own)
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

    def retune(self, options: Options, own: annotations.Reader) -> None:
        """Changes the options, and how HPAs are read, from the next reconcile on."""
        self._observer.options, self._observer.own = options, own

    async def reconcile(
        self, permit: Permit, worker: Worker, timing: schedule.Timing, record: schedule.Record
    ) -> settle.Settlement:
        """Scales the target of the permit's HPA as decided, and reports it in status, events, log and series.

        The worker is released during waits for metrics and for the store. An HPA that was edited meanwhile is decided
        again, with the answers that still fit.

        Returns the settlement, which includes refusals of the API server. Raises schedule.TooEarly before anything is
        written; NotOwned or Edited instead of a write, after which another turn decides. Other exceptions are bugs.
        """
        began = self._clock.monotonic()
        turn = await self._observer.observe(permit, worker, timing, record)
        observed = self._clock.monotonic() - began
        # Before the metrics are known: a recommendation that a crash could lose must not be made.
        await schedule.announce(self._store, permit.key, worker, timing.moment)
        gathered = await self._gather(turn, self._examine(turn), worker)
        done = await self._decide(turn, gathered, worker)
        turn, gathered, decision = done.turn, done.gathered, done.decision
        outcome, settlement = done.outcome, done.settlement
        recorded = encode.RecordedReconcile(
            turn.view, gathered.queries, gathered.answers, outcome, decision.scale_to, settlement, done.work
        )
        for recorder in self._recorders:
            recorder.note(recorded)
        acted = self._clock.monotonic()
        await self._publish(done)
        series, now = self._telemetry.controller, self._clock.monotonic()
        report.count(series, turn.permit.key, turn.view, settlement, gathered.seconds, began, now)
        stages = TimingTrace(
            late=max(0.0, began - timing.moment.monotonic),
            observe=observed,
            gather=gathered.seconds,
            act=max(0.0, acted - began - observed - gathered.seconds),
            publish=now - acted,
        )
        evidence = Evidence(turn.view, gathered.answers, decision, outcome, settlement, stages)
        if self._decisions is not None:
            evidence = self._decisions.add(evidence)  # the series share what the history keeps
        report.decided(series.decisions, evidence)
        return settlement

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
        return self._observer.own.sync_period(hpa)

    def waits(self, key: Key) -> bool:
        """Returns whether the HPA's pods are not known yet, because its namespace is being listed."""
        return self._cluster.waits(key.namespace)

    async def loaded(self, key: Key) -> None:
        """Waits until the stored state of the HPA has been read."""
        await self._store.get_loaded(key)

    def last(self, key: Key) -> Moment | None:
        """Returns the moment of the HPA's last turn; None if there was none in this boot of the machine."""
        memory, now = self._store.get(key), Moment.now(self._clock)
        if memory.at is None or memory.validity is None or not memory.validity.comparable(now):
            return None
        return replace(now, wall=memory.at, monotonic=memory.validity.ticks)

    def _examine(self, turn: Turn) -> examine.Verdict:
        """Returns the verdict of the first stage. Registers the selector of an HPA that needs its metrics."""
        verdict = examine.examine(turn.view)
        # Competing HPAs register their selectors as well, before the check (horizontal.go: validateAndParseSelector).
        unobservable = isinstance(verdict, examine.Halt) and verdict.kind == examine.UNOBSERVABLE
        if unobservable or isinstance(verdict, examine.Proceed):
            self.overlap.register_selector(turn.permit.key, turn.view.scale)
        return verdict

    async def _gather(self, turn: Turn, verdict: examine.Verdict, worker: Worker) -> _Gathered:
        """Returns the answers to the HPA's queries."""
        identity, queries = HPAIdentity.of(turn.view.hpa), verdict.queries
        if not queries:
            return _Gathered(verdict, identity)
        self.announcements.make(turn.permit, self._observer.own)
        began = self._clock.monotonic()
        patience, period = turn.patience(self._options.patience), turn.record.period
        asked = self._metrics.ask(queries, deadline=patience, identity=identity, period=period)
        if not asked.done:  # most answers are there: those to another HPA of the namespace
            async with worker.released():
                await asked.wait()
        return _Gathered(verdict, identity, queries, asked.answers(), self._clock.monotonic() - began)

    async def _decide(self, turn: Turn, gathered: _Gathered, worker: Worker) -> _Done:
        """Decides and writes; decides again by the new spec if an edit comes before the write.

        Raises as `reconcile` does.
        """
        # In the same turn: an HPA whose edits come faster than a turn takes would otherwise never be scaled.
        while True:
            turn = turn.at(turn.timing.answered(self._clock))
            answers = gathered.answers
            if turn.own_pods is not None:
                answers = turn.own_pods.of(gathered.verdict, answers)
            if turn.view.shadow is not None:
                view, answers = shadow.applied(turn.view, gathered.verdict, answers)
                turn = replace(turn, view=view)
            decision = decide.decide(turn.view, gathered.verdict, answers)
            work: Answers | None = None
            if turn.view.controls.texts:
                decision, work = await self._sparing.spared(turn, decision, worker)
            try:
                outcome, settlement = await self._act(turn, decision, worker)
            except Edited:
                self._give_up(turn, decision)
                turn = await self._observer.observe_again(turn, worker)
                gathered = self._fitting(gathered, turn)
            else:
                turn.record.outdated = 0
                gathered = replace(gathered, answers=answers)
                return _Done(turn, gathered, decision, outcome, settlement, work)

    def _fitting(self, gathered: _Gathered, turn: Turn) -> _Gathered:
        """Returns the answers that fit the HPA after an edit. Raises Edited if other metrics have to be read."""
        # The answers of some sources depend on the HPA's labels and target. After an edit of these another turn queries
        # again; after `_OUTDATED` such turns in succession the old answers are used.
        verdict, identity = self._examine(turn), HPAIdentity.of(turn.view.hpa)
        if not verdict.queries:  # the new spec needs no metrics
            return _Gathered(verdict, identity)
        usable = identity == gathered.identity or turn.record.outdated >= _OUTDATED
        if verdict.queries == gathered.queries and usable:
            return replace(gathered, verdict=verdict)
        turn.record.outdated += 1
        raise Edited(str(turn.permit.key))

    async def _act(
        self, turn: Turn, decision: decide.Decision, worker: Worker
    ) -> tuple[settle.Outcome | None, settle.Settlement]:
        """Writes the scale if the decision changes the count."""
        view = turn.view
        turn.permit.require()  # while the metrics were read, the HPA may have been edited or reassigned
        if decision.scale_to is None or view.scale is None:
            return None, settle.settle(view, decision, None)
        withheld = report.withheld(view, dry_run=self._options.dry_run, yields=self._options.yields)
        if withheld is not None:
            outcome = settle.Outcome(attempts=(), withheld=withheld)
            return outcome, settle.settle(view, decision, outcome)
        if decision.spared is not None:
            await self._set_costs(turn, decision, worker)
        # The settlement of a success is made before the write, because the pending rescale contains its status.
        settlement = settle.settle(view, decision, settle.Outcome((decision.scale_to,)))
        await self._begin(turn, decision, decision.scale_to, settlement)
        outcome = await rescale.scale_target(self._cluster, self._clock, turn.permit, view.scale, decision.scale_to)
        return outcome, settlement if outcome.written else settle.settle(view, decision, outcome)

    async def _set_costs(self, turn: Turn, decision: decide.Decision, worker: Worker) -> None:
        """Makes idle pods go first in a scale-down; an error becomes an event."""
        error = await self._sparing.mark(turn, decision, worker)
        if error is not None:
            text = f"pods are removed in any order, since their deletion costs could not be written: {error}"
            self._record(turn, conditions.Event(conditions.WARNING, "FailedDeletionCost", text))

    async def _begin(self, turn: Turn, decision: decide.Decision, to: int, done: settle.Settlement) -> None:
        """Stores the pending rescale before it is written, so that a crash cannot lose it."""
        view = turn.view
        ups, downs = done.history.scale_ups, done.history.scale_downs
        pending = PendingRescale(view.replicas, to, ups, downs, done.status, turn.last_scale_time)
        self._remember(turn, decision, pending)
        await self._store.flush_now(turn.permit.key)

    def _remember(self, turn: Turn, decision: decide.Decision, pending: PendingRescale | None) -> None:
        """Stores the recommendation of this reconcile before anything is written for it."""
        view = turn.view
        memory = replace(
            self._memory(turn),
            uid=view.hpa.metadata.uid,
            target=target_of(view.hpa),
            history=next_history(view, decision, rescaled=False),
            at=view.now,
            last_count=view.target_replicas,
            pending=pending,
            loaded=False,
            validity=turn.validity,
            shadow=view.replicas if view.shadow is not None and view.shadow.replicas else None,
        )
        self._store.put(turn.permit.key, memory)

    def _give_up(self, turn: Turn, decision: decide.Decision) -> None:
        """Keeps the recommendation of a decision that an edit has discarded."""
        # As in Kubernetes, which stores a recommendation before it writes (horizontal.go: stabilizeRecommendation).
        if turn.view.scale is not None and turn.permit.is_same:
            self._remember(turn, decision, turn.unreported)
        self._log.info("the HPA was edited during the turn: decided again", hpa=str(turn.permit.key))

    async def _publish(self, done: _Done) -> None:
        turn, decision, outcome, settlement = done.turn, done.decision, done.outcome, done.settlement
        view, key = turn.view, turn.permit.key
        if turn.unreported is not None:
            self._log.info("writing the status of an earlier rescale", hpa=str(key), scale_to=turn.unreported.to)
        for event in settlement.events:
            self._record(turn, event)
        before, last = self._memory(turn), report.last(view, decision, outcome, settlement)
        writes = (settlement.status_changed or turn.unreported is not None) and self._options.writes_status
        memory = self._next_memory(done, before, last, writes=writes)
        self._store.put(key, memory)
        written = writes and await self._written_status(turn, settlement.status)
        unsure = outcome is not None and outcome.unsure
        if written and view.scale is not None and memory.pending is not None and not unsure:
            # The status reports the rescale now; only a rescale of unknown outcome stays pending.
            self._store.put(key, replace(memory, pending=None))
        report.report_zero(self._log, view, decision.verdict, turn.record)
        report.report_annotations(self._log, view, turn.record)
        report.report_competitors(self._log, self._telemetry.controller, view, turn.record, yields=self._options.yields)
        report.log_decision(self._log, view, decision, last, before.last)

    def _next_memory(self, done: _Done, before: Memory, last: Last, *, writes: bool) -> Memory:
        """Returns the state after the decision was carried out; `writes`: the status has still to be written."""
        turn, decision, outcome, settlement = done.turn, done.decision, done.outcome, done.settlement
        view = turn.view
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

    async def _written_status(self, turn: Turn, status: HorizontalPodAutoscalerStatus) -> bool:
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
        self._cluster.event_recorder.record(view.hpa, event, turn.permit.require_owned)
