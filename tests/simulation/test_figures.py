"""The figures of runs: differences with signs, and the verdict in one line."""

from typing import Any

import pytest

from hpad.simulation import outcome as figures
from hpad.simulation.outcome import SimulatedOutcome


def outcome(**given: Any) -> SimulatedOutcome:
    return SimulatedOutcome(**({"seconds": 100_000.0, "replica_seconds": 360_000.0} | given))


def test_differences_have_signs_and_units() -> None:
    before = outcome(above_goal=150.0, under=100.0, lowest=2, highest=8)
    after = outcome(above_goal=60.0, under=100.0, lowest=2, highest=9, replica_seconds=363_600.0)
    found = {row.label: row.change(before, after) for row in figures.rows(0.5)}
    assert found["above goal"] == "-1m30s"
    assert found["replica-hours"] == "+1.00"
    assert found["cost"] == "+0.50"
    assert found["too few"] == "0 replica-seconds"
    assert found["lowest, highest"] == "0, +1"


def test_what_a_recorded_curve_does_not_tell_is_a_dash() -> None:
    rows = {row.label: row for row in figures.rows(None)}
    assert "cost" not in rows
    recorded = outcome(judged=False)
    assert rows["above goal"].value(recorded) == "-"
    assert rows["above goal"].change(recorded, outcome()) == "-"
    assert rows["replica-hours"].value(recorded) == "100.00"


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (
            {"above_goal": 200.0},
            {"replica_seconds": 316_800.0, "above_goal": 300.0},
            "new: 12 % fewer replica-hours than old; above goal 0.3 % of the time instead of 0.2 %",
        ),
        (
            {"above_goal": 200.0},
            {"replica_seconds": 396_000.0, "above_goal": 200.0},
            "new: 10 % more replica-hours than old; above goal 0.2 % of the time, as before",
        ),
        ({"judged": False}, {}, "new: as many replica-hours as old; above goal 0 % of the time"),
        # What was not decided was neither above nor below the goal.
        (
            {"judged": False},
            {"undecided": 50_000},
            "new: as many replica-hours as old; above goal 0 % of the time; undecided 50 % of the time",
        ),
        ({"replica_seconds": 0.0}, {"judged": False}, "new: replica-hours cannot be compared with old"),
    ],
)
def test_the_verdict_compares_the_last_two(before: dict[str, Any], after: dict[str, Any], line: str) -> None:
    runs = [("recorded", outcome()), ("old", outcome(**before)), ("new", outcome(**after))]
    assert figures.verdict(runs) == line


def test_one_run_has_no_verdict() -> None:
    assert figures.verdict([("old", outcome())]) == ""
