"""The line through samples: of the right slope, as sure as it may be, and no leak where there is none."""

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
    """A sample every five seconds; the noise has a memory of about a minute, as that of a process has."""
    rng, held, found = random.Random(seed), 0.0, []
    for number in range(int(hours * HOUR / 5)):
        held += (rng.gauss(0, noise) - held) / 12
        found.append((1e6 + 5 * number, 100 + per_hour * 5 * number / HOUR + held))
    return found


@hypothesis.given(
    slope=strategies.floats(-1e3, 1e3), start=strategies.floats(-1e3, 1e3), count=strategies.integers(3, 200)
)
def test_a_line_is_found_exactly(slope: float, start: float, count: int) -> None:
    found = fitted([(t, start + slope * t / HOUR) for t in range(0, 5 * count, 5)])
    assert math.isclose(found.per_hour, slope, rel_tol=1e-6, abs_tol=1e-3)
    assert found.margin < 1e-2


def test_what_is_needed_for_a_moment_is_no_leak() -> None:
    """Ever larger bursts, that end."""
    points = [(5.0 * n, 100 + (n if n % 8 < 3 else 0)) for n in range(240)]
    assert abs(fitted(points).per_hour) < 1e-6


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """For noise with a memory as well, for which least squares through all samples would be far too sure."""
    found = [fitted(ramp(4.0, 5.0, seed=seed)) for seed in range(300)]
    held = sum(abs(each.per_hour - 4.0) <= each.margin for each in found)
    assert 0.80 * 300 <= held <= 0.99 * 300


def test_a_leak_is_found_and_noise_is_none() -> None:
    assert leaks({"memory": ramp(0.0, 5.0)}, BOUND) == []
    assert leaks({"memory": ramp(-20.0, 1.0)}, BOUND) == []
    (said,) = leaks({"memory": ramp(20.0, 5.0)}, BOUND)
    assert said.startswith("memory is not flat: +")
    assert "MB/h" in said


def test_a_rise_that_does_not_matter_is_none() -> None:
    slow = {"memory": ramp(2.0, 0.01)}
    assert fitted(slow["memory"]).is_up
    assert leaks(slow, BOUND) == []


@pytest.mark.parametrize(("name", "each", "noise"), [("memory", 100 / 2**20, 5.0), ("blocks", 1.0, 5e4)])
def test_a_soak_finds_what_each_reconcile_leaves(name: str, each: float, noise: float) -> None:
    """A hundred bytes, or one block, while HPAs come and go as they do in a soak."""
    plan = trial.Plan()
    judged, reconciles = plan.seconds * (1 - trial.WARM_UP) / HOUR, plan.hpas / plan.period * HOUR
    bounds = {name: trial.bounds(plan, vanished=plan.hpas / 2)[name]}
    assert leaks({name: ramp(reconciles * each, noise, hours=judged)}, bounds)
    assert leaks({name: ramp(0.0, noise, hours=judged)}, bounds) == []


def test_two_samples_make_no_line() -> None:
    with pytest.raises(ValueError, match="2 samples make no line"):
        fitted([(0, 1), (5, 2)])
