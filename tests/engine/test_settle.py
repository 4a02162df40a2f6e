"""The results of a reconcile: conditions, events, history, labels of its series."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.engine import START, Workload, external, resource, series, used

from hpad.api.sample import AdapterError
from hpad.engine.conditions import with_detail
from hpad.engine.history import History, PastRecommendation, Rescale
from hpad.engine.settle import Outcome, Settlement, settle
from hpad.engine.turn import run
from hpad.engine.view import HPA, NO_MATCH, READ_FAILED, STALE, Competitor, ScaleError, yielded

QUEUE = external("queue", averageValue="10")


def test_a_refused_write_is_reported_and_adds_no_rescale_to_the_history() -> None:
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


def test_a_count_that_is_left_to_another_hpa_is_reported_once() -> None:
    web = Workload(QUEUE, replicas=3, low=5)
    other = Competitor(HPA, "default/other")
    settled: list[Settlement] = []
    for seconds in (0, 15, 30):
        view = web.view(now=START + timedelta(seconds=seconds), competitors=(other,))
        settled.append(run(view, lambda queries: (), held=yielded(other)).settlement)
        web.hpa = msgspec.structs.replace(web.hpa, status=settled[-1].status)
    assert web.condition("AbleToScale").reason == "CompetingHPA"
    assert [each.status_changed for each in settled] == [True, False, False]


@pytest.mark.parametrize(
    ("messages", "replicas", "detail"),
    [
        (60, 3, "from 3: external metric queue above target (20 / 10 per replica, 60 in total)"),
        (20, 3, "from 3: external metric queue below target (6.67 / 10 per replica, 20 in total)"),
        (120, 9, "from 9: external metric queue above target (13.3 / 10 per replica, 120 in total); 12 wanted but the"
                 " maximum is 10"),
        (0, 12, "from 12: the maximum is 10"),
    ],
)  # fmt: skip
def test_the_detail_of_a_rescale_is_its_sentence_without_the_new_count(
    messages: int, replicas: int, detail: str
) -> None:
    """The text of Kubernetes gives the new count. The detail gives the former one, and the reasons in full."""
    web = Workload(QUEUE, replicas=replicas)
    web.history = History((PastRecommendation(START, 1),))
    decision = web.reconcile(*([series(messages)] if replicas <= 10 else []))
    assert web.settled is not None
    (event,) = web.settled.events
    assert (event.reason, event.detail) == ("SuccessfulRescale", detail)
    assert str(decision) == f"scale web from {replicas} to {decision.desired}: {detail.partition(': ')[2]}"


def test_a_refused_rescale_has_the_same_detail_as_a_written_one() -> None:
    written, refused = Workload(QUEUE, replicas=3), Workload(QUEUE, replicas=3)
    written.reconcile(series(60))
    refused.reconcile(series(60), refused="boom")
    assert written.settled is not None
    assert refused.settled is not None
    assert [event.detail for event in refused.settled.events] == [event.detail for event in written.settled.events]


def test_only_events_of_rescales_have_a_detail() -> None:
    web = Workload(QUEUE, external("rate", averageValue="10"), replicas=3)
    web.reconcile(series(60), AdapterError("connection refused"))
    assert web.settled is not None
    detailed = {event.reason: bool(event.detail) for event in web.settled.events}
    assert detailed == {"FailedGetExternalMetric": False, "SuccessfulRescale": True}


def test_a_detail_follows_the_text_of_kubernetes() -> None:
    assert with_detail("New size: 4; reason: x", "from 3: y") == "New size: 4; reason: x; from 3: y"
    assert with_detail("New size: 4; reason: x", "") == "New size: 4; reason: x"


@pytest.mark.parametrize("letter", ["a", "ä", "€", "🙂"])
@pytest.mark.parametrize("message", [40, 41, 42, 43, 500, 900])
def test_a_long_detail_ends_in_an_ellipsis_at_1024_bytes(letter: str, message: int) -> None:
    """A note of events.k8s.io has at most 1,024 bytes. No character is cut in two, and no word."""
    word = letter * 5
    text = with_detail("m" * message, " ".join([word] * 500))
    assert 1024 - len(f" {word}".encode()) <= len(text.encode()) <= 1024
    first, *others = text.removeprefix("m" * message + "; ").split(" ")
    assert others.pop() == "…"
    assert {first, *others} == {word}


def test_a_detail_of_exactly_the_room_is_whole() -> None:
    assert with_detail("m" * 100, "d" * 922) == f"{'m' * 100}; {'d' * 922}"
    assert with_detail("m" * 100, "d" * 923) == f"{'m' * 100}; {'d' * 918} …"


@pytest.mark.parametrize("length", [991, 1024, 5000])
def test_the_text_of_kubernetes_is_never_shortened(length: int) -> None:
    """It stands alone where fewer than 32 bytes are left for a detail that is longer."""
    assert with_detail("m" * length, "from 3: external metric queue above target (20 / 10)") == "m" * length
    assert with_detail("m" * 990, "from 3: external metric queue above target (20 / 10)").endswith("metric …")


def test_a_detail_from_outside_is_escaped() -> None:
    """A selector or an error text may hold control characters, which kubectl would print."""
    assert with_detail("x", "a\x1b[2Jb\nc\ud83d") == "x; a\\u001b[2Jb\\nc\\ud83d"


def test_each_repeated_refusal_moves_the_transition_time() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(series(60), refused="boom")
    web.reconcile(series(60), refused="boom", after=15)
    assert web.condition("AbleToScale").last_transition_time == web.now, "the scale could be read in between"


def test_a_written_scale_is_added_to_the_history() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(series(60))
    assert web.history.scale_ups == (Rescale(START, 3),)
    assert web.history.recommendations == (PastRecommendation(START, 3), PastRecommendation(START, 6))
    assert web.hpa.status.last_scale_time == START
    assert web.settled is not None
    assert (web.settled.action, web.settled.metric_computations) == ("scale_up", (("External", "scale_up", "none"),))


def test_without_a_behavior_no_rescales_are_kept() -> None:
    web = Workload(QUEUE, replicas=3, behavior=None)
    web.reconcile(series(60))
    assert (web.replicas, web.history.scale_ups) == (6, ())


def test_an_unchanged_status_is_not_written() -> None:
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


def test_outdated_rescales_are_replaced_by_new_ones() -> None:
    web = Workload(QUEUE, replicas=1, high=100)
    for messages in (20, 30, 40, 50):
        web.reconcile(series(messages), after=20)
    assert web.history.scale_ups == (Rescale(web.now, 1),)


def test_an_unreadable_scale_changes_only_able_to_scale() -> None:
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


def test_a_stale_cache_is_not_reported_as_a_missing_target() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(series(30))
    too_old = "the watch of pods has received nothing for more than 5m0s: too long to decide"
    decision = web.reconcile(after=15, scale=None, scale_error=ScaleError(too_old, STALE))
    assert str(decision) == f"cannot decide: {too_old}"
    condition = web.condition("AbleToScale")
    assert (condition.status, condition.reason) == ("False", "StaleCache")
    assert condition.message == f"the HPA controller does not decide on what may be out of date: {too_old}"
    assert web.events == [("StaleCache", too_old)]
    assert web.settled is not None
    assert (web.settled.error, web.settled.error_label) == (too_old, "internal")


def test_an_invalid_api_version_is_an_error_of_the_spec() -> None:
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
        ("app=web", {"overlapping_hpas": ("another", "other")}, "AmbiguousSelector", "AmbiguousSelector"),
    ],
)
def test_an_invalid_or_ambiguous_selector_prevents_a_decision(
    selector: str, fields: dict[str, Any], event: str, condition: str
) -> None:
    web = Workload(QUEUE, replicas=3)
    web.selector = selector
    decision = web.reconcile(**fields)
    assert decision.undecided
    assert [reason for reason, _ in web.events] == [event, "FailedComputeMetricsReplicas"]
    assert web.condition("ScalingActive").reason == condition
    assert (web.hpa.status.current_replicas, web.hpa.status.current_metrics) == (3, None)


def test_overlapping_hpas_are_named_in_order() -> None:
    web = Workload(QUEUE, replicas=3)
    web.reconcile(overlapping_hpas=("zebra", "ant"))
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
    ("metric", "error"),
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
def test_an_invalid_metric_source_is_reported(metric: dict[str, Any], error: str) -> None:
    web = Workload(metric, replicas=2)
    assert error in str(web.reconcile(series(1)))


def test_an_hpa_without_metrics_makes_no_decision() -> None:
    web = Workload(replicas=2)
    assert "no metrics are specified" in str(web.reconcile())
    assert web.condition("ScalingActive").status == "False"


def test_an_outcome_of_another_decision_is_refused() -> None:
    web = Workload(QUEUE, replicas=3)
    decision = web.reconcile(series(30))
    with pytest.raises(ValueError, match="do not belong together"):
        settle(web.view(), decision, Outcome((4,)))


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        (READ_FAILED, "failed to query scale subresource for Deployment/default/web: gone"),
        (NO_MATCH, "unable to determine resource for scale target reference: gone"),
        (STALE, "gone"),
    ],
)
def test_the_error_gives_the_reason_that_the_scale_is_unknown(reason: str, error: str) -> None:
    """Source: horizontal.go: reconcileAutoscaler; the reason decides, not the text."""
    web = Workload(external("queue", averageValue="10"), replicas=2)
    web.reconcile(scale=None, scale_error=ScaleError("gone", reason))
    assert web.settled is not None
    assert web.settled.error == error
