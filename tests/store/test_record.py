"""Records of state: decoding returns what was encoded, and damaged records are refused."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import environment

from hpad.api.hpa import HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.engine.history import (
    History,
    Idleness,
    LastSample,
    Memory,
    PastRecommendation,
    PendingRescale,
    Rescale,
    Validity,
)
from hpad.store import record

KEY = Key("shop", "web")
START = datetime(2026, 1, 1, tzinfo=UTC)

moments = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9000, 1, 1), timezones=st.just(UTC))
counts = st.integers(0, 2**31 - 1)
seconds = st.floats(0, 1e9)
rescales = st.lists(st.builds(Rescale, moments, counts, st.booleans(), st.booleans()), max_size=5).map(tuple)
recommendations = st.lists(st.builds(PastRecommendation, moments, counts, st.booleans()), max_size=30).map(tuple)
last_samples = st.builds(LastSample, st.text(max_size=20), st.none() | moments, st.none() | moments, counts)
spans = st.integers(0, 10**12).map(lambda micros: timedelta(microseconds=micros))
idlenesses = st.just(msgspec.UNSET) | st.builds(Idleness, st.none() | moments, spans, st.none() | moments)
histories = st.builds(
    History, recommendations, rescales, rescales, st.lists(last_samples, max_size=2).map(tuple), idlenesses
)
conditions = st.builds(
    HorizontalPodAutoscalerCondition,
    st.sampled_from(["AbleToScale", "ScaledToZero"]),
    st.sampled_from(["True", "False"]),
    st.none() | moments,
    st.text(max_size=20),
    st.text(max_size=20),
)
statuses = st.builds(
    HorizontalPodAutoscalerStatus,
    st.none() | counts,
    st.none() | moments,
    counts,
    counts,
    st.none(),
    st.lists(conditions, max_size=3).map(tuple),
)
memories = st.builds(
    Memory,
    uid=st.text(max_size=40),
    history=histories,
    status=st.none() | statuses,
    at=st.none() | moments,
    last_count=st.none() | counts,
    pending=st.none() | st.builds(PendingRescale, counts, counts, rescales, rescales, statuses),
    loaded=st.just(True),
    target=st.text(max_size=20),
    validity=st.none() | st.builds(Validity, st.text(max_size=20), seconds, seconds, seconds, st.booleans()),
    shadow=st.none() | counts,
)


@given(memories)
def test_a_record_decodes_to_the_encoded_state(memory: Memory) -> None:
    assert record.decode(KEY, record.encode(KEY, memory)) == memory


@settings(max_examples=30 * environment.EFFORT)
@given(memories, st.data())
def test_a_truncated_record_is_refused(memory: Memory, data: st.DataObject) -> None:
    whole = record.encode(KEY, memory)
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(record.Undecodable):
        record.decode(KEY, whole[:length])


@settings(max_examples=30 * environment.EFFORT)
@given(memories, st.data())
def test_a_record_with_a_changed_byte_is_refused(memory: Memory, data: st.DataObject) -> None:
    garbled = bytearray(record.encode(KEY, memory))
    garbled[data.draw(st.integers(0, len(garbled) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(record.Undecodable):
        record.decode(KEY, bytes(garbled))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(record.Undecodable):
        record.decode(KEY, data)


def test_a_record_of_another_key_is_refused() -> None:
    with pytest.raises(record.Undecodable, match="shop/web"):
        record.decode(Key("shop", "api"), record.encode(KEY, Memory(uid="1")))


def test_a_later_format_is_named() -> None:
    later = b"\x07" + record.encode(KEY, Memory(uid="1"))[1:]
    with pytest.raises(record.Undecodable, match="format is 07, not 01"):
        record.decode(KEY, later)


def test_an_hour_of_recommendations_takes_less_than_two_kilobytes() -> None:
    past = tuple(PastRecommendation(START + timedelta(seconds=15 * turn), 100 + turn) for turn in range(240))
    assert len(record.encode(KEY, Memory(uid="0" * 36, history=History(past)))) < 2048


def test_a_history_that_is_too_long_is_merged_conservatively() -> None:
    count = record.MOST + 500
    past = tuple(PastRecommendation(START + timedelta(seconds=turn), (turn * 7919) % 1000) for turn in range(count))
    ups = downs = tuple(Rescale(START + timedelta(seconds=turn), 1 + turn % 5) for turn in range(count))
    kept = record.decode(KEY, record.encode(KEY, Memory(history=History(past, ups, downs)))).history
    assert len(kept.recommendations) == len(kept.scale_ups) == len(kept.scale_downs) == record.MOST
    for second in range(0, count, 50):
        since = START + timedelta(seconds=second)
        before = [each.replicas for each in past if each.timestamp >= since]
        after = [each.replicas for each in kept.recommendations if each.timestamp >= since]
        assert max(after) >= max(before)
        assert min(after) <= min(before)
        assert sum(each.change for each in kept.scale_downs if each.timestamp >= since) >= sum(
            each.change for each in downs if each.timestamp >= since
        )
        assert sum(each.change for each in kept.scale_ups if each.timestamp >= since) <= sum(
            each.change for each in ups if each.timestamp >= since
        )
