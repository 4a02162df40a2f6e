"""How a budget is divided: allotments, and the room that a member has while others still hold more."""

import random

import pytest
from msgspec.structs import replace

from hpad.engine.budget import REPLICA, BudgetMember, Shares, allowed, amount_text, held, shares_of


def _member(key: str, wants: int, *, held: int = 0, priority: int = 0, minimum: int = 0, **more: int) -> BudgetMember:
    fields = {"cost": REPLICA, **more}
    return BudgetMember(key=key, priority=priority, minimum=minimum, held=held, wants=wants, **fields)


def _of(amount: int, *members: BudgetMember) -> list[int]:
    found = shares_of(amount * REPLICA, members)
    return [found[each.key] for each in members]


def test_each_has_what_it_wants_while_the_budget_lasts() -> None:
    assert _of(20, _member("a", 12), _member("b", 8)) == [12, 8]


def test_the_higher_priority_comes_first() -> None:
    assert _of(10, _member("a", 9), _member("b", 8, priority=1)) == [2, 8]


def test_a_lower_priority_keeps_its_minimum() -> None:
    assert _of(10, _member("a", 9, minimum=3), _member("b", 20, priority=1)) == [3, 7]


def test_the_rest_is_divided_in_proportion_to_what_is_wanted_beyond_the_minimum() -> None:
    assert _of(22, _member("a", 12, minimum=2), _member("b", 34, minimum=4)) == [2 + 4, 4 + 12]


def test_the_odd_replica_stays_where_it_is() -> None:
    assert _of(5, _member("a", 5, held=2), _member("b", 5, held=3)) == [2, 3]
    assert _of(5, _member("a", 5, held=3), _member("b", 5, held=2)) == [3, 2]


def test_one_that_woke_up_has_its_first_replica_before_another_has_one_more() -> None:
    awake = _member("a", 20, minimum=1, held=2)
    assert _of(2, awake, _member("b", 6)) == [1, 1]  # in proportion 1.76 and 0.24
    assert _of(100, _member("a", 1000, held=100), _member("b", 1)) == [99, 1]


def test_a_metric_that_moves_by_one_replica_moves_no_replica() -> None:
    for one in range(38, 43):
        assert _of(20, _member("a", one, held=10), _member("b", 40, held=10)) == [10, 10]


def test_the_proportion_follows_the_metrics_where_a_policy_limits_the_growth() -> None:
    small, large = _member("a", 4, held=2, asks=100), _member("b", 36, held=18, asks=100)
    assert _of(20, small, large) == [4, 16]  # in proportion to what the next write may set, it would be 2 and 18


def test_replicas_that_are_kept_are_no_minimum_for_others() -> None:
    assert _of(10, _member("a", 8, held=8, keeps=8), _member("b", 9, priority=5)) == [8, 2]


def test_cores_are_divided_by_their_cost() -> None:
    small, large = _member("a", 100, cost=100), _member("b", 10, cost=1000)
    assert _of(10, small, large) == [50, 5]


def test_a_large_replica_is_not_kept_out_by_small_ones() -> None:
    small, large = _member("a", 100, held=100, cost=1000), _member("b", 1, cost=10_000)
    assert _of(100, small, large) == [90, 1]


def test_what_is_too_little_for_a_large_replica_is_left_to_a_small_one() -> None:
    small, large = _member("a", 20, cost=500), _member("b", 1, priority=1, cost=4000)
    assert _of(3, small, large) == [6, 0]


def test_minima_beyond_the_amount_hold() -> None:
    first, second = _member("a", 9, minimum=6), _member("b", 9, minimum=6, held=6)
    assert _of(10, first, second) == [6, 6]
    assert allowed(Shares("gpu", 10 * REPLICA, members=(second,)), first).now == 6


def test_a_member_grows_only_into_what_the_others_do_not_hold() -> None:
    shares = Shares("gpu", 20 * REPLICA, members=(_member("low", 15, held=15),))
    assert allowed(shares, _member("high", 20, held=2, priority=1)).now == 5
    assert allowed(shares, _member("high", 20, held=5, priority=1)).now == 5


def test_the_minimum_of_another_member_is_left_to_it() -> None:
    shares = Shares("gpu", 10 * REPLICA, members=(_member("asleep", 4, minimum=4), _member("b", 3, held=3)))
    assert allowed(shares, _member("a", 20)).now == 3


def test_a_member_beyond_its_allotment_is_cut() -> None:
    shares = Shares("gpu", 20 * REPLICA, members=(_member("high", 15, held=5, priority=1),))
    assert allowed(shares, _member("low", 15, held=15)).now == 5


def test_one_that_was_scaled_by_hand_beyond_the_budget_takes_nothing_from_others() -> None:
    by_hand = _member("a", 5, held=50)
    assert allowed(Shares("gpu", 60 * REPLICA, members=(by_hand,)), _member("b", 55, held=55)).now == 55


def test_a_cut_never_goes_below_the_minimum_and_what_is_kept() -> None:
    shares = Shares("gpu", 10 * REPLICA, members=(_member("high", 10, held=10, priority=1),))
    assert allowed(shares, _member("low", 9, held=9, minimum=4)).now == 4
    assert allowed(shares, _member("low", 9, held=9, minimum=4, keeps=7)).now == 7


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_never_exceeds_the_amount_and_comes_to_rest(seed: int) -> None:
    chance = random.Random(seed)
    amount, members = 60_000, dict[str, BudgetMember]()
    for index in range(12):
        key, minimum = f"hpa-{index:02}", chance.randrange(3)
        cost = chance.choice((250, 1000, 1500))
        members[key] = BudgetMember(key, chance.randrange(3), minimum, minimum, chance.randrange(3, 40), cost)
    counts = list[list[int]]()
    for _ in range(6):
        for key in chance.sample(sorted(members), len(members)):
            others = tuple(each for each in members.values() if each.key != key)
            own = members[key]
            count = min(own.wants, allowed(Shares("gpu", amount, members=others), own).now)
            members[key] = replace(own, held=count)
            assert held(members.values()) <= amount
            assert count >= own.minimum
        counts.append([each.held for each in members.values()])
    assert counts[-1] == counts[-2] == counts[-3]
    assert counts[-1] == list(shares_of(amount, list(members.values())).values())


def test_amounts_are_said_with_their_unit() -> None:
    assert [amount_text(each, "cores") for each in (0, 1000, 3500, 12_345_678)] == [
        "0 cores", "1 core", "3.5 cores", "12345.678 cores",
    ]  # fmt: skip


def test_one_that_may_want_more_limits_a_growth_and_cuts_nothing() -> None:
    new = _member("new", 2, held=2, may_want=50)
    a = _member("a", 10, held=4)
    assert allowed(Shares("gpu", 12 * REPLICA, members=(new,)), a) == (4, 4, 1)  # 2 of 12, and it has 4
    assert allowed(Shares("gpu", 60 * REPLICA, members=(new,)), a) == (10, 10, 0)
    known = replace(new, may_want=0)
    assert allowed(Shares("gpu", 12 * REPLICA, members=(known,)), a) == (10, 10, 0)


def test_one_of_a_lower_priority_that_may_want_more_limits_nothing() -> None:
    new = _member("new", 2, held=2, may_want=50)
    a = _member("a", 10, held=4, priority=1)
    assert allowed(Shares("gpu", 12 * REPLICA, members=(new,)), a) == (10, 10, 0)
