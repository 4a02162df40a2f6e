"""HPAs whose metrics cannot be read: what the replicas show is said, and nothing else; no exception, no advice."""

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from support.advice_pasts import BEGIN, DAY, HOUR, MINUTE, painted, spec
from support.simulations import BACKLOG, CPU

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.cli import advise_output
from hpad.engine.view import Tunables
from hpad.simulation.advice import page
from hpad.simulation.advice.assess import assess
from hpad.simulation.advice.assessment import AdviceOptions, Assessment, HpaFault, Level
from hpad.simulation.advice.past import HpaPast, MetricReading
from hpad.simulation.advice.summary import FleetAdvice
from hpad.simulation.history import REPLICAS

OPTIONS = AdviceOptions(Tunables())
DAYS = 2 * 1440
TEETH = [2.0 if index // 8 % 2 else 8.0 for index in range(DAYS)]
"""Eight minutes at 8 replicas, eight at 2, in turn."""


def unread(hpa: HorizontalPodAutoscaler, replicas: Sequence[float | None], **more: object) -> HpaPast:
    """Returns a past without a value of any metric."""
    past = painted(hpa, replicas, **more)
    readings = {name: MetricReading("", problem="no value from the status of the HPA") for name in past.readings}
    return dataclasses.replace(past, readings=readings)


def said(past: HpaPast) -> Assessment:
    """Returns the assessment, once text, JSON and page have been made of it."""
    found = assess(past, OPTIONS)
    begin, end = (datetime.fromtimestamp(at, UTC) for at in (BEGIN, BEGIN + 2 * DAY))
    fleet = FleetAdvice(
        begin, end, source="the test", hpas={past.hpa.key: past.hpa}, assessments=[found], unread=[], notes=(),
        price=1.0,
    )  # fmt: skip
    assert str(past.hpa.key.name) in "\n".join(map(str, advise_output.lines(fleet, whole=True, width=80)))
    assert advise_output.as_json(fleet)["items"][0]["advice"] is None
    assert "".join(page.page(fleet))
    return found


@pytest.mark.parametrize("metrics", [(CPU,), (BACKLOG,), (CPU, BACKLOG)])
def test_replicas_alone_give_facts_and_no_model(metrics: Sequence[dict[str, object]]) -> None:
    found = said(unread(spec(*metrics), TEETH))
    assert found.trust.level is Level.UNKNOWN
    assert "no metric has values" in found.trust.text
    assert found.advice is None
    assert (found.facts.above_goal, found.facts.idle, found.facts.peak) == (None, None, None)
    assert found.facts.rescales == DAYS // 8 - 1
    assert found.facts.replica_seconds == pytest.approx(5 * (DAYS - 1) * MINUTE, rel=0.01)
    assert HpaFault.FLAPPING in {each.fault for each in found.findings}


def test_one_of_two_metrics_without_a_value_is_left_out_of_the_model() -> None:
    found = said(painted(spec(CPU, BACKLOG), TEETH, {"cpu": [50.0] * DAYS}))
    assert "queue_messages: has no values, so the model is without it" in found.notes
    assert found.advice is None
    assert found.facts.above_goal is None, "the other metric may have been above its goal"


def test_a_calm_hpa_is_not_accused() -> None:
    found = said(unread(spec(BACKLOG), [3.0] * DAYS))
    assert found.findings == ()
    assert found.verdict == "its metrics are not readable: 3 replicas all the time, no rescales; nothing else is known"


def test_equal_bounds_and_failures_are_found_without_values() -> None:
    fixed = said(unread(spec(CPU, low=3, high=3), [3.0] * DAYS))
    assert [each.fault for each in fixed.findings] == [HpaFault.MINIMUM_IS_MAXIMUM]
    failing = {"FailedGetExternalMetric": [1.0] * DAYS}
    failed = said(unread(spec(BACKLOG), [3.0] * DAYS, failing=failing))
    assert [each.fault for each in failed.findings] == [HpaFault.METRIC_FAILING]
    assert failed.facts.failing == {"FailedGetExternalMetric": pytest.approx((DAYS - 1) * MINUTE)}


def test_time_at_the_maximum_is_said_with_what_is_not_known() -> None:
    found = said(unread(spec(CPU, low=2, high=8), [8.0] * DAYS))
    assert found.facts.at_maximum == pytest.approx((DAYS - 1) * MINUTE)
    assert found.facts.longest_at_maximum > 47 * HOUR
    (fault,) = found.findings
    assert fault.fault is HpaFault.AT_MAXIMUM
    assert fault.text.endswith("what the metrics asked for is not known")


@pytest.mark.parametrize(
    "replicas",
    [[None] * 10, [None, 3.0, None, None, 3.0, None, None, None, None, None], [0.0] * 10, [3.0, 3.0], [None, None]],
)
def test_hardly_anything_is_known(replicas: Sequence[float | None]) -> None:
    found = said(unread(spec(CPU), replicas))
    assert found.advice is None
    assert found.trust.level is Level.UNKNOWN
    assert found.facts.above_goal is None
    assert found.findings == ()


def test_bounds_that_are_not_known_are_no_fault() -> None:
    gaps = [None] * DAYS
    found = said(unread(spec(CPU), [3.0] * DAYS, minimum=gaps, maximum=gaps, desired=gaps))
    assert found.findings == ()
    assert (found.facts.at_maximum, found.facts.at_minimum) == (0, 0)


def test_an_hpa_that_could_not_be_read_at_all_says_why() -> None:
    gaps: list[float | None] = [None] * DAYS
    past = dataclasses.replace(unread(spec(CPU), gaps, minimum=gaps, maximum=gaps), problem="Prometheus: it is away")
    found = said(past)
    assert found.facts.seconds == 0
    assert found.chart is not None
    assert {count for _, count in found.chart.recorded} == {None}
    assert past.load.columns[REPLICAS] == gaps
