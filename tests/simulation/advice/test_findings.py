"""Faults: those of the cast are named and nothing else is an error or a warning; what is at the border is not."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from support.advice_cast import CPU, FAULTY, GOOD, QUEUE, WEEK, past_of
from support.advice_pasts import DAY, HOUR, MINUTE, bursts, daily, flat, lived, noisy, painted, spec
from support.engine import external, object_metric, pods_metric, resource

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.engine.view import Tunables
from hpad.simulation.advice import facts, finding
from hpad.simulation.advice.assessment import Figures, FoundFault, HpaFault, Level, ModelTrust, Severity
from hpad.simulation.advice.finding.case import Case
from hpad.simulation.advice.model.rerun import Rerun
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.record import record_of
from hpad.simulation.backlog import Rates

FAIR = ModelTrust(0.9, Level.FAIR, "")
ALSO = {
    # A load that swings within minutes is a sawtooth as well.
    "window_short_between_jobs": {HpaFault.FLAPPING},
}


def faults(past: HpaPast, now: Rerun | None = None, trust: ModelTrust = FAIR) -> tuple[FoundFault, ...]:
    record = record_of(past, Tunables())
    return finding.found(Case(past, facts.facts_of(past, record), record, now, trust))


def severe(past: HpaPast) -> list[HpaFault]:
    """Returns the faults that are errors or warnings."""
    return [each.fault for each in faults(past) if each.severity is not Severity.NOTE]


def text(past: HpaPast, fault: HpaFault) -> str:
    return next(each.text for each in faults(past) if each.fault is fault)


@functools.cache
def of_cast(make: Callable[[], HpaPast]) -> tuple[FoundFault, ...]:
    return faults(past_of(make))


@pytest.mark.parametrize("make", FAULTY, ids=lambda make: make.__name__)
def test_a_planted_fault_is_named_and_no_other_one(make: Callable[[], HpaPast]) -> None:
    found = [each.fault for each in of_cast(make) if each.severity is not Severity.NOTE]
    assert FAULTY[make] in found
    assert {*found} - {FAULTY[make]} == ALSO.get(make.__name__, set())


@pytest.mark.parametrize("make", GOOD, ids=lambda make: make.__name__)
def test_no_good_hpa_is_accused(make: Callable[[], HpaPast]) -> None:
    assert [each.fault for each in of_cast(make) if each.severity is not Severity.NOTE] == []


@pytest.mark.parametrize("make", [*FAULTY, *GOOD], ids=lambda make: make.__name__)
def test_texts_are_sentences_and_the_core_is_short(make: Callable[[], HpaPast]) -> None:
    for each in of_cast(make):
        assert len(each.brief or each.text) <= 100
        assert not each.text.endswith(".")


def _first(past: HpaPast) -> FoundFault:
    return faults(past)[0]


def test_three_hours_a_day_at_the_maximum_and_forty_percent_above_the_goal() -> None:
    # Each day from 12:00 to 15:00 CPU is at 84 % with 10 replicas: 84 / 60 * 10 = 14.
    values = [84.0 if 720 <= index % 1440 < 900 else 50.0 for index in range(WEEK)]
    counts = [10.0 if 720 <= index % 1440 < 900 else 6.0 for index in range(WEEK)]
    found = _first(painted(spec(CPU, high=10), counts, {"cpu": values}))
    assert (found.fault, found.severity) == (HpaFault.AT_MAXIMUM, Severity.ERROR)
    assert found.text == (
        "at the maximum of 10 for 21h of 7 days, 3h without a break, with cpu at 84 %, goal 60 %: "
        "the metrics asked for up to 14"
    )


@pytest.mark.parametrize(
    ("minutes", "value", "severity"),
    [
        (20, 65.0, None),  # within the tolerance of 10 %
        (20, 84.0, None),  # 2.3 hours of the week, 1.4 %
        (40, 70.0, Severity.WARNING),  # 4.7 hours, 2.8 %
        (90, 70.0, Severity.ERROR),  # 10.5 hours, 6.3 %
        (180, 65.0, Severity.NOTE),  # within the tolerance, 12.5 % of the time
    ],
)
def test_how_long_at_the_maximum(minutes: int, value: float, severity: Severity | None) -> None:
    full = [720 <= index % 1440 < 720 + minutes for index in range(WEEK)]
    counts = [10.0 if each else 6.0 for each in full]
    past = painted(spec(CPU, high=10), counts, {"cpu": [value if each else 55.0 for each in full]})
    assert [each.severity for each in faults(past)] == ([] if severity is None else [severity])


def test_a_maximum_that_was_raised_is_a_note() -> None:
    # Until noon of the third day the maximum is 4, and 8 replicas would be needed; with 12 all is well.
    early = [index < 3600 for index in range(WEEK)]
    counts = [4.0 if each else 8.0 for each in early]
    values = [120.0 if each else 60.0 for each in early]
    maximum = [4.0 if each else 12.0 for each in early]
    (found,) = faults(painted(spec(CPU, low=2, high=12), counts, {"cpu": values}, maximum=maximum))
    assert (found.fault, found.severity) == (HpaFault.AT_MAXIMUM, Severity.NOTE)
    assert found.text == "at its maximum of then for 2.5d before that was changed to 12"


def test_a_backlog_that_goes_between_two_counts_is_a_note() -> None:
    counts = _every(60, [2] * 5, 3)
    rules = {"scaleDown": {"stabilizationWindowSeconds": 60}}
    found = faults(painted(spec(QUEUE, low=2, high=20, behavior=rules), counts))
    assert found
    assert {each.severity for each in found} == {Severity.NOTE}


def test_at_a_maximum_whose_metrics_are_not_known() -> None:
    past = painted(spec(QUEUE, high=10), [10] * WEEK)
    found = _first(past)
    assert (found.fault, found.severity) == (HpaFault.AT_MAXIMUM, Severity.WARNING)
    assert "what the metrics asked for is not known" in found.text
    counts = [10 if index % 1440 < 360 else 4 for index in range(WEEK)]
    assert severe(painted(spec(QUEUE, high=10), counts)) == []


@pytest.mark.parametrize(
    ("low", "needed", "accused"),
    [
        (2, 1, False),  # for availability
        (3, 1, False),  # one for each zone
        (10, 2, True),
        (6, 3, True),  # half of them
        (6, 4, False),  # a third is room
    ],
)
def test_how_many_idle_replicas_at_the_minimum(low: int, needed: int, accused: bool) -> None:
    past = painted(spec(CPU, low=low, high=20), [low] * WEEK, {"cpu": needed * 60 / low * 0.97})
    assert severe(past) == ([HpaFault.IDLE_MINIMUM] if accused else [])


def test_an_hour_is_too_short_to_tell_idle_replicas() -> None:
    assert severe(painted(spec(CPU, low=10, high=20), [10] * 60, {"cpu": 5})) == []


def test_idle_replicas_while_the_metric_fails_are_explained_by_that() -> None:
    past = painted(spec(CPU, low=10, high=20), [10] * WEEK, {"cpu": 5}, failing={"FailedGetResourceMetric": 1})
    assert severe(past) == [HpaFault.METRIC_FAILING]


def test_a_restart_of_the_metrics_server_is_no_fault() -> None:
    failing = {"FailedGetResourceMetric": [float(index % 1440 < 4) for index in range(WEEK)]}
    assert severe(painted(spec(CPU), [3] * WEEK, {"cpu": 55}, failing=failing)) == []


@pytest.mark.parametrize(("minutes", "failed", "named"), [(65, 13, True), (65, 9, False), (240, 13, False)])
def test_a_short_past_has_a_shorter_failure(minutes: int, failed: int, named: bool) -> None:
    failing = {"FailedGetExternalMetric": [float(20 <= index < 20 + failed) for index in range(minutes)]}
    past = painted(spec(CPU), [3] * minutes, {"cpu": 55}, failing=failing)
    assert (severe(past) == [HpaFault.METRIC_FAILING]) == named


def test_a_failure_that_is_over_says_when_it_was_and_that_it_works_again() -> None:
    failing = {"ScalingActive": [float(index < 5 or 30 <= index < 50) for index in range(240)]}
    assert text(painted(spec(CPU), [3] * 240, {"cpu": 55}, failing=failing), HpaFault.METRIC_FAILING) == (
        "could not read its metric for 25m, 10 % of the time, without a break for 20m from 2026-01-05 00:30Z to "
        "2026-01-05 00:50Z, and works again at the end (reason not known): it did not scale meanwhile"
    )


def test_scale_ups_are_held_back_from_the_moment_they_are_asked_for() -> None:
    # Each hour a pod a minute is added to the 4 for ten minutes; 14 are asked for at once.
    rules = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    counts = [min(14.0, 4 + index % 60) for index in range(240)]
    past = painted(spec(CPU, high=20, behavior=rules), counts, {"cpu": [14 * 60 / count for count in counts]})
    assert text(past, HpaFault.POLICY_SLOW).startswith(
        "the scale-up policies (1 pod in 60 s) held scale-ups back for 36m, longest 9m, with cpu at"
    )


def test_missing_requests_explain_failing_metrics_but_not_those_of_others() -> None:
    failing: dict[str, Any] = {"FailedGetResourceMetric": 1}
    past = painted(spec(CPU), [3] * WEEK, failing=failing, unrequested={"cpu": ("app",)})
    assert severe(past) == [HpaFault.REQUESTS_MISSING]
    past = painted(spec(CPU), [3] * WEEK, failing={"FailedGetScale": 1}, unrequested={"cpu": ("app",)})
    assert severe(past) == [HpaFault.REQUESTS_MISSING, HpaFault.METRIC_FAILING]


def test_an_average_value_needs_no_request() -> None:
    metric = resource("cpu", averageValue="500m")
    assert severe(painted(spec(metric), [3] * WEEK, {"cpu": 0.45}, unrequested={"cpu": ("app",)})) == []


def test_faults_of_the_spec_need_no_past() -> None:
    past = painted(spec(CPU, low=4, high=4), [None, None], unrequested={"cpu": ("app",)})
    assert severe(past) == [HpaFault.REQUESTS_MISSING, HpaFault.MINIMUM_IS_MAXIMUM]


def test_equal_bounds_do_harm_where_the_load_is_above_the_goal() -> None:
    past = painted(
        spec(CPU, low=4, high=4), [4] * WEEK, {"cpu": [90.0 if i % 1440 < 60 else 40.0 for i in range(WEEK)]}
    )
    found = _first(past)
    assert (found.fault, found.severity) == (HpaFault.MINIMUM_IS_MAXIMUM, Severity.ERROR)
    assert found.text == (
        "minReplicas and maxReplicas are both 4, so it never scales; its metrics asked for 3 to 6, "
        "and were above their goals for 7h"
    )


@pytest.mark.parametrize(
    "metric", [external("age_seconds", value="60"), object_metric("age_seconds", averageValue="60")]
)
def test_a_queue_at_its_maximum_is_not_slow_but_full(metric: dict[str, Any]) -> None:
    past = painted(spec(metric, high=4), [4] * WEEK, {"age_seconds": 600})
    assert HpaFault.QUEUE_SLOW not in severe(past)


def test_a_queue_that_is_above_its_goal_for_minutes_is_served() -> None:
    past = lived(spec(QUEUE, high=40), bursts(20, 900, 2 * HOUR, 10 * MINUTE))
    assert severe(past) == []


def test_a_backlog_that_is_seen_at_each_rise_is_no_high_goal() -> None:
    # Every five minutes a sample, every 40 minutes a rise: one of eight samples is above the goal.
    past = lived(spec(QUEUE, low=1, high=40), bursts(0, 700, 40 * MINUTE, 20 * MINUTE), step=5 * MINUTE)
    assert severe(past) == []


def test_a_policy_is_the_cause_of_a_slow_queue() -> None:
    rules = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 900}]}}
    found = faults(lived(spec(QUEUE, high=40, behavior=rules), bursts(20, 900, 4 * HOUR, 2 * HOUR)))
    assert [(each.fault, each.severity) for each in found] == [
        (HpaFault.POLICY_SLOW, Severity.ERROR),
        (HpaFault.QUEUE_SLOW, Severity.NOTE),
    ]


def test_a_slow_policy_that_a_slow_load_never_meets_is_no_fault() -> None:
    rules = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}]}}
    assert severe(lived(spec(CPU, low=2, high=20, behavior=rules), noisy(daily(120, 600), 0.03))) == []


def test_disabled_scale_ups() -> None:
    rules = {"scaleUp": {"selectPolicy": "Disabled"}}
    past = painted(spec(CPU, high=10, behavior=rules), [3] * WEEK, {"cpu": 100})
    assert text(past, HpaFault.POLICY_SLOW).startswith("scaleUp is disabled and held scale-ups back for 7d")


def annotated(hpa: HorizontalPodAutoscaler, **annotations: str) -> HorizontalPodAutoscaler:
    named = {f"hpad.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, annotations=named))


def test_a_queue_below_its_activation_threshold_asks_for_nothing() -> None:
    asleep = spec(QUEUE, low=0, high=10)
    assert HpaFault.QUEUE_SLOW in severe(painted(asleep, [0] * WEEK, {"queue_messages": 80}))
    assert severe(painted(annotated(asleep, activation="100"), [0] * WEEK, {"queue_messages": 80})) == []


@pytest.mark.parametrize(
    ("annotations", "cause"),
    [
        ({"metric_policy": "min"}, "the metric policy held scale-ups back for 7d"),
        ({"budget": "nodes"}, "the budget nodes held scale-ups back for 7d"),
    ],
)
def test_an_annotation_that_keeps_replicas_back_is_the_cause(annotations: dict[str, str], cause: str) -> None:
    past = painted(annotated(spec(QUEUE, high=40), **annotations), [2] * WEEK, {"queue_messages": 900})
    assert text(past, HpaFault.POLICY_SLOW).startswith(cause)
    assert severe(past) == [HpaFault.POLICY_SLOW]


def test_nothing_is_said_of_scaling_while_a_fallback_may_decide() -> None:
    hpa, failing = spec(QUEUE), {"failing": {"ScalingActive": 1.0}}
    assert text(painted(hpa, [2] * WEEK, **failing), HpaFault.METRIC_FAILING).endswith("did not scale meanwhile")
    replaced = painted(annotated(hpa, fallback="replicas:5"), [2] * WEEK, **failing)
    assert text(replaced, HpaFault.METRIC_FAILING).endswith(", and still fails at the end (reason not known)")


def test_a_maximum_of_a_schedule_is_no_former_one() -> None:
    hpa = annotated(spec(QUEUE, high=10), schedule="0 0 * * * for 24h: max=3")
    found = text(painted(hpa, [3] * WEEK, {"queue_messages": 900}), HpaFault.AT_MAXIMUM)
    assert found == "at a maximum below 10 for 7d, by its schedule"


def test_a_schedule_of_minima_has_lowered_no_maximum() -> None:
    hpa = annotated(spec(QUEUE, high=10), schedule="0 0 * * * for 24h: min=1")
    found = text(painted(hpa, [3] * WEEK, {"queue_messages": 900}, maximum=3), HpaFault.AT_MAXIMUM)
    assert found == "at its maximum of then for 7d before that was changed to 10"


def test_a_goal_that_leaves_room_for_spikes_is_not_low() -> None:
    metric = resource("cpu", averageUtilization=35)
    values = [80.0 if index % 60 < 2 else 33.0 for index in range(WEEK)]
    assert severe(painted(spec(metric, low=2, high=40), [12] * WEEK, {"cpu": values})) == []


def test_a_low_goal_at_the_minimum_costs_nothing() -> None:
    metric = resource("cpu", averageUtilization=30)
    assert severe(painted(spec(metric, low=3, high=40), [3] * WEEK, {"cpu": 20})) == []


def test_a_goal_of_eighty_percent_that_is_kept_is_not_high() -> None:
    metric = resource("cpu", averageUtilization=80)
    assert severe(lived(spec(metric, low=2, high=40), noisy(daily(200, 1500), 0.05))) == []


def _every(minutes: int, down: Sequence[float], usual: float) -> list[float]:
    """Returns a column that begins each interval with these values."""
    return [down[index % minutes] if index % minutes < len(down) else usual for index in range(WEEK)]


def test_dips_that_are_served_by_a_default_window_are_no_fault() -> None:
    # Each two hours the load is away for half an hour, and the replicas with it.
    counts = _every(120, [10] * 6 + [4] * 24, 10)
    past = painted(spec(CPU, high=20), counts, {"cpu": 58})
    assert severe(past) == []


def test_replicas_that_follow_a_swinging_load_are_no_sawtooth() -> None:
    # Each half hour there is work for ten minutes, and the default window holds the replicas for five more.
    counts = _every(30, [9] * 15, 3)
    values = [9 * 60 / count if index % 30 < 10 else 3 * 60 / count for index, count in enumerate(counts)]
    assert severe(painted(spec(CPU, high=20), counts, {"cpu": values})) == []
    # Under a load that stays the same counts are a sawtooth.
    values = [5.5 * 60 / count for count in counts]
    assert severe(painted(spec(CPU, high=20), counts, {"cpu": values})) == [HpaFault.FLAPPING]


def test_the_length_of_a_queue_does_not_tell_what_load_a_sawtooth_had() -> None:
    counts, messages = _every(14, [9] * 7, 3), _every(14, [270] * 2, 0)
    columns = {"queue_messages": messages, "in": 11.0, "out": 11.0}
    past = painted(spec(QUEUE, low=2, high=20), counts, columns)
    assert "how many replicas the load needed is not known" in text(past, HpaFault.FLAPPING)
    past = painted(spec(QUEUE, low=2, high=20), counts, columns, queues={"queue_messages": Rates("in", "out", 2.0)})
    assert "the mean load then needed 5.5 to 5.5 replicas" in text(past, HpaFault.FLAPPING)


def test_a_sawtooth_without_values_blames_no_queue() -> None:
    assert "queue" not in text(painted(spec(CPU, low=2, high=20), _every(14, [9] * 7, 3)), HpaFault.FLAPPING)


def test_an_empty_queue_does_not_make_its_minimum_idle() -> None:
    columns = {"queue_messages": 0, "in": 11.0, "out": 11.0}
    past = painted(spec(QUEUE, low=6, high=20), [6] * WEEK, columns)
    assert severe(past) == []
    assert severe(dataclasses.replace(past, queues={"queue_messages": Rates("in", "out", 2.0)})) == []
    idle = dataclasses.replace(past, queues={"queue_messages": Rates("in", "out", 20.0)})
    assert severe(idle) == [HpaFault.IDLE_MINIMUM]


def test_workers_that_are_taken_to_zero_between_jobs_are_no_fault() -> None:
    counts = _every(15, [3] * 8, 0)
    messages = _every(15, [80] * 3, 0)
    assert severe(painted(spec(QUEUE, low=0, high=20), counts, {"queue_messages": messages})) == []


def test_a_metric_at_its_maximum_all_week_is_full_unless_it_is_memory() -> None:
    past = painted(spec(pods_metric("requests", "100"), high=8), [8] * WEEK, {"requests": 140})
    assert severe(past) == [HpaFault.AT_MAXIMUM]
    past = painted(spec(resource("memory", averageUtilization=80), high=8), [8] * WEEK, {"memory": 112})
    assert severe(past) == [HpaFault.GOAL_BELOW_ONE_POD]


@pytest.mark.parametrize(("minutes", "accused"), [(119, False), (121, True)])
def test_a_start_under_load_shows_no_goal_below_one_pod(minutes: int, accused: bool) -> None:
    counts = [2 if index < minutes // 2 else 8 for index in range(minutes)]
    past = painted(spec(CPU, high=20), counts, {"cpu": 99.0})
    assert (HpaFault.GOAL_BELOW_ONE_POD in severe(past)) is accused


@pytest.mark.parametrize(("minutes", "accused"), [(60, False), (80, True)])
def test_pods_without_room_under_a_usual_goal(minutes: int, accused: bool) -> None:
    # An hour a day is 4.2 %, 80 minutes are 5.6 %; 95 % is above the 90 % of the request that pods may use.
    counts = [5 if index % 1440 < minutes else 4 for index in range(WEEK)]
    values = [95.0 if index % 1440 < minutes else 70.0 for index in range(WEEK)]
    past = painted(spec(resource("cpu", averageUtilization=88), high=20), counts, {"cpu": values})
    assert severe(past) == ([HpaFault.GOAL_HIGH] if accused else [])


def test_values_that_are_missing_are_a_note() -> None:
    values = [None if 3000 <= index < 3200 else 55.0 for index in range(WEEK)]
    (found,) = faults(painted(spec(CPU, low=2), [3] * WEEK, {"cpu": values}))
    assert (found.fault, found.severity) == (HpaFault.METRIC_FAILING, Severity.NOTE)
    assert found.text == "cpu has no values for 3h20m, 2 % of the time; whether the HPA could read it then is not known"
    failing = {"FailedGetResourceMetric": 0}
    assert faults(painted(spec(CPU, low=2), [3] * WEEK, {"cpu": values}, failing=failing)) == ()


def test_a_window_that_is_short_without_known_load() -> None:
    counts = _every(60, [4] * 5, 10)
    rules = {"scaleDown": {"stabilizationWindowSeconds": 30}}
    assert severe(painted(spec(CPU, high=20, behavior=rules), counts)) == [HpaFault.WINDOW_SHORT]
    assert severe(painted(spec(CPU, high=20), counts)) == []


def test_a_window_that_spares_starts_is_worth_its_price() -> None:
    load = bursts(100, 900, 30 * MINUTE, 5 * MINUTE)
    rules = {"scaleDown": {"stabilizationWindowSeconds": 1800}}
    assert severe(lived(spec(pods_metric("busy", "100"), high=20, behavior=rules), load)) == []


def test_windows_that_never_acted_are_a_note_where_the_model_can_be_trusted() -> None:
    policies = [{"type": "Percent", "value": 10, "periodSeconds": 60}]
    rules = {
        "scaleDown": {"stabilizationWindowSeconds": 900, "policies": policies},
        "scaleUp": {"stabilizationWindowSeconds": 60},
    }
    past = lived(spec(CPU, low=2, high=10, behavior=rules), flat(200), days=2, first=4)
    none = Figures(seconds=0, replica_seconds=0, above_goal=0, overloaded=0, rescales=0, flaps=0, lowest=0, highest=0)
    now = Rerun([], none, none, {"behavior.scaleUp.stabilizationWindowSeconds": 60.0})
    (found,) = faults(past, now)
    assert (found.fault, found.severity) == (HpaFault.WINDOW_USELESS, Severity.NOTE)
    assert found.text == (
        "behavior.scaleDown.stabilizationWindowSeconds and behavior.scaleDown.policies "
        "never changed a decision in 2 days"
    )
    assert faults(past, now, ModelTrust(0.2, Level.POOR, "")) == ()
    defaults = lived(spec(CPU, low=2, high=10, behavior={"scaleDown": {}}), flat(200), days=2, first=4)
    assert faults(defaults, now) == ()


def test_errors_come_first() -> None:
    values = [110.0 if index % 1440 < 300 else 12.0 for index in range(WEEK)]
    past = painted(
        spec(CPU, low=8, high=9), [9.0 if index % 1440 < 300 else 8.0 for index in range(WEEK)], {"cpu": values}
    )
    assert severe(past) == [HpaFault.AT_MAXIMUM, HpaFault.IDLE_MINIMUM]
    assert [each.severity for each in faults(past)] == [Severity.ERROR, Severity.WARNING]


@pytest.mark.parametrize("days", [2, 5, 14])
def test_thresholds_do_not_depend_on_the_length_of_the_past(days: int) -> None:
    assert severe(lived(spec(CPU, low=2, high=8), noisy(daily(100, 800), 0.05), days=days)) == [HpaFault.AT_MAXIMUM]
    assert severe(lived(spec(CPU, low=2, high=20), noisy(daily(100, 800), 0.05), days=days)) == []


def test_a_day_of_gaps_changes_no_verdict() -> None:
    past = lived(spec(CPU, low=2, high=8), noisy(daily(100, 800), 0.05))
    gone = range(2 * 1440, 3 * 1440)
    columns = {
        name: [None if index in gone else value for index, value in enumerate(column)]
        for name, column in past.load.columns.items()
    }
    holed = painted(past.hpa, columns.pop("replicas"), columns)
    assert severe(holed) == [HpaFault.AT_MAXIMUM]
    assert "of 3 days" in text(holed, HpaFault.AT_MAXIMUM)
    assert facts.facts_of(holed, record_of(holed, Tunables())).seconds == 3 * DAY
