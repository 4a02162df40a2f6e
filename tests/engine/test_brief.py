"""The decision in a few words: verb, cause and until when come before names and readings."""

from datetime import timedelta

from support.engine import START, Workload, external, resource, series, used

from hpad.api.sample import AdapterError
from hpad.engine.holds import brief, cause
from hpad.engine.settle import Outcome
from hpad.engine.view import DRY_RUN, PAUSED, SHADOW, ScaleError, Withheld

QUEUE = external("a_queue_with_a_rather_long_name", {"queue": "orders"}, averageValue="10")
DOWN = AdapterError("rabbit: connection refused")
LABEL = "external metric a_queue_with_a_rather_long_name(queue=orders)"


def test_a_failure_begins_with_its_cause_and_leaves_out_the_only_metric() -> None:
    work = Workload(QUEUE, replicas=2)
    work.reconcile(DOWN)
    decision = work.done.decision
    assert brief(decision, None) == "cannot decide: rabbit: connection refused"
    assert cause(decision, None) == "rabbit: connection refused"


def test_of_several_metrics_the_one_that_fails_is_named_after_the_cause() -> None:
    work = Workload(resource("cpu", averageUtilization=50), QUEUE, replicas=2)
    work.reconcile(used([100, 100]), DOWN)
    decision = work.done.decision
    assert brief(decision, None) == f"keep 2: rabbit: connection refused ({LABEL})"
    assert cause(decision, None) == "rabbit: connection refused"


def test_a_fallback_comes_after_the_cause() -> None:
    work = Workload(QUEUE, replicas=2, annotations={"hpad.io/fallback": "replicas:4 after 0s"})
    work.reconcile(DOWN)
    found = brief(work.done.decision, work.done.outcome)
    assert found.startswith(f"2 to 4: rabbit: connection refused ({LABEL} falls back to 4 replicas")


def test_what_holds_the_count_and_until_when_comes_before_the_readings() -> None:
    work = Workload(QUEUE, replicas=6, behavior={"scaleDown": {"stabilizationWindowSeconds": 300}})
    work.reconcile(series(60))
    work.now = START + timedelta(seconds=15)
    work.reconcile(series(20))
    found = brief(work.done.decision, None)
    assert found.startswith("keep 6: 2 wanted but stabilized at 6 for 285 s more (until 12:05:00Z)")


def test_a_metric_that_decides_alone_is_the_reason() -> None:
    work = Workload(QUEUE, replicas=2)
    work.reconcile(series(20))
    assert brief(work.done.decision, None) == str(work.done.decision)
    assert cause(work.done.decision, None) == ""


def test_a_count_that_was_not_written_says_why_first() -> None:
    work = Workload(QUEUE, replicas=2)
    work.reconcile(series(30))
    decision = work.done.decision
    paused = Outcome((), withheld=Withheld(PAUSED, "paused until 2026-01-01T14:00:00Z", able=True))
    assert brief(decision, paused).startswith("2 to 3 not written: paused until 2026-01-01T14:00:00Z; ")
    assert cause(decision, paused) == "", "a pause is no failure"
    for mode in (DRY_RUN, SHADOW):
        assert brief(decision, Outcome((), withheld=mode)) == brief(decision, Outcome((3,))), "a state says so"
    failed = Outcome((3,), error="conflict")
    assert brief(decision, failed).startswith("2 to 3 not written: conflict; ")
    assert cause(decision, failed) == "conflict"


def test_a_target_that_cannot_be_read_has_the_cause_of_its_sentence() -> None:
    work = Workload(QUEUE, replicas=2)
    work.reconcile(scale=None, scale_error=ScaleError("deployments.apps is forbidden"))
    decision = work.done.decision
    assert brief(decision, None) == str(decision) == f"cannot decide: {cause(decision, None)}"
    assert cause(decision, None) == "deployments.apps is forbidden"
