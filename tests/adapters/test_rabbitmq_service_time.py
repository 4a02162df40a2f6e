"""How long a message takes, by hand: what counts as evidence, what is remembered, and what is not believed."""

import pytest
from support.rabbit_queues import counter, length, queue

from hpad_adapters.clearing.service_time import GIVEN_MESSAGES, HALF_LIFE, ServiceTime
from hpad_adapters.rabbitmq.queues import RabbitmqQueue, measured

GOAL = 60.0
BUSY = queue(acked=counter(0, 10, 20), held=length(4, 4, 4))
"""Four messages in work for 10 s, 20 begun: two seconds each."""


def learn(time: ServiceTime, found: RabbitmqQueue, capacity: float, prefetch: int = 1) -> None:
    time.learn(measured(found, 1, "the broker"), prefetch, (capacity, capacity))


def learned(*found: RabbitmqQueue, given: float = 0.0, prefetch: int = 1, capacity: float = 100.0) -> ServiceTime:
    time = ServiceTime(given, GOAL)
    for each in found:
        learn(time, each, capacity, prefetch)
    return time


def test_the_service_time_is_the_work_by_the_messages_begun() -> None:
    assert learned(BUSY).seconds == pytest.approx(2.0)


def test_new_consumers_do_not_make_messages_seem_long() -> None:
    """The first messages of 40 new consumers take ten seconds: none is acknowledged in five of them."""
    started = queue(acked=counter(0, 2, 4, 6, 6), held=length(4, 4, 4, 4, 44))
    seconds = learned(started).seconds
    assert seconds is not None
    assert seconds <= 10.0


def test_of_what_consumers_fetch_ahead_only_a_part_is_worked_on() -> None:
    ahead = queue(acked=counter(0, 10, 20, 30), held=length(16, 16, 16, 16))
    assert learned(ahead, capacity=4).seconds == pytest.approx(2.0)
    assert learned(ahead, prefetch=4, capacity=0).seconds == pytest.approx(2.0)


def test_a_count_that_is_not_collected_yet_is_not_used() -> None:
    """The newest sample of a length repeats the one before: here it hides that 40 consumers took a message each."""
    early = queue(acked=counter(0, 0, 0), held=length(6, 6))
    later = queue(acked=counter(0, 0, 0, 40, 80), held=length(6, 6, 46, 46, 46))
    expected = (6 * 5 + 26 * 5 + 46 * 10) / (80 + 40)
    assert learned(early, later).seconds == pytest.approx(expected)


def test_the_same_samples_count_once() -> None:
    longer = queue(acked=counter(0, 10, 20, 30, 40), held=length(4, 4, 4, 4, 4))
    slower = queue(acked=counter(30, 40, 45, 50, first=3), held=length(4, 4, 4, 4, first=3))
    assert learned(BUSY, BUSY, longer, longer).seconds == pytest.approx(2.0)
    assert learned(longer, slower, slower).seconds == pytest.approx(120 / 50, rel=0.01)


@pytest.mark.parametrize(
    "young",
    [
        queue(),
        queue(acked=counter(0, 7), held=length(4, 4)),
        queue(acked=counter(0, 10, 20, 30), held=length(0, 0, 0, 0)),
        queue(acked=counter(0, 0, 0, 0, 0), held=length(0, 0, 0, 0, 0)),
    ],
)
def test_young_statistics_tell_no_service_time(young: RabbitmqQueue) -> None:
    assert learned(young).seconds is None


@pytest.mark.parametrize(
    "young",
    [
        pytest.param(queue(acked=counter(0, 0, 0), held=length(0, 20, 20)), id="20 workers that have just begun"),
        pytest.param(queue(acked=counter(0, 2, 5), held=length(3, 3, 3)), id="three workers that have done five"),
        pytest.param(queue(acked=counter(0, 0, 0, 0), held=length(0, 2, 2, 2)), id="two messages for twelve seconds"),
    ],
)
def test_a_given_time_holds_until_each_worker_has_done_two_messages_and_all_five(young: RabbitmqQueue) -> None:
    """Unless the messages have taken more than ten seconds longer already."""
    assert learned(young, given=4.0).seconds == pytest.approx(4.0, rel=0.01)


def test_a_given_time_counts_as_ten_messages() -> None:
    expected = (GIVEN_MESSAGES * 4.0 + 40) / (GIVEN_MESSAGES + 20)
    assert learned(BUSY, given=4.0).seconds == pytest.approx(expected)


def test_messages_in_work_count_once_they_take_longer_than_expected() -> None:
    """20 messages that should take 2 s are in work for 40 s: their workers will not be free in time."""
    counts = [20] * 9
    stuck = queue(acked=counter(*[0] * 10), held=length(0, *counts))
    assert learned(stuck, given=2.0).seconds == pytest.approx((10 * 2.0 + 20 * 42.5) / (10 + 20))


def test_before_the_first_is_finished_messages_take_as_long_as_they_have_been_in_work() -> None:
    assert learned(queue(acked=counter(0, 0), held=length(0, 1))).seconds == pytest.approx(2.5)
    assert learned(queue(acked=counter(0, 0, 0, 0), held=length(0, 1, 1, 3))).seconds == pytest.approx(17.5 / 3)
    fetched = queue(acked=counter(0, 0, 0), held=length(0, 10, 10))
    assert learned(fetched, capacity=1).seconds == pytest.approx(7.5)  # nine of ten wait in the consumer


def test_messages_that_went_back_to_the_queue_tell_nothing() -> None:
    """A worker crashes at each message after ten seconds: these did not take half a minute."""
    crashing = queue(acked=counter(*[0] * 8), held=length(0, 1, 1, 0, 1, 1, 0, 0))
    assert learned(crashing).seconds is None
    again = queue(acked=counter(*[0] * 10), held=length(0, 1, 1, 0, 1, 1, 0, 0, 1, 1))
    assert learned(again).seconds == pytest.approx(7.5)


def test_an_acknowledgement_that_is_collected_late_is_no_message_given_back() -> None:
    late = queue(acked=counter(0, 0, 0, 0, 1), held=length(0, 1, 1, 0, 0))
    time = learned(late)
    assert time.seconds == pytest.approx(10.0)
    assert not time.given_back


def test_a_message_counts_for_the_goal_at_most() -> None:
    """A job of an hour occupies one worker. Counted as an hour, it would ask for hundreds for the next messages."""
    time = ServiceTime(4.0, GOAL)
    for minute in range(60):
        first = 12 * minute
        held = length(*[0 if first + index == 0 else 1 for index in range(13)], first=first)
        learn(time, queue(acked=counter(*[0] * 13, first=first), held=held), 3)
    assert time.seconds == pytest.approx((10 * 4.0 + GOAL) / 11)
    assert time.long == 1
    ended = queue(acked=counter(0, 1, first=720), held=length(1, 0, first=720))
    learn(time, ended, 3)
    assert time.long == 0


def test_a_measured_time_stays_without_work_and_the_past_fades() -> None:
    time = learned(BUSY)
    learn(time, queue(), 100)
    assert time.seconds == pytest.approx(2.0)
    assert 10 * HALF_LIFE < 10_000
    late = 2_000
    for round in range(60):
        first = late + 2 * round
        learn(time, queue(acked=counter(0, 5, 10, first=first), held=length(4, 4, 4, first=first)), 100)
        if not round:
            assert time.seconds == pytest.approx((GIVEN_MESSAGES * 2.0 + 40) / (GIVEN_MESSAGES + 10))
    assert time.seconds == pytest.approx(4.0, rel=0.02)


def test_a_counter_that_began_anew_is_left_out() -> None:
    restarted = queue(acked=counter(90, 0, 10, 20, 30), held=length(4, 4, 4, 4, 4))
    assert learned(restarted).seconds == pytest.approx(2.0)


@pytest.mark.parametrize("ahead", [1_000, 10**18])
def test_after_the_broker_s_clock_was_set_back_its_samples_count_again(ahead: int) -> None:
    """Its samples were dated in the future, and those since are older than what was read."""
    early = queue(acked=counter(0, 10, 20, first=ahead), held=length(4, 4, 4, first=ahead))
    later = queue(acked=counter(0, 5, 10, first=0), held=length(4, 4, 4, first=0))
    expected = (2.0 * 20 + 4.0 * 10) / 30
    assert learned(early, later, later).seconds == pytest.approx(expected)


def test_samples_of_a_node_whose_clock_is_a_little_behind_do_not_count_twice() -> None:
    later = queue(acked=counter(0, 10, 20, first=4), held=length(4, 4, 4, first=4))
    behind = queue(acked=counter(0, 5, 10, first=3), held=length(4, 4, 4, first=3))
    assert learned(later, behind).seconds == pytest.approx(2.0)
