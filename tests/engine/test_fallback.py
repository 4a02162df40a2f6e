"""Fallback policies of failing metrics, and activation thresholds."""

from datetime import timedelta

import msgspec
import pytest
from support import engine

from hpad.api.hpa import HorizontalPodAutoscalerCondition as Condition
from hpad.api.sample import AdapterError
from hpad.engine import fallback_policy
from hpad.engine.conditions import FALLBACK_ACTIVE, SCALED_TO_ZERO, SCALING_ACTIVE, find
from hpad.engine.decide import Decision
from hpad.engine.fallback_policy import Fallback, FallbackPolicy
from hpad.engine.view import Gates, View
from hpad.recording.encode import encode_step
from hpad.recording.format import decode_step

DOWN = AdapterError("the broker is down")
QUEUE = engine.external("queue", averageValue="10")
RATE = engine.external("rate", averageValue="10")
FAST = {"scaleUp": {"policies": [{"type": "Pods", "value": 50, "periodSeconds": 15}]}}


class Annotated(engine.Workload):
    """A workload whose HPA has annotations."""

    def __init__(self, *metrics, replicas, annotations, low=1, **more):
        behavior = {**engine.DEFAULT_BEHAVIOR, **FAST}
        behavior["scaleDown"] = {**behavior["scaleDown"], "stabilizationWindowSeconds": 0}
        super().__init__(*metrics, replicas=replicas, low=low, behavior=behavior, **more)
        self.annotations = annotations

    def view(self, **fields) -> View:
        view = super().view(**fields)
        found = fallback_policy.from_annotations(self.annotations, [metric.name for metric in view.spec.metrics])
        return msgspec.structs.replace(view, fallback_policies=found.policies, fallback_error=found.error)

    def fail_for(self, seconds: int, *answers) -> Decision:
        """Reconcile every 15 seconds until the metric has failed for that long; the last decision."""
        decision = self.reconcile(*answers)
        for _ in range(seconds // 15):
            decision = self.reconcile(*answers, after=15)
        return decision


def test_without_policies_nothing_changes():
    target = Annotated(QUEUE, replicas=3, annotations={})
    assert target.fail_for(600, DOWN).scale_to is None
    assert find(target.hpa.status.conditions, FALLBACK_ACTIVE) is None


def test_fixed_replicas_come_after_the_failure_duration():
    target = Annotated(QUEUE, replicas=3, annotations={fallback_policy.FALLBACK: "replicas:7"})
    assert target.fail_for(165, DOWN).scale_to is None
    decision = target.reconcile(DOWN, after=15)
    assert decision.scale_to == 7
    assert str(decision) == (
        "scale web from 3 to 7: external metric queue falls back to 7 replicas, failing for 3m0s (the broker is down)"
    )


def test_a_fallback_hides_nothing():
    target = Annotated(QUEUE, replicas=3, annotations={fallback_policy.FALLBACK: "replicas:7 after 0s"})
    target.reconcile(DOWN)
    said = target.condition(FALLBACK_ACTIVE)
    assert (said.status, said.reason) == ("True", "FallbackActive")
    assert "the broker is down" in said.message
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
    assert (
        Annotated(QUEUE, replicas=8, annotations={fallback_policy.FALLBACK: "replicas:2 after 0s"})
        .reconcile(DOWN)
        .scale_to
        == 2
    )
    assert (
        Annotated(QUEUE, replicas=8, annotations={fallback_policy.FALLBACK: "replicas:99 after 0s"})
        .reconcile(DOWN)
        .scale_to
        == 10
    )


def test_the_failure_duration_is_an_annotation_too_and_starts_anew_after_a_sample():
    annotations = {fallback_policy.FALLBACK: "replicas:7", fallback_policy.FAILURE_DURATION: "60"}
    target = Annotated(QUEUE, replicas=3, annotations=annotations)
    assert target.fail_for(45, DOWN).scale_to is None
    assert target.reconcile(engine.series(30), after=15).scale_to is None
    assert target.reconcile(DOWN, after=15).scale_to is None
    assert target.fail_for(30, DOWN).scale_to is None
    assert target.fail_for(30, DOWN).scale_to == 7


def test_an_old_failure_does_not_count_when_policies_return():
    """Without a fallback policy the history keeps no last samples."""
    target = Annotated(QUEUE, replicas=3, annotations={fallback_policy.FALLBACK: "replicas:7"})
    target.reconcile(DOWN)
    agreed, target.annotations = target.annotations, {}
    target.reconcile(engine.series(30), after=15)
    target.annotations = agreed
    assert target.reconcile(DOWN, after=600).scale_to is None


def test_the_largest_proposal_wins_beside_a_fallback():
    target = Annotated(QUEUE, RATE, replicas=3, annotations={fallback_policy.FALLBACK: "queue=replicas:4 after 0s"})
    assert target.reconcile(DOWN, engine.series(60)).scale_to == 6
    decision = target.reconcile(DOWN, engine.series(10), after=15)
    assert decision.scale_to == 4


def test_last_good_holds_up_to_its_age():
    target = Annotated(QUEUE, replicas=3, annotations={fallback_policy.FALLBACK: "last-good:1m"})
    target.reconcile(engine.series(60))
    target.replicas = 3  # somebody meddles; what the metric asked for is remembered
    decision = target.reconcile(DOWN, after=30)
    assert decision.scale_to == 6
    assert "falls back to 6 replicas, as wanted 30s ago" in str(decision)
    target.replicas = 3
    assert target.reconcile(DOWN, after=31).scale_to is None
    assert target.condition(SCALING_ACTIVE).status == "False"


def test_last_good_does_not_compound_a_ratio():
    """A Value target multiplies the current replicas, so the old ratio must not be applied repeatedly."""
    target = Annotated(
        engine.external("load", value="10"), replicas=2, annotations={fallback_policy.FALLBACK: "last-good:10m"}
    )
    assert target.reconcile(engine.series(20)).scale_to == 4
    assert target.fail_for(300, DOWN).scale_to is None
    assert target.replicas == 4


def test_last_good_without_a_sample_is_hold():
    target = Annotated(QUEUE, replicas=3, annotations={fallback_policy.FALLBACK: "last-good:10m"})
    assert target.fail_for(60, DOWN).scale_to is None


def test_an_ignored_metric_lets_the_others_shrink():
    annotations = {fallback_policy.FALLBACK: "queue=ignore after 0s"}
    target = Annotated(QUEUE, RATE, replicas=5, annotations=annotations)
    decision = target.reconcile(DOWN, engine.series(20))
    assert decision.scale_to == 2
    assert str(decision).endswith("; external metric queue is ignored, failing for 0s (the broker is down)")
    assert Annotated(QUEUE, RATE, replicas=5, annotations={}).reconcile(DOWN, engine.series(20)).scale_to is None


def test_where_all_are_ignored_nothing_moves():
    target = Annotated(QUEUE, replicas=5, annotations={fallback_policy.FALLBACK: "ignore after 0s"})
    assert target.fail_for(300, DOWN).scale_to is None
    assert target.condition(SCALING_ACTIVE).reason == "FailedGetExternalMetric"


def test_a_metric_without_fallback_still_blocks_shrinking():
    target = Annotated(QUEUE, RATE, replicas=5, annotations={fallback_policy.FALLBACK: "queue=replicas:2 after 0s"})
    assert target.reconcile(DOWN, DOWN).scale_to is None


def test_a_wrong_annotation_is_named_and_does_nothing():
    target = Annotated(QUEUE, replicas=3, annotations={fallback_policy.FALLBACK: "replicas:many"})
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
def test_only_above_the_activation_threshold_there_is_work(value, replicas, scale_to):
    target = to_zero({fallback_policy.ACTIVATION: "5"}, replicas)
    assert target.reconcile(engine.series(value)).scale_to == scale_to


def test_without_a_threshold_a_single_message_wakes():
    assert to_zero({}, 0).reconcile(engine.series(1)).scale_to == 1


def test_activation_says_nothing_where_the_minimum_is_not_zero():
    target = Annotated(QUEUE, replicas=2, annotations={fallback_policy.ACTIVATION: "500"})
    assert target.reconcile(engine.series(40)).scale_to == 4


def test_an_inactive_metric_says_why():
    decision = to_zero({fallback_policy.ACTIVATION: "queue=5"}, 2).reconcile(engine.series(4))
    assert str(decision) == (
        "scale web from 2 to 0: external metric queue below target (2 / 10 per replica, 4 in total); "
        "1 wanted but 0, being not above its activation threshold 5"
    )


@pytest.mark.parametrize(
    ("text", "fallback"),
    [
        ("hold", Fallback(kind="hold")),
        ("ignore", Fallback(kind="ignore")),
        ("replicas:5", Fallback(kind="replicas", replicas=5)),
        ("replicas:5 after 1m0s", Fallback(kind="replicas", replicas=5, after=timedelta(minutes=1))),
        ("last-good:10m0s", Fallback(kind="last-good", age=timedelta(minutes=10))),
    ],
)
def test_policies_are_read_and_written(text, fallback):
    assert fallback_policy.parse(text) == fallback
    assert str(fallback) == text


@pytest.mark.parametrize(
    "text", ["", "replicas", "replicas:0", "replicas:x", "hold:3", "last-good", "last-good:9", "up"]
)
def test_what_is_no_policy(text):
    with pytest.raises(ValueError, match="is not"):
        fallback_policy.parse(text)


@pytest.mark.parametrize(
    ("annotations", "expected", "error"),
    [
        (None, (), None),
        ({"other": "x"}, (), None),
        ({fallback_policy.FALLBACK: "hold"}, ("hold", "hold"), None),
        ({fallback_policy.FALLBACK: "a=replicas:2"}, ("replicas:2", None), None),
        (
            {fallback_policy.FALLBACK: "a=replicas:2,ignore", fallback_policy.FAILURE_DURATION: "9"},
            ("replicas:2 after 9s", "ignore after 9s"),
            None,
        ),
        (
            {fallback_policy.FALLBACK: "c=hold"},
            (),
            "annotation hpad.io/fallback: there is no metric 'c' here; there are a, b",
        ),
        (
            {fallback_policy.ACTIVATION: "many"},
            (),
            "annotation hpad.io/activation: 'many' is not a number such as 5 or 500m",
        ),
    ],
)
def test_annotations(annotations, expected, error):
    found = fallback_policy.from_annotations(annotations, ["a", "b"])
    assert tuple(None if each.fallback is None else str(each.fallback) for each in found.policies) == expected
    assert found.error == error


def test_flaws_are_told_of_all_annotations_even_of_those_without_effect():
    found = {
        fallback_policy.FALLBACK: "hold",
        fallback_policy.FAILURE_DURATION: "c=9",
        "hpad.io/activate": "1",
        "other": "x",
    }
    assert fallback_policy.annotation_errors(found, ["a", "b"]) == {
        "hpad.io/activate": 'there is no such annotation; did you mean "hpad.io/activation"?',
        fallback_policy.FAILURE_DURATION: "there is no metric 'c' here; there are a, b",
    }
    assert fallback_policy.annotation_errors({fallback_policy.FAILURE_DURATION: "soon"}, ["a"]) == {
        fallback_policy.FAILURE_DURATION: "'soon' is not a whole number of 0 or more"
    }
    assert fallback_policy.annotation_errors(None, ["a"]) == fallback_policy.annotation_errors({"other": "x"}, []) == {}


def test_policies_are_recorded_and_read_back():
    policies = (
        FallbackPolicy(fallback=fallback_policy.parse("replicas:5 after 1m"), activation=2500),
        FallbackPolicy(),
    )
    target = Annotated(QUEUE, RATE, replicas=1, annotations={})
    view = target.view()
    step = encode_step(now=view.now, pods=(), queries=(), answers=(), scale=view.scale, terms=policies, terms_flaw="x")
    read = decode_step(step)
    assert (read.policies, read.terms_flaw) == (policies, "x")
