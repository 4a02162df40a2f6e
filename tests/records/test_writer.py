"""The recording writer: its lines are complete at any moment, and a replay gives the same results."""

import asyncio
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from support import virtual_time

from hpad.api import hpa as v2
from hpad.api.hpa import (
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
    Scale,
    ScaleSpec,
    ScaleStatus,
    from_builtins,
)
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, ExternalSample, Sample
from hpad.engine import fallback_policy
from hpad.engine.fallback_policy import FallbackPolicy
from hpad.engine.history import EMPTY
from hpad.engine.turn import Reconcile, run
from hpad.engine.view import DRY_RUN, Competitor, View, Withheld, yielded
from hpad.records import encode, format, replay, writer
from hpad.records.format import RecordingError, decode_step
from hpad.records.recent import weight

START = datetime(2026, 1, 1, tzinfo=UTC)


def hpa(most: int = 10) -> HorizontalPodAutoscaler:
    target = {"type": "AverageValue", "averageValue": "10"}
    return v2.defaulted(
        from_builtins(
            {
                "metadata": {"name": "web", "namespace": "shop", "annotations": {"secret": "swordfish"}},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                    "maxReplicas": most,
                    "metrics": [{"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}],
                },
            }
        )
    )


def reconciles(
    answers: Sequence[Sample | AdapterError],
    *,
    most: Sequence[int] = (),
    withheld: Withheld | None = None,
    competitors: tuple[Competitor, ...] = (),
    **fields: Any,
) -> list[Reconcile]:
    """Returns reconciles 15 seconds apart, one per answer, with these maxReplicas (the last one stays).

    `fields` are fields of each View.
    """
    done: list[Reconcile] = []
    status, history, replicas = hpa().status, EMPTY, 1
    for turn, answer in enumerate(answers):
        listed = hpa(most[min(turn, len(most) - 1)] if most else 10)
        view = View(
            hpa=HorizontalPodAutoscaler(metadata=listed.metadata, spec=listed.spec, status=status),
            now=START + timedelta(seconds=15 * turn),
            history=history,
            scale=Scale(metadata={"name": "web"}, spec=ScaleSpec(replicas), status=ScaleStatus(replicas, "app=web")),
            pods=[
                Pod(name=f"web-{n}", namespace="shop", labels={"app": "web"}, phase="Running") for n in range(replicas)
            ],
            competitors=competitors if turn % 2 else (),
            **fields,
        )
        last = run(view, lambda queries, answer=answer: (answer,) if queries else (), held=withheld)
        done.append(last)
        status, history = last.settlement.status, last.settlement.history
        replicas = replicas if withheld else last.decision.desired
    return done


def queue(length: int) -> ExternalSample:
    return ExternalSample((length * 1000,), START)


async def write(recorder: writer.RecordingWriter, done: Sequence[Reconcile]) -> None:
    await recorder.start()
    for each in done:
        recorder.note(each)
    await recorder.stop()


def record(folder: Path, done: Sequence[Reconcile], limit: int = 0) -> None:
    virtual_time.run(write(writer.RecordingWriter(folder, virtual_time.VirtualClock(), limit), done))


def scenarios(folder: Path) -> list[dict[str, Any]]:
    """Returns the scenarios of the only file of the folder."""
    (file,) = folder.iterdir()
    assert file.name == "shop.web.20260101T000000Z.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def renamed(done: Reconcile, **metadata: Any) -> Reconcile:
    """Returns the reconcile of an HPA with these fields of the metadata."""
    hpa = done.view.hpa
    hpa = msgspec.structs.replace(hpa, metadata=msgspec.structs.replace(hpa.metadata, **metadata))
    return msgspec.structs.replace(done, view=msgspec.structs.replace(done.view, hpa=hpa))


def check_replay(recorded: Sequence[dict[str, Any]]) -> None:
    """Asserts that a replay of each scenario gives the recorded results."""
    for each in recorded:
        expected = [step["expect"] for step in each["steps"]]
        assert expected
        assert replay.replay(each)["steps"] == expected


BROKEN = AdapterError("the broker is down")
ANSWERS = [queue(10), queue(45), BROKEN, queue(90), queue(90), queue(0), queue(0)]


def test_a_replay_gives_the_recorded_results(tmp_path: Path) -> None:
    record(tmp_path, reconciles(ANSWERS, most=(10, 10, 10, 6)))
    (recorded,) = scenarios(tmp_path)
    check_replay([recorded])
    assert any(step["expect"]["scaleTo"] for step in recorded["steps"])
    assert [("spec" in step) for step in recorded["steps"]] == [False, False, False, True, False, False, False]


def test_the_generation_that_an_autoscaler_reports_is_recorded_and_replayed(tmp_path: Path) -> None:
    """An edit of its options is a new generation of the same spec."""
    done = reconciles([queue(40)] * 4, most=(3, 3, 3, 2))
    status: HorizontalPodAutoscalerStatus | None = None
    history = EMPTY
    for turn, (each, generation) in enumerate(zip(done, (4, 4, 5, 6), strict=True)):
        hpa = renamed(each, generation=generation).view.hpa
        view = msgspec.structs.replace(
            each.view,
            hpa=msgspec.structs.replace(hpa, kind=v2.AUTOSCALER, status=status or hpa.status),
            history=history,
        )
        last = run(view, lambda queries: (queue(40),) if queries else ())
        done[turn], status, history = last, last.settlement.status, last.settlement.history
    record(tmp_path, done)
    (file,) = tmp_path.iterdir()
    (recorded,) = map(json.loads, file.read_text().splitlines())
    check_replay([recorded])
    assert [step.get("generation") for step in recorded["steps"]] == [None, None, 5, 6]


def test_a_note_is_recorded_and_replayed(tmp_path: Path) -> None:
    """The sentence is the same."""
    note = 'no consumer holds a message of the queue "orders"'
    done = reconciles([msgspec.structs.replace(queue(10), note=note), queue(10)])
    ready = [[msgspec.structs.replace(pod, ready="True") for pod in each.view.pods] for each in done]
    done = [
        msgspec.structs.replace(each, view=msgspec.structs.replace(each.view, pods=pods))
        for each, pods in zip(done, ready, strict=True)
    ]
    record(tmp_path, done)
    (recorded,) = scenarios(tmp_path)
    check_replay([recorded])
    assert [each.get("answers") for each in recorded["steps"]] == [
        [{"values": [10000], "timestamp": "2026-01-01T00:00:00Z", "note": note}],
        [{"values": [10000], "timestamp": "2026-01-01T00:00:00Z"}],
    ]
    first, second = map(str, (each.decision for each in replay.run(format.decode_scenario(recorded))))
    assert (first, second) == (f"{second}, but {note}", second)


@pytest.mark.parametrize("withheld", [DRY_RUN, yielded(Competitor("hpa", "shop/other"))])
def test_withheld_counts_and_competitors_are_recorded(tmp_path: Path, withheld: Withheld) -> None:
    record(tmp_path, reconciles(ANSWERS, withheld=withheld, competitors=(Competitor("hpa", "shop/other"),)))
    (recorded,) = scenarios(tmp_path)
    check_replay([recorded])
    expected = [step["expect"] for step in recorded["steps"]]
    assert [step["scaleTo"] for step in expected] == [None] * len(ANSWERS)
    assert all(step["error"] is None for step, answer in zip(expected, ANSWERS, strict=True) if answer is not BROKEN)
    text = json.dumps(expected)
    assert f'"reason": "{withheld.reason}"' in text
    assert '"reason": "OtherHPA"' in text


ANNOTATION_ERROR = "annotation hpad.io/x: there is no such annotation"


@pytest.mark.parametrize("reason", ["UnknownAnnotation", None])
def test_errors_in_annotations_are_replayed(tmp_path: Path, reason: str | None) -> None:
    """Earlier builds recorded no reason: they sent the event, but did not set the condition."""
    record(tmp_path, reconciles(ANSWERS, annotation_error=ANNOTATION_ERROR, annotation_reason=reason))
    (recorded,) = scenarios(tmp_path)
    check_replay([recorded])
    first = recorded["steps"][0]["expect"]
    assert ["Warning", "InvalidAnnotation", ANNOTATION_ERROR] in first["events"]
    found = [each["reason"] for each in first["statusUpdate"]["conditions"] if each["type"] == "HpadAnnotationsValid"]
    assert found == ([] if reason is None else [reason])


def test_fallback_policies_are_recorded() -> None:
    policies = (
        FallbackPolicy(fallback=fallback_policy.parse("replicas:5 after 1m"), activation=2500),
        FallbackPolicy(),
    )
    (done,) = reconciles([BROKEN])
    view = msgspec.structs.replace(done.view, fallback_policies=policies, annotation_error="x", annotation_reason="y")
    read = decode_step(encode.encode_reconcile(msgspec.structs.replace(done, view=view), new_spec=False))
    assert (read.fallback_policies, read.annotation_error, read.annotation_reason) == (policies, "x", "y")


def test_the_file_is_complete_after_every_step(tmp_path: Path) -> None:
    done = reconciles(ANSWERS)
    for count in range(1, len(done) + 1):
        folder = tmp_path / str(count)
        record(folder, done[:count])
        (recorded,) = scenarios(folder)
        assert len(recorded["steps"]) == count


def test_a_long_scenario_continues_in_the_next_line_with_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "_MAX_STEPS", 4)
    record(tmp_path, reconciles(ANSWERS))
    recorded = scenarios(tmp_path)
    assert [len(each["steps"]) for each in recorded] == [4, 3]
    assert recorded[1]["history"]["recommendations"]
    check_replay(recorded)


def test_a_step_that_does_not_follow_from_the_last_one_starts_a_scenario(tmp_path: Path) -> None:
    """For example the first step of an HPA that was deleted and created again."""
    record(tmp_path, [*reconciles(ANSWERS[:3]), *reconciles(ANSWERS[1:5])])
    recorded = scenarios(tmp_path)
    assert [len(each["steps"]) for each in recorded] == [3, 4]
    check_replay(recorded)


def test_recording_goes_on_after_the_file_was_deleted(tmp_path: Path) -> None:
    done = reconciles(ANSWERS)

    async def main() -> None:
        recorder = writer.RecordingWriter(tmp_path, virtual_time.VirtualClock())
        await recorder.start()
        for turn, each in enumerate(done):
            recorder.note(each)
            await asyncio.sleep(1)  # virtual time waits for threads, so the step is written
            if turn == 1:
                (tmp_path / "shop.web.20260101T000000Z.jsonl").unlink()
        await recorder.stop()

    virtual_time.run(main())
    (recorded,) = scenarios(tmp_path)
    assert len(recorded["steps"]) == len(done) - 3, "the file had two steps; the third met the missing file"
    check_replay([recorded])


def test_a_reconcile_that_json_cannot_express_is_left_out(tmp_path: Path) -> None:
    """So is the next one, whose status has the same text in a condition."""
    surrogate = AdapterError("half a character: \ud83d")
    record(tmp_path, reconciles([queue(10), surrogate, queue(45), queue(90), queue(90)]))
    assert [len(each["steps"]) for each in scenarios(tmp_path)] == [1, 2]


def test_an_hpa_that_was_deleted_and_created_again_starts_a_scenario(tmp_path: Path) -> None:
    """It has another uid. No two scenarios of a file have the same name."""
    done = reconciles(ANSWERS)

    async def main() -> None:
        recorder = writer.RecordingWriter(tmp_path, virtual_time.VirtualClock())
        await recorder.start()
        for each in done[:3]:
            recorder.note(each)
        for each in done[3:]:
            recorder.note(renamed(each, uid="another"))
        await recorder.stop()

    virtual_time.run(main())
    recorded = scenarios(tmp_path)
    assert [len(each["steps"]) for each in recorded] == [3, len(done) - 3]
    assert len({each["id"] for each in recorded}) == 2


def test_more_hpas_than_can_be_continued_start_scenarios_that_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_FILES", 1)
    done = reconciles(ANSWERS)
    record(tmp_path, [each for one in done for each in (one, renamed(one, name="other"))])
    recorded = [json.loads(line) for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert len(recorded) == len({each["id"] for each in recorded}) == 2 * len(done)
    check_replay(recorded)


def test_annotations_are_left_out(tmp_path: Path) -> None:
    record(tmp_path, reconciles(ANSWERS[:1]))
    (file,) = tmp_path.iterdir()
    assert "swordfish" not in file.read_text()


def test_a_folder_that_cannot_be_created_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match=r"cannot record to .*file"):
        record(tmp_path / "file", [])


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def test_above_the_limit_the_oldest_files_are_deleted(tmp_path: Path) -> None:
    """The latest steps are left, without a gap, in lines that replay."""
    done = reconciles(ANSWERS * 12)
    record(tmp_path / "all", done)
    limit = size(tmp_path / "all") // 3
    record(tmp_path / "some", done, limit)
    assert limit / 2 < size(tmp_path / "some") <= limit
    files = sorted((tmp_path / "some").iterdir(), key=lambda file: int(file.stem.partition("Z-")[2] or 0))
    assert len(files) > 3
    remaining = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    times = [step["time"] for each in remaining for step in each["steps"]]
    (complete,) = scenarios(tmp_path / "all")
    assert times == [step["time"] for step in complete["steps"]][-len(times) :]
    check_replay(remaining)


def test_recordings_of_earlier_runs_are_deleted_first_and_other_files_stay(tmp_path: Path) -> None:
    earlier = tmp_path / "shop.api.20250101T000000Z.jsonl"
    other = tmp_path / "notes.jsonl"
    for number, file in enumerate((other, earlier)):
        file.write_text("x" * 50_000)
        os.utime(file, (number, number))
    record(tmp_path, reconciles(ANSWERS), 40_000)
    assert not earlier.exists()
    assert other.exists()
    assert (tmp_path / "shop.web.20260101T000000Z.jsonl").exists()


def test_a_name_too_long_for_a_file_is_cut_and_stays_unique(tmp_path: Path) -> None:
    names = [writer.file_name("n" * 63, "w" * 252 + last, "20260101T000000Z-1234567") for last in "ab"]
    assert len(set(names)) == 2
    for name in names:
        (tmp_path / name).touch()
        assert name.endswith(".20260101T000000Z-1234567.jsonl")


def test_other_users_can_read_no_recording_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is created with its mode: before a later chmod it could be opened."""
    created: list[int] = []
    opened = os.open

    def noted(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if flags & os.O_CREAT and str(path).startswith(str(tmp_path)):
            created.append(mode)
        return opened(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", noted)
    before = os.umask(0)
    try:
        record(tmp_path / "made" / "records", reconciles([queue(80), queue(90)]))
    finally:
        os.umask(before)
    files = list((tmp_path / "made" / "records").iterdir())
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * len(files)
    assert created
    assert set(created) == {0o600}
    assert (tmp_path / "made" / "records").stat().st_mode & 0o777 == 0o700


def test_a_full_disk_is_logged_once_and_its_end_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        recorder = writer.RecordingWriter(tmp_path, virtual_time.VirtualClock())
        await recorder.start()
        opened, full = os.open, True

        def limited_open(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
            if full and str(path).startswith(str(tmp_path)):
                raise OSError(28, "No space left on device")
            return opened(path, flags, mode, **options)

        monkeypatch.setattr(os, "open", limited_open)
        for each in reconciles([queue(80)] * 30):
            recorder.note(each)
        while len(recorder):  # noqa: ASYNC110  # the writer signals nothing
            await asyncio.sleep(1)
        full = False
        recorder.note(reconciles([queue(80)])[0])
        await recorder.stop()

    with structlog.testing.capture_logs() as logged:
        virtual_time.run(main())
    assert [line["event"] for line in logged] == ["not recorded", "reconciles can be recorded again"]


async def test_what_waits_for_a_slow_disk_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Authors choose how large an HPA is; 10,000 of the largest would take gigabytes."""
    monkeypatch.setattr(writer, "_MAX_BYTES", 100_000)
    waiting = writer.RecordingWriter(tmp_path, virtual_time.VirtualClock())
    done = reconciles([queue(80)])[0]
    for _ in range(100):
        waiting.note(done)
    assert len(waiting) == 100_000 // weight(done)
    assert 5 < len(waiting) < 20


def test_a_slow_disk_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_MAX_QUEUED", 5)
    with structlog.testing.capture_logs() as logged:
        record(tmp_path, reconciles([queue(80)] * 30))
    assert [line["event"] for line in logged] == ["the disk is too slow: reconciles are not recorded"]
