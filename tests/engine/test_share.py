"""The stage of the budget: what it changes, what it leaves, and what people read of it."""

from typing import Any

import pytest
from support.engine import START, Workload, external, pod, series, used

from hpad.api.sample import AdapterError
from hpad.engine import share
from hpad.engine.budget import REPLICA, BudgetMember, Shares
from hpad.engine.conditions import SCALING_LIMITED, WITHIN_BUDGET, find
from hpad.engine.decision import Decision
from hpad.engine.holds import held_by
from hpad.engine.turn import Answered, AskBudget, turn

QUEUE = external("orders", averageValue="10")
OWN = {"hpad.io/budget": "gpu"}
FAST: dict[str, Any] = {"scaleDown": {"stabilizationWindowSeconds": 0}}


def shared(amount: int, *, held: int = 0, wants: int = 0, priority: int = 0, **fields: Any) -> Shares:
    """A budget of replicas that one other HPA has a part of."""
    other = BudgetMember("default/other", priority, 0, held, wants, REPLICA)
    return Shares("gpu", amount * REPLICA, **{"members": (other,), **fields})


def decided(web: Workload, messages: int, shares: Shares | None, **fields: Any) -> Decision:
    return web.reconcile(series(messages), shares=shares, **fields)


def workload(replicas: int = 5, **fields: Any) -> Workload:
    return Workload(QUEUE, **{"replicas": replicas, "high": 50, "annotations": OWN, **fields})


def test_a_count_within_the_budget_stays_as_it_is() -> None:
    web = workload()
    decision = decided(web, 80, shared(20, held=12, wants=12))
    assert (decision.scale_to, decision.reason) == (8, "external metric orders(nil) above target")
    condition = web.condition(WITHIN_BUDGET)
    assert (condition.status, condition.reason) == ("True", "BudgetShared")
    assert ("budget", 8) in [(stage.name, stage.replicas) for stage in decision.stages]


def test_a_budget_that_is_short_is_named_wherever_people_look() -> None:
    web = workload()
    decision = decided(web, 90, shared(20, held=13, wants=13, priority=1))
    said = "its budget gpu (20 replicas) has 7 for it"
    assert decision.scale_to == 7
    assert f"9 wanted but {said}" in str(decision)
    limited = web.condition(SCALING_LIMITED)
    assert (limited.reason, limited.message) == ("BudgetLimit", f"the desired replica count is 9, but {said}")
    assert web.done is not None
    assert held_by(web.done.view, web.done.decision, web.done.outcome) == ("budget",)
    row = next(each for each in web.trace.stages if each.stage == "budget")
    assert (row.label, row.replicas, row.held_by) == ("within budget", 7, "budget")
    assert row.text == "gpu (20 replicas) has 7 for it; 1 other HPA holds 13 replicas and wants 13 replicas"
    first, *_ = web.outlook
    assert (first.kind, first.replicas) == ("blocked", 9)
    assert first.text == "grows towards 9 once the budget gpu has room: others shrink, or its amount is raised"


def test_while_a_budget_holds_a_count_the_status_stays_as_it_is() -> None:
    web, said = workload(replicas=7), shared(20, held=13, wants=13, priority=1)
    decided(web, 90, said)
    decided(web, 90, said, after=15)
    assert web.settled is not None
    assert not web.settled.status_changed
    assert web.condition(SCALING_LIMITED).last_transition_time == START


def test_a_budget_that_only_cuts_what_a_window_holds_does_not_hold_the_count() -> None:
    web = workload(replicas=9, behavior=None)
    assert decided(web, 10, shared(20, held=13, wants=13, priority=1)).scale_to == 7
    assert web.done is not None
    assert held_by(web.done.view, web.done.decision, web.done.outcome) == ("stabilization",)
    row = next(each for each in web.trace.stages if each.stage == "budget")
    assert row.text == "gpu (20 replicas) has 7 for it; 1 other HPA holds 13 replicas and wants 13 replicas"


def test_what_would_come_next_says_that_the_budget_has_to_have_room() -> None:
    web = workload()
    decided(web, 50, shared(20))
    growth = next(each for each in web.outlook if each.kind == "growth")
    assert growth.text == "grows once orders is above 55 (11 per replica; now 50), if the budget gpu has room"
    web = workload(replicas=2, behavior=None)
    assert decided(web, 90, shared(20)).scale_to == 4
    assert web.outlook[0].text == "4 -> 8 with the next reconcile, if orders still wants 9 and the budget gpu has room"


def test_a_cut_of_a_target_that_shrinks_anyway_is_not_said_to_be_undone() -> None:
    slowly = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
    web = workload(replicas=9, behavior={"scaleDown": slowly})
    assert decided(web, 10, shared(20, held=13, wants=13, priority=1)).scale_to == 7
    assert web.outlook[0].text == "7 -> 6 once the scaleDown policies allow it at 12:01:00Z, if orders still wants 1"


def test_an_allotment_that_others_still_hold_is_waited_for() -> None:
    # Beyond its minimum of 1, 6.6 of the 19 that are left; the odd replica stays where it is.
    decision = decided(workload(), 90, shared(20, held=15, wants=15))
    assert decision.scale_to is None
    assert str(decision).endswith("its budget gpu (20 replicas) has 7 for it, and others still hold 2 of them")


def test_before_the_first_reconcile_of_another_it_is_said_what_is_waited_for() -> None:
    web, other = workload(), BudgetMember("default/other", 0, 0, 5, 5, REPLICA, may_want=50)
    decision = decided(web, 90, shared(20, members=(other,)))
    had = "until 1 other HPA has had a first reconcile"
    assert str(decision).endswith(f"its budget gpu (20 replicas) has 5 for it {had}")
    row = next(each for each in web.trace.stages if each.stage == "budget")
    assert row.text == f"gpu (20 replicas) has 5 for it {had}; 1 other HPA holds 5 replicas and wants 5 replicas"
    first, *_ = web.outlook
    when = "the other HPAs of the budget gpu have had a first reconcile, and it has room"
    assert first.text == f"grows towards 9 once {when}"


def test_a_cut_waits_for_no_window_and_no_policy() -> None:
    web = workload(12, behavior={"scaleDown": {"stabilizationWindowSeconds": 3600, "selectPolicy": "Disabled"}})
    decision = decided(web, 120, shared(10, wants=8, priority=1))
    assert (decision.scale_to, decision.reason) == (2, "budget gpu exceeded")
    assert web.events[-1] == ("SuccessfulRescale", "New size: 2; reason: budget gpu exceeded")


def test_a_cut_stops_at_the_minimum() -> None:
    assert decided(workload(12, low=4), 120, shared(10, wants=10, priority=1)).scale_to == 4


def test_a_cut_leaves_busy_pods() -> None:
    web = workload(6, annotations=OWN | {"hpad.io/keep-busy": "true"})
    decision = decided(web, 60, shared(10, wants=9, priority=1), work=[used([0, 1000, 0, 1000, 1000, 0])])
    assert [(stage.name, stage.replicas) for stage in decision.stages][-2:] == [("budget", 1), ("busy", 3)]
    assert decision.scale_to == 3
    assert web.condition(SCALING_LIMITED).reason == "BusyPods"


def test_a_count_below_the_minimum_grows_only_into_what_is_left() -> None:
    web = workload(2, low=6)
    assert decided(web, 60, shared(10, held=7, wants=4)).scale_to == 3
    assert decided(web, 60, shared(10, held=4, wants=4)).scale_to == 6


def test_an_unknown_budget_lets_nothing_grow() -> None:
    web, unknown = workload(), Shares("gpu", error="the settings have no such budget; there are none")
    assert decided(web, 90, unknown).scale_to is None
    condition = web.condition(WITHIN_BUDGET)
    assert (condition.status, condition.reason) == ("False", "BudgetUnknown")
    assert condition.message == "budget gpu: the settings have no such budget; there are none"
    said = "what the budget gpu has for it: the settings have no such budget; there are none"
    assert web.outlook[0].text == f"grows towards 9 once it is known {said}"
    limited = web.condition(SCALING_LIMITED).message
    assert limited == f"the desired replica count is 9, but it is unknown {said.replace('the budget', 'its budget')}"
    down = workload(5, behavior=FAST)
    assert decided(down, 20, unknown).scale_to == 2
    assert workload(1, low=3).reconcile(shares=unknown).scale_to == 3, "its minimum is no matter of the budget"


def test_minima_may_take_the_whole_budget() -> None:
    web = workload(5, low=5)
    decided(web, 50, shared(5))
    assert web.condition(WITHIN_BUDGET).reason == "BudgetShared"
    decided(web, 50, shared(4))
    assert web.condition(WITHIN_BUDGET).reason == "MinimaExceedBudget"


def test_without_metrics_the_count_stays_whatever_the_budget_is() -> None:
    web = workload(12)
    decision = web.reconcile(AdapterError("down"), shares=shared(10, wants=9, priority=1))
    assert (decision.scale_to, decision.budgeted) == (None, None)


def test_an_hpa_without_a_budget_asks_nothing_and_loses_the_condition() -> None:
    web = workload()
    decided(web, 50, shared(20))
    web.annotations = {}
    assert decided(web, 50, shared(1)).budgeted is None
    assert find(web.hpa.status.conditions, WITHIN_BUDGET) is None


@pytest.mark.parametrize(("replicas", "decides"), [(5, True), (0, False)])
def test_what_an_hpa_says_about_itself(replicas: int, decides: bool) -> None:
    web = workload(replicas, low=2, annotations=OWN | {"hpad.io/budget-priority": "7"})
    steps = turn(web.view())
    next(steps)
    step = steps.send(Answered([series(300)] if decides else []))
    assert isinstance(step, AskBudget)
    assert (step.decided, step.own.priority, step.own.minimum) == (decides, 7, 2 if decides else 0)
    # The policies allow twice the count; the metrics ask for 30.
    assert (step.own.held, step.own.wants, step.own.asks) == ((5, 10, 30) if decides else (0, 0, 0))


def test_a_minimum_counts_while_the_pods_of_the_target_are_not_known() -> None:
    web = workload(5, low=2)
    web.selector = ""
    steps = turn(web.view())
    next(steps)
    step = steps.send(Answered([]))
    assert isinstance(step, AskBudget)
    assert (step.decided, step.own.minimum, step.own.held, step.own.wants) == (False, 2, 5, 5)


def test_the_largest_pod_says_what_a_replica_costs() -> None:
    pods = [pod("web-0", cpu=200), pod("web-1", cpu=500), pod("web-2", cpu=900, deleted=True), pod("web-3", cpu=None)]
    assert share.millicores(pods) == 500
    assert share.millicores([pod("web-0", pod_requests={"cpu": 700}, cpu=100)]) == 700
    assert share.millicores([pod("web-0", pod_requests={"memory": 700}, cpu=100)]) == 100
    assert share.millicores([pod("web-0", cpu=None)]) == share.millicores([]) == 0


def test_cores_are_shared_by_what_a_replica_costs() -> None:
    web = workload()
    decision = decided(web, 90, Shares("cpu", 3500, "cores", cost=500))
    assert decision.scale_to == 7
    assert "its budget cpu (3.5 cores) has 7 for it" in str(decision)
    assert web.now == START
