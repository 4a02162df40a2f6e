"""The read path of a reconcile: the state of the HPA, its target's scale and pods, and competing HPAs become a View.

Nothing is written here, neither to the API server nor to the store.
"""

import asyncio
import math
import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hpad.api.hpa import AUTOSCALER, HorizontalPodAutoscaler, Scale
from hpad.api.metadata import Key
from hpad.api.pod import Pod, PodOwner
from hpad.api.sample import AdapterError, Answer, PodSample
from hpad.clock import Moment
from hpad.controller.overlap import Overlap
from hpad.controller.planning import Record, Timing
from hpad.controller.workers import Worker
from hpad.election.owner import Edited, Permit
from hpad.engine import annotations, shadow, state
from hpad.engine.conditions import Event
from hpad.engine.controls import IN_SHADOW, OWNER, Controls
from hpad.engine.examine import Proceed, Verdict
from hpad.engine.history import NOTHING, Memory, PendingRescale, Validity, assessed
from hpad.engine.spec import VALUE, CompiledMetric, compiled_spec
from hpad.engine.view import (
    ABSENT,
    HPA,
    HPAD,
    NO_MATCH,
    READ_FAILED,
    STALE,
    STATUS,
    TOO_LARGE,
    Competitor,
    ScaleError,
    Tunables,
    View,
)
from hpad.kube import errors
from hpad.kube.cluster import Cluster
from hpad.settings.hpas import SharedBudget
from hpad.sources import limits
from hpad.store.store import Store

GAP_PERIODS: Final = 4
"""The number of periods without a reconcile after which the state of an HPA is incomplete."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How reconciles are done.

    `owned`: the HPAs are objects of the API server, which keeps their status. `patience`: seconds that the metrics of
    one HPA may take. `dry_run`: decide, but write nothing. `yields`: leave a target alone that an HPA of the API
    server scales and hpad does not own. `own` reads the annotations of an HPA. `budgets` are those that HPAs may
    share. `gap`: after this time without a reconcile, or `GAP_PERIODS` of a longer period of the HPA, state of an
    earlier process is incomplete even if no turn is missing from it. `status_refresh`: measured values alone are
    written to a status at most once per this time; 0: whenever they change.
    """

    tunables: Tunables
    patience: float
    owned: bool = True
    dry_run: bool = False
    yields: bool = True
    own: annotations.AnnotationReader = annotations.PLAIN
    budgets: tuple[SharedBudget, ...] = ()
    gap: timedelta = timedelta(minutes=1)
    status_refresh: timedelta = timedelta(0)

    @property
    def writes_status(self) -> bool:
        """Whether the API server keeps the status of the HPAs; otherwise the store does."""
        return self.owned and not self.dry_run


class OwnPods(NamedTuple):
    """The names of the pods of a target, for an HPA that selects pods by owner; or why they are not known.

    An HPA of a controller in `related` scales the same pods.
    """

    names: frozenset[str] = frozenset()
    error: AdapterError | None = None
    related: frozenset[PodOwner] = frozenset()

    def of(self, verdict: Verdict, answers: Sequence[Answer]) -> list[Answer]:
        """Returns the answers without the values of other pods; the error for each metric that depends on pods."""
        metrics = verdict.metrics if isinstance(verdict, Proceed) else ()
        return [self._of(*each) for each in zip(metrics, answers, strict=True)]

    def _of(self, metric: CompiledMetric, answer: Answer) -> Answer:
        if isinstance(answer, AdapterError):
            return answer
        if self.error is not None and (metric.of_pods or metric.kind == VALUE):  # a Value counts the ready pods
            return self.error
        if not isinstance(answer, PodSample):
            return answer
        values = {name: value for name, value in answer.values.items() if name in self.names}
        return msgspec.structs.replace(answer, values=values)


async def read_own_pods(
    cluster: Cluster, hpa: HorizontalPodAutoscaler, scale: Scale, pods: Sequence[Pod]
) -> tuple[list[Pod], OwnPods]:
    """Returns those of the pods that belong to the target, none where that is not known."""
    target = hpa.spec.scale_target_ref
    try:
        owned = await cluster.owned(target, scale, pods)
    except errors.ApiError as error:
        return [], OwnPods(error=AdapterError(error.message, "cluster"))
    if not owned.pods:
        message = f'of the pods that match the selector ({len(pods)}), none belongs to {target.kind} "{target.name}"'
        return [], OwnPods(error=AdapterError(message, "spec"))
    return owned.pods, OwnPods(frozenset([pod.name for pod in owned.pods]), related=owned.related)


class Turn(msgspec.Struct, frozen=True):
    """One turn of an HPA: its inputs without the answers, and what its writes depend on.

    `moment` is that of the decision. `unreported` is an earlier rescale that no status has reported yet. Then
    `view.hpa` has the status of that rescale, and `last_scale_time` is that of the previous status; `announcement` is
    its event, if none was sent. `record` is the scheduling record. `own_pods` is set for an HPA that selects pods by
    owner.
    """

    view: View
    moment: Moment
    permit: Permit
    timing: Timing
    record: Record
    last_scale_time: datetime | None
    unreported: PendingRescale | None
    announcement: Event | None = None
    own_pods: OwnPods | None = None

    @property
    def validity(self) -> Validity:
        """The validity of the memory that the turn leaves: it is complete until the next planned turn."""
        moment, timing = self.moment, self.timing
        return Validity(moment.boot, moment.monotonic, max(0.0, timing.next - moment.monotonic), timing.period)

    def patience(self, common: float) -> float:
        """Returns the seconds that the metrics may take; `common` is that of HPAs without a period of their own."""
        own = self.record.period
        return common if own is None else min(common, own * limits.PATIENCE)


class Observer:
    """Builds the View of each turn. `options` apply from the next turn on."""

    def __init__(self, cluster: Cluster, store: Store, overlap: Overlap, options: Options) -> None:
        self._cluster = cluster
        self._store = store
        self._overlap = overlap
        self.options = options

    async def observe(self, permit: Permit, worker: Worker, timing: Timing, record: Record) -> Turn:
        """Reads everything that the decision for the permit's HPA depends on, except its metrics."""
        turn = await self._turn(permit, worker, timing, record, timing.moment)
        return replace(turn, view=replace(turn.view, values_held=True)) if self._holds(turn) else turn

    async def observe_again(self, turn: Turn, worker: Worker) -> Turn:
        """Returns the turn for the HPA as it is now. Raises Edited if it was deleted or replaced."""
        permit = turn.permit
        hpa = permit.current(permit.key)
        if hpa is None or not permit.is_same:
            raise Edited(str(permit.key))
        # No values are held: those of the new spec are written at once.
        return await self._turn(replace(permit, hpa=hpa), worker, turn.timing, turn.record, turn.moment)

    def relevant(self, hpa: HorizontalPodAutoscaler, memory: Memory) -> Memory:
        """Returns the state of this HPA and its present target; empty for an earlier HPA of the same name."""
        if memory.uid != hpa.metadata.uid:
            return NOTHING
        if self.options.tunables.gates.HPATargetHistory and memory.target not in ("", compiled_spec(hpa).target_id):
            # Kubernetes keeps the history; the windows of the former target then limit the new one.
            return Memory(uid=memory.uid, status=memory.status)
        return memory

    async def _turn(self, permit: Permit, worker: Worker, timing: Timing, record: Record, moment: Moment) -> Turn:
        """Returns the turn, decided at `moment`, with the real counts of the target or those of its shadow."""
        key, hpa = permit.key, permit.hpa
        loaded = assessed(await self._store.get_loaded(key), moment)
        memory = state.caught_up(self.relevant(hpa, loaded), moment)
        reader = self.options.own
        own = await asyncio.to_thread(reader.of, hpa) if reader.reads_files(hpa) else reader.of(hpa)
        if memory.status is not None:
            hpa = replace(hpa, status=memory.status)
        scale, failure = await self._read_scale(key, hpa, worker)
        pods, own_pods = self._pods(key.namespace, scale), None
        if own.controls.pod_selection == OWNER and pods and scale is not None:
            async with worker.released():
                pods, own_pods = await read_own_pods(self._cluster, hpa, scale, pods)
        overlapping: tuple[str, ...] = ()
        try:
            overlapping = await self._overlapping(key, scale, pods, own_pods)
        except errors.ApiError as error:
            scale, failure, pods = None, error, []
        last_scale_time = hpa.status.last_scale_time
        unreported = state.unreported(memory.pending, hpa.status, scale)
        announcement = None
        if unreported is not None:
            hpa, announcement = replace(hpa, status=unreported.status), state.announcement(memory, unreported)
        at_zero = scale is not None and scale.spec.replicas == 0
        ref = hpa.spec.scale_target_ref
        zero_by = self._cluster.replicas_set_by(key.namespace, ref) if at_zero else ""
        real = View(
            hpa=hpa,
            now=moment.wall,
            tunables=self.options.tunables.of_hpa(own.controls),
            history=memory.history,
            scale=scale,
            scale_error=None if failure is None else _scale_error(failure),
            pods=pods,
            overlapping_hpas=overlapping,
            set_by_other=self._set_by_other(hpa, loaded, zero_by) if at_zero else False,
            zero_by=zero_by,
            competitors=self._competitors(hpa, own.controls),
            fallback_policies=own.policies,
            annotation_error=own.error,
            annotation_reason=own.reason,
            controls=own.controls,
        )
        view = self._resumed(real, memory, loaded, self._gap(record))
        return Turn(view, moment, permit, timing, record, last_scale_time, unreported, announcement, own_pods)

    def _resumed(self, real: View, memory: Memory, loaded: Memory, gap: timedelta) -> View:
        """Returns the view to decide on: in shadow mode with its count, and with the history after a gap.

        `memory` is the state for this target, `loaded` the one in the store.
        """
        view = real
        # By the state as loaded: the state of a former target also knows the rescales that the status reports.
        unseen = state.rescaled_since(loaded, real.hpa.status)
        if self.options.dry_run or real.controls.mode is not None or memory.shadow is not None:  # seldom
            view, memory = shadow.entered(real, memory, dry_run=self.options.dry_run)
            unseen = unseen and view.shadow is None  # the count of a shadow is not that of the rescales of others
        history = state.resumed(memory, view, gap, unseen=unseen)
        return view if history is view.history else replace(view, history=history)

    def _gap(self, record: Record) -> timedelta:
        """Returns the time without a reconcile after which the HPA's state is incomplete."""
        gap = self.options.gap
        return gap if record.period is None else max(gap, timedelta(seconds=GAP_PERIODS * record.period))

    def _holds(self, turn: Turn) -> bool:
        """Whether the status was written in this interval of the HPA: changed values alone are not written again."""
        last, interval = turn.record.status_written_at, self.options.status_refresh.total_seconds()
        if interval <= 0 or last is None:
            return False
        key, now = turn.view.key, turn.timing.moment.monotonic
        return interval_of(key, last, interval) == interval_of(key, now, interval)

    async def _read_scale(
        self, key: Key, hpa: HorizontalPodAutoscaler, worker: Worker
    ) -> tuple[Scale | None, errors.ApiError | None]:
        """Returns the target's scale, once all possibly competing HPAs are known, or the error."""
        scale, failure = None, None
        if not self._overlap.is_complete(key):
            async with worker.released():
                failure = await self._overlap.complete(key)
        if failure is None:
            try:
                scale = await self._cluster.read_scale(key.namespace, hpa.spec.scale_target_ref, key.kind)
            except errors.ApiError as error:
                failure = error
        self._overlap.seen(key, hpa.spec.scale_target_ref, scale)
        return scale, failure

    def _pods(self, namespace: str, scale: Scale | None) -> list[Pod]:
        """Returns the target's pods; none if its selector is unusable, which the engine reports."""
        selector = None if scale is None else scale.pod_selector
        return [] if selector is None else self._cluster.pods.select(namespace, selector)

    async def _overlapping(
        self, key: Key, scale: Scale | None, pods: Sequence[Pod], own_pods: OwnPods | None
    ) -> tuple[str, ...]:
        """Returns the names of the HPAs that select the same pods, or, for pods by owner, those that scale them."""
        if own_pods is None:
            return await self._overlap.others(key, scale, pods)
        return await self._overlap.others(key, scale, (), own_pods.related)

    def _set_by_other(self, hpa: HorizontalPodAutoscaler, memory: Memory, zero_by: str) -> bool:
        """Whether another client than an HPA controller is known to have set the target to zero."""
        if zero_by not in ("", HPAD):
            return True
        return memory.uid == hpa.metadata.uid and state.set_by_other(memory, compiled_spec(hpa).target_id, hpa.status)

    def _competitors(self, hpa: HorizontalPodAutoscaler, controls: Controls) -> tuple[Competitor, ...]:
        """Returns the other writers of the target, and of the status if hpad writes the status."""
        competitors = self._cluster.competitors(hpa)
        if hpa.kind == AUTOSCALER:
            names = self._overlap.yields_to(hpa.key)
            competitors += tuple(Competitor(HPA, str(Key(hpa.metadata.namespace, name))) for name in names)
            if controls.mode == IN_SHADOW:  # it takes nothing from the HPA beside which it is tried
                competitors = tuple(competitor for competitor in competitors if competitor.what != HPA)
        if self.options.writes_status:
            return competitors
        return tuple(competitor for competitor in competitors if competitor.what != STATUS)


def interval_of(key: Key, at: float, length: float) -> int:
    """Returns the number of the interval of the HPA that a time belongs to, both in monotonic seconds.

    The intervals of the HPAs begin at different times. Otherwise all HPAs would write in the same period, and none in
    the next ones, after a start and after each failure that concerns all of them.
    """
    return math.floor(at / length + zlib.crc32(str(key).encode()) / 2**32)


def _scale_error(error: errors.ApiError) -> ScaleError:
    if error.stale:
        return ScaleError(error.message, STALE)
    if error.reason == TOO_LARGE:
        return ScaleError(error.message, TOO_LARGE)
    if error.not_found and not error.no_resource:
        return ScaleError(error.message, ABSENT)
    return ScaleError(error.message, NO_MATCH if error.reason == "NoMatch" else READ_FAILED)
