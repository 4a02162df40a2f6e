"""The proposals of an entry over time: exact, compact, and bounded."""

import random
from datetime import datetime, timedelta

from support.decisions import Diary, contiguous
from support.engine import START, Workload, external, series

from hpad.api.sample import AdapterError
from hpad.decisions.entry import Numbers, Point
from hpad.decisions.points import Points, unpacked

UNSTABILIZED = {"scaleDown": {"stabilizationWindowSeconds": 0}}


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def listed(points: Points, began: datetime, metrics: int) -> list[Point]:
    return list(unpacked(began, points.packed(), metrics))


def test_only_changes_are_points() -> None:
    points = Points(at(0), (3, (3, None)))
    for second, numbers in ((15, (3, (3, None))), (30, (4, (4, None))), (45, (None, (None, None))), (60, (4, (4, 2)))):
        points.note(at(second), numbers)
    assert listed(points, at(0), 2) == [
        Point(at(0), 3, (3, None)),
        Point(at(30), 4, (4, None)),
        Point(at(45), None, (None, None)),
        Point(at(60), 4, (4, 2)),
    ]


def test_numbers_beyond_32_bits_are_the_largest() -> None:
    points = Points(at(0), (1 << 40, (-(1 << 40),)))
    assert listed(points, at(0), 1) == [Point(at(0), (1 << 31) - 1, (1 - (1 << 31),))]


def test_a_split_keeps_every_number_at_every_time() -> None:
    dice = random.Random(5)
    for _ in range(200):
        changes: list[tuple[float, Numbers]] = [(0.0, (dice.randint(0, 3), (dice.randint(0, 3),)))]
        points, length = Points(at(0), changes[0][1]), 0
        moment = 15.0 * dice.randint(1, 9)
        for turn in range(1, 10):
            now = (dice.randint(0, 3), (dice.randint(0, 3),))
            if 15.0 * turn == moment:
                length = len(points)
            points.note(at(15 * turn), now)
            changes.append((15.0 * turn, now))
        later = points.split(length, at(moment))
        first, second = listed(points, at(0), 1), listed(later, at(moment), 1)
        assert first[-1].time < at(moment) == second[0].time
        for second_of, (recommended, proposals) in changes:
            half = second if second_of >= moment else first
            valid = [point for point in half if point.time <= at(second_of)][-1]
            assert (valid.recommended, valid.proposals) == (recommended, proposals)


def test_an_entry_with_many_points_is_continued_by_another() -> None:
    metrics = [external(f"queue-{n}", averageValue="10") for n in range(3)]
    diary = Diary(Workload(*metrics, replicas=20, low=20, high=20, behavior=UNSTABILIZED))
    for turn in range(1000):
        diary.turn(series(10 * (1 + turn % 7)), series(20), series(30))
    entries = diary.entries()
    assert sum(entry.turns for entry in entries) == 1000
    assert sum(len(entry.points) for entry in entries) == 1000
    assert max(len(entry.points) for entry in entries) <= 103  # 512 numbers, five per point
    assert len(entries) == 10
    assert contiguous(entries)


def test_a_hundred_metrics_are_no_entry_in_each_turn() -> None:
    metrics = [external(f"queue-{n}", averageValue="10") for n in range(100)]
    diary = Diary(Workload(*metrics, replicas=20, low=20, high=20, behavior=UNSTABILIZED))
    for turn in range(64):
        diary.turn(*[series(10 * (1 + turn % 7))] * 100)
    assert [len(entry.points) for entry in diary.entries()] == [16] * 4


def test_metrics_that_were_not_measured_have_no_number() -> None:
    diary = Diary(Workload(external("orders", averageValue="10"), replicas=5, high=10))
    diary.turn(series(50))
    diary.turn(AdapterError("no answer"))
    diary.workload.replicas = 12  # above the maximum: set without metrics
    diary.turn()
    points = [point for entry in diary.entries() for point in entry.points]
    assert [(point.recommended, point.proposals) for point in points] == [(5, (5,)), (None, (None,)), (None, (None,))]
