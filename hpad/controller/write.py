"""The write path of a reconcile: the store, the replica count of the target, the status, and events.

What is stored when is decided in `hpad.engine.state`; the order of the writes is that of `hpad.store.persistent`.
"""

import msgspec
import structlog

from hpad.api.autoscaler import targets, with_texts
from hpad.api.hpa import AUTOSCALER, HorizontalPodAutoscalerStatus, Scale
from hpad.api.metadata import Key
from hpad.api.text import begin
from hpad.clock import Clock, Moment
from hpad.controller import report
from hpad.controller.observe import Observer, Turn
from hpad.controller.sparing import Sparing
from hpad.controller.workers import Worker
from hpad.election.owner import Edited, Permit
from hpad.engine import conditions, settle, state
from hpad.engine.history import EARLY_SECONDS
from hpad.engine.turn import Reconcile, Write
from hpad.kube import errors
from hpad.kube.cluster import Cluster
from hpad.store.store import Store
from hpad.telemetry.episode import Episode

ATTEMPTS = 5
"""The largest number of attempts to write a scale (client-go, util/retry/util.go: DefaultRetry)."""
_PAUSE_SECONDS = 0.01
_LONGEST_SENTENCE = 1024


class TooEarly(Exception):
    """The turn before its planned time could not be noted in the store; it may run after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not for {seconds:.1f} s")
        self.seconds = seconds


class Discarded(Exception):
    """The HPA was edited before the write: it is decided again, in the same turn."""


class Writes:
    """Writes what turns have decided. The options are those of the observer."""

    def __init__(
        self,
        observer: Observer,
        cluster: Cluster,
        store: Store,
        sparing: Sparing,
        clock: Clock,
    ) -> None:
        self._observer = observer
        self._cluster = cluster
        self._store = store
        self._sparing = sparing
        self._clock = clock
        self._log = structlog.get_logger("hpad.reconcile")
        self._unwritten = Episode(self._log, clock, "status not written", "statuses are written again")

    async def note_early(self, key: Key, worker: Worker, moment: Moment) -> None:
        """Notes a turn before its planned time in the store, which marks the stored state as incomplete.

        Otherwise a restart shortly afterwards would not know that a turn is missing. Raises TooEarly if the store
        cannot be written; the planned turn needs no note. The first turn after a clean stop also comes before the
        validity ends; the store begins to note these turns when it loads the state (`hpad.store.persistent`).
        """
        memory = self._store.get(key)
        left = memory.validity_remaining(moment)
        if memory.validity is None or left <= EARLY_SECONDS:
            return
        async with worker.released():
            noted = await self._store.reopen(key, moment)
        if not noted:
            raise TooEarly(left)

    async def scale(self, write: Write, turn: Turn, worker: Worker) -> settle.Outcome | None:
        """Writes the count if the decision changes it, deletion costs before.

        Raises NotLeading, and Discarded if the HPA was edited meanwhile.
        """
        # Before the state is stored that knows of its rescale; without a scale none is.
        if turn.announcement is not None and write.view.scale is not None:
            self._record(turn, turn.announcement)
        try:
            turn.permit.require()  # while the metrics were read, the HPA may have been edited, or the lease lost
            if write.to is None or write.view.scale is None:
                return None
            if write.decision.spared is not None:
                await self._set_costs(write, turn, worker)
            self._store.put(turn.permit.key, state.begun(self._start(turn), write, write.to))
            await self._store.flush_now(turn.permit.key)
            return await scale_target(self._cluster, self._clock, turn.permit, write.view.scale, write.to)
        except Edited:
            if write.view.scale is not None and turn.permit.is_same:
                self._store.put(turn.permit.key, state.discarded(self._start(turn), write))
            self._log.info("the HPA was edited during the turn: decided again", hpa=str(turn.permit.key))
            raise Discarded from None

    async def publish(self, turn: Turn, done: Reconcile) -> None:
        """Sends the events, stores the state, writes the status, and logs the decision and what else has changed."""
        key, settlement, options = turn.permit.key, done.settlement, self._observer.options
        if turn.unreported is not None:
            self._log.info("writing the status of an earlier rescale", hpa=str(key), scale_to=turn.unreported.to)
        for event in settlement.events:
            self._record(turn, event)
        left = state.after(self._start(turn), done, None if options.writes_status else settlement.status)
        writes = (settlement.status_changed or turn.unreported is not None) and options.writes_status
        reported = left.reported
        self._store.put(key, left.memory if writes else reported)
        if writes and await self._report_status(turn, done) and reported is not left.memory:
            self._store.put(key, reported)
        turn.record.logged = report.log_reconcile(self._log, done, turn.record.logged, yields=options.yields)

    def forget(self, key: Key) -> None:
        """Drops what is known of a deleted HPA."""
        self._unwritten.ended(subject=key)

    def _start(self, turn: Turn) -> state.Start:
        memory = self._observer.relevant(turn.view.hpa, self._store.get(turn.permit.key))
        return state.Start(memory, turn.unreported, turn.last_scale_time, turn.validity)

    async def _set_costs(self, write: Write, turn: Turn, worker: Worker) -> None:
        """Makes idle pods go first in a scale-down; an error becomes an event."""
        error = await self._sparing.mark(write, turn, worker)
        if error is not None:
            text = f"pods are removed in any order, since their deletion costs could not be written: {error}"
            self._record(turn, conditions.Event(conditions.WARNING, "FailedDeletionCost", text))

    async def _report_status(self, turn: Turn, done: Reconcile) -> bool:
        """Writes the status, and notes when. Returns whether it needs no further attempt."""
        record, written = turn.record, False
        record.status_written_at = turn.timing.moment.monotonic  # before the write: an edit meanwhile clears it
        try:
            written = await self._write_status(turn, _status(done))
        finally:
            if not written:
                record.status_written_at = None
        return written

    async def _write_status(self, turn: Turn, status: HorizontalPodAutoscalerStatus) -> bool:
        """Writes the status. Returns whether it needs no further attempt."""
        key = turn.permit.key
        try:
            await self._cluster.write_status(turn.view.hpa, status, turn.permit.require)
        except Edited:  # the next turn reports the rescale of this one
            return False
        except errors.ApiError as error:
            if error.not_found:  # deleted meanwhile: there is no status to write
                return True
            self._record(turn, conditions.Event(conditions.WARNING, "FailedUpdateStatus", error.message))
            self._unwritten.occurred(subject=key, hpa=str(key), error=error.message)
            return False
        self._unwritten.ended(subject=key)
        return True

    def _record(self, turn: Turn, event: conditions.Event) -> None:
        view = turn.view
        if view.shadow is not None or self._observer.options.dry_run:
            # At debug: the decision is logged as well, and a failure repeats its event in each turn.
            self._log.debug("event not sent", hpa=str(view.key), reason=event.reason, message=event.message)
            return
        self._cluster.event_recorder.record(view.hpa, event, turn.permit.require_leading)


def _status(done: Reconcile) -> HorizontalPodAutoscalerStatus:
    """Returns the status to write; that of an Autoscaler also has the decision and the metrics as texts."""
    status, hpa = done.settlement.status, done.view.hpa
    if hpa.kind != AUTOSCALER:
        return status
    return with_texts(
        status, begin(done.sentence, _LONGEST_SENTENCE), targets(msgspec.structs.replace(hpa, status=status))
    )


async def scale_target(cluster: Cluster, clock: Clock, permit: Permit, scale: Scale, replicas: int) -> settle.Outcome:
    """Writes the replica count; after a conflict reads the scale and writes again, up to `ATTEMPTS` times.

    If another client changed the replica count meanwhile, or a watched target that is still at zero, nothing more is
    written. Any other refusal is final for this reconcile. ApiErrors become part of the outcome. Raises NotLeading or
    Edited if the permit ends before an attempt; no attempt before it has written anything.
    """
    namespace, target = permit.hpa.metadata.namespace, permit.hpa.spec.scale_target_ref
    attempts: list[int] = []
    decided_on = scale.spec.replicas
    try:
        while True:
            try:
                attempts.append(replicas)
                await cluster.write_scale(namespace, target, scale.with_replicas(replicas), permit.require)
                return settle.Outcome(attempts=tuple(attempts), error=None)
            except errors.ApiError as error:
                if not error.conflict or len(attempts) == ATTEMPTS:
                    raise
            await clock.sleep(_PAUSE_SECONDS)
            scale = await cluster.fresh_scale(namespace, target)
            change = ""
            # Kubernetes overwrites that count, although the decision was made for another one.
            if scale.spec.replicas not in (decided_on, replicas):
                change = f"has set the replicas from {decided_on} to {scale.spec.replicas}"
            elif scale.spec.replicas == decided_on == 0 and cluster.peek_scale(namespace, target) is not None:
                # The watch will tell whether another client has stopped the target again.
                change = "has changed the target at zero replicas"
            if change:
                text = f"another client {change} meanwhile; the next reconcile decides again"
                return settle.Outcome(attempts=tuple(attempts), error=text)
    except errors.ApiError as error:
        return settle.Outcome(attempts=tuple(attempts), error=error.message, unsure=error.passing)
