"""What `hpad advise` prints: the fleet, the table within the terminal, and the block of one HPA."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from support import assessments

from hpad.api.metadata import Key
from hpad.cli import advise_output
from hpad.cli.output import wrapped
from hpad.simulation.advice.assessment import Assessment, HpaFault, NotAssessed, SettingChange, Severity
from hpad.simulation.advice.past import MetricReading
from hpad.simulation.advice.summary import FleetAdvice

BEGIN, END = datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 12, tzinfo=UTC)
HOUR = 3600.0
LOW = assessments.assessment("web", faults=[(HpaFault.GOAL_LOW, Severity.WARNING)], saved=300 * HOUR)
STUCK = assessments.assessment(
    "a-deployment-with-a-name-of-its-own",
    namespace="a-namespace-as-well",
    faults=[(HpaFault.GOAL_BELOW_ONE_POD, Severity.ERROR), (HpaFault.MINIMUM_IS_MAXIMUM, Severity.NOTE)],
    saved=-30 * HOUR,
)
FINE = assessments.assessment("fine")


def fleet(*found: Assessment, price: float | None = None, unread: Sequence[NotAssessed] = ()) -> FleetAdvice:
    return FleetAdvice(BEGIN, END, "http://prometheus:9090", {}, found, unread, price=price)


def printed(found: FleetAdvice, width: int, *, whole: bool = False) -> list[str]:
    lines = advise_output.lines(found, whole=whole, width=width)
    return ["".join(span.text for span in row) for line in lines for row in wrapped(line, width)]


@pytest.mark.parametrize("width", [80, 120])
def test_every_row_fits_the_terminal(width: int) -> None:
    rows = printed(fleet(LOW, STUCK, FINE, price=0.04), width)
    assert max(map(len, rows)) <= width
    heads = next(index for index, row in enumerate(rows) if row.startswith("NAMESPACE/NAME"))
    assert [row.split()[1] for row in rows[heads + 1 : heads + 3]] == ["goal-below-one-pod", "goal-low"]
    assert [row.split()[2] for row in rows[heads + 1 : heads + 3]] == ["-1.20", "12.00"]


def test_the_fleet_has_what_is_saved_and_what_is_added() -> None:
    """Three HPAs of 840 replica-hours each."""
    rows = printed(fleet(LOW, STUCK, FINE), 120)
    assert rows[:2] == [
        "3 HPAs, 2 with faults, 2 with advice",
        "2,520 replica-hours; advice saves 300 replica-hours (12 %); advice against overload adds 30 replica-hours",
    ]


def test_good_hpas_have_a_line_each_unless_all_are_asked_for() -> None:
    rows = printed(fleet(LOW, FINE), 80)
    assert rows[-2:] == ["without a fault: 1 HPA; --all shows them in full", "shop/fine  nothing is wrong"]
    assert "shop/fine  nothing is wrong" in printed(fleet(LOW, FINE), 80, whole=True)
    assert "without a fault" not in "\n".join(printed(fleet(LOW, FINE), 80, whole=True))


def test_hpas_that_cannot_be_read_are_named() -> None:
    rows = printed(fleet(FINE, unread=[NotAssessed(Key("shop", "odd"), "cannot be decoded: \x1b[31m")]), 80)
    assert rows[-1] == "shop/odd: cannot be decoded: \\u001b[31m"


def test_the_block_has_settings_figures_and_where_values_are_from() -> None:
    found = assessments.assessment(
        "web",
        saved=300 * HOUR,
        readings={"cpu": MetricReading("", "", "no value"), "queue": MetricReading("x", "sum(y)")},
    )
    rows = [str(line) for line in advise_output.block(found, 0.04, queries=True)]
    assert rows[0] == "shop/web  nothing is wrong"
    assert "           spec.metrics[0].resource.target.averageUtilization: 50 -> 65" in rows
    # 840 replica-hours: seven tenths on the first days, of which four fifths of 300 are saved.
    assert "           replica-hours    588.0         348.0    252.0        192.0" in rows
    assert "           cost             23.52         13.92    10.08        7.68" in rows
    assert rows[-3:] == ["  Values:  cpu: no value", "  Values:  queue: x", "           sum(y)"]


def test_days_that_were_not_checked_have_no_figures() -> None:
    found = assessments.unchecked(assessments.assessment("web", saved=300 * HOUR))
    rows = [str(line) for line in advise_output.block(found, None, queries=False)]
    assert [row.split() for row in rows if "first" in row] == [["first", "5", "days", "advised"]]
    assert [row.split() for row in rows if "replica-hours   " in row] == [["replica-hours", "588.0", "348.0"]]
    assert advise_output.as_json(fleet(found))["items"][0]["advice"]["checked"] is None
    assert advise_output.as_json(fleet(LOW))["items"][0]["advice"]["checked"]["before"]["replicaHours"] == 252


def test_less_than_a_day_has_no_rate() -> None:
    short = assessments.facts(seconds=240.0, replica_seconds=240.0, lowest=1, highest=1, rescales=1, at_minimum=0.0)
    assert list(advise_output.past(short, None)) == ["1 replica in 4m, 0.1 replica-hours", "1 rescale, 0 flaps"]
    week = assessments.facts(rescales=42, flaps=1, at_minimum=0.0)
    assert list(advise_output.past(week, None))[1] == "6 rescales a day, 1 flap"


def test_lists_are_written_as_in_a_manifest() -> None:
    policies = [{"type": "Pods", "value": 4, "periodSeconds": 15}]
    change = SettingChange("spec.behavior.scaleUp.policies", None, policies)
    advice = assessments.advice(3600.0, "more at once", (change,))
    found = msgspec.structs.replace(assessments.assessment("web"), advice=advice, verdict="more at once")
    rows = [str(line) for line in advise_output.block(found, None, queries=False)]
    text = "spec.behavior.scaleUp.policies: not set -> [{type: Pods, value: 4, periodSeconds: 15}]"
    assert f"  Advice:  {text}" in rows
    assert "\n".join(rows).count("more at once") == 1


def test_what_is_only_worth_knowing_is_no_fault() -> None:
    labels = [str(line).split(":")[0].strip() for line in advise_output.block(STUCK, None, queries=False)]
    assert labels.index("Note") == labels.index("Fault") + 1


def test_a_fault_without_advice_says_why() -> None:
    found = msgspec.structs.replace(STUCK, advice=None, unadvised="no count helps")
    rows = [str(line) for line in advise_output.block(found, None, queries=False)]
    assert rows.index("  Advice:  none: no count helps") == 1 + max(
        index for index, row in enumerate(rows) if row.startswith(("  Fault:", "  Note:"))
    )
    json = advise_output.as_json(fleet(found, LOW))
    assert [each["unadvised"] for each in json["items"]] == ["no count helps", None]
