"""What a reconcile leaves behind: conditions, events, history, labels."""

from typing import Any

import msgspec
import pytest
from support.engine import START, Workload, external, resource, series, used

from hpad.engine.history import PastRecommendation, Rescale
from hpad.engine.settle import Outcome, settle
from hpad.engine.view import NO_MATCH, READ_FAILED, STALE, ScaleError

QUEUE = external("queue", averageValue="10")


def test_a_refused_write_is_told_and_changes_no_history_of_rescales() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(series(60), refused="Internal error occurred: boom")
    assert web.replicas == 3
    assert web.events == [
        (
            "FailedRescale",
            "New size: 6; reason: external metric queue(nil) above target; error: Internal error occurred: boom",
        )
    ]
    condition = web.condition("AbleToScale")
    assert (condition.status, condition.reason) == ("False", "FailedUpdateScale")
    assert web.history.scale_ups == ()
    assert web.settled is not None
    assert (web.settled.action, web.settled.error_label) == ("none", "internal")
    assert web.settled.error == "failed to rescale Deployment/default/web: Internal error occurred: boom"
    assert web.hpa.status.last_scale_time is None


def test_each_repeated_refusal_moves_the_transition_time() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(series(60), refused="boom")
    web.reconcile(series(60), refused="boom", after=15)
    assert web.condition("AbleToScale").last_transition_time == web.now, "it was reachable in between"


def test_a_written_scale_is_remembered() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(series(60))
    assert web.history.scale_ups == (Rescale(START, 3),)
    assert web.history.recommendations == (PastRecommendation(START, 3), PastRecommendation(START, 6))
    assert web.hpa.status.last_scale_time == START
    assert web.settled is not None
    assert (web.settled.action, web.settled.metric_computations) == ("scale_up", (("External", "scale_up", "none"),))


def test_without_a_behavior_nobody_asks_for_past_rescales() -> None:
    web = Workload(QUEUE, replicas=3, behavior=None)
    web.reconcile(series(60))
    assert (web.replicas, web.history.scale_ups) == (6, ())


def test_nothing_new_is_not_written_again() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(series(30))
    web.reconcile(series(30), after=15)
    assert web.settled is not None
    assert not web.settled.status_changed


def test_times_in_the_status_are_whole_seconds() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(series(60), after=0.25)
    assert web.hpa.status.last_scale_time == START
    assert web.condition("AbleToScale").last_transition_time == START


def test_outdated_rescales_make_room_for_new_ones() -> None:
    web = Workload(QUEUE, replicas=1, high=100)
    for messages in (20, 30, 40, 50):
        web.reconcile(series(messages), after=20)
    assert web.history.scale_ups == (Rescale(web.now, 1),)


def test_an_unreadable_scale_leaves_all_but_one_condition_as_it_was() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(series(30))
    before = web.hpa.status
    decision = web.reconcile(after=15, scale=None, scale_error=ScaleError('deployments.apps "web" not found'))
    assert str(decision) == 'cannot decide: deployments.apps "web" not found'
    condition = web.condition("AbleToScale")
    assert (condition.status, condition.reason) == ("False", "FailedGetScale")
    assert web.hpa.status.current_metrics == before.current_metrics
    assert web.events == [("FailedGetScale", 'deployments.apps "web" not found')]
    assert web.settled is not None
    assert web.settled.error == (
        'failed to query scale subresource for Deployment/default/web: deployments.apps "web" not found'
    )


def test_what_is_too_old_to_decide_on_is_not_taken_for_a_target_that_is_gone() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(series(30))
    too_old = "nothing has been heard of pods for more than 5m0s: too long to decide"
    decision = web.reconcile(after=15, scale=None, scale_error=ScaleError(too_old, STALE))
    assert str(decision) == f"cannot decide: {too_old}"
    condition = web.condition("AbleToScale")
    assert (condition.status, condition.reason) == ("False", "StaleCache")
    assert condition.message == f"the HPA controller does not decide on what may be out of date: {too_old}"
    assert web.events == [("StaleCache", too_old)]
    assert web.settled is not None
    assert (web.settled.error, web.settled.error_label) == (too_old, "internal")


def test_an_api_version_that_is_none_is_a_fault_of_the_spec() -> None:
    web = Workload(QUEUE, replicas=3)
    target = msgspec.structs.replace(web.hpa.spec.scale_target_ref, api_version="a/b/c")
    web.hpa = msgspec.structs.replace(web.hpa, spec=msgspec.structs.replace(web.hpa.spec, scale_target_ref=target))
    decision = web.reconcile()
    assert str(decision) == "cannot decide: unexpected GroupVersion string: a/b/c"
    assert web.settled is not None
    assert web.settled.error_label == "spec"


@pytest.mark.parametrize(
    ("selector", "fields", "event", "condition"),
    [
        ("", {}, "SelectorRequired", "InvalidSelector"),
        ("app in (", {}, "InvalidSelector", "InvalidSelector"),
        ("app=web", {"competing_hpas": ("rival", "other")}, "AmbiguousSelector", "AmbiguousSelector"),
    ],
)
def test_pods_that_can_not_be_told_stop_the_decision(
    selector: str, fields: dict[str, Any], event: str, condition: str
) -> None:
    web = Workload(QUEUE, replicas=3)
    web.selector = selector
    decision = web.reconcile(**fields)
    assert decision.undecided
    assert [reason for reason, _ in web.events] == [event, "FailedComputeMetricsReplicas"]
    assert web.condition("ScalingActive").reason == condition
    assert (web.hpa.status.current_replicas, web.hpa.status.current_metrics) == (3, None)


def test_rivals_are_named_in_order() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(competing_hpas=("zebra", "ant"))
    assert web.condition("ScalingActive").message.endswith(
        "are controlled by multiple HPAs: [default/ant default/web default/zebra]"
    )


def test_an_unknown_type_of_metric_is_named() -> None:
    web = Workload({"type": "Weather"}, resource("cpu", averageUtilization=50), replicas=2)
    decision = web.reconcile(*web_answers(web))
    assert decision.scale_to == 4
    assert web.events[0] == ("InvalidMetricSourceType", 'unknown metric source type "Weather"')
    assert web.settled is not None
    assert web.settled.metric_computations == (("Weather", "none", "spec"), ("Resource", "scale_up", "none"))


def web_answers(web: Workload) -> list[Any]:
    return [used([200, 200]), used([200, 200])]


@pytest.mark.parametrize(
    ("metric", "flaw"),
    [
        ({"type": "Resource", "resource": {"name": "cpu"}}, "invalid resource metric source: neither an average"),
        ({"type": "Pods", "pods": {"metric": {"name": "p"}}}, "invalid pods metric source: no average value"),
        ({"type": "Object"}, "invalid object metric source: neither a value target"),
        ({"type": "External", "external": {"metric": {"name": "q"}}}, "invalid external metric source: neither"),
        (external("q", value="1") | {"external": {"metric": {"name": "q", "selector": {"matchExpressions": [
            {"key": "a", "operator": "Near", "values": ["b"]}]}}, "target": {"type": "Value", "value": "1"}}},
         '"Near" is not a valid label selector operator'),
    ],
)  # fmt: skip
def test_an_invalid_metric_is_never_queried(metric: dict[str, Any], flaw: str) -> None:
    web = Workload(metric, replicas=2)
    assert flaw in str(web.reconcile(series(1)))


def test_no_metrics_at_all_decide_nothing() -> None:
    web = Workload(replicas=2)
    assert "no metrics are specified" in str(web.reconcile())
    assert web.condition("ScalingActive").status == "False"


def test_decision_and_outcome_belong_together() -> None:
    web = Workload(QUEUE, replicas=3)
    decision = web.reconcile(series(30))
    with pytest.raises(ValueError, match="do not belong together"):
        settle(web.view(), decision, Outcome((4,)))


def test_the_trace_tells_every_stage() -> None:
    web = Workload(QUEUE, replicas=3)
    decision = web.reconcile(series(60))
    assert [step.stage for step in decision.trace] == [
        "examine", "measure", "propose", "recommend", "restrain", "decide",
    ]  # fmt: skip
    assert str(decision.trace[-1]) == f"decide: {decision}"


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (READ_FAILED, "failed to query scale subresource for Deployment/default/web: gone"),
        (NO_MATCH, "unable to determine resource for scale target reference: gone"),
        (STALE, "gone"),
    ],
)
def test_the_error_says_why_the_scale_is_unknown(reason: str, error: str) -> None:
    """Source: horizontal.go: reconcileAutoscaler; the reason decides, not the text."""
    web = Workload(external("queue", averageValue="10"), replicas=2)
    web.reconcile(scale=None, scale_error=ScaleError("gone", reason))
    assert web.settled is not None
    assert web.settled.error == error
