"""Turns with the same decision for the same reason are one entry, and noise makes few entries."""

import random
from datetime import timedelta

import msgspec
import pytest
from support.decisions import WEB, Diary, contiguous
from support.engine import START, Workload, external, pod, resource, series, used

from hpad.api.sample import AdapterError
from hpad.engine.view import ScaleError, Tunables
from hpad.records.entry import MOST_TEXT
from hpad.records.stretch import SETTLED

DAY = 24 * 60 * 4
"""The turns of a day."""
UNSTABILIZED = {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 0}}


def two_queues(**fields: object) -> Workload:
    """Two queues that ask for one replica per 10 messages."""
    names = external("orders", averageValue="10"), external("invoices", averageValue="10")
    return Workload(*names, **{"replicas": 5, "high": 20, "behavior": UNSTABILIZED, **fields})  # type: ignore[arg-type]


def one_queue(**fields: object) -> Workload:
    return Workload(external("orders", averageValue="10"), **{"replicas": 5, "high": 20, **fields})  # type: ignore[arg-type]


def test_turns_whose_usage_varies_are_one_entry() -> None:
    diary, dice = Diary(one_queue()), random.Random(1)
    for _ in range(100):
        diary.turn(series(dice.randint(46, 54)))  # within the tolerance of 10%
    (entry,) = diary.entries()
    assert (entry.turns, entry.current, entry.desired, entry.action) == (100, 5, 5, "none")
    assert entry.ended - entry.began == timedelta(seconds=15 * 99)


def test_a_note_that_comes_and_goes_makes_no_entry() -> None:
    diary = Diary(one_queue())
    for turn in range(20):
        diary.turn(msgspec.structs.replace(series(50), note="no consumer holds a message" if turn % 2 else ""))
    assert diary.counts() == [(20, 5, 5)]


def test_each_rescale_is_an_entry_even_if_it_is_the_same_again() -> None:
    diary = Diary(one_queue(replicas=1))
    for _ in range(3):
        diary.workload.replicas = 1  # another client sets it back each time
        diary.turn(series(30))
    assert diary.counts() == [(1, 1, 3)] * 3
    assert contiguous(diary.entries())


def test_metrics_that_lead_in_turn_make_few_entries() -> None:
    """Two metrics ask for about as much: chance alone decides which is higher."""
    diary, dice = Diary(two_queues()), random.Random(2)
    for _ in range(DAY):
        diary.turn(series(dice.randint(47, 53)), series(dice.randint(47, 53)))
    entries = diary.entries(limit=DAY)
    assert sum(entry.turns for entry in entries) == DAY
    # One metric leads 8 times in a row once in 2 * 2**8 turns, which makes about 11 entries a day; a full list of
    # points makes some more.
    assert len(entries) < 100
    assert contiguous(entries)


def test_a_change_of_the_leader_that_lasts_is_an_entry_from_its_first_turn_on() -> None:
    diary = Diary(two_queues())
    for _ in range(20):
        diary.turn(series(50), series(20))
    for turn in range(SETTLED):
        diary.turn(series(20), series(50))
        assert len(diary.entries()) == (1 if turn < SETTLED - 1 else 2)
    first, second = diary.entries(traces=True)
    assert (first.turns, second.turns) == (20, SETTLED)
    assert second.began - START == timedelta(seconds=15 * 21)
    assert second.trace is not None
    assert second.trace.chosen is not None
    assert second.trace.time == second.began
    assert second.trace.chosen.metric == "invoices"
    assert [point.proposals for point in (*first.points, *second.points)] == [(5, 2), (2, 5)]


def test_a_failure_is_an_entry_at_once_and_ends_when_it_has_stayed_away() -> None:
    diary, error = Diary(one_queue()), AdapterError("no answer")
    for answer in (series(50), series(50), error, *[series(50)] * SETTLED):
        diary.turn(answer)
    assert [(entry.turns, bool(entry.error)) for entry in diary.entries()] == [(2, False), (1, True), (SETTLED, False)]
    assert contiguous(diary.entries())


def test_a_source_that_fails_in_every_other_turn_is_one_entry() -> None:
    diary = Diary(one_queue())
    for turn in range(100):
        diary.turn(AdapterError("no answer") if turn % 2 else series(50))
    assert [(entry.turns, bool(entry.error)) for entry in diary.entries()] == [(1, False), (99, True)]
    assert {point.proposals for point in diary.entries()[1].points} == {(5,), (None,)}


def test_a_further_failure_is_an_entry_at_once() -> None:
    diary, error = Diary(two_queues()), AdapterError("no answer")
    diary.turn(series(50), series(20))
    diary.turn(error, series(50))
    diary.turn(error, error)
    diary.turn(error, AdapterError("another text"))
    assert [entry.turns for entry in diary.entries()] == [1, 1, 2]


def test_what_to_blame_is_part_of_the_reason_if_it_lasts() -> None:
    diary = Diary(one_queue())
    for blame, turns in (("source", 3), ("spec", 2), ("source", 3), ("spec", SETTLED)):
        for _ in range(turns):
            diary.turn(AdapterError("no answer", blame))
    assert [entry.turns for entry in diary.entries()] == [8, SETTLED]


def test_a_short_delay_before_a_rescale_is_an_entry_of_its_own() -> None:
    """Otherwise the history would say that nothing was wanted while a window held the count."""
    held = {"scaleUp": {"stabilizationWindowSeconds": 60}, "scaleDown": {"stabilizationWindowSeconds": 0}}
    diary = Diary(one_queue(behavior=held))
    for messages in (*[50] * 6, *[80] * 5):
        diary.turn(series(messages))
    # The last 5 was recommended in turn 6. It is older than 60 s in turn 10.
    assert diary.counts() == [(6, 5, 5), (3, 5, 5), (1, 5, 8), (1, 8, 8)]
    assert "stabilized" in diary.entries()[1].sentence
    assert "stabilized" not in diary.entries()[0].sentence
    assert contiguous(diary.entries())


def test_another_count_an_edit_and_another_setting_are_entries_at_once() -> None:
    diary = Diary(one_queue())
    diary.turn(series(50))
    diary.workload.replicas = 6  # another client
    diary.turn(series(60))
    edited = msgspec.structs.replace(diary.workload.hpa.spec, max_replicas=19)
    diary.workload.hpa = msgspec.structs.replace(diary.workload.hpa, spec=edited)
    diary.turn(series(60))
    diary.workload.tunables = Tunables(tolerance=0.2)
    diary.turn(series(60))
    diary.turn(series(60))
    assert [(entry.turns, entry.current, entry.max) for entry in diary.entries()] == [
        (1, 5, 20), (1, 6, 20), (1, 6, 19), (2, 6, 19),
    ]  # fmt: skip


def test_a_target_that_cannot_be_read_now_and_then_is_one_entry() -> None:
    diary, gone = Diary(one_queue()), ScaleError("no answer")
    for turn in range(40):
        if turn % 2:
            diary.turn(scale=None, scale_error=gone)
        else:
            diary.turn(series(50))
    assert [entry.turns for entry in diary.entries()] == [1, 39]
    diary.workload.replicas = 7
    diary.turn(series(70))
    assert diary.counts()[-1] == (1, 7, 7)


def test_a_count_that_a_dry_run_wants_is_an_entry_at_once_and_its_noise_is_none() -> None:
    diary, dice = Diary(one_queue(behavior=UNSTABILIZED)), random.Random(3)
    diary.dry_turn(series(50))
    for _ in range(50):
        diary.dry_turn(series(dice.choice([78, 82, 91])))
    wanted = [(entry.turns, entry.current, entry.desired > 5, entry.action) for entry in diary.entries()]
    assert wanted[:2] == [(1, 5, False, "none"), (wanted[1][0], 5, True, "scale_up")]
    assert len(wanted) < 6
    diary.dry_turn(series(20))
    assert (diary.entries()[-1].desired, diary.entries()[-1].action) == (2, "scale_down")


def test_pods_that_become_ready_are_no_entry() -> None:
    diary = Diary(Workload(resource("cpu", averageUtilization=50), replicas=3))
    for unready in (2, 1, 0):
        diary.workload.pods = [pod(f"web-{n}", phase="Pending" if n < unready else "Running") for n in range(3)]
        diary.turn(used({f"web-{n}": 100 for n in range(unready, 3)}, now=diary.workload.now))
    assert diary.counts() == [(3, 3, 3)]


def test_a_clock_that_is_set_back_begins_an_entry() -> None:
    diary = Diary(one_queue())
    diary.turn(series(50))
    diary.turn(series(50))
    diary.turn(series(50), after=-3600)
    diary.turn(series(50))
    first, second = diary.entries()
    assert (first.turns, second.turns) == (2, 2)
    assert first.number < second.number
    assert second.began < first.began
    assert all(entry.began <= entry.ended for entry in (first, second))


def test_a_stretch_of_more_than_a_day_is_continued() -> None:
    diary = Diary(one_queue())
    for _ in range(DAY + 10):
        diary.turn(series(50))
    assert [entry.turns for entry in diary.entries()] == [DAY + 1, 9]


def test_the_evidence_holds_no_status_and_no_traceback() -> None:
    """A traceback holds the frames of the calls, with all that an adapter has read."""
    diary = Diary(two_queues())
    with pytest.raises(AdapterError) as caught:
        raise AdapterError("no answer", "cluster", lasting=True)
    diary.turn(caught.value, series(50))
    kept = diary.log.last(WEB)
    assert kept is not None
    error = kept.answers[0]
    assert isinstance(error, AdapterError)
    assert (error, error.lasting, error.alive, error.__traceback__) == (caught.value, True, False, None)
    assert kept.answers[1] == series(50)
    assert caught.value.__traceback__ is not None
    assert kept.view.hpa.status.conditions == kept.settlement.status.conditions == ()
    assert diary.workload.hpa.status.conditions


def test_long_texts_are_cut_in_the_entry_and_not_in_the_trace() -> None:
    diary = Diary(one_queue())
    diary.turn(AdapterError("x" * 10_000))
    (entry,) = diary.entries(traces=True)
    assert (len(entry.sentence), len(entry.error)) == (MOST_TEXT, MOST_TEXT)
    assert entry.trace is not None
    assert len(entry.trace.sentence) > MOST_TEXT


def test_a_window_that_changes_the_bounds_begins_an_entry() -> None:
    """At 12:01 the minimum becomes 3 and the maximum 6, which the count of 5 is within; at 12:02 they go back."""
    window = {"hpad.io/schedule": "1 12 1 1 * for 1m: min=3, max=6"}
    diary = Diary(Workload(external("orders", averageValue="10"), replicas=5, annotations=window))
    for _ in range(12):
        diary.turn(series(50))
    assert [(each.turns, each.min, each.max) for each in diary.entries()] == [(3, 1, 10), (4, 3, 6), (5, 1, 10)]
