"""Messages that wait have less and less time left; workers that were asked for are there before they are reported."""

import pytest

from hpad_adapters.clearing.workers import REPORTED, Due, Recent, WaitingMessages


def rates(*reads: tuple[float, ...], goal: float = 100.0, startup: float = 20.0) -> list[float]:
    due = Due(goal, startup)
    return [due.per_second(WaitingMessages(*each)) for each in reads]


def test_new_messages_have_the_goal_without_the_start() -> None:
    assert rates((0, 0, 0), (5, 800, 800)) == pytest.approx([0, 10])


def test_the_rate_stays_while_the_plan_is_kept() -> None:
    """800 messages came between two reads, and from the 20th second on ten per second are begun."""
    plan = [(0.0, 0.0, 0.0), (2.0, 800.0, 800.0), (19.0, 800.0, 800.0)]
    plan += [(at + 1.0, 800.0 - 10 * (at - 20), 800.0) for at in range(20, 58, 2)]
    assert rates(*plan)[1:] == pytest.approx([10.0] * (len(plan) - 1), rel=0.01)


def test_what_is_late_has_to_be_begun_faster_up_to_twice_as_fast() -> None:
    """Half of 800 messages still wait after 50 s, and 300 after 90 s."""
    reads = rates((-10, 0, 0), (0, 800, 800), (45, 500, 800), (85, 300, 800), (300, 300, 800))
    assert reads[2] == pytest.approx(500 / 50)
    assert reads[3:] == pytest.approx([300 / 40, 300 / 40])


def test_usual_messages_do_not_excuse_a_backlog() -> None:
    """500 of 800 messages wait still after 50 s: that 100 of them came since does not help."""
    found = rates((-10, 0, 0, 2), (0, 800, 800, 2), (45, 500, 900, 2))
    assert found[2] == pytest.approx(500 / 50, rel=0.02)


def test_a_second_burst_does_not_make_the_first_one_late() -> None:
    """Of the 800 messages of the first one 400 are left, and due in 40 s; the second one has the whole goal."""
    found = rates((-2, 0, 0), (0, 800, 800), (59, 400, 800), (60, 1200, 1600))
    assert found[2] == pytest.approx(400 / 40)
    assert found[3] == pytest.approx(1200 / 80)


def test_the_reads_that_are_remembered_are_few() -> None:
    due = Due(100.0, 0.0)
    for at in range(0, 10_000, 1):
        due.per_second(WaitingMessages(at, 50.0, 0.0))
    assert len(due._marks) <= 18


def test_workers_that_are_not_reported_yet_were_asked_for() -> None:
    recent = Recent()
    asked = []
    for at, needed in ((0.0, 16.0), (5.0, 9.0), (5.0 + REPORTED - 1, 8.0), (5.0 + REPORTED, 7.0), (1e6, 0.0)):
        recent.add(at, 3)
        asked.append(recent.asked)
        recent.ask(needed)
    assert asked == [None, 16.0, 16.0, 9.0, 7.0]  # the newest is the last one before the workers that came since


def test_the_capacity_is_that_of_the_consumers_that_were_there_lately() -> None:
    recent = Recent()
    for at, consumers in ((0.0, 20), (5.0, 3), (8.0, 5)):
        recent.add(at, consumers)
    assert recent.capacity == (3, 20)
    recent.add(60.0, 5)
    assert recent.capacity == (5, 5)


def test_consumers_that_are_not_reported_are_those_that_were() -> None:
    recent = Recent()
    for at, consumers in ((0.0, 20.0), (30.0, None), (60.0, None)):
        recent.add(at, consumers)
    assert recent.capacity == (20, 20)


def test_the_reads_in_a_short_time_are_few() -> None:
    recent = Recent()
    for number in range(100_000):
        recent.add(number / 10_000, 1)
    assert len(recent._reads) <= 2 * REPORTED + 2
