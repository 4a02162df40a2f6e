"""A minute of what `make soak` does for half an hour, with the same code."""

from collections.abc import Callable
from pathlib import Path

from tools.soak import trial

BRIEF = trial.Plan(seconds=50.0, hpas=60, period=2.0, sample=1.0, reload=12.0)
"""Shorter runs see fewer faults; each fault that lasts spoils several periods, of which there are 25 here."""


def test_a_minute_under_load_and_faults(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Nothing grows, no HPA is forgotten, no scale is wrong, and hpad ends when it is told to."""
    verdict = trial.run(BRIEF, tmp_path)
    print("\n".join(verdict.report))
    record_property("soak", verdict.report[1])
    assert verdict.faults == []
