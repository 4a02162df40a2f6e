"""What becomes of repeated, similar and too many events, by the rules of Kubernetes' own clients."""

import tracemalloc
import uuid
from datetime import UTC, datetime, timedelta

from hpad.kube.events import COMBINED, EventAggregator, ObjectReference

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WEB = ObjectReference("HorizontalPodAutoscaler", "n", "web", "u", "autoscaling/v2", "7")
SECOND = timedelta(seconds=1)


def feed(aggregator, messages, *, about=WEB, type="Normal", reason="SuccessfulRescale", start=NOW, every=SECOND):
    return [
        aggregator.aggregate(about, type, reason, message, start + index * every)
        for index, message in enumerate(messages)
    ]


def test_a_repeated_event_is_counted_on_the_first():
    first, second, third = feed(EventAggregator(), ["New size: 4"] * 3)
    assert not first.exists
    assert second.exists
    assert third.exists
    assert [verdict.event.count for verdict in (first, second, third)] == [1, 2, 3]
    assert len({verdict.event.name for verdict in (first, second, third)}) == 1
    assert (third.event.first, third.event.last) == (NOW, NOW + 2 * SECOND)


def test_names_are_the_object_and_the_moment_in_hex():
    (verdict,) = feed(EventAggregator(), ["x"])
    assert verdict.event.name == f"web.{int(NOW.timestamp()) * 10**9:x}"


def test_a_name_that_would_be_too_long_is_a_uuid():
    """As in client-go: GenerateEventName."""
    long = ObjectReference("HorizontalPodAutoscaler", "n", "a" * 253, "u", "autoscaling/v2")
    first, second = feed(EventAggregator(), ["x", "y"], about=long)
    assert uuid.UUID(first.event.name).version == 4
    assert first.event.name != second.event.name
    edge = ObjectReference(
        "HorizontalPodAutoscaler", "n", "a" * (253 - len(".18d1d4f6b1c8e000")), "u", "autoscaling/v2"
    )
    (fits,) = feed(EventAggregator(), ["x"], about=edge)
    assert len(fits.event.name) == 253


def test_names_differ_even_at_the_same_moment():
    verdicts = feed(EventAggregator(), ["a", "b", "c"], every=timedelta(0))
    assert len({verdict.event.name for verdict in verdicts}) == 3


def test_from_the_tenth_different_message_on_events_are_combined():
    verdicts = feed(EventAggregator(), [f"New size: {size}" for size in range(13, 0, -1)])
    plain, combined = verdicts[:9], verdicts[9:]
    assert all(not verdict.event.message.startswith(COMBINED) for verdict in plain)
    assert [verdict.event.message for verdict in combined] == [f"{COMBINED}New size: {size}" for size in (4, 3, 2, 1)]
    assert [verdict.event.count for verdict in combined] == [1, 2, 3, 4]
    assert [verdict.exists for verdict in combined] == [False, True, True, True]
    assert len({verdict.event.name for verdict in combined}) == 1


def test_other_reasons_and_other_objects_are_not_similar():
    aggregator = EventAggregator()
    feed(aggregator, [f"New size: {size}" for size in range(12)])
    (other,) = feed(aggregator, ["x"], reason="FailedRescale")
    (elsewhere,) = feed(
        aggregator, ["New size: 99"], about=ObjectReference("HorizontalPodAutoscaler", "n", "b", "v", "v2")
    )
    assert other.event.message == "x"
    assert elsewhere.event.message == "New size: 99"


def test_after_ten_quiet_minutes_events_stand_for_themselves_again():
    aggregator = EventAggregator()
    feed(aggregator, [f"New size: {size}" for size in range(12)])
    (later,) = feed(aggregator, ["New size: 77"], start=NOW + timedelta(minutes=11))
    assert later.event.message == "New size: 77"


def test_a_burst_of_25_then_one_in_five_minutes():
    aggregator = EventAggregator()
    burst = feed(aggregator, ["same"] * 30, every=timedelta(0))
    assert [verdict is not None for verdict in burst] == [True] * 25 + [False] * 5
    late = feed(aggregator, ["same"] * 2, start=NOW + timedelta(minutes=5), every=timedelta(0))
    assert late[0].event.count == 31
    assert late[1] is None


def test_a_new_version_of_the_object_is_still_the_object():
    aggregator = EventAggregator()
    feed(aggregator, ["x"])
    newer = ObjectReference("HorizontalPodAutoscaler", "n", "web", "u", "autoscaling/v2", "8")
    (verdict,) = feed(aggregator, ["x"], about=newer)
    assert verdict.event.count == 2


def test_what_is_remembered_has_a_limit():
    aggregator = EventAggregator()
    for index in range(5_000):
        feed(
            aggregator, ["x"], about=ObjectReference("HorizontalPodAutoscaler", "n", f"h{index}", "u", "autoscaling/v2")
        )
    assert len(aggregator._seen) == len(aggregator._similar) == len(aggregator._spam) == 4096


def test_what_is_gone_is_forgotten_and_nothing_else():
    aggregator = EventAggregator()
    for index in range(500):
        about = ObjectReference("HorizontalPodAutoscaler", "n", f"h{index}", f"u{index}", "autoscaling/v2")
        feed(aggregator, ["x", "y"], about=about)
        feed(aggregator, ["x"], about=about, type="Warning", reason="FailedGetScale")
        if index:
            aggregator.forget(about)
    there = 1 + 32  # and those that are gone last
    assert len(aggregator._seen) <= 3 * there
    assert len(aggregator._similar) <= 2 * there
    assert len(aggregator._spam) <= 2 * there
    first, _ = feed(
        aggregator, ["x", "y"], about=ObjectReference("HorizontalPodAutoscaler", "n", "h0", "u0", "autoscaling/v2")
    )
    assert first.event.count == 2


def test_no_part_of_what_happened_is_kept():
    """Twelve different messages of each of many HPAs, all of them longer than what may be kept: a combined event, nine
    plain ones, their marks, and a bucket for all."""
    many, long = 200, "x" * 2_000
    aggregator = EventAggregator()
    tracemalloc.start()
    try:
        for index in range(many):
            about = ObjectReference(
                "HorizontalPodAutoscaler", "n", f"h{index}", f"u{long}{index}", "autoscaling/v2", long
            )
            feed(aggregator, [f"New size: {size} {long}" for size in range(12)], about=about)
        about = None
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(aggregator._seen) == 10 * many
    assert kept < many * 2 * len(long)
