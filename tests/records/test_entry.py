"""A stored step leads to the same decision again, and to all that is said of it; damage yields no false entry."""

import itertools
import random
import zlib

import msgspec
import pytest
from support import environment, recorded_steps, virtual_time
from support.decisions import WEB, Diary
from support.engine import Answer, Workload, external, pod, resource, series, used

from hpad.api.sample import AdapterError
from hpad.engine.settle import Outcome
from hpad.engine.turn import Reconcile, TimingTrace
from hpad.engine.view import READ_FAILED, STALE, TOO_LARGE, ScaleError
from hpad.records import entry, replay, tables
from hpad.records.entry import DICTIONARY, Stored, UnreadableEntry, pack, unpack_said, unpack_step
from hpad.records.format import decode_scenario


def by_cpu(pods: int) -> Reconcile:
    """A reconcile of a deployment with names as Kubernetes makes them, after 20 turns with different usages."""
    dice = random.Random(pods)
    letters = "bcdfghjklmnpqrstvwxz2456789"
    web = Workload(resource("cpu", averageUtilization=65), replicas=pods, low=pods, high=pods)
    hashed = "".join(dice.choices(letters, k=9))
    web.pods = [pod(f"checkout-{hashed}-{''.join(dice.choices(letters, k=5))}", cpu=250) for _ in range(pods)]
    for _ in range(20 if pods < 1000 else 1):
        web.reconcile(used({each.name: dice.randint(90, 190) for each in web.pods}, now=web.now), after=15)
    assert web.done is not None
    return web.done


def by_queue(answer: Answer | None = None) -> Reconcile:
    web = Workload(external("rabbitmq_queue_depth", {"queue": "invoices"}, averageValue="50"), replicas=6, high=30)
    for turn in range(20):
        web.reconcile(answer or series(270 + turn), after=15)
    assert web.done is not None
    return web.done


def said_of(done: Reconcile) -> list[str]:
    """Returns everything that hpad says of a decision."""
    return list(recorded_steps.said(done, 0))


@pytest.mark.parametrize(
    "part", ["reconcile-0", "timeline-0", *(name for name in recorded_steps.parts() if "own" in name)]
)
def test_recorded_decisions_are_the_same_again_after_storing(part: str) -> None:
    steps = 0
    for row in recorded_steps.rows(part, environment.every(6)):
        for done in itertools.islice(replay.run(decode_scenario(row)), 0, None, 7):
            again = unpack_step(pack(done).step)
            assert again is not None
            assert said_of(again) == said_of(done)
            steps += 1
    assert steps > 10


def test_what_only_the_history_stores_comes_back() -> None:
    timing = TimingTrace(late=0.01, observe=0.02, gather=0.03, act=0.04, publish=0.05)
    web = Workload(external("orders", averageValue="10"), replicas=2)
    web.reconcile(series(40), refused="no answer")
    assert web.done is not None
    done = msgspec.structs.replace(web.done, timing=timing, outcome=Outcome((4,), "no answer", unsure=True))
    confidential = {"labels": {"team": "secret"}, "annotations": {"token": "secret"}}
    metadata = msgspec.structs.replace(done.view.hpa.metadata, **confidential)
    view = msgspec.structs.replace(done.view, hpa=msgspec.structs.replace(done.view.hpa, metadata=metadata))
    again = unpack_step(pack(msgspec.structs.replace(done, view=view)).step)
    assert again is not None
    assert (again.timing, again.outcome) == (done.timing, done.outcome)
    kept = again.view.hpa.metadata
    assert (kept.labels, kept.annotations) == (None, None)


@pytest.mark.parametrize("reason", [READ_FAILED, STALE, TOO_LARGE])
def test_the_reason_for_an_unknown_scale_comes_back(reason: str) -> None:
    web = Workload(external("orders", averageValue="10"), replicas=2)
    web.reconcile(scale=None, scale_error=ScaleError("400,000 pods", reason))
    assert web.done is not None
    again = unpack_step(pack(web.done).step)
    assert again is not None
    assert again.view.scale_error == ScaleError("400,000 pods", reason)
    assert said_of(again) == said_of(web.done)
    said = entry.first(web.done)
    assert (said.current, said.desired) == (None, None)  # and not zero


@pytest.mark.parametrize(
    ("done", "step_bytes"), [(by_cpu(4), 500), (by_cpu(50), 1300), (by_queue(), 500)], ids=["4 pods", "50", "queue"]
)
def test_typical_steps_are_small(done: Reconcile, step_bytes: int) -> None:
    """As JSON they have about 4 kB, and 400 bytes more per pod."""
    made = pack(done)
    assert 0 < len(made.step) < step_bytes
    assert 0 < len(made.said) < 160


def test_a_step_that_is_too_large_is_left_out_and_what_was_said_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < len(pack(by_cpu(1000)).step) < entry.MOST_BYTES / 3
    assert pack(by_cpu(entry.MOST_PODS + 1)).step == b""
    monkeypatch.setattr(entry, "MOST_BYTES", 1000)
    made = pack(by_cpu(100))
    assert made.step == b""
    assert unpack_said(made.said).sentence.startswith("keep 100")


def test_text_that_is_not_utf8_is_left_out() -> None:
    assert pack(by_queue(AdapterError("\ud800"))) == Stored(b"", b"")


def test_the_dictionary_belongs_to_the_format_and_is_made_of_steps_that_can_be_read() -> None:
    """Another dictionary needs another format: entries of the former one could not be read."""
    assert (tables.FORMAT, zlib.crc32(DICTIONARY)) == (2, 1244045858)
    lines = list(map(msgspec.json.decode, DICTIONARY.splitlines()))
    assert sum(len(list(replay.run(decode_scenario(each)))) for each in lines if "hpa" in each) == 4


def test_damage_yields_no_other_entry() -> None:
    made, dice = pack(by_queue()), random.Random(4)
    right, trace = unpack_said(made.said), said_of(unpack_step(made.step))  # type: ignore[arg-type]
    unreadable = 0
    for _ in range(1000):
        damaged = bytearray(made.said)
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            assert unpack_said(bytes(damaged)) == right
        except UnreadableEntry:
            unreadable += 1
    assert unreadable > 900
    for _ in range(300):
        damaged = bytearray(made.step)
        damaged[dice.randrange(len(damaged))] ^= 1 + dice.randrange(255)
        found = unpack_step(bytes(damaged))
        assert found is None or said_of(found) == trace
    assert unpack_step(made.said) is None  # readable bytes, but no step
    with pytest.raises(UnreadableEntry):
        unpack_said(made.step)


def test_a_bomb_is_not_inflated() -> None:
    packed = zlib.compressobj(zdict=DICTIONARY)
    bomb = packed.compress(bytes(1 << 26)) + packed.flush()
    assert unpack_step(bomb) is None
    with pytest.raises(UnreadableEntry, match="too many"):
        unpack_said(bomb)


def test_a_version_that_decides_otherwise_says_what_was_decided_then() -> None:
    """The stored words and count stay; trace and outlook are those of this version."""
    diary = Diary(Workload(external("orders", averageValue="10"), replicas=5))
    diary.turn(series(50))
    found = virtual_time.run(diary.log.at(WEB, diary.workload.now))
    assert found is not None
    assert found.note == ""
    sentence = "keep 5: external metric orders above target, but hpad 0.0 ignored it"
    other = msgspec.structs.replace(found.entry, sentence=sentence)
    assert found._replace(entry=other).note == (
        f"the hpad of that time decided otherwise than this version does on the same inputs: {sentence}"
    )
    assert found._replace(entry=msgspec.structs.replace(found.entry, desired=6)).note
    assert found._replace(done=None).note == ""
