"""The flight recorder: whole lines at any moment, and a replay that decides the same."""

import asyncio
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from support import virtual_time

from hpad.api import hpa as v2
from hpad.api.hpa import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus, from_builtins
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, ExternalSample, Sample
from hpad.engine import decide, examine, settle
from hpad.engine.history import EMPTY
from hpad.engine.view import DRY_RUN, Competitor, View, Withheld, yielded
from hpad.recording import encode, replay, writer
from hpad.recording.format import RecordingError

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


def life(
    answers: Sequence[Sample | AdapterError],
    *,
    most: Sequence[int] = (),
    withheld: Withheld | None = None,
    competitors: tuple[Competitor, ...] = (),
) -> list[encode.RecordedReconcile]:
    """Reconciles, 15 seconds apart, with these answers and these maxima (the last one stays)."""
    done: list[encode.RecordedReconcile] = []
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
        )
        verdict = examine.examine(view)
        queries = verdict.queries
        given = (answer,) if queries else ()
        decision = decide.decide(view, verdict, given)
        outcome = None
        if decision.scale_to is not None:
            sent = () if withheld else (decision.scale_to,)
            outcome = settle.Outcome(sent, withheld=withheld)
        settlement = settle.settle(view, decision, outcome)
        done.append(encode.RecordedReconcile(view, queries, given, outcome, decision.scale_to, settlement))
        status, history = settlement.status, settlement.history
        replicas = replicas if withheld else decision.scale_to or replicas
    return done


def queue(length: int) -> ExternalSample:
    return ExternalSample((length * 1000,), START)


def record(folder: Path, done: Sequence[encode.RecordedReconcile]) -> list[dict[str, Any]]:
    """The scenarios on disk after these reconciles."""

    async def main() -> None:
        recorder = writer.RecordingWriter(folder, virtual_time.VirtualClock())
        await recorder.start()
        for each in done:
            recorder.note(each)
        await recorder.stop()

    virtual_time.run(main())
    (file,) = folder.iterdir()
    assert file.name == "shop.web.20260101T000000Z.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


LIFE = [queue(10), queue(45), AdapterError("the broker is away"), queue(90), queue(90), queue(0), queue(0)]


def test_a_replay_decides_the_same(tmp_path: Path) -> None:
    (written,) = record(tmp_path, life(LIFE, most=(10, 10, 10, 6)))
    expected = [step.pop("expect") for step in written["steps"]]
    assert replay.replay(written)["steps"] == expected
    assert any(step["scaleTo"] for step in expected)
    assert [("spec" in step) for step in written["steps"]] == [False, False, False, True, False, False, False]


@pytest.mark.parametrize("withheld", [DRY_RUN, yielded(Competitor("hpa", "shop/other"))])
def test_a_replay_withholds_what_was_withheld_and_knows_the_competitors(tmp_path: Path, withheld: Withheld) -> None:
    (written,) = record(tmp_path, life(LIFE, withheld=withheld, competitors=(Competitor("hpa", "shop/other"),)))
    expected = [step.pop("expect") for step in written["steps"]]
    assert replay.replay(written)["steps"] == expected
    assert [step["scaleTo"] for step in expected] == [None] * len(LIFE)
    assert all(step["error"] is None for step, answer in zip(expected, LIFE, strict=True) if answer is not LIFE[2])
    said = json.dumps(expected)
    assert f'"reason": "{withheld.reason}"' in said
    assert '"reason": "OtherHPA"' in said


def test_the_file_is_whole_after_every_step(tmp_path: Path) -> None:
    done = life(LIFE)
    for count in range(1, len(done) + 1):
        folder = tmp_path / str(count)
        (written,) = record(folder, done[:count])
        assert len(written["steps"]) == count


def test_a_long_record_goes_on_in_the_next_line_with_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_LONGEST", 4)
    written = record(tmp_path, life(LIFE))
    assert [len(each["steps"]) for each in written] == [4, 3]
    assert written[1]["history"]["recommendations"]
    for each in written:
        expected = [step.pop("expect") for step in each["steps"]]
        assert replay.replay(each)["steps"] == expected


def test_what_does_not_follow_from_the_last_step_begins_anew(tmp_path: Path) -> None:
    """As an HPA made anew under its name, or a history that was judged after a break."""
    done = [*life(LIFE[:3]), *life(LIFE[1:5])]
    written = record(tmp_path, done)
    assert [len(each["steps"]) for each in written] == [3, 4]
    for each in written:
        expected = [step.pop("expect") for step in each["steps"]]
        assert replay.replay(each)["steps"] == expected


def test_a_file_that_was_taken_away_or_cut_short_is_gone_on_with(tmp_path: Path) -> None:
    done = life(LIFE)

    async def main() -> None:
        recorder = writer.RecordingWriter(tmp_path, virtual_time.VirtualClock())
        await recorder.start()
        file = tmp_path / "shop.web.20260101T000000Z.jsonl"
        for turn, each in enumerate(done):
            recorder.note(each)
            await asyncio.sleep(1)  # which is not over before the thread that writes has ended
            if turn == 1:
                file.unlink()
        await recorder.stop()

    virtual_time.run(main())
    (file,) = tmp_path.iterdir()
    (written,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(written["steps"]) == len(done) - 3
    expected = [step.pop("expect") for step in written["steps"]]
    assert replay.replay(written)["steps"] == expected


def test_a_reconcile_that_no_json_can_say_is_left_out(tmp_path: Path) -> None:
    """And so is the next one, whose status has it in a condition."""
    odd = AdapterError("half a letter: \ud83d")
    written = record(tmp_path, life([queue(10), odd, queue(45), queue(90), queue(90)]))
    assert [len(each["steps"]) for each in written] == [1, 2]


def test_an_hpa_that_was_gone_and_comes_back_begins_a_scenario_of_its_own(tmp_path: Path) -> None:
    """Nothing is kept of it meanwhile; even so no two scenarios of a file have the same name."""
    done = life(LIFE)

    async def main() -> None:
        recorder = writer.RecordingWriter(tmp_path, virtual_time.VirtualClock())
        await recorder.start()
        for each in done[:3]:
            recorder.note(each)
        recorder.forget(done[0].view.hpa.metadata.key)
        for each in done[3:]:
            recorder.note(each)
        await recorder.stop()

    virtual_time.run(main())
    (file,) = tmp_path.iterdir()
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert [len(each["steps"]) for each in written] == [3, len(done) - 3]
    assert len({each["id"] for each in written}) == 2


def test_annotations_are_left_out(tmp_path: Path) -> None:
    record(tmp_path, life(LIFE[:1]))
    (file,) = tmp_path.iterdir()
    assert "swordfish" not in file.read_text()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def main() -> None:
        await writer.RecordingWriter(tmp_path / "file", virtual_time.VirtualClock()).start()

    with pytest.raises(RecordingError, match=r"cannot record to .*file"):
        virtual_time.run(main())


def journalled(folder: Path, done: Sequence[encode.RecordedReconcile], limit: int) -> None:
    async def main() -> None:
        recorder = writer.RecordingWriter(folder, virtual_time.VirtualClock(), limit)
        await recorder.start()
        for each in done:
            recorder.note(each)
        await recorder.stop()

    virtual_time.run(main())


def taken(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def test_recordings_take_no_more_than_they_may_and_the_oldest_go(tmp_path: Path) -> None:
    """What is left is the end, without a gap, in lines that replay."""
    done = life(LIFE * 12)
    journalled(tmp_path / "all", done, 0)
    limit = taken(tmp_path / "all") // 3
    journalled(tmp_path / "some", done, limit)
    assert limit / 2 < taken(tmp_path / "some") <= limit
    files = sorted((tmp_path / "some").iterdir(), key=lambda file: int(file.stem.partition("Z-")[2] or 0))
    assert len(files) > 3
    left = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    times = [step["time"] for each in left for step in each["steps"]]
    (whole,) = [json.loads(line) for line in next((tmp_path / "all").iterdir()).read_text().splitlines()]
    assert times == [step["time"] for step in whole["steps"]][-len(times) :]
    for each in left:
        expected = [step.pop("expect") for step in each["steps"]]
        assert replay.replay(each)["steps"] == expected


def test_recordings_of_earlier_runs_go_first_and_other_files_stay(tmp_path: Path) -> None:
    earlier = tmp_path / "shop.api.20250101T000000Z.jsonl"
    other = tmp_path / "notes.jsonl"
    for number, file in enumerate((other, earlier)):
        file.write_text("x" * 50_000)
        os.utime(file, (number, number))
    journalled(tmp_path, life(LIFE), 40_000)
    assert not earlier.exists()
    assert other.exists()
    assert (tmp_path / "shop.web.20260101T000000Z.jsonl").exists()


def test_a_name_too_long_for_a_file_is_cut_and_stays_one_of_its_own(tmp_path: Path) -> None:
    names = [writer.file_name("n" * 63, "w" * 252 + last, "20260101T000000Z-1234567") for last in "ab"]
    assert len(set(names)) == 2
    for name in names:
        (tmp_path / name).touch()
        assert name.endswith(".20260101T000000Z-1234567.jsonl")


def test_other_users_can_read_no_recording_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode is that of the creation: what were narrowed afterwards could be opened before."""
    created: list[int] = []
    opened = os.open

    def noted(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if flags & os.O_CREAT and str(path).startswith(str(tmp_path)):
            created.append(mode)
        return opened(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", noted)
    before = os.umask(0)
    try:
        record(tmp_path / "made" / "records", life([queue(80), queue(90)]))
    finally:
        os.umask(before)
    files = list((tmp_path / "made" / "records").iterdir())
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * len(files)
    assert created
    assert set(created) == {0o600}
    assert (tmp_path / "made" / "records").stat().st_mode & 0o777 == 0o700


def test_a_full_disk_is_said_once_and_that_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        recorder = writer.RecordingWriter(tmp_path, virtual_time.VirtualClock())
        await recorder.start()
        write = recorder._append
        full = True

        def append(done: encode.RecordedReconcile) -> None:
            if full:
                raise OSError(28, "No space left on device")
            write(done)

        monkeypatch.setattr(recorder, "_append", append)
        for each in life([queue(80)] * 30):
            recorder.note(each)
        while len(recorder):  # noqa: ASYNC110  # the state of the world
            await asyncio.sleep(1)
        full = False
        recorder.note(life([queue(80)])[0])
        await recorder.stop()

    with structlog.testing.capture_logs() as logged:
        virtual_time.run(main())
    assert [line["event"] for line in logged] == ["not recorded", "reconciles can be recorded again"]


def test_a_disk_that_is_too_slow_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_QUEUED", 5)

    async def main() -> None:
        recorder = writer.RecordingWriter(tmp_path, virtual_time.VirtualClock())
        await recorder.start()
        for each in life([queue(80)] * 30):
            recorder.note(each)
        await recorder.stop()

    with structlog.testing.capture_logs() as logged:
        virtual_time.run(main())
    assert [line["event"] for line in logged] == ["the disk is too slow: reconciles are not recorded"]
