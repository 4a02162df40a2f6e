"""The workers that clear the lag of a group within a goal, without a broker."""

import math

import pytest

from hpad_adapters.clearing.goal import ClearingGoal
from hpad_adapters.rabbitmq.stream_lag import StreamClearing, fewest_workers
from hpad_adapters.rabbitmq.stream_protocol import StreamChunk
from hpad_adapters.rabbitmq.streams import PartitionOffsets, counted


class Group:
    """A group that reads one partition, whose messages arrive and are worked on at constant rates."""

    def __init__(self, **goal: float) -> None:
        self.now, self.last, self.stored = 0.0, -1, -1
        self.goal = ClearingGoal(**({"seconds": 60.0, "service": 1.0} | goal))
        self._clearing = StreamClearing(lambda: self.now)

    def needed(self) -> float:
        offsets = PartitionOffsets("invoices", self.last, self.stored, published=self.last)
        return self._clearing.needed("/", "app", self.goal, offsets, self.last - self.stored)

    def after(self, seconds: float, arriving: float, done: float) -> float:
        self.now += seconds
        self.last += round(arriving * seconds)
        self.stored = min(self.last, self.stored + round(done * seconds))
        return self.needed()


def test_a_backlog_takes_its_messages_times_their_time_over_the_goal():
    assert Group().needed() == 0.0
    assert Group().after(1, arriving=30, done=0) == pytest.approx(0.5)
    assert Group(startup=30.0).after(1, arriving=30, done=0) == pytest.approx(1.0)
    assert Group(service=4.0).after(1, arriving=30, done=0) == pytest.approx(2.0)


def test_no_more_are_needed_than_messages_wait():
    assert Group(service=600.0).after(1, arriving=2, done=0) == 2.0


def test_what_is_usually_published_takes_workers_beside_the_backlog():
    group = Group()
    needed = [group.after(15, arriving=2, done=2) for _ in range(8)]
    assert needed[-1] == pytest.approx(2.0)
    assert group.after(1, arriving=120, done=0) == pytest.approx(2.0 + 120 / 60, rel=0.1)


def test_a_backlog_is_due_within_the_goal_after_it_came():
    group = Group()
    first = group.after(1, arriving=60, done=0)
    late = [group.after(15, arriving=0, done=0) for _ in range(3)]
    assert first < late[0] < late[1] <= late[2] <= 2 * first


def test_a_worker_that_keeps_up_with_the_goal_is_kept_until_the_backlog_is_gone():
    group = Group()
    asked = [group.after(1, arriving=60, done=0)]
    while group.stored < group.last:
        asked.append(group.after(5, arriving=0, done=1))
    assert all(0 < each <= 1.01 for each in asked[:-1])
    assert (asked[-1], group.now) == (0.0, 61.0)


def test_a_stream_that_was_made_anew_has_no_past():
    group = Group()
    for _ in range(8):
        group.after(15, arriving=10, done=0)
    group.last = group.stored = -1
    assert group.after(1, arriving=6, done=0) == pytest.approx(0.1)
    assert not math.isnan(group.after(0, arriving=0, done=0))


@pytest.mark.parametrize(
    ("chunks", "after", "messages"),
    [
        ([(90, 99)], 89, 10),
        ([(90, 99)], 94, 5),
        ([(90, 99)], 10, 10),  # the others were removed unread
        ([(90, 90), (92, 92), (94, 99)], 89, 8),  # two stored offsets between them
        ([(10, 10), (12, 12), (14, 14)], 9, 54),  # as many among those that are not read: 3 of 5, and 3 / 5 of 85
        ([], 89, 10),
    ],
)
def test_stored_offsets_between_messages_are_no_messages(chunks, after, messages):
    assert counted([StreamChunk(first, last, 10) for first, last in chunks], after, 99) == messages


@pytest.mark.parametrize(
    ("needed", "concurrency", "workers"),
    [
        ([0.0, 0.0], 1, 0),
        ([0.01, 0.0], 1, 1),
        ([0.5] * 4, 1, 2),
        ([0.55] * 4, 1, 4),  # three workers: one has two partitions, as with two workers
        ([0.55] * 4, 2, 2),
        ([0.25] * 12, 1, 3),
        ([0.3] * 12, 1, 4),
        ([9.0, 0.1, 0.1], 1, 3),  # with two, the first one has the third partition as well
        ([9.0, 0.1], 1, 2),
        ([1.0], 1, 1),
    ],
)
def test_no_worker_has_more_partitions_than_it_can_clear(needed, concurrency, workers):
    assert fewest_workers(needed, concurrency) == workers
