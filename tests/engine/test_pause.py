"""A paused HPA: nothing is written, and everything is remembered."""

from datetime import timedelta
from typing import Any

import pytest
from support.engine import START, Workload, external, series

from hpad.engine import controls
from hpad.engine.conditions import find
from hpad.engine.holds import held_by
from hpad.engine.view import PAUSED

MODE = "hpad.io/mode"
UNTIL = "hpad.io/paused-until"
QUEUE = external("orders", averageValue="10")


@pytest.mark.parametrize(
    ("texts", "now", "later"),
    [
        ({}, False, False),
        ({MODE: "active"}, False, False),
        ({MODE: "paused"}, True, True),
        ({UNTIL: "2026-01-01T13:00:00Z"}, True, False),
        ({UNTIL: "2026-01-01T14:00:00+01:00", MODE: "paused"}, True, False),
        ({UNTIL: "2026-01-01T13:00:00Z", MODE: "active"}, True, False),
        ({UNTIL: "2026-01-01T11:00:00Z", MODE: "paused"}, False, False),
    ],
)
def test_when_an_hpa_is_paused(texts: dict[str, str], now: bool, later: bool) -> None:
    """The tests begin at noon; `later` is at one."""
    found = controls.read(texts)
    assert found.errors == ()
    assert found.controls.is_paused(START) is now
    assert found.controls.is_paused(START + timedelta(hours=1)) is later


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        (MODE, "stopped", "'stopped' is not a mode; there are active, shadow, paused"),
        (UNTIL, "tomorrow", "'tomorrow' is not a time with its zone, such as 2026-11-30T08:00:00Z"),
        (UNTIL, "2026-11-30T08:00:00", "is not a time with its zone"),
    ],
)
def test_mistakes(name: str, text: str, error: str) -> None:
    ((_, found),) = controls.read({name: text}).errors
    assert error in found


def test_a_paused_hpa_says_what_it_would_do_and_does_nothing() -> None:
    web = Workload(QUEUE, replicas=3, annotations={MODE: "paused"})
    decision = web.reconcile(series(60))
    assert (decision.scale_to, web.replicas) == (6, 3)
    assert web.events == []
    condition = find(web.hpa.status.conditions, PAUSED)
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Paused")
    able = find(web.hpa.status.conditions, "AbleToScale")
    assert able is not None
    assert able.message == "the HPA controller did not update the target scale to 6: the HPA is paused"


def test_the_condition_goes_with_the_pause() -> None:
    web = Workload(QUEUE, replicas=3, annotations={UNTIL: "2026-01-01T12:00:30Z"})
    web.reconcile(series(60))
    condition = find(web.hpa.status.conditions, PAUSED)
    assert condition is not None
    assert condition.message.startswith("the HPA is paused until 2026-01-01T12:00:30Z: ")
    web.reconcile(series(60), after=30)
    assert web.replicas == 6
    assert find(web.hpa.status.conditions, PAUSED) is None


@pytest.mark.parametrize(
    ("replicas", "total", "would", "clause"),
    [
        (1, 10, 2, "1 wanted but the minimum is 2"),
        (1, 40, 4, "external metric orders above target"),
        (12, 60, 10, "the maximum is 10"),  # the present count counts as recommended
        (12, 120, 10, "12 wanted but the maximum is 10"),
    ],
)
def test_a_count_outside_the_bounds_stays_and_the_metrics_are_read(
    replicas: int, total: int, would: int, clause: str
) -> None:
    web = Workload(QUEUE, replicas=replicas, low=2, high=10, annotations={MODE: "paused"})
    assert web.reconcile(series(total)).scale_to == would
    assert web.replicas == replicas
    assert web.done is not None
    assert clause in web.done.sentence


def test_a_count_outside_the_bounds_goes_to_the_nearer_one_after_the_pause_and_then_waits_for_the_window() -> None:
    web = Workload(QUEUE, replicas=14, annotations={MODE: "paused"})
    for _ in range(40):
        web.reconcile(series(80), after=15)
    web.annotations = {}
    counts = [(web.reconcile(series(10), after=15), web.replicas)[1] for _ in range(22)]
    assert counts == [10] + [8] * 18 + [1] * 3


def test_windows_know_what_was_wanted_during_the_pause() -> None:
    """A peak two minutes before the end of the pause holds the count for three more minutes."""
    web = Workload(QUEUE, replicas=8, annotations={MODE: "paused"})
    web.reconcile(series(80))
    for _ in range(8):
        web.reconcile(series(10), after=15)
    web.annotations = {}
    counts = [(web.reconcile(series(10), after=15), web.replicas)[1] for _ in range(16)]
    # The turn at 0 s wanted 8 and counts until 300 s; resumed at 135 s.
    assert counts == [8] * 11 + [1] * 5


def test_policies_count_no_rescale_of_the_pause() -> None:
    policy: dict[str, Any] = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 3600}]}}
    web = Workload(QUEUE, replicas=3, behavior=policy, annotations={MODE: "paused"})
    web.reconcile(series(60))
    web.annotations = {}
    web.reconcile(series(60), after=15)
    assert web.replicas == 4


def test_the_reason_is_among_those_that_hold_the_count() -> None:
    web = Workload(QUEUE, replicas=3, annotations={MODE: "paused"})
    web.reconcile(series(60))
    assert web.done is not None
    assert held_by(web.done.view, web.done.decision, web.done.outcome) == ("paused",)
    assert web.trace.write is not None
    assert (web.trace.write.outcome, web.trace.write.withheld) == ("withheld", "Paused")
    assert [each.text for each in web.outlook] == ["stays at 3 while the HPA is paused"]


@pytest.mark.parametrize(
    ("texts", "text"),
    [
        ({MODE: "paused"}, "stays at 3 while the HPA is paused"),
        ({UNTIL: "2026-01-01T13:00:00Z"}, "stays at 3 while the HPA is paused, until 13:00:00Z"),
        ({UNTIL: "2026-01-05T08:00:00+01:00"}, "stays at 3 while the HPA is paused, until 2026-01-05T07:00:00Z"),
    ],
)
def test_the_outlook_of_a_paused_hpa_at_its_goal_promises_no_step(texts: dict[str, str], text: str) -> None:
    web = Workload(QUEUE, replicas=3, annotations=texts)
    web.reconcile(series(30))
    assert web.trace.write is None
    assert [each.text for each in web.outlook] == [text]
