"""From a past to all that is said of it: faults, advice, trust and the line agree."""

from collections.abc import Callable

import pytest
from support.advice_cast import CPU, FAULTY, GOOD, assessed, equal_bounds_with_a_daily_load
from support.advice_pasts import flat, lived, noisy, spec

from hpad.engine.view import Tunables
from hpad.simulation.advice.assess import assess
from hpad.simulation.advice.assessment import AdviceOptions, Assessment, FoundFault, HpaFault, Level, Severity
from hpad.simulation.advice.choosing import Choice, with_fault
from hpad.simulation.advice.model.rerun import Rerun
from hpad.simulation.advice.past import HpaPast


def severe(found: Assessment) -> list[HpaFault]:
    return [each.fault for each in found.findings if each.severity is not Severity.NOTE]


@pytest.mark.parametrize("make", GOOD, ids=lambda make: make.__name__)
def test_a_good_hpa_is_not_accused_by_an_advice_either(make: Callable[[], HpaPast]) -> None:
    found = assessed(make)
    assert severe(found) == []
    assert found.trust.suffices
    assert found.verdict.startswith("does its job: ") or (found.advice and found.verdict == found.advice.text)


WITH_ADVICE = {
    HpaFault.AT_MAXIMUM,
    HpaFault.IDLE_MINIMUM,
    HpaFault.GOAL_LOW,
    HpaFault.GOAL_HIGH,
    HpaFault.WINDOW_USELESS,
    HpaFault.POLICY_SLOW,
}
"""Faults that other settings mend, and that a model can show."""


@pytest.mark.parametrize(
    "make", [each for each, fault in FAULTY.items() if fault in WITH_ADVICE], ids=lambda make: make.__name__
)
def test_an_advice_adds_no_fault_to_the_one_that_it_mends(make: Callable[[], HpaPast]) -> None:
    found = assessed(make)
    assert severe(found) == [FAULTY[make]]
    assert found.advice is not None
    assert found.trust.suffices


def test_a_model_that_is_not_trusted_is_not_drawn() -> None:
    past = lived(spec(CPU), noisy(flat(150), 0.05), days=0.2)
    found = assess(past, AdviceOptions(Tunables()))
    assert found.trust.level is Level.UNKNOWN
    assert found.chart is not None
    assert found.chart.recorded
    assert not found.chart.modelled


def test_an_advice_for_an_hpa_that_never_scales_names_no_other_fault() -> None:
    assert severe(assessed(equal_bounds_with_a_daily_load)) == [HpaFault.MINIMUM_IS_MAXIMUM]


def test_a_fault_that_the_advice_shows_takes_its_place_by_severity() -> None:
    found = assessed(equal_bounds_with_a_daily_load)
    assert found.advice is not None
    shown = FoundFault(HpaFault.GOAL_LOW, Severity.WARNING, "shown")
    chosen = Choice(found.advice, Rerun([], found.advice.before, found.advice.before), shown)
    error = FoundFault(HpaFault.REQUESTS_MISSING, Severity.ERROR, "an error")
    note = FoundFault(HpaFault.AT_MAXIMUM, Severity.NOTE, "a note")
    assert with_fault((error, note), chosen) == (error, shown, note)
    less = FoundFault(HpaFault.GOAL_LOW, Severity.NOTE, "less")
    assert with_fault((less,), chosen) == (shown,)
    assert with_fault((less,), chosen._replace(fault=None)) == (less,)
