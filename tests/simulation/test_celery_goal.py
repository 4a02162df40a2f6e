"""Celery workers sized by a goal in seconds over Redis: the engine against a simulated queue whose workers report."""

import pytest
from support import environment
from support.celery_words import RestlessQueue, SaidQueue
from support.spikes import Spike, played

from hpad.simulation.queue import EXPONENTIAL, LOGNORMAL

SPIKES = {
    "a minute": Spike(60, 5, 2.0, 1.0, 1500),
    "a minute, busy before": Spike(60, 5, 1.0, 8.0, 2000, EXPONENTIAL),
    "a minute, short tasks": Spike(60, 5, 0.05, 40.0, 20_000, EXPONENTIAL),
    "a minute, nothing before": Spike(60, 5, 2.0, 0.0, 1500, known=2.0),
    "a minute, fetched ahead": Spike(60, 5, 2.0, 1.0, 1500, fetched=4),
    "two minutes, the usual period": Spike(120, 15, 2.0, 1.0, 1500, EXPONENTIAL),
    "five minutes, long tasks": Spike(300, 15, 30.0, 0.2, 300),
    "a minute, of very different lengths": Spike(60, 5, 2.0, 2.0, 1500, LOGNORMAL),
    "ten minutes, slow to start": Spike(600, 15, 20.0, 0.5, 2000, EXPONENTIAL, startup=30.0),
}

SEEDS = range(1, 1 + min(5, 2 * environment.EFFORT))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spike", SPIKES.values(), ids=SPIKES.keys())
def test_a_spike_is_cleared_in_time_and_little_is_wasted(spike: Spike, seed: int) -> None:
    found = played(spike, seed=seed, reported=SaidQueue)
    assert found.cleared <= 1.2 * spike.goal
    assert found.cost <= 1.3


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["a minute, busy before", "a minute, fetched ahead", "five minutes, long tasks"])
def test_workers_that_are_silent_and_that_start_again_change_little(name: str, seed: int) -> None:
    spike = SPIKES[name]
    found = played(spike, seed=seed, reported=RestlessQueue)
    assert found.cleared <= 1.3 * spike.goal
    assert found.cost <= 1.3
