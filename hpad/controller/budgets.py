"""The ledger of budgets: what each HPA that shares one holds, was granted and wants. It belongs to the leader.

What an HPA holds is read from the caches at each question, so a target that is scaled by hand counts at once. A count
is granted right before it is written, with no wait since the question, so two turns at once cannot both take what is
left. A grant ends with the outcome of its write. One that may have been written counts for `_UNSURE` seconds more, or
until the next write of that target: by default the API server ends a request after a minute.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from hpad.api.hpa import HorizontalPodAutoscaler, Scale
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.controller.workers import Worker
from hpad.controller.write import Discarded
from hpad.election.owner import NotLeading
from hpad.engine import budget, share
from hpad.engine.annotations import AnnotationReader
from hpad.engine.budget import REPLICA, REPLICAS, BudgetMember, Shares
from hpad.engine.settle import Outcome
from hpad.engine.spec import compiled_spec
from hpad.engine.turn import AskBudget, Reconcile
from hpad.engine.view import ABSENT, DRY_RUN, View
from hpad.kube import errors
from hpad.kube.cluster import Cluster
from hpad.settings.hpas import SharedBudget
from hpad.store.store import Store
from hpad.telemetry.series import BudgetSeries

_UNSURE: Final = 65.0


class Grant(msgspec.Struct):
    """The outcome of a write that was granted; None until it is known."""

    outcome: Outcome | None = None


class _Sharer(msgspec.Struct):
    """One HPA that shares a budget.

    `met`: it had a turn here. `member` is what it has and wants after the last one that found its target. `fixed`:
    that turn decided nothing, or may not write, so the HPA keeps what it has. `cost` is in millicores, 0 while it is
    unknown. `seen` is spec.replicas as read or written last. `granted` is the count of a write under way, or of one
    that may have been made, which counts until `unsure` (monotonic seconds). `shown` is `shown_of`, a `member`, as the
    others saw it last: recordings share the object.
    """

    hpa: HorizontalPodAutoscaler
    budget: str
    priority: int
    member: BudgetMember | None = None
    met: bool = False
    fixed: bool = False
    cost: int = 0
    seen: int = 0
    granted: int = 0
    unsure: float | None = None
    shown: BudgetMember | None = None
    shown_of: BudgetMember | None = None

    @property
    def key(self) -> Key:
        return self.hpa.key

    @property
    def target(self) -> tuple[str, str]:
        """Namespace and target. A shadow Autoscaler and an HPA may have the same, whose replicas count once."""
        return self.key.namespace, compiled_spec(self.hpa).target_id

    def is_of(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Whether this is the HPA, and with the same target."""
        same_target = self.hpa.spec.scale_target_ref == hpa.spec.scale_target_ref
        return same_target and self.hpa.metadata.uid == hpa.metadata.uid


class Budgets:
    """Knows the HPAs that share budgets. `retune` gives it the budgets of the settings."""

    def __init__(self, cluster: Cluster, store: Store, clock: Clock) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._known: Mapping[str, SharedBudget] = {}
        self._dry_run = False
        self._sharers: dict[Key, _Sharer] = {}
        self._sharing: defaultdict[str, dict[Key, _Sharer]] = defaultdict(dict)

    def retune(self, budgets: Iterable[SharedBudget], *, dry_run: bool) -> None:
        """Changes the budgets from the next question on. In a dry run the counts of the shadows count."""
        self._known = {each.name: each for each in budgets}
        self._dry_run = dry_run

    def register(self, hpa: HorizontalPodAutoscaler, own: AnnotationReader) -> None:
        """Notes which budget a new or edited HPA shares, if any."""
        named = own.budget(hpa)
        known = self._sharers.get(hpa.key)
        self.forget(hpa.key)
        if named is None:
            return
        if known is not None and known.is_of(hpa):
            known.hpa, (known.budget, known.priority) = hpa, named
            self._add(known)
        else:
            self._add(_Sharer(hpa, *named))

    def forget(self, key: Key) -> None:
        """Drops an HPA that was deleted, or shares no budget any more."""
        known = self._sharers.pop(key, None)
        if known is not None:
            sharing = self._sharing[known.budget]
            del sharing[key]
            if not sharing:
                del self._sharing[known.budget]

    def clear(self) -> None:
        """Drops all HPAs: another process decides what they get."""
        self._sharers.clear()
        self._sharing.clear()

    def ask(self, step: AskBudget, view: View) -> Shares:
        """Returns what the HPA shares, and notes what it has and wants. Never waits. O(n log n) for n members."""
        known = self._sharers.get(view.key)
        if known is None or known.budget != step.budget:
            self.forget(view.key)
            known = self._add(_Sharer(view.hpa, step.budget, step.own.priority))
        self._note(known, step, view)
        found = self._known.get(step.budget)
        if found is None:
            names = ", ".join(sorted(self._known)) or "none"
            return Shares(step.budget, error=f"the settings have no such budget; there are {names}")
        if not found.is_for(view.key.namespace):
            return Shares(step.budget, error=f"it is not for HPAs of the namespace {view.key.namespace}")
        cost = REPLICA if found.unit == REPLICAS else known.cost
        if not cost:
            return Shares(step.budget, error=share.UNKNOWN_COST)
        return Shares(step.budget, found.amount, found.unit, self._members(found, known), cost)

    async def learn(self, step: AskBudget, view: View, worker: Worker) -> None:
        """Reads what a replica costs from the pod template of the target, where no pod says it.

        An error, as without the right to list the kind of the target, leaves it unknown.
        """
        found, known = self._known.get(step.budget), self._sharers.get(view.key)
        if found is None or found.unit == REPLICAS or step.own.cost or known is None or known.cost:
            return
        template = None
        async with worker.released():
            with suppress(errors.ApiError):
                template = await self._cluster.pod_template(view.key.namespace, view.hpa.spec.scale_target_ref)
        if template is not None:
            known.cost = share.millicores([template])

    def note(self, done: Reconcile) -> None:
        """Notes a turn: the busy pods that a scale-down has kept, which no budget takes, and the count of a shadow.

        A target that does not exist has nothing and wants nothing.
        """
        known, decision, failure = self._sharers.get(done.view.key), done.decision, done.view.scale_error
        if known is None:
            return
        known.met = True
        if failure is not None and failure.reason == ABSENT:
            known.seen, known.member = 0, BudgetMember(str(known.key), known.priority, 0, 0, 0, known.cost)
        if known.member is None:
            return
        if decision.spared is not None and decision.spared.held:
            known.member = replace(known.member, keeps=decision.spared.replicas)
        if self._dry_run:
            known.seen = decision.desired

    @contextmanager
    def granted(self, key: Key, count: int) -> Iterator[Grant]:
        """Grants a count that is about to be written, and notes what became of it."""
        known, grant = self._sharers.get(key), Grant()
        if known is None:
            yield grant
            return
        earlier = self._granted(known)
        known.granted, is_known = max(count, earlier), False
        try:
            yield grant
            is_known = grant.outcome is not None and not grant.outcome.unsure
        except (Discarded, NotLeading):  # nothing was written
            is_known = True
            raise
        finally:
            if not is_known:
                known.unsure = self._clock.monotonic() + _UNSURE
            elif grant.outcome is not None and grant.outcome.written:
                self._foresee(known, count)
                known.seen, known.granted, known.unsure = count, 0, None
            else:
                known.granted = earlier

    def report(self, series: BudgetSeries, *, leading: bool) -> None:
        """Sets the series of each budget of the settings; a standby has none."""
        series.clear()
        for each in self._known.values() if leading else ():
            members = self._members(each)
            series.set(each.name, each.unit, (each.amount, budget.held(members), budget.wanted(members)))

    def _add(self, sharer: _Sharer) -> _Sharer:
        self._sharers[sharer.key] = self._sharing[sharer.budget][sharer.key] = sharer
        return sharer

    def _note(self, known: _Sharer, step: AskBudget, view: View) -> None:
        of_shadow = step.withheld == DRY_RUN
        known.hpa, known.priority, known.member = view.hpa, step.own.priority, step.own
        known.fixed = not step.decided or (step.withheld is not None and not of_shadow)
        known.seen = view.replicas if of_shadow else view.target_replicas
        known.cost = step.own.cost or known.cost

    def _foresee(self, known: _Sharer, count: int) -> None:
        """Notes that an HPA that has grown to `count` wants another step of that size, if its metrics ask for it.

        Without it the others would give up replicas only after the next turn has asked for more, so an HPA whose
        policies let it grow in steps would grow in every other turn.
        """
        own, step = known.member, count - known.seen
        if own is not None and step > 0:
            known.member = replace(own, wants=max(own.wants, min(own.asks, count + step)))

    def _granted(self, known: _Sharer) -> int:
        """Returns the count of a write that is under way or may have been made; 0 without one."""
        if known.unsure is not None and self._clock.monotonic() >= known.unsure:
            known.granted, known.unsure = 0, None
        return known.granted

    def _members(self, found: SharedBudget, own: _Sharer | None = None) -> tuple[BudgetMember, ...]:
        """Returns the members but the own one, by their keys. Of those with one target the one that decides counts.

        HPAs without a known cost are left out: they never grow, and pods that request nothing take nothing. An HPA
        whose first turn may find its cost is taken to cost as much as the own one.
        """
        sharing = [each for each in self._sharing.get(found.name, {}).values() if found.is_for(each.key.namespace)]
        counted = {each.target: each for each in sharing if each.fixed}
        counted |= {each.target: each for each in sharing if not each.fixed}
        if own is not None:
            counted.pop(own.target, None)
        shown = [self._shown(each, found, own) for each in counted.values()]
        return tuple(sorted([each for each in shown if each.cost], key=lambda each: each.key))

    def _shown(self, known: _Sharer, found: SharedBudget, seeing: _Sharer | None) -> BudgetMember:
        """Returns a member as another one sees it, with what it holds now."""
        scale = self._cluster.peek_scale(known.key.namespace, known.hpa.spec.scale_target_ref)
        own, held = known.member, max(self._seen(known, scale), self._granted(known))
        if own is None:
            own = self._before_its_first_turn(known, scale, found.unit)
            held = max(held, own.held)
        assumed = 0 if known.met or seeing is None else seeing.cost
        cost, last = REPLICA if found.unit == REPLICAS else known.cost or assumed, known.shown
        if last is not None and own is known.shown_of and (held, cost) == (last.held, last.cost):
            return last  # nearly always
        known.shown_of = own
        made = share.seen(replace(own, wants=held) if known.member is None else own, held, cost, fixed=known.fixed)
        if made != last:
            known.shown = made
        return made if last is None or made != last else last

    def _seen(self, known: _Sharer, scale: Scale | None) -> int:
        """Returns the count of the target as it is known now, in a dry run that of its shadow."""
        if scale is None or (self._dry_run and known.member is not None):
            return known.seen
        return scale.spec.replicas

    def _before_its_first_turn(self, known: _Sharer, scale: Scale | None, unit: str) -> BudgetMember:
        """Returns what is known of an HPA that has had no turn here: the counts of its status, and of a lost write."""
        if unit != REPLICAS and not known.cost and scale is not None and scale.pod_selector is not None:
            known.cost = share.millicores(self._cluster.pods.select(known.key.namespace, scale.pod_selector))
        status, pending = known.hpa.status, self._store.get(known.key).pending
        counts = (status.current_replicas, status.desired_replicas) if scale is None else ()
        held = max(*counts, 0 if pending is None else pending.to, 0)
        low, most = known.hpa.spec.min_replicas, 0 if known.met else known.hpa.spec.max_replicas
        minimum = 1 if low is None else low
        return BudgetMember(str(known.key), known.priority, minimum, held, held, known.cost, may_want=most)
