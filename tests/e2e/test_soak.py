"""Runs the code of `make soak` for twenty seconds."""

from collections.abc import Callable
from pathlib import Path

from tools.soak import trial

BRIEF = trial.Plan(seconds=20.0, hpas=20, period=2.0, sample=1.0, reload=6.0)
"""Shorter runs have fewer faults. Each lasting fault affects several of the ten periods."""


def test_twenty_seconds_under_load_and_faults(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """No resource grows, each HPA is reconciled, no scale is wrong, and hpad stops on SIGTERM."""
    verdict = trial.run(BRIEF, tmp_path)
    print("\n".join(verdict.report))
    record_property("soak", verdict.report[1])
    assert verdict.faults == []
