"""The fleet in a few figures, and the order of its HPAs."""

import pytest
from support.assessments import assessment

from hpad.simulation.advice import summary
from hpad.simulation.advice.assessment import HpaFault, Severity

HOUR = 3600.0


def test_errors_come_first_then_what_saves_most() -> None:
    fleet = [
        assessment("fine"),
        assessment("small", saved=1 * HOUR),
        assessment("large", saved=5 * HOUR),
        assessment("more", saved=-2 * HOUR),
        assessment("note", faults=[(HpaFault.WINDOW_USELESS, Severity.NOTE)]),
        assessment("down", faults=[(HpaFault.FLAPPING, Severity.WARNING), (HpaFault.AT_MAXIMUM, Severity.ERROR)]),
        assessment("calm", faults=[(HpaFault.FLAPPING, Severity.WARNING)], saved=2 * HOUR),
    ]
    names = [each.key.name for each in summary.ranked(fleet)]
    assert names == ["down", "calm", "note", "large", "small", "fine", "more"]
    assert [each.key.name for each in summary.savings(fleet)] == ["large", "calm", "small"]
    assert [each.key.name for each in summary.at_risk(fleet)] == ["down"]
    found = summary.summed(fleet)
    assert found.severities == {Severity.ERROR: 1, Severity.WARNING: 1, Severity.NOTE: 1}
    assert (found.hpas, found.faulty, found.advised) == (7, 3, 4)
    assert (found.saved, found.added) == (pytest.approx(8 * HOUR), pytest.approx(2 * HOUR))


def test_of_equal_severity_the_one_above_its_goal_for_longest_comes_first() -> None:
    warning = [(HpaFault.FLAPPING, Severity.WARNING)]
    fleet = [
        assessment("a", faults=warning),
        assessment("c", faults=warning, above_goal=9 * HOUR),
        assessment("b", faults=warning, above_goal=9 * HOUR),
        assessment("d", faults=warning, above_goal=20 * HOUR),
    ]
    assert [each.key.name for each in summary.ranked(fleet)] == ["d", "b", "c", "a"]


def test_savings_are_not_known_where_no_hpa_could_be_judged() -> None:
    fleet = [assessment("web", seconds=HOUR)]
    assert [*summary.sums_of(summary.summed(fleet), None)][1] == "savings are not known: advice needs a day of data"


def test_the_longest_time_above_its_goal_is_the_greatest_risk() -> None:
    error = [(HpaFault.AT_MAXIMUM, Severity.ERROR)]
    fleet = [
        assessment("unknown", faults=error),
        assessment("long", faults=error, above_goal=2 * HOUR),
        assessment("short", faults=error, above_goal=HOUR),
    ]
    assert [each.key.name for each in summary.at_risk(fleet)] == ["long", "short", "unknown"]


def test_a_fleet_without_hpas_sums_up_to_nothing() -> None:
    found = summary.summed([])
    assert (found.hpas, found.faulty, found.replica_seconds, found.saved) == (0, 0, 0.0, 0.0)
