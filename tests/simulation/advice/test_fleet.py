"""Many HPAs in worker processes: in order, without what takes memory, and with those that fail."""

from collections.abc import Iterator

import pytest
from support import advice_pasts

from hpad.engine.view import Tunables
from hpad.simulation.advice.assess import assess
from hpad.simulation.advice.assessment import AdviceOptions, Assessment
from hpad.simulation.advice.fleet import NotAssessed, assessed
from hpad.simulation.advice.past import HpaPast

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
OPTIONS = AdviceOptions(Tunables())
NAMES = [f"web-{number}" for number in range(12)]


def past(name: str) -> HpaPast:
    hpa = advice_pasts.spec(CPU, name=name)
    return advice_pasts.painted(hpa, [2.0] * 120, {"cpu": [40.0] * 120})


def one(past: HpaPast, options: AdviceOptions) -> Assessment:
    if past.hpa.key.name == "web-3":
        raise ZeroDivisionError("division by zero")
    return assess(past, options)


@pytest.mark.parametrize("workers", [0, 2])
def test_one_that_fails_leaves_the_others(workers: int) -> None:
    found = list(assessed(map(past, NAMES), OPTIONS, workers, one))
    assert [each.key.name for each in found] == NAMES
    failed = found.pop(3)
    assert failed == NotAssessed(past("web-3").hpa.key, "could not be assessed: ZeroDivisionError: division by zero")
    for each in found:
        assert isinstance(each, Assessment)
        assert (each.past, each.recorded, each.modelled, each.advised) == (None, (), (), ())
        assert each.chart is not None


def test_few_pasts_are_in_memory() -> None:
    """With two workers, at most six are read ahead of what was assessed."""
    read: list[str] = []

    def pasts() -> Iterator[HpaPast]:
        for name in NAMES:
            read.append(name)
            yield past(name)

    for done, _ in enumerate(assessed(pasts(), OPTIONS, 2)):
        assert len(read) - done <= 6


def test_an_error_of_reading_ends_it() -> None:
    def pasts() -> Iterator[HpaPast]:
        yield past("web-0")
        raise ValueError("the server is gone")

    with pytest.raises(ValueError, match="the server is gone"):
        list(assessed(pasts(), OPTIONS, 2))
