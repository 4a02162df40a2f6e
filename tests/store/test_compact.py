"""What is remembered of HPAs that vanished takes little room, and is what a restart would have kept."""

import tracemalloc
from datetime import UTC, datetime, timedelta

import msgspec

from hpad.api.metadata import Key
from hpad.engine.history import History, LastSample, PastRecommendation, Rescale
from hpad.store.compact import CompactMap
from hpad.store.memory import Last, Memory

WEB, API = Key("shop", "web"), Key("shop", "api")
START = datetime(2026, 1, 1, tzinfo=UTC)
BYTES = 1000
"""At most, for one of them: then 16,384 of them take less than 17 MB."""


def memory(uid: str = "1", recommendations: int = 20) -> Memory:
    """That of an HPA which is reconciled every 15 seconds, with a window of five minutes."""
    times = [START + timedelta(seconds=15 * number, microseconds=number) for number in range(recommendations)]
    return Memory(
        uid=uid,
        history=History(
            tuple(PastRecommendation(at, 3 + number % 2) for number, at in enumerate(times)),
            (Rescale(times[0], 2), Rescale(times[1], 1, outdated=True)),
            (Rescale(times[2], 1),),
            (LastSample("External load", None, times[3], 4),),
        ),
        at=times[-1],
        last_count=4,
        target="apps/Deployment/web",
        last=Last(times[-1], "stays at 4"),
    )


def test_what_is_packed_comes_back_but_for_what_was_said() -> None:
    held = CompactMap()
    held.put(WEB, memory())
    record = held.record(WEB)
    held.pack(WEB)
    assert held.is_packed(WEB)
    assert held.get(WEB) == msgspec.structs.replace(memory(), last=None, loaded=True)
    assert held.record(WEB) == record
    assert list(held) == [WEB]
    assert len(held) == 1


def test_what_is_put_on_top_counts() -> None:
    held = CompactMap()
    held.put(WEB, memory("1"))
    held.pack(WEB)
    held.put(WEB, memory("2"))
    assert held.get(WEB) == memory("2")
    assert not held.is_packed(WEB)
    assert len(held) == 1


def test_packed_or_not_it_is_dropped() -> None:
    held = CompactMap()
    for key in (WEB, API):
        held.put(key, memory())
    held.pack(WEB)
    for key in (WEB, API, Key("shop", "nobody")):
        held.drop(key)
        assert key not in held
        assert held.get(key) is None
        assert held.record(key) is None
    assert len(held) == 0


def test_of_nothing_there_is_nothing_to_pack_or_to_recall() -> None:
    held = CompactMap()
    held.pack(WEB)
    held.mark_loaded(WEB)
    assert list(held) == []


def test_what_vanished_is_small() -> None:
    """Bytes are counted, beside the keys: these are whose HPAs they are."""
    held, keys = CompactMap(), [Key("shop", f"web-{number}") for number in range(1000)]
    tracemalloc.start()
    try:
        for key in keys:
            held.put(key, memory())
        large = tracemalloc.get_traced_memory()[0]
        for key in keys:
            held.pack(key)
        small = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert small < BYTES * len(keys) < large
