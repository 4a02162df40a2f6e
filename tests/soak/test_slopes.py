"""Fitted slopes and their confidence intervals, and the detection of leaks."""

import math
import random

import hypothesis
import pytest
from hypothesis import strategies

from tools.soak import trial
from tools.soak.slopes import Bound, fitted, leaks

HOUR = 3600.0
BOUND = {"memory": Bound("MB", 3.0, "noise")}


def ramp(per_hour: float, noise: float, hours: float = 0.5, seed: int = 1) -> list[tuple[float, float]]:
    """Returns a sample every five seconds, with noise that is correlated over about a minute, as in a process."""
    rng, current, found = random.Random(seed), 0.0, []
    for number in range(int(hours * HOUR / 5)):
        current += (rng.gauss(0, noise) - current) / 12
        found.append((1e6 + 5 * number, 100 + per_hour * 5 * number / HOUR + current))
    return found


@hypothesis.given(
    slope=strategies.floats(-1e3, 1e3), start=strategies.floats(-1e3, 1e3), count=strategies.integers(3, 200)
)
def test_a_line_is_found_exactly(slope: float, start: float, count: int) -> None:
    found = fitted([(t, start + slope * t / HOUR) for t in range(0, 5 * count, 5)])
    assert math.isclose(found.per_hour, slope, rel_tol=1e-6, abs_tol=1e-3)
    assert found.margin < 1e-2


def test_bursts_are_not_a_leak() -> None:
    """The bursts grow, but each of them ends."""
    points = [(5.0 * n, 100 + (n if n % 8 < 3 else 0)) for n in range(240)]
    assert abs(fitted(points).per_hour) < 1e-6


def test_the_interval_covers_the_true_slope_as_often_as_stated() -> None:
    """This holds for correlated noise too, where a fit of all samples would have far too small an interval."""
    found = [fitted(ramp(4.0, 5.0, seed=seed)) for seed in range(300)]
    covered = sum(abs(each.per_hour - 4.0) <= each.margin for each in found)
    assert 0.80 * 300 <= covered <= 0.99 * 300


def test_a_leak_is_found_and_noise_is_not() -> None:
    assert leaks({"memory": ramp(0.0, 5.0)}, BOUND) == []
    assert leaks({"memory": ramp(-20.0, 1.0)}, BOUND) == []
    (leak,) = leaks({"memory": ramp(20.0, 5.0)}, BOUND)
    assert leak.startswith("memory is not flat: +")
    assert "MB/h" in leak


def test_a_small_rise_is_not_a_leak() -> None:
    slow = {"memory": ramp(2.0, 0.01)}
    assert fitted(slow["memory"]).is_up
    assert leaks(slow, BOUND) == []


@pytest.mark.parametrize(("name", "each", "noise"), [("memory", 100 / 2**20, 5.0), ("blocks", 1.0, 5e4)])
def test_a_soak_finds_a_leak_of_each_reconcile(name: str, each: float, noise: float) -> None:
    """Each reconcile leaks a hundred bytes, or one block, with the churn of a soak."""
    plan = trial.Plan()
    judged, reconciles = plan.seconds * (1 - trial.WARM_UP) / HOUR, plan.hpas / plan.period * HOUR
    bounds = {name: trial.bounds(plan, deleted=plan.hpas / 2)[name]}
    assert leaks({name: ramp(reconciles * each, noise, hours=judged)}, bounds)
    assert leaks({name: ramp(0.0, noise, hours=judged)}, bounds) == []


def test_a_fit_needs_three_samples() -> None:
    with pytest.raises(ValueError, match="2 samples make no line"):
        fitted([(0, 1), (5, 2)])
