"""Budgets that HPAs share: how an amount of replicas or of CPU cores is divided among them.

Amounts and costs are in milli-units: a replica costs 1000 of a budget of replicas, and its CPU request in millicores
of a budget of cores. What a member has is paid by `spec.replicas` of its target, whether its pods run or not.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

REPLICAS: Final = "replicas"
CORES: Final = "cores"
"""The units of budgets."""
REPLICA: Final = 1000
"""Milli-units that a replica costs of a budget of replicas."""


class BudgetMember(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What one HPA has and wants of its budget, in replicas; `cost` is in milli-units per replica, 1 or more.

    `held` counts now: the larger one of spec.replicas and of what was granted and is not seen yet. `wants` is the count
    that its next write may set; `asks` the count that its metrics ask for, where policies let it grow in steps (0: the
    same as `wants`). `keeps` are the replicas that no budget takes: those of a paused HPA, or busy ones.
    """

    key: str
    priority: int
    minimum: int
    held: int
    wants: int
    cost: int
    asks: int = 0
    keeps: int = 0

    @property
    def base(self) -> int:
        """The replicas that it has whatever the others want."""
        return max(self.minimum, self.keeps)

    @property
    def weight(self) -> int:
        """The replicas beyond `base` that its metrics ask for."""
        return max(0, max(self.asks, self.wants) - self.base)


class Shares(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What an HPA shares: the budget, its amount in milli-units of `unit`, and the other members by their keys.

    `cost` is that of one of its replicas in milli-units. `error` says why it is unknown what the HPA may have; "" where
    it is known.
    """

    budget: str
    amount: int = 0
    unit: str = REPLICAS
    members: tuple[BudgetMember, ...] = ()
    cost: int = REPLICA
    error: str = ""


class Budgeted(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    rename={"wanted": "before", "replicas": "after", "others_hold": "othersHold", "others_want": "othersWant"},
):
    """What a budget did: the counts before and after it, and the allotment of the HPA in replicas.

    `amount`, and what the `others` (their number) hold and want, are texts such as `50 cores`. `error` says why the
    budget is unknown, or that the minima exceed it; then `allotment` is None where it is unknown.
    """

    budget: str
    wanted: int
    replicas: int
    amount: str = ""
    allotment: int | None = None
    others: int = 0
    others_hold: str = ""
    others_want: str = ""
    reason: str = ""
    error: str = ""

    @property
    def held(self) -> bool:
        """Whether the budget keeps the count below what the HPA would have without it."""
        return self.replicas < self.wanted

    @property
    def holding(self) -> str:
        """The clause that says what the budget has for the HPA."""
        if self.allotment is None:
            return self.error
        text = f"its budget {self.budget} ({self.amount}) has {self.allotment} for it"
        waits = min(self.wanted, self.allotment) - self.replicas
        return f"{text}, and others still hold {waits} of them" if waits > 0 else text


def shares_of(amount: int, members: Sequence[BudgetMember]) -> dict[str, int]:
    """Returns the allotment of each member in replicas, by its key; the order of the members does not matter.

    Each has its base. What is left goes to the highest priority first. Members of one priority that want more than is
    left have it in proportion to what their metrics ask for beyond the base, and none gets more than it wants. No
    member has fewer whole replicas than that proportion allows. The rounding prefers those that hold a replica more
    already, so that allotments do not swing with the wants. The sum of the costs is at most the amount, unless that of
    the bases is more. O(n log n) for n members, O(n²) where each is limited by what it wants.
    """
    found = {each.key: each.base for each in members}
    left = amount - sum(each.base * each.cost for each in members)
    in_order = sorted(members, key=lambda each: (-each.priority, each.key))
    for _, group in groupby(in_order, lambda each: each.priority):
        left -= _divide(found, [each for each in group if each.wants > each.base], left)
    return found


def _divide(found: dict[str, int], members: Sequence[BudgetMember], amount: int) -> int:
    """Divides at most `amount` among members of one priority. Returns the milli-units that they take."""
    left, waiting = max(0, amount), members
    while waiting:
        weights = sum(each.weight * each.cost for each in waiting)
        content = [each for each in waiting if (each.wants - each.base) * weights <= each.weight * left]
        if not content:
            left -= _round(found, waiting, left, weights)
            break
        for each in content:
            found[each.key] = each.wants
        left -= sum((each.wants - each.base) * each.cost for each in content)
        waiting = [each for each in waiting if found[each.key] < each.wants]
    return max(0, amount) - left


def _round(found: dict[str, int], members: Sequence[BudgetMember], amount: int, weights: int) -> int:
    """Gives each member the whole replicas of its proportion, and the rest to those that lose most by the rounding."""
    left, losses = amount, dict[str, int]()
    for each in members:
        whole, part = divmod(each.weight * amount, weights)
        found[each.key] += whole
        left -= whole * each.cost
        # A replica that a member holds already weighs more than any part of one.
        losses[each.key] = (part + (weights if each.held > found[each.key] else 0)) * each.cost
    in_order = sorted(members, key=lambda each: (-losses[each.key], each.key))
    for most in (1, amount):  # one more for each; then replicas that are smaller than what is left
        for each in in_order:
            more = min(most, each.wants - found[each.key], left // each.cost)
            found[each.key] += more
            left -= more * each.cost
    return amount - left


def room(shares: Shares, own: BudgetMember) -> int:
    """Returns the largest count that `own` may have now.

    That is at most its allotment; and it grows only into what the others neither hold nor need for their minimum. So
    the sum of all never exceeds the amount, also while another member still has to shrink. It never has to shrink
    below its allotment because others hold more than theirs, nor below its base. Where the minima together exceed the
    amount, each member may have its base.
    """
    members = (*shares.members, own)
    allotted = shares_of(shares.amount, members)[own.key]
    if minima(members) > shares.amount:
        return allotted
    free = shares.amount - sum(max(each.held, each.minimum) * each.cost for each in shares.members)
    return max(min(allotted, max(free // own.cost, own.held)), min(own.base, own.held))


def minima(members: Iterable[BudgetMember]) -> int:
    """Returns the milli-units that the minima of the members need together."""
    return sum(each.minimum * each.cost for each in members)


def held(members: Iterable[BudgetMember]) -> int:
    """Returns the milli-units that the members hold together."""
    return sum(each.held * each.cost for each in members)


def wanted(members: Iterable[BudgetMember]) -> int:
    """Returns the milli-units that the members want together."""
    return sum(max(each.wants, each.base) * each.cost for each in members)


def amount_text(milli: int, unit: str) -> str:
    """Returns an amount with its unit, such as `12 replicas` or `3.5 cores`."""
    number = f"{milli / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{number} {unit.removesuffix('s') if number == '1' else unit}"
