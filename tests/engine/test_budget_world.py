"""Properties of a divided budget, against a plain reading of its rule, and a random world of HPAs that share one.

The rule: the minimum of each, then the higher priority first, then in proportion to what is wanted beyond the minimum.
"""

import random
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support import environment

from hpad.engine.budget import REPLICA, BudgetMember, Shares, allowed, shares_of

EXAMPLES = settings(max_examples=50 * environment.EFFORT)

costs = st.sampled_from([REPLICA, REPLICA, 100, 250, 1500, 4000])
fields = st.tuples(st.integers(-2, 2), st.integers(0, 5), st.integers(0, 40), st.integers(0, 60), st.integers(0, 9))
amounts = st.integers(1, 150_000)


def made(rows: Sequence[tuple[int, ...]], prices: Sequence[int]) -> list[BudgetMember]:
    """Returns members that want at least their minimum, as every count that is decided."""
    return [
        BudgetMember(f"hpa-{index:02}", priority, minimum, held, max(minimum, wants), cost, keeps=min(keeps, held))
        for index, ((priority, minimum, held, wants, keeps), cost) in enumerate(zip(rows, prices, strict=True))
    ]


def of_one_cost(*fixed: int) -> st.SearchStrategy[list[BudgetMember]]:
    prices = st.sampled_from(fixed or [REPLICA])
    rows = st.lists(fields, min_size=1, max_size=12)
    return st.tuples(rows, prices).map(lambda drawn: made(drawn[0], [drawn[1]] * len(drawn[0])))


of_many_costs = st.lists(st.tuples(fields, costs), min_size=1, max_size=12).map(
    lambda drawn: made([row for row, _ in drawn], [cost for _, cost in drawn])
)
groups = st.one_of(of_one_cost(REPLICA, 250), of_many_costs)


def taken(members: Sequence[BudgetMember], counts: dict[str, int]) -> int:
    return sum(counts[each.key] * each.cost for each in members)


def bases(members: Sequence[BudgetMember]) -> dict[str, int]:
    return {each.key: max(each.minimum, each.keeps) for each in members}


def proportion(members: Sequence[BudgetMember], left: int) -> dict[str, Fraction]:
    """Returns what each has beyond its base if replicas could be divided: the same part of what it wants beyond."""
    beyond = {each.key: max(0, each.wants - max(each.minimum, each.keeps)) for each in members}
    wanted = sum(beyond[each.key] * each.cost for each in members)
    part = Fraction(1) if wanted <= max(0, left) else Fraction(max(0, left), wanted)
    return {key: part * count for key, count in beyond.items()}


@EXAMPLES
@given(groups, amounts)
def test_each_has_its_base_none_more_than_it_wants_and_all_no_more_than_there_is(
    members: list[BudgetMember], amount: int
) -> None:
    found, base = shares_of(amount, members), bases(members)
    assert set(found) == set(base)
    for each in members:
        assert base[each.key] <= found[each.key] <= max(base[each.key], each.wants)
    assert taken(members, found) <= max(amount, taken(members, base))


@EXAMPLES
@given(groups, amounts)
def test_nothing_is_left_that_a_member_wants_and_could_use(members: list[BudgetMember], amount: int) -> None:
    found = shares_of(amount, members)
    left = amount - taken(members, found)
    assert all(each.cost > left for each in members if each.wants > found[each.key])


@EXAMPLES
@given(groups, amounts)
def test_a_higher_priority_is_served_before_a_lower_one_has_more_than_its_base(
    members: list[BudgetMember], amount: int
) -> None:
    found, base = shares_of(amount, members), bases(members)
    for each in members:
        if found[each.key] < each.wants:
            lower = [other for other in members if other.priority < each.priority]
            # Lower ones have only what is too little for one replica more.
            assert taken(lower, found) - taken(lower, base) < each.cost


@EXAMPLES
@given(groups, amounts)
def test_equal_priorities_have_the_whole_replicas_of_their_proportion(members: list[BudgetMember], amount: int) -> None:
    found, base = shares_of(amount, members), bases(members)
    by_priority = defaultdict[int, list[BudgetMember]](list)
    for each in members:
        by_priority[each.priority].append(each)
    left = amount - taken(members, base)
    for priority in sorted(by_priority, reverse=True):
        group = by_priority[priority]
        exact, one_cost = proportion(group, left), len({each.cost for each in group}) == 1
        for each in group:
            beyond = found[each.key] - base[each.key]
            assert beyond >= exact[each.key].__floor__()
            assert not one_cost or beyond < exact[each.key] + 1
        left -= taken(group, found) - taken(group, base)


@EXAMPLES
@given(groups, amounts, st.randoms(use_true_random=False))
def test_the_order_of_the_members_does_not_matter(
    members: list[BudgetMember], amount: int, chance: random.Random
) -> None:
    shuffled = chance.sample(members, len(members))
    assert shares_of(amount, shuffled) == shares_of(amount, members)


@EXAMPLES
@given(groups, amounts)
def test_what_was_allotted_is_allotted_again_once_it_is_held(members: list[BudgetMember], amount: int) -> None:
    found = shares_of(amount, members)
    assert shares_of(amount, [replace(each, held=found[each.key]) for each in members]) == found


@EXAMPLES
@given(st.integers(2, 12), st.integers(0, 100), st.integers(1, 50))
def test_equals_that_want_the_same_differ_by_one_at_most(number: int, replicas: int, wants: int) -> None:
    members = [BudgetMember(f"hpa-{index:02}", 0, 0, 0, wants, REPLICA) for index in range(number)]
    found = shares_of(replicas * REPLICA, members).values()
    assert max(found) - min(found) <= 1
    assert sum(found) == min(replicas, number * wants)


@EXAMPLES
@given(groups, amounts)
def test_none_is_without_a_replica_while_an_equal_one_has_more_than_its_proportion(
    members: list[BudgetMember], amount: int
) -> None:
    members = [replace(each, priority=0, cost=REPLICA) for each in members]
    found, base = shares_of(amount, members), bases(members)
    exact = proportion(members, amount - taken(members, base))
    if any(found[each.key] == 0 < each.wants for each in members):
        for each in members:
            more = found[each.key] - base[each.key] > exact[each.key]
            assert not more or found[each.key] == 1


@EXAMPLES
@given(groups, amounts)
def test_a_member_grows_only_into_what_is_free_and_never_above_its_allotment(
    members: list[BudgetMember], amount: int
) -> None:
    found = shares_of(amount, members)
    fits = sum(each.minimum * each.cost for each in members) <= amount
    for each in members:
        others = tuple(other for other in members if other is not each)
        count = min(each.wants, allowed(Shares("gpu", amount, members=others), each).now)
        base = max(each.minimum, each.keeps)
        assert count >= min(base, each.held, each.wants)
        if fits and count > each.held:
            assert count <= found[each.key]
            assert count * each.cost + sum(other.held * other.cost for other in others) <= amount
        assert count <= max(found[each.key], base)


class SharingWorld:
    """HPAs that share a budget. Each turn is that of one HPA: it sees what the others hold, decides, and writes."""

    def __init__(self, seed: int, number: int, amount: int, prices: Sequence[int]) -> None:
        self.chance = random.Random(seed)
        self.amount = amount
        self.members = dict[str, BudgetMember]()
        for index in range(number):
            key, minimum = f"hpa-{index:02}", self.chance.randrange(3)
            wants, cost = self.chance.randrange(minimum, 60), self.chance.choice(prices)
            self.members[key] = BudgetMember(key, self.chance.randrange(3), minimum, minimum, wants, cost)

    @property
    def held(self) -> int:
        return sum(each.held * each.cost for each in self.members.values())

    def others(self, key: str) -> tuple[BudgetMember, ...]:
        return tuple(each for each in self.members.values() if each.key != key)

    def turn(self, key: str) -> bool:
        """Reconciles one HPA. Returns whether its count changed."""
        own, before = self.members[key], self.held
        count = min(own.wants, allowed(Shares("shared", self.amount, members=self.others(key)), own).now)
        count = max(count, own.keeps)  # the stage after the budget keeps busy pods
        self.members[key] = replace(own, held=count)
        assert self.held <= max(self.amount, before)
        assert count >= min(own.minimum, own.held)
        return count != own.held

    def change(self, key: str) -> None:
        """Changes what the HPA wants, what it keeps, its minimum or its priority, as a load or an edit does."""
        own, chance = self.members[key], self.chance
        what = chance.random()
        if what < 0.7:
            wants = chance.randrange(own.minimum, 60)
            self.members[key] = replace(own, wants=wants, asks=wants + chance.choice((0, 0, 20)))
        elif what < 0.85:
            self.members[key] = replace(own, keeps=chance.randrange(own.held + 1))
        elif what < 0.95:
            self.members[key] = replace(own, priority=chance.randrange(3))
        else:
            minimum = chance.randrange(3)
            self.members[key] = replace(own, minimum=minimum, wants=max(minimum, own.wants))

    def rest(self) -> int:
        """Lets the wants be, until no count changes any more. Returns the rounds of all HPAs that this took."""
        for rounds in range(20):
            if not any([self.turn(key) for key in self.chance.sample(sorted(self.members), len(self.members))]):
                return rounds
        raise AssertionError("counts change for ever under constant wants")

    def check_division(self) -> None:
        """Asserts at rest that each has what the rule gives it."""
        members = list(self.members.values())
        found = shares_of(self.amount, members)
        assert {each.key: each.held for each in members} == {
            each.key: min(found[each.key], each.wants) for each in members
        }


def lives(world: SharingWorld, turns: int) -> int:
    """Runs turns of HPAs at random, under changing wants and with pauses. Returns the longest way to rest."""
    slowest, keys = 0, sorted(world.members)
    for index in range(turns):
        key = world.chance.choice(keys)
        if world.chance.random() < 0.2:
            world.change(world.chance.choice(keys))
        world.turn(key)
        if index % 1000 == 999:
            for each in keys:  # busy pods come to an end
                world.members[each] = replace(world.members[each], keeps=0)
            slowest = max(slowest, world.rest())
            world.check_division()
    return slowest


def test_a_world_of_50_hpas_stays_within_its_budget() -> None:
    assert lives(SharingWorld(1, 50, 400 * REPLICA, [REPLICA]), 3000 * environment.EFFORT) <= 6


def test_a_world_of_different_costs_stays_within_its_cores() -> None:
    for seed in range(environment.EFFORT):
        assert lives(SharingWorld(seed, 12, 90_000, [100, 250, 1500, 4000]), 3000) <= 8


def test_a_world_recovers_from_a_target_that_is_scaled_by_hand() -> None:
    world = SharingWorld(3, 20, 200 * REPLICA, [REPLICA])
    world.rest()
    for _ in range(50):
        key = world.chance.choice(sorted(world.members))
        world.members[key] = replace(world.members[key], held=150)
        world.rest()
        assert world.held <= world.amount
        world.check_division()
