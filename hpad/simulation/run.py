"""Runs the engine against workloads: one turn per period, as the daemon does with a real one.

Every write of the scale succeeds. History and status pass from turn to turn. Several HPAs run together, and may share
budgets.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from hpad.api.sample import AdapterError, Answer, Query
from hpad.engine import share
from hpad.engine.annotations import PLAIN
from hpad.engine.budget import REPLICA, REPLICAS, BudgetMember, Shares
from hpad.engine.decision import Decision
from hpad.engine.examine import examine
from hpad.engine.history import EMPTY
from hpad.engine.settle import next_history
from hpad.engine.turn import AskBudget, Reconcile, decide, run
from hpad.engine.view import Tunables, View
from hpad.simulation.fleet import Fleet

SELECTOR: Final = "app=simulated"
BEYOND: Final = timedelta(microseconds=1)
"""Added to each turn, so that an event exactly one window old has expired, as in the daemon (`controller.planning`)."""


class Workload(Protocol):
    """A model of what the HPA scales, with its pods. Time only goes forward."""

    fleet: Fleet

    def advance(self, now: datetime) -> None:
        """Moves the model to this time."""
        ...

    def answer(self, queries: Sequence[Query | AdapterError]) -> Sequence[Answer]:
        """Returns one answer per query, in order."""
        ...

    def scale(self, replicas: int) -> None:
        """Sets the count, as a write of the scale does."""
        ...


class Simulated(NamedTuple):
    """One simulated reconcile. `ready` is the number of pods that work before it, `after` the count that it left."""

    done: Reconcile
    ready: int
    after: int


class TurnDriver:
    """Runs turns of one HPA against a workload. The annotations of the HPA under `hpad.io/` apply.

    `shares` answers what it shares of its budget; without it a budget limits nothing. `history` passes from turn to
    turn; a driver that leaves turns out sets it to what they would have left.
    """

    def __init__(
        self,
        hpa: HorizontalPodAutoscaler,
        workload: Workload,
        tunables: Tunables,
        shares: Callable[[AskBudget], Shares | None] = lambda _: None,
    ) -> None:
        self._hpa = hpa
        self._shares = shares
        self._workload = workload
        self._own = PLAIN.of(hpa)
        self._tunables = tunables.of_hpa(self._own.controls)
        self._scale = Scale(
            metadata={"name": hpa.spec.scale_target_ref.name},
            spec=ScaleSpec(workload.fleet.count),
            status=ScaleStatus(workload.fleet.count, SELECTOR),
        )
        self.history = EMPTY

    def turn(self, now: datetime) -> Simulated:
        """Runs the turn of a time after that of the turn before."""
        workload, view = self._workload, self._view(now)
        ready = workload.fleet.ready
        done = run(view, workload.answer, shares=self._shares)
        if done.outcome is not None and done.outcome.written:
            workload.scale(done.decision.desired)
        self.history = done.settlement.history
        if done.settlement.status_changed:
            self._hpa = msgspec.structs.replace(self._hpa, status=done.settlement.status)
        return Simulated(done, ready, workload.fleet.count)

    def decide(self, now: datetime) -> Decision:
        """Decides and scales as `turn`, but without a status, which takes a third of the time.

        Only for an HPA whose decisions need no status and no annotation: the count stays above zero.
        """
        workload, view = self._workload, self._view(now)
        verdict = examine(view)
        decision = decide(view, verdict, workload.answer(verdict.queries))
        rescaled = decision.scale_to is not None
        if rescaled:
            workload.scale(decision.desired)
        self.history = next_history(view, decision, rescaled=rescaled)
        return decision

    def _view(self, now: datetime) -> View:
        workload, own = self._workload, self._own
        workload.advance(now)
        pods = workload.fleet.pods()
        return View(
            hpa=self._hpa,
            now=now,
            tunables=self._tunables,
            history=self.history,
            scale=self._scaled(workload.fleet.count, len(pods)),
            pods=pods,
            fallback_policies=own.policies,
            annotation_error=own.error,
            annotation_reason=own.reason,
            controls=own.controls,
        )

    def _scaled(self, replicas: int, pods: int) -> Scale:
        """Returns the scale with these counts; the same object while they do not change."""
        if self._scale.spec.replicas != replicas or self._scale.status.replicas != pods:
            self._scale = msgspec.structs.replace(
                self._scale, spec=ScaleSpec(replicas), status=ScaleStatus(pods, SELECTOR)
            )
        return self._scale


def planned(start: datetime, period: timedelta, index: int) -> datetime:
    """Returns the time of a turn: `start` is that of the first one."""
    return start + index * (period + BEYOND)


def simulate(
    hpa: HorizontalPodAutoscaler,
    workload: Workload,
    *,
    start: datetime,
    length: timedelta,
    period: timedelta,
    tunables: Tunables,
) -> Iterator[Simulated]:
    """Yields one turn per period, from `start` on. The annotations of the HPA under `hpad.io/` apply."""
    drivers = {"": (TurnDriver(hpa, workload, tunables), period)}
    for _, done in simulate_together(drivers, start=start, length=length):
        yield done


def simulate_together(
    drivers: Mapping[str, tuple[TurnDriver, timedelta]], *, start: datetime, length: timedelta
) -> Iterator[tuple[str, Simulated]]:
    """Yields the turns of several HPAs in the order of time, with the key of each; every driver has its period.

    Turns at the same time run in the order of `drivers`.
    """

    def turns(place: int, key: str) -> Iterator[tuple[datetime, int, str]]:
        period = drivers[key][1]
        for index in range(max(0, length // period)):
            yield planned(start, period, index), place, key

    for now, _, key in heapq.merge(*(turns(place, key) for place, key in enumerate(drivers))):
        yield key, drivers[key][0].turn(now)


# HPAs that share budgets: the ledger of what each holds and wants, and what became of each budget.
#
# Every write succeeds at once, so what an HPA holds is the count of its workload. The rest is as in the daemon
# (`hpad/controller/budgets.py`): what the others want is known from their last turn.


class BudgetUse(msgspec.Struct):
    """What became of a budget: the most that its HPAs held together, in milli-units, and how long it was short.

    `limited` are the seconds in which it kept at least one of them below the count that it would have had.
    """

    budget: str
    unit: str
    amount: int
    peak: int = 0
    limited: float = 0.0
    short: set[str] = msgspec.field(default_factory=set)
    since: datetime | None = None


class _SimulatedSharer(msgspec.Struct):
    """One HPA: what it shares, and its member after its last turn. `fixed` as in `share.seen`."""

    shares: Shares
    workload: Workload
    member: BudgetMember
    cost: int
    fixed: bool = False


class SharedLedger:
    """Answers what each HPA shares. An HPA that has not joined is limited by nothing."""

    def __init__(self) -> None:
        self._sharers: dict[str, _SimulatedSharer] = {}
        self.uses: dict[str, BudgetUse] = {}

    def join(self, hpa: HorizontalPodAutoscaler, priority: int, workload: Workload, shares: Shares) -> None:
        """Adds an HPA. `shares` has its budget, or says why it may not grow."""
        minimum = 1 if hpa.spec.min_replicas is None else hpa.spec.min_replicas
        cost = REPLICA if shares.unit == REPLICAS else share.millicores(workload.fleet.pods())
        count, most = workload.fleet.count, hpa.spec.max_replicas
        member = BudgetMember(str(hpa.key), priority, minimum, count, count, cost, may_want=most)
        self._sharers[member.key] = _SimulatedSharer(shares, workload, member, cost)
        if not shares.error:
            use = self.uses.setdefault(shares.budget, BudgetUse(shares.budget, shares.unit, shares.amount))
            use.peak = max(use.peak, self._held(shares.budget))

    def ask(self, step: AskBudget) -> Shares | None:
        """Returns what the HPA shares, and notes what it has and wants."""
        known = self._sharers.get(step.own.key)
        if known is None or known.shares.error:
            return None if known is None else known.shares
        known.member, known.fixed = step.own, not step.decided or step.withheld is not None
        if known.shares.unit != REPLICAS:
            known.cost = step.own.cost or known.cost
        if not known.cost:
            return Shares(step.budget, error=share.UNKNOWN_COST)
        return msgspec.structs.replace(known.shares, members=self._others(step.own.key, step.budget), cost=known.cost)

    def note(self, key: str, turn: Simulated) -> None:
        """Adds a turn to the use of its budget, if the HPA has one."""
        known = self._sharers.get(key)
        use = None if known is None else self.uses.get(known.shares.budget)
        if use is None:
            return
        now, budgeted = turn.done.view.now, turn.done.decision.budgeted
        self._close(use, now)
        (use.short.add if budgeted is not None and budgeted.held else use.short.discard)(key)
        use.peak = max(use.peak, self._held(use.budget))

    def finish(self, end: datetime) -> Mapping[str, BudgetUse]:
        """Returns the use of each budget until this time."""
        for use in self.uses.values():
            self._close(use, end)
        return self.uses

    def _close(self, use: BudgetUse, now: datetime) -> None:
        if use.since is not None and use.short:
            use.limited += (now - use.since).total_seconds()
        use.since = now

    def _of(self, budget: str) -> Mapping[str, _SimulatedSharer]:
        sharers = self._sharers.items()
        return {key: each for key, each in sharers if each.shares.budget == budget and not each.shares.error}

    def _held(self, budget: str) -> int:
        return sum(each.workload.fleet.count * each.cost for each in self._of(budget).values())

    def _others(self, key: str, budget: str) -> tuple[BudgetMember, ...]:
        found = [each for other, each in self._of(budget).items() if other != key and each.cost]
        shown = [share.seen(each.member, each.workload.fleet.count, each.cost, fixed=each.fixed) for each in found]
        return tuple(sorted(shown, key=lambda each: each.key))
