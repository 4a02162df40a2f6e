"""Entries and traces as bytes: nothing is lost but pods beyond the limit, and damage yields no false entry."""

import random
import zlib
from datetime import timedelta

import msgspec
import pytest
from support.decisions import WEB, Diary
from support.engine import Workload, external, pod, resource, series, used

from hpad.decisions import compact, tables
from hpad.decisions.compact import Stored, Unreadable
from hpad.decisions.dictionary import DICTIONARY
from hpad.decisions.reason import reason
from hpad.decisions.stretch import Stretch
from hpad.engine.trace import Trace
from hpad.engine.trace.make import make_trace


def by_cpu(pods: int, *, unready: int = 0) -> Workload:
    """A deployment with names as Kubernetes makes them, after 20 turns with different usages."""
    dice = random.Random(pods)
    letters = "bcdfghjklmnpqrstvwxz2456789"
    web = Workload(resource("cpu", averageUtilization=65), replicas=pods, low=pods, high=pods)
    web.pods = [
        pod(f"checkout-{''.join(dice.choices(letters, k=9))}-{''.join(dice.choices(letters, k=5))}", cpu=250)
        for _ in range(pods - unready)
    ]
    web.pods += [pod(f"late-{n}", phase="Pending") for n in range(unready)]
    for _ in range(20):
        web.reconcile(used({each.name: dice.randint(90, 190) for each in web.pods}, now=web.now), after=15)
    return web


def by_queue() -> Workload:
    web = Workload(external("rabbitmq_queue_depth", {"queue": "invoices"}, averageValue="50"), replicas=6, high=30)
    for turn in range(20):
        web.reconcile(series(270 + turn), after=15)
    return web


def stored(web: Workload) -> Stored:
    assert web.done is not None
    trace = make_trace(web.done, lambda query: "metrics-server", compact.MOST_PODS)
    return Stretch(web.done, reason(web.done), 7).packed(trace)


def test_an_entry_is_read_back_as_it_was() -> None:
    web = by_cpu(4)
    diary = Diary(web)
    for turn in range(5):
        diary.turn(used({each.name: 100 + turn for each in web.pods or ()}, now=web.now))
    assert web.done is not None
    stretch = Stretch(web.done, reason(web.done), 7)
    trace = make_trace(web.done, lambda query: "metrics-server")
    read = compact.unpack(WEB, stretch.packed(trace), trace=True)
    assert read == msgspec.structs.replace(stretch.closed(), trace=trace)
    assert compact.unpack(WEB, stretch.packed(trace), trace=False) == stretch.closed()


@pytest.mark.parametrize(
    ("web", "trace_bytes", "head_bytes"), [(by_cpu(4), 700, 100), (by_cpu(50), 1500, 100), (by_queue(), 700, 150)]
)
def test_typical_entries_are_small(web: Workload, trace_bytes: int, head_bytes: int) -> None:
    """About 600 bytes for a queue or a CPU metric with 4 pods, and 20 more per pod; as JSON about 4 kB and 10 kB."""
    made = stored(web)
    assert 0 < len(made.trace) < trace_bytes
    assert 0 < len(made.head) < head_bytes


def test_the_dictionary_belongs_to_the_format() -> None:
    """Another dictionary needs another format: entries of the former one could not be read."""
    assert (tables.FORMAT, zlib.crc32(DICTIONARY)) == (1, 69091770)


def test_ready_pods_beyond_the_limit_are_left_out() -> None:
    made = compact.unpack_trace(stored(by_cpu(2000, unready=30)).trace)
    assert made is not None
    (metric,) = made.metrics
    assert (len(metric.pods), metric.pods_omitted) == (compact.MOST_PODS, 2000 - compact.MOST_PODS)
    assert [each.group for each in metric.pods].count("unready") == 30
    assert len(stored(by_cpu(2000, unready=30)).trace) < 4000


def test_more_unready_pods_than_the_limit_are_left_out_as_well() -> None:
    made = compact.unpack_trace(stored(by_cpu(300, unready=250)).trace)
    assert made is not None
    (metric,) = made.metrics
    assert {each.group for each in metric.pods} == {"unready"}
    assert (len(metric.pods), metric.pods_omitted) == (compact.MOST_PODS, 300 - compact.MOST_PODS)


def test_values_of_many_series_are_left_out() -> None:
    web = Workload(external("depth", averageValue="10"), replicas=6)
    web.reconcile(series(*range(5000)))
    made = compact.unpack_trace(stored(web).trace)
    assert made is not None
    sample = made.metrics[0].sample
    assert sample is not None
    assert sample.values is not None
    assert (len(sample.values), sample.values_omitted) == (compact.MOST_PODS, 5000 - compact.MOST_PODS)


def test_a_trace_that_stays_too_large_is_stored_without_pods_or_not_at_all() -> None:
    dice = random.Random(1)
    web = by_cpu(compact.MOST_PODS)
    assert web.done is not None
    whole = make_trace(web.done)
    noise = ["".join(dice.choices("0123456789abcdef", k=4000)) for _ in range(compact.MOST_PODS)]

    def with_noise(trace: Trace, pods: int) -> Trace:
        (metric,) = trace.metrics
        named = [msgspec.structs.replace(each, why=why) for each, why in zip(metric.pods, noise[:pods], strict=False)]
        return msgspec.structs.replace(
            trace, metrics=(msgspec.structs.replace(metric, pods=tuple(named), error=noise[0] * (100 - pods)),)
        )

    without_pods = compact.unpack_trace(compact.pack_trace(with_noise(whole, 100)))
    assert without_pods is not None
    assert (without_pods.metrics[0].pods, without_pods.metrics[0].pods_omitted) == ((), 100)
    assert compact.pack_trace(msgspec.structs.replace(whole, error="".join(noise))) == b""


def test_damage_is_reported_and_yields_no_other_entry() -> None:
    made, dice = stored(by_queue()), random.Random(4)
    right = compact.unpack(WEB, made, trace=True)
    read = unreadable = 0
    for _ in range(2000):
        damaged = bytearray(made.head)
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        if dice.random() < 0.2:
            del damaged[dice.randrange(len(damaged)) :]
        try:
            found = compact.unpack(WEB, msgspec.structs.replace(made, head=bytes(damaged)), trace=True)
        except Unreadable:
            unreadable += 1
        else:
            assert found == right
            read += 1
    assert unreadable > 1500
    for _ in range(500):
        damaged = bytearray(made.trace)
        damaged[dice.randrange(len(damaged))] ^= 1 + dice.randrange(255)
        assert compact.unpack_trace(bytes(damaged)) in (None, right.trace)
    assert compact.unpack_trace(made.head) is None  # readable bytes, but no trace
    for head in (b"", made.trace, None):
        with pytest.raises(Unreadable):
            compact.unpack(WEB, Stored(1, 0, 0, head), trace=True)  # type: ignore[arg-type]
    with pytest.raises(Unreadable):
        compact.unpack(WEB, msgspec.structs.replace(made, began=1 << 62), trace=True)


def test_a_bomb_is_not_inflated() -> None:
    packed = zlib.compressobj(zdict=DICTIONARY)
    bomb = packed.compress(bytes(1 << 26)) + packed.flush()
    assert compact.unpack_trace(bomb) is None
    with pytest.raises(Unreadable, match="too many"):
        compact.unpack(WEB, Stored(1, 0, 0, bomb), trace=False)


def test_a_trace_with_fields_of_a_later_version_is_read() -> None:
    web = by_queue()
    assert web.done is not None
    later = msgspec.to_builtins(make_trace(web.done)) | {"mood": "good"}
    stream = zlib.compressobj(zdict=DICTIONARY)
    packed = stream.compress(msgspec.msgpack.encode(later)) + stream.flush()
    read = compact.unpack_trace(packed)
    assert read is not None
    assert read.time - make_trace(web.done).time == timedelta(0)


def test_a_trace_of_very_many_values_is_stored_without_its_pods() -> None:
    """To choose a hundred pods of each metric takes as long as there are pods and metrics, in the event loop."""
    assert (compact.most_pods(1000, 25), compact.most_pods(1001, 25)) == (compact.MOST_PODS, 0)
    web = Workload(resource("cpu", averageUtilization=50), replicas=3)
    web.reconcile(used([100] * 3))
    (metric,) = make_trace(web.done, None, 0).metrics
    assert (metric.pods, metric.pods_omitted) == ((), 3)
