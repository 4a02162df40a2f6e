"""Fallback policies of failing metrics, and activation thresholds."""

from datetime import timedelta

import msgspec
import pytest
from support import engine

from hpad.api.hpa import HorizontalPodAutoscalerCondition as Condition
from hpad.api.sample import AdapterError
from hpad.engine import fallback_policy
from hpad.engine.annotations import ACTIVATION, FAILURE_DURATION, FALLBACK
from hpad.engine.conditions import FALLBACK_ACTIVE, SCALED_TO_ZERO, SCALING_ACTIVE, find
from hpad.engine.decision import Decision
from hpad.engine.fallback_policy import Fallback
from hpad.engine.view import Gates

DOWN = AdapterError("the broker is down")
QUEUE = engine.external("queue", averageValue="10")
RATE = engine.external("rate", averageValue="10")
FAST = {"scaleUp": {"policies": [{"type": "Pods", "value": 50, "periodSeconds": 15}]}}


class Annotated(engine.Workload):
    """A workload with annotations whose policies and windows limit no rescale."""

    def __init__(self, *metrics, annotations, **more):
        behavior = {**engine.DEFAULT_BEHAVIOR, **FAST}
        behavior["scaleDown"] = {**behavior["scaleDown"], "stabilizationWindowSeconds": 0}
        super().__init__(*metrics, annotations=annotations, behavior=behavior, **more)

    def fail_for(self, seconds: int, *answers) -> Decision:
        """Reconciles every 15 seconds until the metric has failed for `seconds`, and returns the last decision."""
        decision = self.reconcile(*answers)
        for _ in range(seconds // 15):
            decision = self.reconcile(*answers, after=15)
        return decision


def test_without_policies_a_failing_metric_changes_nothing():
    target = Annotated(QUEUE, replicas=3, annotations={})
    assert target.fail_for(600, DOWN).scale_to is None
    assert find(target.hpa.status.conditions, FALLBACK_ACTIVE) is None


def test_fixed_replicas_apply_after_the_failure_duration():
    target = Annotated(QUEUE, replicas=3, annotations={FALLBACK: "replicas:7"})
    assert target.fail_for(165, DOWN).scale_to is None
    decision = target.reconcile(DOWN, after=15)
    assert decision.scale_to == 7
    assert str(decision) == (
        "scale web from 3 to 7: external metric queue falls back to 7 replicas, failing for 3m0s (the broker is down)"
    )


def test_a_fallback_is_reported_in_conditions_events_and_labels():
    target = Annotated(QUEUE, replicas=3, annotations={FALLBACK: "replicas:7 after 0s"})
    target.reconcile(DOWN)
    condition = target.condition(FALLBACK_ACTIVE)
    assert (condition.status, condition.reason) == ("True", "FallbackActive")
    assert "the broker is down" in condition.message
    assert target.condition(SCALING_ACTIVE).status == "True"
    reasons = [reason for reason, _ in target.events]
    assert reasons == ["FailedGetExternalMetric", "SuccessfulRescale"]
    assert target.settled is not None
    assert target.settled.error_label == "internal"
    assert "the broker is down" in (target.settled.error or "")
    assert target.settled.metric_computations == (("External", "none", "internal"),)
    target.reconcile(engine.series(70), after=15)
    assert target.condition(FALLBACK_ACTIVE).status == "False"


def test_fixed_replicas_may_shrink_and_obey_the_maximum():
    assert Annotated(QUEUE, replicas=8, annotations={FALLBACK: "replicas:2 after 0s"}).reconcile(DOWN).scale_to == 2
    assert Annotated(QUEUE, replicas=8, annotations={FALLBACK: "replicas:99 after 0s"}).reconcile(DOWN).scale_to == 10


@pytest.mark.parametrize(
    ("policy", "replicas", "expected"),
    [("at-least:6", 3, 6), ("at-least:6", 8, None), ("at-most:6", 8, 6), ("at-most:6", 3, None)],
)
def test_a_fallback_relative_to_the_current_count_moves_in_one_direction_only(policy, replicas, expected):
    """As KEDA's behaviors currentReplicasIfHigher and currentReplicasIfLower."""
    target = Annotated(QUEUE, replicas=replicas, annotations={FALLBACK: f"{policy} after 0s"})
    assert target.reconcile(DOWN).scale_to == expected


def test_the_failure_duration_is_an_annotation_and_restarts_after_a_sample():
    annotations = {FALLBACK: "replicas:7", FAILURE_DURATION: "60"}
    target = Annotated(QUEUE, replicas=3, annotations=annotations)
    assert target.fail_for(45, DOWN).scale_to is None
    assert target.reconcile(engine.series(30), after=15).scale_to is None
    assert target.reconcile(DOWN, after=15).scale_to is None
    assert target.fail_for(30, DOWN).scale_to is None
    assert target.fail_for(30, DOWN).scale_to == 7


def test_an_old_failure_does_not_count_when_policies_return():
    """Without a fallback policy the history keeps no last samples."""
    target = Annotated(QUEUE, replicas=3, annotations={FALLBACK: "replicas:7"})
    target.reconcile(DOWN)
    policies, target.annotations = target.annotations, {}
    target.reconcile(engine.series(30), after=15)
    target.annotations = policies
    assert target.reconcile(DOWN, after=600).scale_to is None


def test_metrics_of_one_label_fail_and_recover_independently():
    """Metrics of two Ingresses have the same label: the failure of one must not count for the other."""
    rate = engine.object_metric("rate", averageValue="10")
    target = Annotated(rate, rate, replicas=3, annotations={FALLBACK: "#1=replicas:8 after 60s"})
    target.fail_for(60, DOWN, engine.one(30))
    assert target.reconcile(DOWN, DOWN, after=15).scale_to is None
    assert target.fail_for(45, DOWN, DOWN).scale_to is None
    assert target.reconcile(DOWN, DOWN, after=15).scale_to == 8


def test_the_last_value_of_a_metric_is_not_that_of_another_of_its_label():
    rate = engine.object_metric("rate", averageValue="10")
    target = Annotated(rate, rate, replicas=3, annotations={FALLBACK: "last-good:10m"})
    target.reconcile(engine.one(30), engine.one(70))
    target.replicas = 3
    assert target.reconcile(engine.one(30), DOWN, after=15).scale_to == 7


def test_the_largest_proposal_wins_beside_a_fallback():
    target = Annotated(QUEUE, RATE, replicas=3, annotations={FALLBACK: "queue=replicas:4 after 0s"})
    assert target.reconcile(DOWN, engine.series(60)).scale_to == 6
    decision = target.reconcile(DOWN, engine.series(10), after=15)
    assert decision.scale_to == 4


def test_last_good_applies_up_to_its_age():
    target = Annotated(QUEUE, replicas=3, annotations={FALLBACK: "last-good:1m"})
    target.reconcile(engine.series(60))
    target.replicas = 3  # another client changes the count; the proposal of the metric is kept
    decision = target.reconcile(DOWN, after=30)
    assert decision.scale_to == 6
    assert "falls back to 6 replicas, as wanted 30s ago" in str(decision)
    target.replicas = 3
    assert target.reconcile(DOWN, after=31).scale_to is None
    assert target.condition(SCALING_ACTIVE).status == "False"


def test_last_good_does_not_compound_a_ratio():
    """A Value target multiplies the current replicas, so the old ratio must not be applied repeatedly."""
    target = Annotated(engine.external("load", value="10"), replicas=2, annotations={FALLBACK: "last-good:10m"})
    assert target.reconcile(engine.series(20)).scale_to == 4
    assert target.fail_for(300, DOWN).scale_to is None
    assert target.replicas == 4


def test_last_good_without_a_sample_keeps_the_count():
    target = Annotated(QUEUE, replicas=3, annotations={FALLBACK: "last-good:10m"})
    assert target.fail_for(60, DOWN).scale_to is None


def test_an_ignored_metric_lets_the_others_shrink():
    annotations = {FALLBACK: "queue=ignore after 0s"}
    target = Annotated(QUEUE, RATE, replicas=5, annotations=annotations)
    decision = target.reconcile(DOWN, engine.series(20))
    assert decision.scale_to == 2
    assert str(decision).endswith("; external metric queue is ignored, failing for 0s (the broker is down)")
    assert Annotated(QUEUE, RATE, replicas=5, annotations={}).reconcile(DOWN, engine.series(20)).scale_to is None


def test_with_all_metrics_ignored_the_count_stays():
    target = Annotated(QUEUE, replicas=5, annotations={FALLBACK: "ignore after 0s"})
    assert target.fail_for(300, DOWN).scale_to is None
    assert target.condition(SCALING_ACTIVE).reason == "FailedGetExternalMetric"


def test_a_metric_without_fallback_still_blocks_shrinking():
    target = Annotated(QUEUE, RATE, replicas=5, annotations={FALLBACK: "queue=replicas:2 after 0s"})
    assert target.reconcile(DOWN, DOWN).scale_to is None


def test_an_invalid_annotation_is_reported_and_has_no_effect():
    target = Annotated(QUEUE, replicas=3, annotations={FALLBACK: "replicas:many"})
    assert target.fail_for(300, DOWN).scale_to is None
    assert (
        "InvalidAnnotation",
        "annotation hpad.io/fallback: 'many' is not a whole number of 1 or more",
    ) in target.events


def to_zero(annotations: dict[str, str], replicas: int, **more) -> Annotated:
    made = Annotated(QUEUE, replicas=replicas, low=0, annotations=annotations, gates=Gates(HPAScaleToZero=True), **more)
    if not replicas:
        zero = Condition(SCALED_TO_ZERO, "True", engine.START, "ScaledToZero", "")
        made.hpa = msgspec.structs.replace(
            made.hpa, status=msgspec.structs.replace(made.hpa.status, conditions=(zero,))
        )
    return made


@pytest.mark.parametrize(
    ("value", "replicas", "scale_to"),
    [(5, 2, 0), (6, 2, 1), (40, 2, 4), (5, 0, None), (6, 0, 1), (40, 0, 4), (0, 2, 0)],
)
def test_a_metric_is_active_only_above_its_activation_threshold(value, replicas, scale_to):
    target = to_zero({ACTIVATION: "5"}, replicas)
    assert target.reconcile(engine.series(value)).scale_to == scale_to


def test_without_a_threshold_one_message_scales_up_from_zero():
    assert to_zero({}, 0).reconcile(engine.series(1)).scale_to == 1


def test_activation_has_no_effect_with_a_minimum_above_zero():
    target = Annotated(QUEUE, replicas=2, annotations={ACTIVATION: "500"})
    assert target.reconcile(engine.series(40)).scale_to == 4


def test_the_sentence_explains_an_inactive_metric():
    decision = to_zero({ACTIVATION: "queue=5"}, 2).reconcile(engine.series(4))
    assert str(decision) == (
        "scale web from 2 to 0: external metric queue below target (2 / 10 per replica, 4 in total); "
        "1 wanted but 0, not above its activation threshold 5"
    )


@pytest.mark.parametrize(
    ("text", "fallback"),
    [
        ("hold", Fallback(kind="hold")),
        ("ignore", Fallback(kind="ignore")),
        ("replicas:5", Fallback(kind="replicas", replicas=5)),
        ("replicas:5 after 1m0s", Fallback(kind="replicas", replicas=5, after=timedelta(minutes=1))),
        ("at-least:5", Fallback(kind="at-least", replicas=5)),
        ("at-most:5 after 0s", Fallback(kind="at-most", replicas=5, after=timedelta(0))),
        ("last-good:10m0s", Fallback(kind="last-good", age=timedelta(minutes=10))),
    ],
)
def test_policies_are_parsed_and_formatted(text, fallback):
    assert fallback_policy.parse(text) == fallback
    assert str(fallback) == text


@pytest.mark.parametrize(
    "text", ["", "replicas", "replicas:0", "at-least", "at-most:0", "hold:3", "last-good", "last-good:9", "up"]
)
def test_invalid_policies_are_refused(text):
    with pytest.raises(ValueError, match="is not"):
        fallback_policy.parse(text)
