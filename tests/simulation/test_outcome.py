"""The figures of a run, against a run that is added up by hand and a plain recomputation of longer ones."""

import itertools
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.simulations import CPU, START, hpa, turns

from hpad.api.hpa import Scale, ScaleSpec
from hpad.simulation import load, model
from hpad.simulation.outcome import OutcomeTally, SimulatedOutcome, SimulatedRescale, wanted
from hpad.simulation.run import Simulated
from hpad.simulation.service import Service, ServiceModel


def made(text: str, high: int = 40, minutes: float = 60, **parameters: Any) -> list[Simulated]:
    found = hpa(CPU, high=high)
    shown = model.shows(found, "load", {})
    workload = ServiceModel(Service(**parameters), load.parse(text), start=START, replicas=2, shown=shown, seed=7)
    return turns(found, workload, minutes)


def tallied(found: list[Simulated]) -> SimulatedOutcome:
    tally = OutcomeTally()
    for done, _, after in found:
        tally.add(done.view, done.decision, after, wanted(done.view, done.decision))
    return tally.outcome()


def test_a_step_added_up_by_hand() -> None:
    """A replica at its goal serves 50 units. 400 need 8; saturated replicas show twice the goal: 2, 4, 8.

    The load rises at 600 s. The turn at 615 s sees it: 2 -> 4; new replicas are ready 10 s later. The turn at 630 s
    measures two replicas for 10 of 15 s and four for 5 s.
    """
    found = made("step:from=100,to=400,at=10m", minutes=20)
    outcome = tallied(found)
    assert [(each.before, each.after) for each in outcome.rescales] == [(2, 4), (4, 8)]
    first, second = (round((each.at - START).total_seconds()) for each in outcome.rescales)
    assert first == 615
    assert outcome.turns == 80
    assert outcome.seconds == pytest.approx(79 * 15, abs=0.01)
    last = 79 * 15
    assert outcome.replica_seconds == pytest.approx(2 * first + 4 * (second - first) + 8 * (last - second), abs=0.1)
    assert (outcome.lowest, outcome.highest, outcome.flaps) == (2, 8, 0)
    # Until the second rescale the metric asks for more than there are; at 615 s for the 15 s before.
    assert outcome.above_goal == pytest.approx(15 + second - first, abs=15.1)
    assert outcome.at_max == outcome.undecided == 0


@pytest.mark.parametrize("text", ["sine:mean=400,amplitude=350,period=20m", "spikes:height=900,every=9m,for=2m"])
@pytest.mark.parametrize("high", [6, 40])
def test_a_plain_recomputation_agrees(text: str, high: int) -> None:
    found = made(text, high, noise=0.1)
    outcome = tallied(found)
    sums = dict.fromkeys(("replicas", "max", "under", "over", "above", "undecided"), 0.0)
    for one, two in itertools.pairwise(found):
        seconds = (two.done.view.now - one.done.view.now).total_seconds()
        sums["replicas"] += one.after * seconds
        sums["max"] += seconds * (one.after >= high)
        recommended = two.done.decision.recommendation
        if recommended is None or recommended.leader is None:
            sums["undecided"] += seconds
            continue
        apart = max(recommended.replicas, 1) - one.after
        sums["under"] += max(apart, 0) * seconds
        sums["over"] += max(-apart, 0) * seconds
        sums["above"] += (apart > 0) * seconds
    assert outcome.replica_seconds == pytest.approx(sums["replicas"])
    assert outcome.at_max == pytest.approx(sums["max"])
    assert (outcome.under, outcome.over) == (pytest.approx(sums["under"]), pytest.approx(sums["over"]))
    assert outcome.above_goal == pytest.approx(sums["above"])
    assert outcome.undecided == pytest.approx(sums["undecided"])
    assert outcome.cost(0.5) == pytest.approx(sums["replicas"] / 3600 / 2)
    assert len(outcome.rescales) == sum(turn.after != turn.done.view.replicas for turn in found) > 0


def test_a_flap_is_a_turn_within_the_window() -> None:
    found = made("constant:100", minutes=5)
    tally = OutcomeTally(timedelta(minutes=1))
    counts = [2, 4, 4, 3, 3, 3, 3, 3, 3, 5, 4]  # up, down within the minute, up after 90 s, down at once
    for turn, (before, after) in zip(found, itertools.pairwise(counts), strict=False):
        view = msgspec.structs.replace(turn.done.view, scale=Scale(spec=ScaleSpec(before)))
        tally.add(view, turn.done.decision, after, None)
    outcome = tally.outcome()
    assert [each.after for each in outcome.rescales] == [4, 3, 5, 4]
    assert outcome.flaps == 2
    assert isinstance(outcome.rescales[0], SimulatedRescale)
