"""How far a model is trusted: area, rescales, peak, changed bounds, failing metrics, and curves that say nothing."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.advice_pasts import painted, spec
from support.engine import external, resource

from hpad.engine.view import Tunables
from hpad.simulation.advice.assess import assess
from hpad.simulation.advice.assessment import AdviceOptions, Figures, Level
from hpad.simulation.advice.model.rerun import Rerun
from hpad.simulation.advice.model.trust import compared, judged
from hpad.simulation.backlog import Rates

MINUTES = 3 * 1440
HPA = spec(resource("cpu", averageUtilization=60), low=1, high=40)
NONE = Figures(seconds=0, replica_seconds=0, above_goal=0, overloaded=0, rescales=0, flaps=0, lowest=0, highest=0)


def series(count: Callable[[int], int]) -> list[float]:
    return [float(count(minute)) for minute in range(MINUTES)]


def run(times: Sequence[float], counts: Sequence[float]) -> Rerun:
    """Returns a run whose curve has these counts."""
    return Rerun([(time, round(count)) for time, count in zip(times, counts, strict=True)], NONE, NONE)


def level(recorded: list[float], modelled: list[float], **more: Any) -> tuple[Level, str, float | None]:
    past = painted(HPA, recorded, {"cpu": 30.0}, **more)
    found = judged(past, run(past.load.times, modelled))
    return found.level, found.text, found.agreement


def wave(minute: int) -> int:
    return 4 + minute // 60 % 12


def test_a_curve_that_is_the_recorded_one_is_good() -> None:
    found = level(series(wave), series(wave))
    assert found == (Level.GOOD, "the model gives 100 % of the recorded replica curve", 1.0)


@pytest.mark.parametrize(("more", "expected"), [(0, Level.GOOD), (1, Level.FAIR), (3, Level.POOR)])
def test_the_area_between_the_curves_decides(more: int, expected: Level) -> None:
    found = level(series(lambda _: 10 + _ // 1440), series(lambda _: 10 + _ // 1440 + more + (more > 0)))
    assert found[0] is expected
    assert found[2] == pytest.approx(1 - (more + (more > 0)) / 11, abs=0.01)


def test_a_flat_line_is_not_the_sawtooth_around_it() -> None:
    teeth = series(lambda minute: 9 + minute // 10 % 2 * 2)
    same, text, agreement = level(teeth, series(lambda _: 10))
    assert agreement == pytest.approx(0.9, abs=0.01)
    assert same is Level.POOR
    assert text.endswith("but 0 rescales a day where 144 were recorded: no advice")


def test_a_sawtooth_out_of_step_is_trusted_as_its_rescales_are_right() -> None:
    teeth = series(lambda minute: 9 + minute // 10 % 2 * 2)
    late = series(lambda minute: 9 + (minute + 5) // 10 % 2 * 2)
    assert level(teeth, late)[0] is Level.GOOD


def test_a_higher_peak_is_named() -> None:
    peak = series(lambda minute: 30 if minute % 1440 == 100 else wave(minute))
    found = level(series(wave), peak)
    assert found[0] is Level.FAIR
    assert found[1].endswith("but a peak of 30 where 15 was recorded")


def test_only_the_time_since_the_bounds_changed_is_compared() -> None:
    half = MINUTES // 2
    recorded = series(lambda minute: 20 if minute < half else wave(minute))
    low = [20.0] * half + [1.0] * (MINUTES - half)
    found = level(recorded, series(wave), minimum=low)
    assert found[0] is Level.GOOD
    assert "over the 36 hours since its bounds changed" in found[1]


def test_bounds_that_changed_within_the_last_day_leave_the_whole_time() -> None:
    late = MINUTES - 600
    recorded = series(lambda minute: 20 if minute < late else wave(minute))
    low = [20.0] * late + [1.0] * (MINUTES - late)
    assert level(recorded, series(wave), minimum=low)[0] is Level.POOR


def test_moments_in_which_the_hpa_could_not_read_are_left_out() -> None:
    recorded = series(lambda minute: 4 if minute >= 1440 and minute < 2880 else wave(minute))
    failing = {"FailedGetResourceMetric": [float(1440 <= minute < 2880) for minute in range(MINUTES)]}
    past = painted(HPA, recorded, {"cpu": 30.0}, failing=failing)
    found = compared(past, run(past.load.times, series(wave)))
    assert found.agreement == 1.0
    assert found.seconds == pytest.approx(2 * 86_400, abs=120)


def test_a_count_that_never_changed_says_nothing_of_the_load() -> None:
    found = level(series(lambda _: 5), series(lambda _: 5))
    assert found[0] is Level.FAIR
    assert "stood at 5 all the time" in found[1]


def test_a_queue_whose_replicas_were_never_busy_lacks_what_a_replica_does() -> None:
    metric = external("jobs", averageValue="30")
    queues = {"jobs": Rates("published", "acked")}
    columns = {"jobs": 0.0, "published": 1.0, "acked": 1.0}
    found = assess(painted(spec(metric), [5.0] * 600, columns, queues=queues), AdviceOptions(Tunables())).trust
    assert (found.level, found.text) == (
        Level.UNKNOWN,
        "its past does not show how many messages per second a replica does; per_replica in the file of --series "
        "gives them",
    )


def test_without_a_run_or_with_few_hours_there_is_no_advice() -> None:
    past = painted(HPA, [5.0] * 200, {"cpu": 30.0})
    assert judged(past, None).level is Level.UNKNOWN
    found = judged(past, run(past.load.times, [5.0] * 200))
    assert found.level is Level.UNKNOWN
    text = "3h19m with replica counts and readable metrics are too short to judge the model, which takes 6h"
    assert found.text == f"{text}; the facts are exact"
