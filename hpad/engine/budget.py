"""Budgets that HPAs share: how an amount of replicas or of CPU cores is divided among them.

Amounts and costs are in milli-units: a replica costs 1000 of a budget of replicas, and its CPU request in millicores
of a budget of cores. What a member has is paid by `spec.replicas` of its target, whether its pods run or not.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

REPLICAS: Final = "replicas"
CORES: Final = "cores"
"""The units of budgets."""
REPLICA: Final = 1000
"""Milli-units that a replica costs of a budget of replicas."""


class BudgetMember(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What one HPA has and wants of its budget, in replicas; `cost` is in milli-units per replica, 1 or more.

    `held` counts now: the larger one of spec.replicas and of what was granted and is not seen yet. `wants` is the count
    that its next write may set; `asks` the count that its metrics ask for, where policies let it grow in steps (0: the
    same as `wants`). `keeps` are the replicas that no budget takes: those of a paused HPA, or busy ones. `may_want` is
    the most that an HPA without a turn so far may turn out to want; 0 once that is known.
    """

    key: str
    priority: int
    minimum: int
    held: int
    wants: int
    cost: int
    asks: int = 0
    keeps: int = 0
    may_want: int = 0

    @property
    def base(self) -> int:
        """The replicas that it has whatever the others want."""
        return max(self.minimum, self.keeps)


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

    `amount`, and what the `others` (their number) hold and want, are texts such as `50 cores`. `error` says that the
    minima exceed the amount, or why the budget or the cost of a replica is unknown: then `allotment` is None.
    `unknown` others have had no turn so far, and the HPA may have more than the allotment once they have.
    """

    budget: str
    wanted: int
    replicas: int
    amount: str = ""
    allotment: int | None = None
    others: int = 0
    others_hold: str = ""
    others_want: str = ""
    unknown: int = 0
    reason: str = ""
    error: str = ""

    @property
    def held(self) -> bool:
        """Whether the budget keeps the count below what the HPA would have without it."""
        return self.replicas < self.wanted

    @property
    def having(self) -> str:
        """The allotment in words, and what it waits for."""
        others = "HPA has" if self.unknown == 1 else "HPAs have"
        waits = f" until {self.unknown} other {others} had a first reconcile" if self.unknown else ""
        return f"{self.allotment} for it{waits}"

    @property
    def holding(self) -> str:
        """The clause that says what the budget has for the HPA."""
        if self.allotment is None:
            return f"it is unknown what its budget {self.budget} has for it: {self.error}"
        text = f"its budget {self.budget} ({self.amount}) has {self.having}"
        waits = min(self.wanted, self.allotment) - self.replicas
        return f"{text}, and others still hold {waits} of them" if waits > 0 else text


class _Claim(NamedTuple):
    """What a member wants beyond its base: `most` replicas, of which it holds `held`, in proportion to `weight`."""

    key: str
    most: int
    weight: int
    held: int
    cost: int


def shares_of(amount: int, members: Iterable[BudgetMember]) -> dict[str, int]:
    """Returns the allotment of each member in replicas, by its key; the order of the members does not matter.

    Each has its base. What is left goes to the highest priority first. Members of one priority that want more than is
    left have it in proportion to what their metrics ask for beyond the base, and none gets more than it wants. No
    member has fewer whole replicas than that proportion allows. The rounding prefers those that would have no replica
    at all, then those that hold a replica more already, so that allotments do not swing with the wants. The sum of the
    costs is at most the amount, unless that of the bases is more. O(n log n) for n members; O(n²) where what they want
    limits one after the other.
    """
    found, left, claims = dict[str, int](), amount, defaultdict[int, list[_Claim]](list)
    for each in members:
        base = found[each.key] = each.base
        left -= base * each.cost
        if each.wants > base:
            weight = max(each.asks, each.wants) - base
            claim = _Claim(each.key, each.wants - base, weight, each.held - base, each.cost)
            claims[each.priority].append(claim)
    for priority in sorted(claims, reverse=True):
        left -= _divide(found, claims[priority], max(0, left))
    return found


def _divide(found: dict[str, int], claims: Sequence[_Claim], amount: int) -> int:
    """Divides at most `amount` among members of one priority. Returns the milli-units that they take."""
    left, waiting = amount, claims
    while waiting:
        weights = sum([each.weight * each.cost for each in waiting])
        content = [each for each in waiting if each.most * weights <= each.weight * left]
        if not content:
            return amount - _rounded(found, waiting, left, weights)
        for each in content:
            found[each.key] += each.most
            left -= each.most * each.cost
        served = {each.key for each in content}
        waiting = [each for each in waiting if each.key not in served]
    return amount - left


def _rounded(found: dict[str, int], claims: Sequence[_Claim], left: int, weights: int) -> int:
    """Gives each member the whole replicas of its proportion, and the rest to those that lose most by the rounding.

    First come those without any replica, whose work would wait for as long as the budget is short. Returns the
    milli-units that are left.
    """
    amount, ranked = left, list[tuple[bool, int, str, _Claim, int]]()
    for each in claims:
        whole, part = divmod(each.weight * amount, weights)
        found[each.key] += whole
        left -= whole * each.cost
        # A replica that a member holds already weighs more than any part of one.
        loss = (part + (weights if each.held > whole else 0)) * each.cost
        ranked.append((found[each.key] > 0, -loss, each.key, each, each.most - whole))
    ranked.sort()
    for most in (1, amount):  # one more for each; then replicas that are smaller than what is left
        for index, (some, loss, key, each, lacks) in enumerate(ranked):
            more = min(most, lacks, left // each.cost)
            if more:
                found[key] += more
                left -= more * each.cost
                ranked[index] = (some, loss, key, each, lacks - more)
    return left


class Room(NamedTuple):
    """The largest count that a member may have now, and its allotment: what it has once others have shrunk.

    `unknown` members have had no turn so far, and make the allotment smaller than it is without their wants.
    """

    now: int
    allotment: int
    unknown: int = 0


def allowed(shares: Shares, own: BudgetMember) -> Room:
    """Returns the largest count that `own` may have, now and later.

    Now it is at most its allotment; and it grows only into what the others neither hold nor need for their minimum. So
    the sum of all never exceeds the amount, also while another member still has to shrink. It never has to shrink
    below its allotment because others hold more than theirs, nor below its base. Where the minima together exceed the
    amount, each member may have its base.

    Others without a turn so far want what they hold, so that they take nothing from `own`; and for a growth of `own`
    they want all that they may, so that it does not grow into what they are about to claim.
    """
    members = (*shares.members, own)
    allotment, unknown = shares_of(shares.amount, members)[own.key], 0
    if minima(members) > shares.amount:
        return Room(allotment, allotment)
    if eager := [each for each in shares.members if each.may_want > each.wants and each.priority >= own.priority]:
        others = [replace(each, wants=max(each.wants, each.may_want)) for each in shares.members]
        least = max(shares_of(shares.amount, [*others, own])[own.key], own.held)
        if least < allotment:
            allotment, unknown = least, len(eager)
    free = shares.amount - sum([max(each.held, each.minimum) * each.cost for each in shares.members])
    return Room(min(allotment, max(free // own.cost, own.held)), allotment, unknown)


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
