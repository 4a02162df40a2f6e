"""The reasons that hold a count back: each by its own rule, and none without a cause."""

import itertools
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.engine import START, Workload, external, resource, series, used

from hpad.api.sample import AdapterError
from hpad.engine import examine as examine_module
from hpad.engine import holds, stage
from hpad.engine.conditions import SCALED_TO_ZERO, TRUE, Condition
from hpad.engine.examine import examine
from hpad.engine.history import History, PastRecommendation
from hpad.engine.settle import Outcome
from hpad.engine.turn import decide
from hpad.engine.view import DRY_RUN, HPA, STALE, TOO_LARGE, Competitor, Gates, ScaleError, Withheld, yielded

QUEUE = external("queue", averageValue="10")
DOWN = AdapterError("connection refused")
OTHER = yielded(Competitor(HPA, "default/other"))
SLOW: dict[str, Any] = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
                        "scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}  # fmt: skip


def held(web: Workload, *answers: Any, **fields: Any) -> tuple[str, ...]:
    """The reasons after one reconcile."""
    web.reconcile(*answers, **fields)
    assert web.done is not None
    return holds.held_by(web.done.view, web.done.decision, web.done.outcome)


def seasoned(web: Workload, replicas: int, ago: float = 60) -> Workload:
    """The workload with one recommendation that many seconds ago, in place of none."""
    web.history = History((PastRecommendation(START - timedelta(seconds=ago), replicas),))
    return web


def test_a_count_that_the_target_gets_or_has_is_held_by_nothing() -> None:
    assert held(seasoned(Workload(QUEUE, replicas=3), 3, ago=400), series(60)) == ()
    assert held(seasoned(Workload(QUEUE, replicas=3), 3, ago=400), series(20)) == ()
    assert held(seasoned(Workload(QUEUE, replicas=3), 3), series(30)) == ()


def test_a_count_outside_the_limits_is_not_held() -> None:
    """It is set to the limit without its metrics, so nothing is known of what they ask for."""
    assert held(Workload(QUEUE, replicas=30)) == ()
    assert held(Workload(QUEUE, replicas=1, low=2)) == ()


@pytest.mark.parametrize(("messages", "reasons"), [(60, ("stabilization",)), (91, ()), (20, ("stabilization",))])
def test_a_window_holds_the_count_in_both_directions(messages: int, reasons: tuple[str, ...]) -> None:
    """5 were recommended half a minute ago: growth to 6 waits, shrinking to 2 waits, and growth without window not."""
    windows = {"scaleUp": {"stabilizationWindowSeconds": 0 if messages == 91 else 60}, "scaleDown": {}}
    web = seasoned(Workload(QUEUE, replicas=5, behavior=windows, high=20), 5, ago=30)
    assert held(web, series(messages)) == reasons


@pytest.mark.parametrize(
    ("messages", "behavior", "low", "reason"),
    [
        (90, SLOW, 1, "scale_up_limit"),
        (10, SLOW, 1, "scale_down_limit"),
        (90, {"scaleUp": {"selectPolicy": "Disabled"}}, 1, "scale_up_limit"),
        (200, None, 1, "scale_up_limit"),  # twice the count, without spec.behavior
        (90, None, 1, "maximum"),
        (10, None, 3, "minimum"),
        (0, None, 1, "minimum"),
    ],
)
def test_a_limit_holds_the_count(messages: int, behavior: dict[str, Any] | None, low: int, reason: str) -> None:
    web = Workload(QUEUE, replicas=5, low=low, high=20 if messages == 200 or behavior else 8, behavior=behavior)
    assert held(seasoned(web, 1, ago=400), series(messages)) == (reason,)


def test_a_minimum_of_zero_without_its_gate_is_a_minimum() -> None:
    web = seasoned(Workload(QUEUE, replicas=5, low=0, behavior=None), 1, ago=400)
    assert held(web, series(0)) == ("minimum",)


def test_a_maximum_that_only_cuts_what_a_window_holds_is_not_named() -> None:
    """40 were wanted a minute ago and 1 is now: the window holds the count at the maximum."""
    web = seasoned(Workload(QUEUE, replicas=20, high=20, behavior=None), 40)
    assert held(web, series(10)) == ("stabilization",)
    assert held(web, series(300), after=15) == ("stabilization", "maximum"), "without the window it would be 20, too"
    assert held(web, series(400), after=15) == ("maximum",)


def test_a_minimum_that_overrules_a_policy_is_named_alone() -> None:
    """From zero, policies may allow less than the minimum (horizontal.go: reconcileAutoscaler)."""
    web = seasoned(Workload(QUEUE, replicas=0, low=3, high=10, behavior=SLOW, gates=Gates(HPAScaleToZero=True)), 0)
    status = msgspec.structs.replace(web.hpa.status, conditions=(Condition(SCALED_TO_ZERO, TRUE),))
    web.hpa = msgspec.structs.replace(web.hpa, status=status)
    assert held(web, series(20)) == ("minimum",)
    assert web.replicas == 3


@pytest.mark.parametrize(
    ("usage", "reasons"),
    [
        (105, ("tolerance",)),  # 52 % of 50 %, by ten pods: 10.4 pods would be 11
        (100, ()),
        (97, ()),  # 48 %: 9.6 pods would be 10 as well
        (90, ("tolerance",)),  # 45 %: 9 pods
        (121, ()),
    ],
)
def test_the_tolerance_holds_only_another_count(usage: int, reasons: tuple[str, ...]) -> None:
    web = seasoned(Workload(resource("cpu", averageUtilization=50), replicas=10, high=30), 10, ago=400)
    assert held(web, used([usage] * 10)) == reasons


@pytest.mark.parametrize(("other", "reasons"), [(53, ("tolerance",)), (70, ()), (10, ("tolerance",))])
def test_a_tolerated_metric_below_another_one_holds_nothing(other: int, reasons: tuple[str, ...]) -> None:
    """52 messages for five replicas would be six without the tolerance, unless another metric asks for seven anyway."""
    web = seasoned(Workload(QUEUE, external("rate", averageValue="10"), replicas=5), 5, ago=400)
    assert held(web, series(52), series(other)) == reasons


def test_a_tolerance_below_the_target_holds_nothing_while_a_metric_fails() -> None:
    """The failing metric would hold the lower count anyway."""
    metrics = resource("cpu", averageUtilization=50), external("rate", averageValue="10")
    web = seasoned(Workload(*metrics, replicas=10, high=30), 10, ago=400)
    assert held(web, used([90] * 10), DOWN) == ()
    assert held(web, used([105] * 10), DOWN) == ("tolerance",)


def test_failing_metrics_hold_the_count() -> None:
    both = QUEUE, external("rate", averageValue="10")
    assert held(Workload(*both, replicas=5), DOWN, DOWN) == ("invalid_metrics",)
    assert held(Workload(*both, replicas=5), series(20), DOWN) == ("invalid_metrics",), "nothing shrinks meanwhile"
    assert held(Workload(*both, replicas=5), series(60), DOWN) == (), "it may grow"
    assert held(Workload(replicas=5)) == ("invalid_metrics",)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"scale": None, "scale_error": ScaleError("gone")}, "target_unreadable"),
        ({"scale": None, "scale_error": ScaleError("too old", STALE)}, "stale_cache"),
        ({"scale": None, "scale_error": ScaleError("too many pods", TOO_LARGE)}, "too_large"),
        ({"overlapping_hpas": ("another",)}, "ambiguous_selector"),
    ],
)
def test_a_target_that_is_not_measured_is_held(fields: dict[str, Any], reason: str) -> None:
    assert held(Workload(QUEUE, replicas=3), **fields) == (reason,)


def test_more_pods_times_metrics_than_hpad_takes_hold_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine_module, "MOST_VALUES", 2)
    assert held(Workload(QUEUE, replicas=3)) == ("too_large",)


@pytest.mark.parametrize("selector", ["", "app in ("])
def test_an_unusable_selector_holds_the_count(selector: str) -> None:
    web = Workload(QUEUE, replicas=3)
    web.selector = selector
    assert held(web) == ("invalid_selector",)


@pytest.mark.parametrize("low", [0, 1])
def test_a_stopped_target_is_held_at_zero(low: int) -> None:
    assert held(Workload(QUEUE, replicas=0, low=low)) == ("disabled",)


@pytest.mark.parametrize(("withheld", "reason"), [(DRY_RUN, "dry_run"), (OTHER, "competing_hpa")])
def test_a_withheld_count_is_held_after_the_limits(withheld: Withheld, reason: str) -> None:
    web = seasoned(Workload(QUEUE, replicas=5, high=8), 5, ago=400)
    view = web.view()
    decision = decide(view, examine(view), [series(200)])
    assert holds.held_by(view, decision, Outcome((), withheld=withheld)) == ("maximum", reason)


def test_a_refused_write_holds_the_count() -> None:
    assert held(seasoned(Workload(QUEUE, replicas=3), 3), series(60), refused="boom") == ("write_failed",)
    assert held(Workload(QUEUE, replicas=30), refused="boom") == ("write_failed",)


WINDOWS: dict[str, Any] = {"scaleUp": {"stabilizationWindowSeconds": 60}, "scaleDown": {}}


def test_whatever_changes_the_count_is_named() -> None:
    """Over all combinations of behavior, past and load: a count that is not the wanted one has a reason."""
    unheld = changed = 0
    for behavior, past, ago, messages in itertools.product(
        (None, SLOW, WINDOWS), (1, 4, 5, 9, 12), (30, 200, 400), (0, 4, 31, 46, 50, 54, 75, 400)
    ):
        web = seasoned(Workload(QUEUE, replicas=5, low=2, high=20, behavior=behavior), past, ago)
        reasons = held(web, series(messages))
        assert web.done is not None
        count, wanted = web.done.decision.desired, -(-messages // 10)
        assert list(reasons) == [reason for reason in stage.HOLDS if reason in reasons]
        assert reasons or count == wanted, (behavior, past, ago, messages)
        unheld += not reasons
        changed += count != wanted
    assert unheld > 40
    assert changed > 200
