"""The last reconciles in memory: their bounds, and files that a replay agrees with."""

import asyncio
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import recorded_world, virtual_time

from hpad.api.hpa import from_builtins
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, ExternalSample
from hpad.engine.conditions import WARNING, Event
from hpad.engine.turn import Reconcile
from hpad.records import recent, replay, writer
from hpad.records.format import RecordingError

WEB, API = Key("shop", "web"), Key("shop", "api")
LOAD = (400, 1600, 2600, 2600, 1400, 700, 700, 700, 700, 700, 700, 700, 700, 700)
PERIOD = 15
MEMORY = 1 << 30


def named(done: Reconcile, name: str, **metadata: str) -> Reconcile:
    hpa = done.view.hpa
    hpa = msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, name=name, **metadata))
    return msgspec.structs.replace(done, view=msgspec.structs.replace(done.view, hpa=hpa))


def kept(seconds: float = 3600, memory: int = MEMORY) -> recent.RecentReconciles:
    return recent.RecentReconciles(virtual_time.VirtualClock(), seconds=seconds, memory=memory)


def of(ring: recent.RecentReconciles, key: Key) -> list[Reconcile]:
    return [done for done in ring.all() if done.view.key == key]


def read(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def counts(scenario: dict[str, Any]) -> list[int | None]:
    """Returns the written replicas after a replay that agrees with what was recorded."""
    expected = [step["expect"] for step in scenario["steps"]]
    assert replay.replay(scenario)["steps"] == expected
    return [step["scaleTo"] for step in expected]


@virtual_time.in_virtual_time
async def test_only_the_last_seconds_are_kept() -> None:
    done = recorded_world.reconciles(LOAD, most=8)
    ring = kept(seconds=60)
    for each in done:
        ring.note(each)
        ring.note(named(each, "api"))
        await asyncio.sleep(PERIOD)
    # The last turn was 15 s ago: those of 15, 30 and 45 s ago are younger than 60 s.
    assert of(ring, WEB) == done[-3:]
    assert [each.view.now for each in of(ring, API)] == [each.view.now for each in done[-3:]]
    assert len(ring.all()) == 6
    await asyncio.sleep(30)
    assert of(ring, WEB) == done[-1:]
    await asyncio.sleep(PERIOD)
    assert (ring.all(), ring.size) == ([], 0)


@virtual_time.in_virtual_time
async def test_the_oldest_of_all_hpas_are_dropped_beyond_the_memory() -> None:
    done = recorded_world.reconciles(LOAD[:4], most=8)
    whole = kept()
    whole.note(done[0])
    ring = kept(memory=3 * whole.size)  # three reconciles of two pods
    decision = done[0].decision
    others = [msgspec.structs.replace(decision, desired=number) for number in range(5)]
    same = [msgspec.structs.replace(done[0], decision=each) for each in others]
    for number, each in enumerate(same):
        ring.note(each if number else named(each, "api"))
        assert ring.size <= 3 * whole.size
    assert ring.all() == same[2:]
    ring.note(done[3])  # more pods, and so more bytes
    assert ring.all() == [same[4], done[3]]


@virtual_time.in_virtual_time
async def test_without_time_nothing_is_kept() -> None:
    (done,) = recorded_world.reconciles(LOAD[:1], most=8)
    ring = kept()
    ring.note(done)
    assert ring.is_on
    ring.retune(seconds=0)
    ring.note(done)
    assert not ring.is_on
    assert (ring.all(), ring.size) == ([], 0)


def test_a_part_of_the_turns_replays_with_the_state_before_it() -> None:
    """The first kept turn has the history of those that were dropped: the scale-down window holds the count."""
    done = recorded_world.reconciles(LOAD, most=8)
    (whole,) = read(b"".join(recent.lines(done)))
    (part,) = read(b"".join(recent.lines(done[4:])))
    assert part["id"] == "shop.web-0"
    assert part["steps"][1:] == whole["steps"][5:]
    assert counts(part) == counts(whole)[4:]
    assert counts(part)[0] is None  # 1400m need 6 pods, and there are more: only the window keeps them
    assert any(counts(part))
    del part["history"]
    assert replay.replay(part)["steps"] != [step["expect"] for step in part["steps"]]


def test_a_gap_and_an_hpa_created_again_begin_another_scenario() -> None:
    done = recorded_world.reconciles(LOAD[:6], most=8)
    found = read(b"".join(recent.lines([*done[:2], *done[3:5], named(done[5], "web", uid="another")])))
    assert [(each["id"], len(each["steps"])) for each in found] == [
        ("shop.web-0", 2),
        ("shop.web-1", 2),
        ("shop.web-2", 1),
    ]
    for each in found:
        counts(each)


@pytest.mark.parametrize("name", ["saved.jsonl", "saved.jsonl.gz"])
def test_a_file_holds_the_turns_and_is_private(tmp_path: Path, name: str) -> None:
    done = [named(each, "a/b") for each in recorded_world.reconciles(LOAD, most=8)]
    file = tmp_path / name
    writer.write(file, recent.lines(done))
    assert list(tmp_path.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    ((_, found),) = replay.read(str(file))
    assert found["id"] == "shop.a%2Fb-0"
    assert len(counts(found)) == len(done)


def test_a_save_that_fails_leaves_no_file_and_replaces_none(tmp_path: Path) -> None:
    (done,) = recorded_world.reconciles(LOAD[:1], most=8)
    file = tmp_path / "saved.jsonl.gz"
    view = msgspec.structs.replace(done.view, annotation_error="\ud800")
    broken = named(msgspec.structs.replace(done, view=view), "web2")
    with pytest.raises(RecordingError, match=f"{file}: cannot be written: "):
        writer.write(file, recent.lines([done, broken]))
    assert list(tmp_path.iterdir()) == []
    file.write_text("other")
    with pytest.raises(RecordingError, match=f"{file}: cannot be written: it exists"):
        writer.write(file, recent.lines([done]))
    assert file.read_text() == "other"
    with pytest.raises(RecordingError, match="No such file or directory"):
        writer.write(tmp_path / "absent" / "saved.jsonl", recent.lines([done]))


def changed(done: Reconcile, **fields: Any) -> Reconcile:
    return msgspec.structs.replace(done, view=msgspec.structs.replace(done.view, **fields))


def _named(text: str) -> Any:
    target = {"type": "AverageValue", "averageValue": "1"}
    spec = {"metrics": [{"type": "External", "external": {"metric": {"name": text}, "target": target}}]}
    return from_builtins({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})


def _annotated(text: str) -> Any:
    return from_builtins({"metadata": {"name": "web", "namespace": "shop", "annotations": {"hpad.io/fallback": text}}})


LONG = "x" * 50_000


@pytest.mark.parametrize(
    "grow",
    [
        lambda done: changed(done, hpa=_named(LONG)),
        lambda done: changed(done, hpa=_annotated(LONG)),
        lambda done: changed(done, pods=[Pod(name="p", labels={f"l{n}": "x" for n in range(1000)})]),
        lambda done: changed(done, overlapping_hpas=(LONG,)),
        lambda done: msgspec.structs.replace(done, answers=[AdapterError("x" * 4096)] * 15),
        lambda done: msgspec.structs.replace(done, answers=[ExternalSample((1,) * 2000, done.view.now)]),
        lambda done: msgspec.structs.replace(
            done, settlement=msgspec.structs.replace(done.settlement, events=(Event(WARNING, "a", LONG),))
        ),
        lambda done: msgspec.structs.replace(done, settlement=msgspec.structs.replace(done.settlement, error=LONG)),
    ],
)
@virtual_time.in_virtual_time
async def test_the_bound_counts_the_texts_that_others_choose(grow: Callable[[Reconcile], Any]) -> None:
    """A hundred turns with 50 kB of texts each would take 5 MB, and are taken for 600 kB without them."""
    (done,) = recorded_world.reconciles(LOAD[:1], most=8)
    ring = kept(memory=1 << 20)
    for _ in range(100):
        ring.note(grow(done))
    assert 1 < len(ring.all()) <= 22
    for _ in range(100):
        ring.note(done)
    assert len(ring.all()) >= 100
