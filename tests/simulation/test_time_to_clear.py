"""Workers sized by a goal in seconds: the engine against a simulated queue with the statistics that RabbitMQ gives.

The ideal knows a spike when it comes, needs no time to start workers, keeps the smallest whole number of them that
clears the spike within the goal, and then goes back to the number that keeps up with what is published:

    ideal = ceil((spike / goal + rate) * service) * goal + max(1, ceil(rate * service)) * (rest of the time)

in replica-seconds from the spike until three goals after it. `spike` is the number of messages that came in its second.
"""

import math

import pytest
from support import environment
from support.spikes import Spike, played

from hpad.simulation.queue import EXPONENTIAL, LOGNORMAL

SEEDS = range(1, 1 + min(8, 2 * environment.EFFORT))
"""The bounds below are those of these loads; a rarer load may take longer."""


SPIKES = {
    "a minute": Spike(60, 5, 2.0, 1.0, 1500),
    "a minute, at random": Spike(60, 5, 2.0, 1.0, 1500, EXPONENTIAL),
    "a minute, busy before": Spike(60, 5, 1.0, 8.0, 2000, EXPONENTIAL),
    "a minute, short messages": Spike(60, 5, 0.05, 40.0, 20_000, EXPONENTIAL),
    "a minute, nothing before": Spike(60, 5, 2.0, 0.0, 1500, known=2.0),
    "a minute, fetched ahead": Spike(60, 5, 2.0, 1.0, 1500, prefetch=4),
    "two minutes, the usual period": Spike(120, 15, 2.0, 1.0, 1500, EXPONENTIAL),
    "five minutes, the usual period": Spike(300, 15, 10.0, 1.0, 1000, EXPONENTIAL),
    "five minutes, long messages": Spike(300, 15, 30.0, 0.2, 300),
    "a minute, of very different lengths": Spike(60, 5, 2.0, 2.0, 1500, LOGNORMAL),
    "three minutes, the first ones": Spike(180, 15, 30.0, 0.0, 200, known=30.0),
    "ten minutes, slow to start": Spike(600, 15, 20.0, 0.5, 2000, EXPONENTIAL, startup=30.0),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spike", SPIKES.values(), ids=SPIKES.keys())
def test_a_spike_is_cleared_in_time_and_little_is_wasted(spike: Spike, seed: int) -> None:
    found = played(spike, seed=seed)
    assert found.cleared <= 1.2 * spike.goal
    assert found.cost <= 1.3


@pytest.mark.parametrize("spike", SPIKES.values(), ids=SPIKES.keys())
def test_the_count_rises_once_and_falls_once(spike: Spike) -> None:
    """It does not oscillate: after the peak it never grows by more than the steady number and its noise."""
    counts = [count for at, count in played(spike).counts if at >= 0]
    peak = counts.index(max(counts))
    steady = spike.rate * spike.service
    assert counts[: peak + 1] == sorted(counts[: peak + 1])
    falls = [later - earlier for earlier, later in zip(counts[peak:], counts[peak + 1 :], strict=False)]
    assert max(falls) <= 2 + math.sqrt(steady) * 3


@pytest.mark.parametrize("fetched", [0, 2, 10])
@pytest.mark.parametrize("service", [0.5, 4.0, 20.0])
def test_a_spike_on_a_new_queue_asks_for_what_the_formula_says(service: float, fetched: int) -> None:
    """Nothing was ever published, and a consumer holds more messages than the settings say."""
    spike = Spike(60, 5, service, 0.0, round(1000 / service), known=service, fetched=fetched)
    formula = spike.messages / (spike.goal - spike.parsed.startup) * service
    for seed in SEEDS:
        assert max(count for _, count in played(spike, seed=seed).counts) <= 1.2 * formula


@pytest.mark.parametrize("seed", SEEDS)
def test_a_count_that_was_too_small_is_corrected_underway(seed: int) -> None:
    """A message takes three times as long as the settings say."""
    found = played(Spike(60, 5, 3.0, 0.0, 1500, EXPONENTIAL, known=1.0), seed=seed)
    assert found.cleared <= 1.4 * 60


def test_it_starts_from_zero_workers_without_a_known_service_time() -> None:
    """One worker shows how long a message takes, and then as many come as are needed."""
    found = played(Spike(120, 5, 2.0, 0.0, 1500), low=0)
    counts = [count for at, count in found.counts if at >= 0]
    assert counts[:3] == [0, 1, 1]
    assert found.counts[-1][1] == 0
    assert found.cleared <= 1.3 * 120
    assert len(found.failed) <= 1  # until the broker has reported the work of the first one


UNKNOWN = {
    "long messages": Spike(120, 5, 20.0, 0.0, 40),
    "long messages, at random": Spike(120, 5, 20.0, 0.0, 40, EXPONENTIAL),
    "longer than the period": Spike(300, 15, 40.0, 0.0, 100, LOGNORMAL),
    "fetched ahead": Spike(60, 5, 12.0, 0.0, 100, fetched=4),
    "fetched ahead, of very different lengths": Spike(120, 5, 12.0, 0.0, 200, LOGNORMAL, fetched=10),
    "short messages": Spike(60, 5, 0.1, 0.0, 9000, EXPONENTIAL),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("spike", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_from_zero_without_a_known_service_time_the_count_grows_by_doubling(spike: Spike, seed: int) -> None:
    """It starts a few turns later than with `service_time`, and no first message asks for ten times too many."""
    found = played(spike, low=0, seed=seed)
    assert len(found.failed) <= 1
    formula = spike.messages / (spike.goal - spike.parsed.startup) * spike.service
    assert max(count for at, count in found.counts if at >= 0) <= 3 * formula
    assert found.cleared <= 1.65 * spike.goal


def test_a_value_works_with_consumers_as_fresh_as_the_period() -> None:
    """A Value multiplies the ready pods, and the statistics know new consumers five seconds later."""
    slow, fast = (played(Spike(60, period, 2.0, 1.0, 1500), "seconds") for period in (15, 5))
    assert slow.cleared <= 1.2 * 60
    assert max(count for _, count in fast.counts) > 3 * max(count for _, count in slow.counts)
