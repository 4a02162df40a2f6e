"""Deletion costs: whatever users have set, a ReplicaSet removes exactly the pods that shall go, by few writes."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine import pod

from hpad.api.pod import DELETION_COST, DeletionCost, Pod
from hpad.engine.deletion_costs import HIGHEST, LOWEST, MOST, Work, costs, in_order
from hpad.lab.cluster.pods import deletion_rank

AT = datetime(2026, 1, 1, tzinfo=UTC)


def removed(pods: list[Pod], chosen: dict[str, int], count: int) -> set[str]:
    """The pods that the ReplicaSet controller removes, by its own order."""

    def rank(each: Pod) -> tuple[Any, ...]:
        cost = chosen.get(each.name, each.users_cost)
        return deletion_rank({
            "metadata": {
                "annotations": {DELETION_COST: str(cost)},
                "creationTimestamp": each.start_time.isoformat() if each.start_time else "2026-01-01T00:00:00Z",
                "resourceVersion": "1",
            },
            "spec": {"nodeName": "node"},
            "status": {"phase": each.phase, "conditions": [{"type": "Ready", "status": each.ready}]},
        })  # fmt: skip

    return {each.name for each in sorted(pods, key=rank)[:count]}


COSTS = st.sampled_from([None, "0", "5", "-7", "x", str(LOWEST), str(LOWEST + 1), str(HIGHEST), str(HIGHEST - 1)])
AMOUNTS = st.sampled_from([None, 0, 0, 0, 1, 2])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(COSTS, AMOUNTS, st.integers(0, 900)), min_size=1, max_size=14), st.integers(0, 14))
def test_no_busier_pod_is_removed_than_needed(made: list[tuple[str | None, int | None, int]], count: int) -> None:
    pods = [
        pod(f"web-{n:02}", age=age, deletion_cost=None if cost is None else DeletionCost(cost))
        for n, (cost, _, age) in enumerate(made)
    ]
    work = {f"web-{n:02}": Work(amount, amount > 0) for n, (_, amount, _) in enumerate(made) if amount is not None}
    going = in_order(pods, work)[: min(count, len(pods))]
    chosen = dict(costs(pods, work, going))
    gone = removed(pods, chosen, len(going))
    burden = {
        each.name: (2, 0) if each.name not in work else (work[each.name].busy, work[each.name].amount) for each in pods
    }
    # Idle pods may be exchanged for one another, and no others.
    assert sorted(burden[name] for name in gone) == sorted(burden[each.name] for each in going)
    assert all(LOWEST <= cost <= HIGHEST for cost in chosen.values())


@pytest.mark.parametrize(
    ("pods", "busy", "count", "writes"),
    [
        (100, 3, 50, 3),
        (100, 3, 2, 2),
        (10, 9, 1, 1),
        (10, 0, 5, 0),
        (10, 10, 5, 0),
        (10, 3, 10, 0),
        (1000, 600, 400, MOST),
    ],
)
def test_the_number_of_writes(pods: int, busy: int, count: int, writes: int) -> None:
    named = [pod(f"web-{n:04}") for n in range(pods)]
    work = {each.name: Work(1, True) if n < busy else Work() for n, each in enumerate(named)}
    going = in_order(named, work)[:count]
    assert len(costs(named, work, going)) == writes


@pytest.mark.parametrize("busy", [0, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("number", [1, 2])
def test_a_pending_pod_goes_first_and_one_that_works_by_now_does_not(number: int, count: int, busy: int) -> None:
    """The watch of hpad may be a moment behind the one of the ReplicaSet controller."""
    pending = [pod(f"new-{n}", phase="Pending", ready="False", age=0) for n in range(number)]
    pods = [*pending, *[pod(f"web-{n}", age=100 + n) for n in range(10 - number)]]
    work = {each.name: Work() for each in pods} | {f"web-{n}": Work(1, True) for n in range(busy)}
    chosen = dict(costs(pods, work, in_order(pods, work)[:count]))
    gone = removed(pods, chosen, count)
    assert {each.name for each in pending[:count]} <= gone
    works = {each.name for each in pods if work[each.name].busy}
    idle = len(pods) - len(works)
    assert len(gone & works) == max(0, count - idle)
    at_work = [pod(each.name, age=0) for each in pending]
    gone = removed([*at_work, *pods[number:]], chosen, count)
    assert len(gone & (works | {each.name for each in at_work})) == max(0, count - idle + number)


def test_a_pending_pod_costs_no_busy_one_in_a_scale_down_of_more_pods_than_writes() -> None:
    pods = [pod("new", phase="Pending", ready="False", age=0), *[pod(f"web-{n:04}", age=100 + n) for n in range(999)]]
    work = {each.name: Work() for each in pods} | {f"web-{n:04}": Work(1, True) for n in range(3)}
    chosen = dict(costs(pods, work, in_order(pods, work)[:500]))
    works = {each.name for each in pods if work[each.name].busy}
    assert len(chosen) == 4
    assert not works & removed(pods, chosen, 500)
    assert not {"new", *works} & removed([pod("new", age=0), *pods[1:]], chosen, 500)


def test_of_equally_idle_pods_the_costs_of_users_decide() -> None:
    pods = [
        pod("kept", deletion_cost=DeletionCost("100")),
        pod("plain", age=100),
        pod("cheap", deletion_cost=DeletionCost("-50")),
        pod("busy"),
    ]
    work = {"kept": Work(), "plain": Work(), "cheap": Work(), "busy": Work(1, True)}
    order = [each.name for each in in_order(pods, work)]
    assert order == ["cheap", "plain", "kept", "busy"]
    assert removed(pods, dict(costs(pods, work, in_order(pods, work)[:2])), 2) == {"cheap", "plain"}
