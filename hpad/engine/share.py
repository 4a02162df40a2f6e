"""Stage budget: the count within the budget that the HPA shares with others (`hpad.io/budget`).

It comes after minimum and maximum and before the busy pods: a cut is a scale-down like any other, and
`hpad.io/keep-busy` may keep pods beyond it. As with a lower maxReplicas, a cut waits for no window and no policy.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from hpad.api.pod import Pod
from hpad.engine import budget
from hpad.engine.budget import Budgeted, BudgetMember, Shares
from hpad.engine.decision import Decision
from hpad.engine.examine import DISABLED, Halt
from hpad.engine.view import View

UNKNOWN: Final = "BudgetUnknown"
EXCEEDED: Final = "MinimaExceedBudget"
UNKNOWN_COST: Final = "the CPU that a replica requests is unknown: neither pods nor pod template request any"


def member(view: View, decision: Decision) -> BudgetMember:
    """Returns what the HPA has and wants before its budget. The cost is in millicores, 0 where it is unknown."""
    stopped = isinstance(decision.verdict, Halt) and decision.verdict.kind == DISABLED
    found = decision.restrained
    asks = 0 if found is None else min(found.stabilized, view.max_replicas)
    return BudgetMember(
        key=str(view.key),
        priority=view.controls.budget_priority or 0,
        minimum=0 if stopped else view.min_replicas,
        held=view.replicas,
        wants=decision.desired,
        cost=max(millicores(view.pods), millicores(view.counted_pods)),  # the scheduler reserves both
        asks=max(0, asks),
    )


def seen(own: BudgetMember, held: int, cost: int, *, fixed: bool) -> BudgetMember:
    """Returns a member as the others see it, with what it holds now.

    `fixed`: it decided nothing in its last turn, or may not write, so it keeps what it has.
    """
    if fixed:
        return replace(own, held=held, wants=held, asks=0, keeps=held, cost=cost)
    return replace(own, held=held, keeps=min(own.keeps, held), cost=cost)


def millicores(pods: Sequence[Pod]) -> int:
    """Returns the CPU that the largest of the pods requests; 0 where no pod requests any.

    Pods of one target differ while it is rolled out or resized; the largest is taken so that the sum never exceeds a
    budget. A pod counts with what its containers request, as in the scheduler.
    """
    return max((_requested(pod) for pod in pods if pod.is_active), default=0)


def _requested(pod: Pod) -> int:
    whole = pod.pod_requests
    if whole is not None and "cpu" in whole:
        return whole["cpu"]
    return sum(each.requests.get("cpu", 0) for each in pod.containers)


def within(view: View, decision: Decision, shares: Shares) -> Decision:
    """Returns a decision on a count with that count within the budget, which never raises it.

    Never raises. O(n log n) for n members.
    """
    found = _budgeted(decision, member(view, decision), shares)
    if not found.held:
        return replace(decision, budgeted=found)
    count, current = found.replicas, decision.current
    reason = decision.reason if decision.desired < current else f"budget {found.budget} exceeded"
    to = None if count == current else count
    return replace(decision, desired=count, scale_to=to, reason="" if to is None else reason, budgeted=found)


def _budgeted(decision: Decision, own: BudgetMember, shares: Shares) -> Budgeted:
    wanted = decision.desired
    if shares.error:
        count = min(wanted, max(decision.current, own.minimum))
        return Budgeted(budget=shares.budget, wanted=wanted, replicas=count, reason=UNKNOWN, error=shares.error)
    own = replace(own, cost=shares.cost)
    members, unit = (*shares.members, own), shares.unit
    minima = budget.minima(members)
    room, error = budget.allowed(shares, own), ""
    if minima > shares.amount:
        needed = budget.amount_text(minima, unit)
        error = f"the minima of the HPAs that share it need {needed}; it has {budget.amount_text(shares.amount, unit)}"
    return Budgeted(
        budget=shares.budget,
        wanted=wanted,
        replicas=min(wanted, room.now),
        amount=budget.amount_text(shares.amount, unit),
        allotment=room.allotment,
        others=len(shares.members),
        others_hold=budget.amount_text(budget.held(shares.members), unit),
        others_want=budget.amount_text(budget.wanted(shares.members), unit),
        unknown=room.unknown,
        reason=EXCEEDED if error else "",
        error=error,
    )
