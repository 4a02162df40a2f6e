"""Aggregation of events by the rules of client-go: repeated, similar and too many ones."""

import tracemalloc
import uuid
from datetime import UTC, datetime, timedelta

from hpad.kube.events import COMBINED, EventAggregator, EventObject

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def reference(name, uid="u", version="7"):
    return EventObject("HorizontalPodAutoscaler", "n", name, uid, "autoscaling/v2", version)


WEB = reference("web")


def feed(aggregator, messages, *, about=WEB, type="Normal", reason="SuccessfulRescale", start=NOW, every=SECOND):
    """The aggregated events of these messages, None for each dropped one."""
    return [
        aggregator.aggregate(about, type, reason, message, start + index * every)
        for index, message in enumerate(messages)
    ]


def test_a_repeated_event_is_counted_on_the_first_one():
    first, second, third = feed(EventAggregator(), ["New size: 4"] * 3)
    assert [event.count for event in (first, second, third)] == [1, 2, 3]
    assert len({event.name for event in (first, second, third)}) == 1
    assert (third.first, third.last) == (NOW, NOW + 2 * SECOND)


def test_a_name_is_the_object_and_the_nanoseconds_in_hex():
    (event,) = feed(EventAggregator(), ["x"])
    assert event.name == f"web.{int(NOW.timestamp()) * 10**9:x}"


def test_a_name_that_would_be_too_long_is_a_uuid():
    """Source: client-go, tools/record/util/util.go: GenerateEventName."""
    first, second = feed(EventAggregator(), ["x", "y"], about=reference("a" * 253))
    assert uuid.UUID(first.name).version == 4
    assert first.name != second.name
    (fits,) = feed(EventAggregator(), ["x"], about=reference("a" * (253 - len(".18d1d4f6b1c8e000"))))
    assert len(fits.name) == 253


def test_names_differ_even_at_the_same_moment():
    events = feed(EventAggregator(), ["a", "b", "c"], every=timedelta(0))
    assert len({event.name for event in events}) == 3


def test_events_are_combined_from_the_tenth_different_message_on():
    events = feed(EventAggregator(), [f"New size: {size}" for size in range(13, 0, -1)])
    plain, combined = events[:9], events[9:]
    assert [event.message for event in plain] == [f"New size: {size}" for size in range(13, 4, -1)]
    assert [event.message for event in combined] == [f"{COMBINED}New size: {size}" for size in (4, 3, 2, 1)]
    assert [event.count for event in combined] == [1, 2, 3, 4]
    assert len({event.name for event in combined}) == 1


def test_other_reasons_and_other_objects_are_not_similar():
    aggregator = EventAggregator()
    feed(aggregator, [f"New size: {size}" for size in range(12)])
    (other_reason,) = feed(aggregator, ["x"], reason="FailedRescale")
    (other_object,) = feed(aggregator, ["New size: 99"], about=reference("b", "v"))
    assert other_reason.message == "x"
    assert other_object.message == "New size: 99"


def test_events_are_no_longer_combined_after_ten_minutes_without_one():
    aggregator = EventAggregator()
    feed(aggregator, [f"New size: {size}" for size in range(12)])
    (later,) = feed(aggregator, ["New size: 77"], start=NOW + timedelta(minutes=11))
    assert later.message == "New size: 77"


def test_25_events_at_once_are_written_then_one_in_five_minutes():
    aggregator = EventAggregator()
    burst = feed(aggregator, ["same"] * 30, every=timedelta(0))
    assert [event is not None for event in burst] == [True] * 25 + [False] * 5
    written, dropped = feed(aggregator, ["same"] * 2, start=NOW + timedelta(minutes=5), every=timedelta(0))
    assert written.count == 31
    assert dropped is None


def test_a_new_version_of_an_object_continues_its_counts():
    aggregator = EventAggregator()
    feed(aggregator, ["x"])
    (event,) = feed(aggregator, ["x"], about=reference("web", version="8"))
    assert event.count == 2


def test_the_counts_of_4096_events_are_remembered():
    aggregator = EventAggregator()
    for index in range(5_000):
        feed(aggregator, ["x"], about=reference(f"h{index}"))
    (oldest_remembered,) = feed(aggregator, ["x"], about=reference(f"h{5_000 - 4_096}"))
    (forgotten,) = feed(aggregator, ["x"], about=reference("h0"))
    assert (oldest_remembered.count, forgotten.count) == (2, 1)


def test_texts_of_events_are_not_kept():
    """The memory of 12 different long messages of each of 200 HPAs, in bytes, is less than two of the texts per HPA."""
    objects, long = 200, "x" * 2_000
    aggregator = EventAggregator()
    tracemalloc.start()
    try:
        for index in range(objects):
            about = reference(f"h{index}", f"u{long}{index}", long)
            feed(aggregator, [f"New size: {size} {long}" for size in range(12)], about=about)
        about = None
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    (known,) = feed(aggregator, [f"New size: 0 {long}"], about=reference("h0", f"u{long}0", long))
    assert known.count > 1
    assert kept < objects * 2 * len(long)
