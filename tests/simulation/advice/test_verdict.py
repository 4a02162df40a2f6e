"""One line on an HPA: the fault, the advice, or that it does its job."""

from collections.abc import Callable
from typing import Any

import pytest
from support.advice_cast import CPU, FAULTY, GOOD, WEEK, past_of
from support.advice_pasts import painted, spec

from hpad.engine.view import Tunables
from hpad.simulation.advice import facts, finding
from hpad.simulation.advice.assess import verdict
from hpad.simulation.advice.assessment import (
    Advice,
    Facts,
    Figures,
    FoundFault,
    HpaFault,
    Level,
    ModelTrust,
    SettingChange,
    Severity,
)
from hpad.simulation.advice.choosing import Choice
from hpad.simulation.advice.finding.case import Case
from hpad.simulation.advice.model.rerun import Rerun
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.record import record_of

GOOD_MODEL = ModelTrust(0.95, Level.GOOD, "")
POOR = ModelTrust(0.3, Level.POOR, "")
NONE = Figures(seconds=0, replica_seconds=0, above_goal=0, overloaded=0, rescales=0, flaps=0, lowest=0, highest=0)
TEXT = "cpu goal 50 -> 65 %: 31 % fewer replica-hours, above goal 0.2 % of the time instead of 0.1 %"
ADVICE = Advice(
    changes=(SettingChange("metrics.0.resource.target.averageUtilization", 50, 65),),
    text=TEXT,
    before=NONE,
    after=NONE,
    checked_before=NONE,
    checked_after=NONE,
)
CHOICE = Choice(ADVICE, Rerun([], NONE, NONE))


def line(past: HpaPast, chosen: Choice | None = None, trust: ModelTrust = GOOD_MODEL) -> str:
    record, known = record_of(past, Tunables()), facts_of(past)
    return verdict(known, finding.found(Case(past, known, record, None, trust)), chosen, trust)


def facts_of(past: HpaPast) -> Facts:
    return facts.facts_of(past, record_of(past, Tunables()))


def steady(**columns: Any) -> HpaPast:
    return painted(spec(CPU, low=2, high=10), [3] * WEEK, {"cpu": 55, **columns})


def fault(severity: Severity, kind: HpaFault = HpaFault.AT_MAXIMUM) -> FoundFault:
    return FoundFault(kind, severity, "a long sentence about it", "its core")


def test_a_good_hpa_does_its_job() -> None:
    assert (
        line(steady())
        == "does its job: 3 replicas all the time, never above goal, no rescales, no better settings found"
    )
    assert line(steady(), trust=POOR) == "does its job: 3 replicas all the time, never above goal, no rescales"
    counts = [3 if index % 1440 < 720 else 5 for index in range(WEEK)]
    values = [100.0 if index % 1440 < 3 else 50.0 for index in range(WEEK)]  # 3 of 1,440 minutes
    past = painted(spec(CPU, low=2, high=10), counts, {"cpu": values})
    assert line(past, trust=POOR) == "does its job: 3 to 5 replicas, above goal 0.2 % of the time, 2 rescales a day"


def test_an_hpa_that_is_often_above_its_goal_is_not_praised() -> None:
    counts = [5 if index % 15 < 8 else 3 for index in range(WEEK)]
    values = [70.0 if index % 15 == 0 else 50.0 for index in range(WEEK)]  # 1 of 15 minutes
    past = painted(spec(CPU, low=2, high=10), counts, {"cpu": values})
    known = facts_of(past)
    assert verdict(known, (), None, POOR).startswith("no fault found: 3 to 5 replicas, above goal 6.7 % of the time")


def test_an_advice_for_a_good_hpa() -> None:
    assert line(steady(), CHOICE) == TEXT


@pytest.mark.parametrize(
    ("severity", "kind", "chosen", "expected"),
    [
        (Severity.ERROR, HpaFault.AT_MAXIMUM, None, "its core"),
        (Severity.ERROR, HpaFault.AT_MAXIMUM, CHOICE, "its core; advice: cpu goal 50 -> 65 %"),
        (Severity.WARNING, HpaFault.FLAPPING, CHOICE, "its core; advice: cpu goal 50 -> 65 %"),
        (Severity.WARNING, HpaFault.IDLE_MINIMUM, None, "its core"),
        (Severity.WARNING, HpaFault.IDLE_MINIMUM, CHOICE, TEXT),
        (Severity.NOTE, HpaFault.AT_MAXIMUM, CHOICE, TEXT),
    ],
)
def test_the_fault_or_the_advice(severity: Severity, kind: HpaFault, chosen: Choice | None, expected: str) -> None:
    found = (fault(severity, kind),)
    assert verdict(facts_of(steady()), found, chosen, GOOD_MODEL) == expected


def test_a_fault_that_leaves_no_room_stands_alone() -> None:
    long = FoundFault(HpaFault.AT_MAXIMUM, Severity.ERROR, "x" * 200, "x" * 90)
    assert verdict(facts_of(steady()), (long,), CHOICE, GOOD_MODEL) == "x" * 90


def test_what_is_missing_is_said() -> None:
    assert line(painted(spec(CPU), [None, None])) == "no replica count is known in this time"
    unread = painted(spec(CPU), [3] * WEEK)
    assert line(unread) == "its metrics are not readable: 3 replicas all the time, no rescales; nothing else is known"
    short = painted(spec(CPU, low=2), [3] * 61, {"cpu": 50})
    assert line(short) == (
        "does its job: 3 replicas all the time; only 1h are known, a day is needed to tell idle replicas"
    )


def test_idle_replicas_of_a_short_past_are_said_and_not_praised() -> None:
    idle = painted(spec(CPU, low=8, high=12), [8] * 65, {"cpu": 7})
    assert line(idle) == "no fault found: 8 replicas all the time, 88 % idle in 1h4m; a day is needed to judge that"
    assert line(painted(spec(CPU, low=2), [2] * 65, {"cpu": 7})).startswith("does its job: 2 replicas all the time; on")


@pytest.mark.parametrize("make", [*FAULTY, *GOOD], ids=lambda make: make.__name__)
def test_lines_fit_a_terminal(make: Callable[[], HpaPast]) -> None:
    found = line(past_of(make))
    assert len(found) <= 100
    assert found.startswith("does its job: ") == (make in GOOD)
