"""One reconcile of one HPA: read, examine, gather, decide, write, settle, publish."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

import msgspec
import structlog

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Scale
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, Asker, Query, Sample
from hpad.clock import Clock, Moment
from hpad.controller import cluster as write
from hpad.controller import recovery, report, schedule
from hpad.controller.cluster import Cluster, Metrics
from hpad.controller.overlap import Overlap, SelectorIndex
from hpad.controller.workers import Worker
from hpad.election import owner as ownership
from hpad.engine import conditions, decide, examine, fallback_policy, settle
from hpad.engine.status import next_history
from hpad.engine.view import DRY_RUN, NO_MATCH, READ_FAILED, STALE, ScaleError, Tunables, View, Withheld
from hpad.kube import errors
from hpad.recording import encode
from hpad.store.memory import NOTHING, Last, Memory, PendingRescale, Store, Validity
from hpad.telemetry import Telemetry
from hpad.telemetry.episode import Episode

_OUTDATED = 2
"""So many turns in succession may end without a decision since the HPA's labels or its target changed."""

Queries = Sequence[Query | AdapterError]
Answers = Sequence[Sample | AdapterError]


class ReconcileRecorder(Protocol):
    """Records reconciles. Must not wait."""

    def note(self, done: encode.RecordedReconcile) -> None: ...
    def forget(self, key: Key) -> None: ...


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How reconciles are done.

    `owned`: the HPAs are objects of the API server, which keeps their status. `patience`: seconds that the metrics of
    one HPA may take. `dry_run`: decide, but write nothing. `yields`: leave a target alone that an HPA of the API
    server scales and hpad does not own. `gap`: after this time without a reconcile, state of an earlier process is
    incomplete even if no turn is missing from it.
    """

    tunables: Tunables
    patience: float
    owned: bool = True
    dry_run: bool = False
    yields: bool = True
    gap: timedelta = timedelta(minutes=1)


class _Turn(NamedTuple):
    """The inputs of one reconcile.

    `unreported` is an earlier rescale that no status has reported yet; `view.hpa` has its status, to be written.
    `moment` is that of `view.now`.
    """

    view: View
    permit: ownership.Permit
    unreported: PendingRescale | None
    moment: Moment
    timing: schedule.Timing

    @property
    def validity(self) -> Validity:
        """That of the memory which the reconcile leaves."""
        return schedule.valid(self.moment, self.timing.plan)

    def at(self, moment: Moment) -> "_Turn":
        """The same, decided at that moment."""
        if moment == self.moment:
            return self
        return self._replace(view=msgspec.structs.replace(self.view, now=moment.wall), moment=moment)


class _Asked(NamedTuple):
    """What was asked of the metric sources, for which HPA, and the answers after that many seconds."""

    verdict: examine.Verdict
    asker: Asker
    queries: Queries
    answers: Answers
    seconds: float


_Done = tuple[_Turn, _Asked, decide.Decision, settle.Outcome | None, settle.Settlement]


class Reconciler:
    """Holds what all reconciles share. State per HPA is in the store and in the overlap index."""

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
        recorder: ReconcileRecorder | None = None,
        owner: ownership.Owner = ownership.EVERYTHING,
        fallbacks: fallback_policy.Fallbacks | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._cluster = cluster
        self._metrics = metrics
        self._store = store
        self.overlap = Overlap(cluster, selectors)
        self._telemetry = telemetry
        self._recorder = recorder
        self._owner = owner
        self._fallbacks = fallbacks
        self._competing = report.Competing(cluster, telemetry)
        self._zero_reported: set[Key] = set()
        self._outdated: dict[Key, int] = {}
        self._log = structlog.get_logger("hpad.reconcile")
        self._unwritten = Episode(self._log, clock, "status not written", "statuses are written again")

    def retune(self, options: Options, fallbacks: fallback_policy.Fallbacks | None) -> None:
        """Changes the options from the next reconcile on."""
        self._options = options
        self._fallbacks = fallbacks

    async def reconcile(
        self,
        listed: HorizontalPodAutoscaler,
        worker: Worker,
        moment: Moment | None = None,
        current: ownership.Current | None = None,
        plan: schedule.Plan | None = None,
    ) -> settle.Settlement:
        """Scales the HPA's target as decided, and reports it in status, events, log and series.

        The worker is released while metrics or the store are waited for. `moment` is the planned one of the turn, or
        None for a turn before its planned time (see `schedule`). `current` returns the HPA as it is now and is asked
        before each write; without it the HPA cannot change. An HPA that was edited is decided again, with the answers
        that still fit. Without a `plan` the state is never complete after a restart.

        Returns the settlement, which includes refusals of the API server. Raises schedule.TooEarly before anything is
        done; NotOwned or Edited instead of a write, after which another turn decides. Any other exception is a bug.
        """
        began = self._clock.monotonic()
        timing = schedule.Timing.of(moment, plan, self._clock)
        await schedule.announce(self._store, listed.metadata.key, worker, timing.moment)
        permit = ownership.Permit(self._owner, listed, current)
        turn = await self._look(listed, worker, timing, permit, timing.moment)
        asked = await self._ask(turn.view, self._examine(turn.view), worker)
        turn, asked, decision, outcome, settlement = await self._decide(turn, asked, worker)
        view = turn.view
        if self._recorder is not None:
            done = encode.RecordedReconcile(view, asked.queries, asked.answers, outcome, decision.scale_to, settlement)
            self._recorder.note(done)
        await self._publish(turn, decision, outcome, settlement)
        self._count(view, settlement, asked.seconds, self._clock.monotonic() - began)
        return settlement

    def forget(self, key: Key) -> None:
        """Drops the history, the selector and the series of a deleted HPA."""
        self._store.forget(key)
        self.overlap.release(key)
        self._telemetry.controller.forget(key)
        self._competing.forget(key)
        self._unwritten.ended(subject=key)
        self._zero_reported.discard(key)
        self._outdated.pop(key, None)
        if self._recorder is not None:
            self._recorder.forget(key)

    async def last(self, key: Key) -> Moment | None:
        """The moment of the HPA's last turn; None if there was none in this boot of the machine."""
        return await schedule.last(self._store, key, self._clock)

    async def _look(
        self,
        listed: HorizontalPodAutoscaler,
        worker: Worker,
        timing: schedule.Timing,
        permit: ownership.Permit,
        moment: Moment,
    ) -> _Turn:
        key = listed.metadata.key
        loaded = await self._store.get_loaded(key)
        held = recovery.caught_up(self._about(listed, loaded), moment)
        hpa = listed if held.status is None else msgspec.structs.replace(listed, status=held.status)
        scale, failure = await self._read_scale(hpa, worker)
        unreported = recovery.unreported(held.pending, hpa.status, scale, moment.wall)
        if unreported is not None:
            self._log.info("writing the status of an earlier rescale", hpa=str(key), scale_to=unreported.to)
            hpa = msgspec.structs.replace(hpa, status=unreported.status)
        pods = self._pods(key.namespace, scale)
        told = fallback_policy.policies_of(hpa, self._fallbacks)
        unseen = recovery.rescaled_since(loaded, hpa.status)
        view = View(
            hpa=hpa,
            now=moment.wall,
            tunables=self._options.tunables,
            history=held.history,
            scale=scale,
            scale_error=None if failure is None else _scale_error(failure),
            pods=pods,
            competing_hpas=self.overlap.others(key, scale, pods),
            set_by_other=self._set_by_other(hpa, loaded, scale),
            competitors=self._competing.of(hpa, writes_status=not self._in_memory),
            fallback_policies=told.policies,
            fallback_error=told.error,
        )
        history = recovery.resumed(held, view, self._options.gap, unseen=unseen)
        if history is not held.history:
            view = msgspec.structs.replace(view, history=history)
        return _Turn(view, permit, unreported, moment, timing)

    def _set_by_other(self, hpa: HorizontalPodAutoscaler, memory: Memory, scale: Scale | None) -> bool:
        """Whether another client is known to have set the target to zero."""
        if scale is None or scale.spec.replicas:
            return False
        known = memory.uid == hpa.metadata.uid and recovery.set_by_other(memory, _target(hpa), hpa.status)
        return known or self._cluster.set_by_other(hpa.metadata.namespace, hpa.spec.scale_target_ref)

    async def _read_scale(
        self, hpa: HorizontalPodAutoscaler, worker: Worker
    ) -> tuple[Scale | None, errors.ApiError | None]:
        """The target's scale, once all possibly competing HPAs are known; or why it cannot be read."""
        key, scale, failure = hpa.metadata.key, None, None
        if not self.overlap.is_complete(key):
            async with worker.released():
                failure = await self.overlap.complete(key)
        if failure is None:
            try:
                scale = await self._cluster.read_scale(key.namespace, hpa.spec.scale_target_ref)
            except errors.ApiError as error:
                failure = error
        self.overlap.seen(hpa, scale)
        return scale, failure

    def _pods(self, namespace: str, scale: Scale | None) -> list[Pod]:
        """The target's pods; none where it has no selector that can be read (the engine says what is wrong with it)."""
        picked = None if scale is None else scale.pod_selector
        return [] if picked is None else self._cluster.pods.select(namespace, picked)

    def _examine(self, view: View) -> examine.Verdict:
        """The verdict of the first stage; an HPA that gets as far as its metrics registers its selector."""
        verdict = examine.examine(view)
        if isinstance(verdict, examine.Proceed) or _contested(verdict):
            self.overlap.claim(view.hpa.metadata.key, view.scale)
        return verdict

    async def _ask(self, view: View, verdict: examine.Verdict, worker: Worker) -> _Asked:
        """The answers to the HPA's metrics."""
        asker, queries = Asker.of(view.hpa), verdict.queries
        if not queries:
            return _Asked(verdict, asker, (), (), 0.0)
        began = self._clock.monotonic()
        async with worker.released():
            answers = await self._metrics.gather(
                view.hpa.metadata.key, queries, deadline=self._options.patience, asker=asker
            )
        return _Asked(verdict, asker, queries, answers, self._clock.monotonic() - began)

    async def _decide(self, turn: _Turn, asked: _Asked, worker: Worker) -> _Done:
        """Decides and writes; decides again by the new spec if an edit comes before the write.

        Otherwise an HPA that is edited more often than a turn lasts would never be scaled. Raises as `reconcile` does.
        """
        key = turn.view.hpa.metadata.key
        while True:
            turn = turn.at(turn.timing.answered(self._clock))
            decision = decide.decide(turn.view, asked.verdict, asked.answers)
            try:
                outcome, settlement = await self._act(turn, decision)
            except ownership.Edited:
                self._give_up(turn, decision)
                turn = await self._look_again(turn, worker)
                asked = self._fitting(asked, turn.view)
            else:
                self._outdated.pop(key, None)
                return turn, asked, decision, outcome, settlement

    async def _look_again(self, turn: _Turn, worker: Worker) -> _Turn:
        """The turn for the HPA as it is now. Raises Edited if it was deleted or replaced."""
        permit = turn.permit
        found = None if permit.current is None else permit.current()
        if found is None or not permit.is_same:
            raise ownership.Edited(str(permit.hpa.metadata.key))
        return await self._look(found, worker, turn.timing, permit._replace(hpa=found), turn.moment)

    def _fitting(self, asked: _Asked, view: View) -> _Asked:
        """The answers that fit the HPA after an edit. Raises Edited if other metrics have to be read.

        Some sources answer by the HPA's labels and target. After an edit of these they are asked again in another
        turn; after `_OUTDATED` such turns in succession the old answers are used.
        """
        key, verdict, asker = view.hpa.metadata.key, self._examine(view), Asker.of(view.hpa)
        queries = verdict.queries
        if not queries:  # the new spec needs no metrics
            return _Asked(verdict, asker, (), (), 0.0)
        number = self._outdated.get(key, 0)
        if queries == asked.queries and (asker == asked.asker or number >= _OUTDATED):
            return asked._replace(verdict=verdict)
        self._outdated[key] = number + 1
        raise ownership.Edited(str(key))

    async def _act(self, turn: _Turn, decision: decide.Decision) -> tuple[settle.Outcome | None, settle.Settlement]:
        """Writes the scale where the decision says so. The settlement of a write that succeeds is made before it."""
        view = turn.view
        turn.permit.require()  # the metrics may have taken seconds
        if decision.scale_to is None or view.scale is None:
            return None, settle.settle(view, decision, None)
        withheld = self._withheld(view)
        if withheld is not None:
            outcome = settle.Outcome(attempts=(), withheld=withheld)
            return outcome, settle.settle(view, decision, outcome)
        settlement = settle.settle(view, decision, settle.Outcome((decision.scale_to,)))
        await self._begin(turn, decision, decision.scale_to, settlement)
        outcome = await write.scale_target(self._cluster, self._clock, turn.permit, view.scale, decision.scale_to)
        return outcome, settlement if outcome.written else settle.settle(view, decision, outcome)

    def _withheld(self, view: View) -> Withheld | None:
        """Why nothing may be written to the target now."""
        if self._options.dry_run:
            return DRY_RUN
        return report.yields_to(view.competitors) if self._options.yields else None

    async def _begin(self, turn: _Turn, decision: decide.Decision, to: int, done: settle.Settlement) -> None:
        """Stores the pending rescale before it is written, so that a crash cannot lose it."""
        view = turn.view
        pending = PendingRescale(view.replicas, to, done.history.scale_ups, done.history.scale_downs, done.status)
        self._remember(turn, decision, pending)
        await self._store.flush_now(view.hpa.metadata.key)

    def _remember(self, turn: _Turn, decision: decide.Decision, pending: PendingRescale | None) -> None:
        """Stores the recommendation of this reconcile before anything is written for it."""
        view = turn.view
        memory = msgspec.structs.replace(
            self._memory(view.hpa),
            uid=view.hpa.metadata.uid,
            target=_target(view.hpa),
            history=next_history(view, decision, rescaled=False),
            at=view.now,
            last_count=view.replicas,
            pending=pending,
            loaded=False,
            validity=turn.validity,
        )
        self._store.put(view.hpa.metadata.key, memory)

    def _give_up(self, turn: _Turn, decision: decide.Decision) -> None:
        """Keeps the recommendation of a decision that an edit has discarded.

        Kubernetes also stores a recommendation before it writes (horizontal.go: stabilizeRecommendation).
        """
        if turn.view.scale is not None and turn.permit.is_same:
            self._remember(turn, decision, turn.unreported)
        self._log.info("the HPA was edited during the turn: decided again", hpa=str(turn.view.hpa.metadata.key))

    async def _publish(
        self,
        turn: _Turn,
        decision: decide.Decision,
        outcome: settle.Outcome | None,
        settlement: settle.Settlement,
    ) -> None:
        view, hpa = turn.view, turn.view.hpa
        for event in settlement.events:
            self._record(hpa, event)
        before = self._memory(hpa)
        writes = (settlement.status_changed or turn.unreported is not None) and not self._in_memory
        told = report.told(view, decision, outcome, settlement)
        memory = msgspec.structs.replace(
            before,
            uid=hpa.metadata.uid,
            target=_target(hpa),
            status=settlement.status if self._in_memory else None,
            last=told,
        )
        if view.scale is not None:  # else what was held before stays as it is, with the time it was held at
            moved = decision.scale_to is not None and outcome is not None and outcome.written
            left = decision.scale_to if moved else view.replicas
            unreported = before.pending if moved else turn.unreported  # until its status is written
            unsure = before.pending if outcome is not None and outcome.unsure else None  # the next turn will see
            pending = unsure or (unreported if writes else None)
            memory = msgspec.structs.replace(
                memory,
                history=settlement.history,
                at=view.now,
                last_count=left,
                pending=pending,
                loaded=False,
                validity=turn.validity,
            )
        elif before.validity is not None and (before.complete or not before.loaded):
            memory = msgspec.structs.replace(memory, validity=before.validity.prolonged(turn.validity))
        self._store.put(hpa.metadata.key, memory)
        if writes and await self._write_status(turn, settlement.status) and view.scale is not None:
            self._store.put(hpa.metadata.key, msgspec.structs.replace(memory, pending=unsure))
        self._report_zero(view)
        self._competing.report(hpa.metadata.key, view.competitors, yields=self._options.yields)
        known = before.last or Last(view.now, "")
        report.say(self._log, view, decision, told, known, dry_run=self._options.dry_run)

    def _memory(self, hpa: HorizontalPodAutoscaler) -> Memory:
        return self._about(hpa, self._store.get(hpa.metadata.key))

    def _about(self, hpa: HorizontalPodAutoscaler, memory: Memory) -> Memory:
        """The state, unless it belongs to an earlier HPA of this name or to another target."""
        if memory.uid != hpa.metadata.uid:
            return NOTHING
        if self._options.tunables.gates.HPATargetHistory and memory.target not in ("", _target(hpa)):
            return Memory(uid=memory.uid, status=memory.status, last=memory.last)
        return memory

    @property
    def _in_memory(self) -> bool:
        return not self._options.owned or self._options.dry_run

    async def _write_status(self, turn: _Turn, status: HorizontalPodAutoscalerStatus) -> bool:
        """Whether the status needs no further attempt. After an edit the next turn reports the rescale of this one."""
        hpa = turn.view.hpa
        try:
            await self._cluster.write_status(hpa, status, turn.permit.require)
        except ownership.Edited:
            return False
        except errors.ApiError as error:
            if error.not_found:  # deleted meanwhile: there is no status to write
                return True
            self._record(hpa, conditions.Event(conditions.WARNING, "FailedUpdateStatus", error.message))
            self._unwritten.occurred(subject=hpa.metadata.key, hpa=str(hpa.metadata.key), error=error.message)
            return False
        self._unwritten.ended(subject=hpa.metadata.key)
        return True

    def _record(self, hpa: HorizontalPodAutoscaler, event: conditions.Event) -> None:
        if not self._options.dry_run:
            self._cluster.event_recorder.record(hpa, event)

    def _report_zero(self, view: View) -> None:
        """Log once that an HPA asks for what the feature gate HPAScaleToZero does not allow."""
        key = view.hpa.metadata.key
        if view.scale_to_zero_disabled and key not in self._zero_reported:
            what = "metrics never ask for less than 1 replica"
            self._log.warning(f"minReplicas is 0, but the feature gate HPAScaleToZero is off: {what}", hpa=str(key))
        (self._zero_reported.add if view.scale_to_zero_disabled else self._zero_reported.discard)(key)

    def _count(self, view: View, settlement: settle.Settlement, asking: float, seconds: float) -> None:
        self._telemetry.controller.reconciled(settlement.action, settlement.error_label, seconds)
        hpa, wanted = view.hpa, settlement.status.desired_replicas
        self._telemetry.controller.desired(hpa.metadata.key, wanted, hpa.spec.max_replicas, self._clock.monotonic())
        self._telemetry.controller.conditions(hpa.metadata.key, settlement.status.conditions or ())
        for kind, action, error in settlement.metric_computations:
            self._telemetry.controller.computed(kind, action, error, asking)


def _target(hpa: HorizontalPodAutoscaler) -> str:
    """The target in any version of its API: group/kind/name."""
    ref = hpa.spec.scale_target_ref
    group = ref.api_version.rpartition("/")[0]
    return f"{group}/{ref.kind}/{ref.name}"


def _scale_error(error: errors.ApiError) -> ScaleError:
    if error.stale:
        return ScaleError(error.message, STALE)
    return ScaleError(error.message, NO_MATCH if error.reason == "NoMatch" else READ_FAILED)


def _contested(verdict: examine.Verdict) -> bool:
    """Whether the HPA got as far as its metrics but for what is wrong with its pods: that stakes a claim as well."""
    return isinstance(verdict, examine.Halt) and verdict.kind == examine.UNOBSERVABLE
