"""Traces: what they name."""

from datetime import timedelta

import msgspec
from support.engine import (
    START,
    Workload,
    container,
    external,
    object_metric,
    one,
    pod,
    pods_metric,
    resource,
    series,
    used,
)

from hpad.api.pod import ContainerRequests
from hpad.api.sample import AdapterError
from hpad.engine import trace
from hpad.engine.settle import Outcome
from hpad.engine.trace.metric_types import ActivationTrace, FallbackTrace, NextFallbackTrace, SampleTrace
from hpad.engine.view import DRY_RUN, Gates


def test_a_trace_names_what_each_pod_counted_as_and_why() -> None:
    web = Workload(resource("cpu", averageUtilization=50), replicas=4)
    web.pods = [
        pod("web-0"),
        pod("web-1", age=20),
        pod("web-2"),
        pod("web-3", phase="Failed"),
        pod("web-4", phase="Pending"),
    ]
    web.reconcile(used({"web-0": 180, "web-1": 150, "gone": 10}))
    (metric,) = web.trace.metrics
    counted = {each.name: (each.group, each.why, each.value, each.request, each.assumed) for each in metric.pods}
    assert counted == {
        "web-0": ("ready", "", "180m", "200m", None),
        "web-1": ("unready", "its sample began before it became ready", "150m", "200m", "0"),
        "web-2": ("missing", "the source has no value for it", None, "200m", "0"),
        "web-3": ("ignored", "its phase is Failed", None, "200m", None),
        "web-4": ("unready", "its phase is Pending", None, "200m", "0"),
        "gone": (
            "unlisted",
            "the source has a value for it, but the selector of the target does not list it",
            "10m",
            None,
            None,
        ),
    }
    # 180 of 200 millicores are 90 %; over the four pods that may serve, 180 of 800 are 22 %: no growth for certain.
    assert metric.usage is not None
    assert (metric.usage.percent, metric.usage.ratio, metric.usage.cautious_ratio) == (90, 1.8, 22 / 50)
    assert metric.proposal == 4


def test_pods_without_the_container_are_named_and_count_as_busy_on_a_scale_down() -> None:
    web = Workload(container("cpu", "app", averageUtilization=50), replicas=3, behavior=None)
    other = (ContainerRequests("side", {"cpu": 100}),)
    web.pods = [pod("web-0"), pod("web-1"), pod("web-2", containers=other)]
    web.reconcile(used([20, 20]))
    (metric,) = web.trace.metrics
    assert [(each.name, each.group, each.why) for each in metric.pods][2] == (
        "web-2",
        "lacking",
        "it has no container app",
    )


def test_a_missing_request_shows_the_pods_although_the_metric_fails() -> None:
    web = Workload(resource("cpu", averageUtilization=50), replicas=2)
    web.pods = [pod("web-0"), pod("web-1", cpu=None)]
    web.reconcile(used([100, 100]))
    (metric,) = web.trace.metrics
    assert metric.error == "missing request for cpu in container app of Pod web-1"
    assert [(each.name, each.request) for each in metric.pods] == [("web-0", "200m"), ("web-1", None)]
    assert metric.proposal is None
    assert web.trace.chosen == trace.ChosenTrace(
        invalid=1,
        error="invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: failed to"
        " get cpu utilization: missing request for cpu in container app of Pod web-1",
    )


def test_a_held_scale_down_names_the_recommendation_and_when_its_window_ends() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=5)
    web.reconcile(series(50))
    web.reconcile(series(20), after=60)
    web.reconcile(series(20), after=60)
    step = web.trace.stabilization
    assert step is not None
    assert (step.recommended, step.stabilized, step.up_window_seconds, step.down_window_seconds) == (2, 5, 0, 300)
    assert step.held_by == trace.RecommendationTrace(time=START, replicas=5)
    assert step.frees_at == START + timedelta(seconds=300)
    assert [(entry.time, entry.replicas) for entry in step.recommendations] == [
        (START, 5),
        (START + timedelta(seconds=60), 2),
    ]


def test_a_policy_names_the_count_at_the_start_its_used_budget_and_when_it_frees() -> None:
    down = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}
    web = Workload(external("queue", averageValue="10"), replicas=8, behavior={"scaleDown": down})
    web.reconcile(series(80))
    web.reconcile(series(70), after=15)
    web.reconcile(series(10), after=15)
    (rule,) = web.trace.policies.rules if web.trace.policies else ()
    assert (rule.start, rule.allows, rule.used) == (8, 6, 1)
    assert rule.frees_at == START + timedelta(seconds=75)
    assert web.trace.policies is not None
    assert (web.trace.policies.direction, web.trace.policies.allows, web.trace.policies.limited) == ("down", 6, True)
    assert web.trace.replicas.desired == 6


def test_a_fallback_and_an_activation_threshold_are_named() -> None:
    metrics = (external("queue", averageValue="10"), external("other", averageValue="10"))
    annotations = {"hpad.io/fallback": "queue=replicas:4 after 0s", "hpad.io/activation": "other=5"}
    web = Workload(*metrics, replicas=2, low=0, annotations=annotations)
    web.reconcile(AdapterError("the broker is down"), series(3))
    queue, other = web.trace.metrics
    assert queue.fallback == FallbackTrace(
        policy="replicas:4 after 0s", effect="falls back to 4 replicas, failing for 0s"
    )
    assert (queue.error, queue.proposal) == ("the broker is down", 4)
    assert other.activation == ActivationTrace(threshold="5", measured=1)
    assert other.proposal == 0


def test_an_activation_threshold_that_changes_nothing_is_named_as_well() -> None:
    web = Workload(
        external("queue", averageValue="10"), replicas=2, low=0, annotations={"hpad.io/activation": "queue=5"}
    )
    web.reconcile(series(20))
    assert web.trace.metrics[0].activation == ActivationTrace(threshold="5")
    web = Workload(
        external("queue", averageValue="10"), replicas=2, low=1, annotations={"hpad.io/activation": "queue=5"}
    )
    web.reconcile(series(20))
    assert web.trace.metrics[0].activation is None, "with minReplicas 1 a threshold has no effect"


def test_a_fallback_names_when_it_begins_and_when_it_ends() -> None:
    metrics = (external("queue", averageValue="10"), external("other", averageValue="10"), external("third", value="1"))
    fallbacks = "queue=replicas:4 after 60s, other=last-good:2m, third=ignore"
    web = Workload(*metrics, replicas=2, annotations={"hpad.io/fallback": fallbacks})
    down = AdapterError("the broker is down")
    web.reconcile(series(20), series(20), series(1))
    web.reconcile(down, down, down, after=15)
    queue, other, third = web.trace.metrics
    failing_since = START + timedelta(seconds=15)
    assert queue.next_fallback == NextFallbackTrace(
        policy="replicas:4 after 1m0s", at=failing_since + timedelta(seconds=60), replicas=4
    )
    assert queue.fallback is None
    assert other.fallback is not None
    assert (other.fallback.until, other.next_fallback) == (START + timedelta(minutes=2), None)
    assert third.next_fallback == NextFallbackTrace(policy="ignore", at=failing_since + timedelta(seconds=180))
    web.reconcile(down, down, down, after=59)
    assert web.trace.metrics[0].next_fallback == queue.next_fallback, "the time stays"
    web.reconcile(down, down, down, after=1)
    assert (web.trace.metrics[0].proposal, web.trace.metrics[0].next_fallback) == (4, None)


def test_a_last_good_count_that_is_too_old_by_then_is_no_next_fallback() -> None:
    web = Workload(
        external("queue", averageValue="10"),
        replicas=2,
        annotations={"hpad.io/fallback": "last-good:1m after 2m"},
    )
    web.reconcile(series(20))
    web.reconcile(AdapterError("the broker is down"), after=15)
    assert web.trace.metrics[0].next_fallback is None


def test_an_error_names_what_has_to_change() -> None:
    invalid = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization"}}}
    web = Workload(
        *(external("queue", averageValue="10"), external("other", averageValue="10"), invalid),
        *(resource("cpu", averageUtilization=50), external("third", value="1")),
        replicas=1,
    )
    web.pods = [pod("web-0", cpu=None)]
    web.reconcile(
        AdapterError("no answer"), AdapterError("forbidden", "cluster"), AdapterError("unused"), used([100]), one(5)
    )
    assert [metric.fault for metric in web.trace.metrics] == ["source", "cluster", "spec", "pods", "source"]
    assert [metric.unit for metric in web.trace.metrics] == ["", "", "bytes", "cores", ""]


def test_the_rules_and_the_past_are_complete_where_nothing_is_decided() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=2, behavior={"scaleUp": {"selectPolicy": "Disabled"}})
    web.reconcile(series(20))
    web.reconcile(AdapterError("no answer"), after=15)
    assert web.trace.stabilization is None
    assert web.trace.past == trace.PastTrace(recommendations=(trace.RecommendationTrace(time=START, replicas=2),))
    policies = (
        trace.ScalingPolicyTrace(type="Pods", value=4, period_seconds=15),
        trace.ScalingPolicyTrace(type="Percent", value=100, period_seconds=15),
    )
    assert web.trace.behavior == trace.BehaviorTrace(
        down=trace.DirectionTrace(window_seconds=300, select="Max", policies=policies[1:]),
        up=trace.DirectionTrace(window_seconds=0, select="Disabled", policies=policies),
    )
    plain = Workload(external("queue", averageValue="10"), replicas=2, behavior=None)
    plain.reconcile(series(20))
    assert plain.trace.behavior == trace.BehaviorTrace(down=trace.DirectionTrace(window_seconds=300))


def test_past_rescales_are_named() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=2)
    web.reconcile(series(40))
    assert web.trace.past == trace.PastTrace(), "those before the decision"
    web.reconcile(series(40), after=15)
    assert web.trace.past == trace.PastTrace(scale_ups=(trace.RescaleTrace(time=START, change=2),))


def test_a_minimum_of_zero_that_the_gate_forbids_is_named() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=2, low=0)
    web.reconcile(series(0))
    assert (web.trace.replicas.min, web.trace.replicas.zero_disabled) == (1, True)
    web = Workload(external("queue", averageValue="10"), replicas=2, low=0, gates=Gates(HPAScaleToZero=True))
    web.reconcile(series(0))
    assert (web.trace.replicas.min, web.trace.replicas.zero_disabled) == (0, False)


def test_a_count_outside_the_bounds_is_explained_without_metrics() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=12, high=10)
    web.reconcile()
    assert web.trace.metrics == ()
    assert web.trace.bounds == trace.BoundsTrace(before=12, after=10, applied="maximum")


def test_a_stopped_target_has_a_halt_and_keeps_zero() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=0)
    web.reconcile()
    assert web.trace.halt is not None
    assert (web.trace.halt.kind, web.trace.halt.reason) == ("disabled", "ScalingDisabled")


def test_the_write_has_its_outcome() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=2)
    web.reconcile(series(40))
    assert web.trace.write == trace.WriteTrace(outcome="written", attempts=(4,))
    web.reconcile(series(90), after=60, refused="the webhook says no")
    assert web.trace.write == trace.WriteTrace(outcome="failed", attempts=(8,), reason="the webhook says no")
    assert [event.reason for event in web.trace.events] == ["FailedRescale"]
    assert web.done is not None
    unsure = msgspec.structs.replace(web.done.outcome or Outcome(()), unsure=True)
    web.done = msgspec.structs.replace(web.done, outcome=unsure)
    assert web.trace.write is not None
    assert web.trace.write.outcome == "uncertain"
    web.done = msgspec.structs.replace(web.done, outcome=Outcome((8,), withheld=DRY_RUN))
    assert web.trace.write == trace.WriteTrace(
        outcome="withheld", attempts=(8,), reason="DryRun: this is a dry run", withheld="DryRun"
    )


def test_samples_have_their_values_and_their_age() -> None:
    metrics = (external("queue", averageValue="10"), object_metric("requests", value="100"), pods_metric("rate", "5"))
    web = Workload(*metrics, replicas=1)
    web.now += timedelta(seconds=7)
    web.reconcile(series(3, 4), one(50), used([2000]))
    queue, requests, rate = (each.sample for each in web.trace.metrics)
    assert queue == SampleTrace(timestamp=START, age_seconds=7, values=("3", "4"))
    assert requests == SampleTrace(timestamp=START, age_seconds=7, value="50")
    assert rate == SampleTrace(timestamp=START, age_seconds=7)


def test_a_sample_that_is_newer_than_its_reconcile_has_no_negative_age() -> None:
    web = Workload(external("queue", value="5"), replicas=1)
    web.now -= timedelta(milliseconds=8)
    web.reconcile(series(7))
    [metric] = web.trace.metrics
    assert metric.sample == SampleTrace(timestamp=START, age_seconds=0, values=("7",))


def test_a_ratio_that_is_not_a_number_is_left_out_of_the_json() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=0, low=0)
    web.reconcile()
    assert b"NaN" not in msgspec.json.encode(web.trace)
