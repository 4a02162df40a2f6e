"""One half of the demo: its observations and errors; and the demo without a broker."""

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from hpad.api.hpa import HorizontalPodAutoscaler, from_builtins
from hpad.lab.demo import DemoError, show, stage
from hpad.lab.demo.half import Half, Times
from hpad.lab.demo.report import Result
from hpad.lab.demo.view import Frame
from hpad.lab.servers import rabbitmq
from hpad.sources import limits


class Gallery:
    """A screen that collects the frames."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def show(self, frame: Frame) -> None:
        self.frames.append(frame)

    def clear(self) -> None:
        pass


class Clock:
    """A clock that only `sleep` advances."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Stage:
    """One HPA with 7 desired replicas from its 10th second on, whose pods run two seconds later."""

    def __init__(self) -> None:
        self.clock = Clock()

    def hpa(self, name: str) -> HorizontalPodAutoscaler | None:
        replicas = 7 if self.clock.seconds >= 10 else 1
        return from_builtins(
            {
                "metadata": {"name": name},
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": name}, "maxReplicas": 10, "metrics": []},
                "status": {"currentReplicas": replicas, "desiredReplicas": replicas},
            }
        )

    def processes(self, name: str) -> list[int]:
        return list(range(100, 107 if self.clock.seconds >= 12 else 101))

    def decision(self, name: str) -> tuple[object, str]:
        second = int(self.clock.seconds)
        return second, "scale web from 1 to 7" if second >= 10 else "keep 1"


@pytest.fixture
def gallery() -> Gallery:
    return Gallery()


@pytest.fixture
def half(gallery: Gallery) -> Half:
    return Half(Stage(), gallery, "web", "a title", "CPU", "%")  # type: ignore[arg-type]  # a fake stage


async def test_the_start_is_what_was_observed_before_the_load(half: Half):
    half.observe()
    await half.stage.clock.sleep(12)
    loaded = half.now  # while the load was sent, the pods came, and the clock stands still until they are observed
    half.observe()
    result = half.result("a heading", Times(load=loaded), "")
    assert (result.start, result.peak) == (1, 7)


async def test_a_half_records_rescales_decisions_and_frames_with_their_times(half: Half, gallery: Gallery):
    moment = await half.until(lambda now: now.processes == 7, 60, "7 processes")
    assert 12 <= moment.at < 13
    (rescale,) = half.rescales
    assert (rescale.before, rescale.after, rescale.sentence) == (1, 7, "scale web from 1 to 7")
    assert 10 <= rescale.at < 11
    assert [note.text for note in half.notes] == ["scale web from 1 to 7"]
    assert half.decisions == 13
    times = [frame.at for frame in gallery.frames]
    assert len(times) > half.decisions // 2
    assert all(later - earlier <= 1.3 for earlier, later in itertools.pairwise(times))


async def test_a_timeout_names_the_expected_and_the_actual_state(half: Half):
    with pytest.raises(DemoError) as error:
        await half.until(lambda now: now.processes == 9, 20, "9 processes")
    assert str(error.value).startswith("expected 9 processes within 20 s; 7 web processes run")
    assert str(error.value).endswith("hpad's last decision: scale web from 1 to 7")


@pytest.mark.cluster
async def test_without_rabbitmq_server_the_queue_half_is_skipped_and_the_package_named(
    gallery: Gallery, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_blocking_calls: BlockBuster
):
    no_blocking_calls.deactivate()  # the demo's log lines go straight to a file
    monkeypatch.setattr(rabbitmq, "PROGRAM", tmp_path / "absent")
    report = await show.run(show.Options(("queue",), logs=tmp_path / "logs"), gallery)
    assert report.results == []
    assert "apt-get install rabbitmq-server" in report.skipped
    assert not report.ok
    assert (tmp_path / "logs" / "hpad.log").read_text().count("hpad st") == 2


async def played(half: str, gallery: Gallery, monkeypatch: pytest.MonkeyPatch, logs: Path) -> Result:
    """Plays one half with plain workers; no frame may show an error.

    The demo applies an HPA only after the first measurement, so that its first decision succeeds.
    """
    # An answer may take more than half a second on a busy machine: long turns are cut off, but no call fails.
    monkeypatch.setattr(limits, "PATIENCE", 60.0)
    monkeypatch.setattr(stage, "SYNC_PERIOD", timedelta(seconds=3))
    report = await show.run(show.Options((half,), 40, logs), gallery)
    assert report.ok, [result.problem for result in report.results]
    decisions = {frame.decision for frame in gallery.frames if frame.decision}
    assert len(decisions) > 3
    assert not [each for each in decisions if "cannot decide" in each or "fail" in each], decisions
    (result,) = report.results
    first = next(frame for frame in gallery.frames if frame.rows)
    assert result.name in first.rows[0][0]
    return result


@pytest.mark.cluster
async def test_a_web_server_is_scaled_by_its_cpu_usage(
    gallery: Gallery, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_blocking_calls: BlockBuster
):
    no_blocking_calls.deactivate()  # the demo's log lines go straight to a file
    result = await played("cpu", gallery, monkeypatch, tmp_path / "logs")
    assert result.start == result.end == 1
    assert result.peak >= 5
    reading, target = result.reading.split("/")
    assert target == "50%"
    assert 55 < int(reading.removeprefix("cpu: ").rstrip("%")) < 1000  # 300 on an idle machine
    assert result.rescales[0].before == 1
    assert "cpu" in result.rescales[0].sentence
    assert result.decisions >= 8


@pytest.mark.cluster
@pytest.mark.rabbitmq
@pytest.mark.skipif(not rabbitmq.RabbitMQServer.installed(), reason=rabbitmq.ABSENT)
async def test_plain_consumers_are_scaled_by_a_goal_in_seconds(
    gallery: Gallery, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_blocking_calls: BlockBuster
):
    """`test_demo` judges the counts, with Celery's workers."""
    no_blocking_calls.deactivate()  # as above
    result = await played("queue", gallery, monkeypatch, tmp_path / "logs")
    assert result.start == result.end == 3 < result.peak
    assert result.consumers is not None
    assert 3 < result.consumers <= result.peak
