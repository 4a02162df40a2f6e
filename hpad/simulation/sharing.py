"""HPAs of a simulation that share budgets: the ledger of what each holds and wants, and what became of each budget.

Every write succeeds at once, so what an HPA holds is the count of its workload. The rest is as in the daemon
(`hpad/controller/budgets.py`): what the others want is known from their last turn.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.engine import share
from hpad.engine.budget import REPLICA, REPLICAS, BudgetMember, Shares
from hpad.engine.turn import AskBudget
from hpad.simulation.run import Simulated, Workload


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
        return replace(known.shares, members=self._others(step.own.key, step.budget), cost=known.cost)

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
