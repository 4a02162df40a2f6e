"""A simulated queue against the formulas of queueing theory, and the messages that it must not lose."""

import math
from datetime import timedelta
from typing import Any

import pytest
from support import environment
from support.simulations import BACKLOG, START, hpa, run, turns

from hpad.simulation import load, model
from hpad.simulation.load import LoadError
from hpad.simulation.queue import CONSTANT, EVEN, LOGNORMAL, QueueModel, SimulatedQueue


def made(text: str, replicas: int, seed: int = 1, **parameters: Any) -> QueueModel:
    shown = model.shows(hpa(BACKLOG), "backlog", {})
    return QueueModel(
        SimulatedQueue(**parameters),
        load.parse(text),
        start=START,
        replicas=replicas,
        shown=shown,
        scraping=model.Scraping(interval=5.0),
        seed=seed,
    )


def mean_backlog(workload: QueueModel, hours: float) -> float:
    """Returns the mean of messages in the system, read every five seconds, without the first hour."""
    total, count = 0, 0
    for second in range(0, round(hours * 3600), 5):
        workload.advance(START + timedelta(seconds=second))
        if second >= 3600:
            total, count = total + workload.waiting + workload.held, count + 1
    return total / count


def erlang_c(servers: int, offered: float) -> float:
    """Returns the probability that an arrival waits in M/M/c (Erlang's C formula); `offered` in Erlang."""
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("servers", "rate"), [(1, 0.6), (4, 3.0), (10, 8.0)])
def test_the_backlog_is_that_of_an_m_m_c_queue(servers: int, rate: float) -> None:
    """With service times of 1 s in the mean: L = C(c, a) * a / (c - a) + a."""
    expected = erlang_c(servers, rate) * rate / (servers - rate) + rate
    assert mean_backlog(made(f"constant:{rate}", servers), 6 * environment.EFFORT) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("distribution", "variation", "hours"), [(CONSTANT, 0.0, 12), (LOGNORMAL, 2.0, 40)])
def test_one_consumer_follows_the_formula_of_pollaczek_and_khinchine(
    distribution: str, variation: float, hours: int
) -> None:
    rho = 0.6
    expected = rho + rho**2 * (1 + variation**2) / (2 * (1 - rho))
    workload = made(f"constant:{rho}", 1, distribution=distribution, variation=variation or 1.0)
    assert mean_backlog(workload, hours) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("prefetch", [1, 5, 100])
@pytest.mark.parametrize("seed", range(environment.EFFORT))
def test_no_message_is_lost_while_consumers_come_and_go(prefetch: int, seed: int) -> None:
    workload = made("sine:mean=8,amplitude=8,period=7m", 4, seed, prefetch=prefetch, backlog=50)
    for turn in run(hpa(BACKLOG), workload, 60, downscale_stabilization=timedelta(0)):
        assert workload.arrived == workload.done + workload.waiting + workload.held
        assert workload.held <= prefetch * max(turn.done.view.replicas, turn.after) + len(workload._finishing)
    assert workload.done > 10_000


def test_more_messages_than_memory_holds_are_refused() -> None:
    workload = made("constant:1e12", 1)
    with pytest.raises(LoadError, match=r"^--load: 1e\+12 messages per second; each is simulated, 1000000 at most$"):
        workload.advance(START + timedelta(seconds=15))


def test_a_consumer_that_leaves_finishes_its_message_and_gives_the_others_back() -> None:
    workload = made("constant:0", 2, distribution=CONSTANT, service_time=100.0, prefetch=10, backlog=20)
    workload.advance(START + timedelta(seconds=10))
    assert (workload.waiting, workload.held) == (0, 20)
    workload.scale(1)
    assert (workload.waiting, workload.held) == (9, 11)  # 10 of the one that stays, and the message in work
    workload.advance(START + timedelta(seconds=101))
    assert workload.done == 2
    assert (workload.waiting, workload.held) == (8, 10)  # the one that stays has taken another message


def test_a_new_consumer_starts_late() -> None:
    workload = made("constant:0", 0, distribution=CONSTANT, service_time=1.0, backlog=5, startup=30.0)
    workload.scale(1)
    workload.advance(START + timedelta(seconds=30))
    assert (workload.done, workload.waiting) == (0, 4)
    workload.advance(START + timedelta(seconds=32.5))
    assert workload.done == 2


def test_even_arrivals_are_counted_exactly() -> None:
    workload = made("constant:2.5", 5, arrivals=EVEN)
    workload.advance(START + timedelta(seconds=1000))
    assert workload.arrived == 2500


def test_the_engine_scales_the_consumers_to_the_backlog() -> None:
    """600 messages at once: the maximum is reached, and the window keeps it for 5 minutes after."""
    workload = made("constant:0", 1, backlog=600, service_time=1.0, distribution=CONSTANT)
    found = turns(hpa(BACKLOG, high=20), workload, 15)
    assert [turn.after for turn in found[:4]] == [4, 8, 16, 20]
    assert workload.waiting + workload.held == 0
    # Never more than the capacity: 20 messages per second; not later than with 20 consumers after a minute.
    empty = next(turn.done.view.now for turn in found if turn.done.answers and turn.done.answers[0].values == (0,))  # type: ignore[union-attr]
    assert timedelta(seconds=30) <= empty - START <= timedelta(seconds=105)
    assert found[-1].after == 1
