"""The simulated queue beside a real one: the demo's workers of a RabbitMQ queue, and the model with the same input.

The demo publishes 80 messages at once; each worker is a process that takes one message at a time. Both runs have the
same HPA, period and settings. The test prints both curves (`pytest -s`); docs/simulate.md gives the difference.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from blockbuster import BlockBuster
from support.simulations import START

from hpad.api import hpa as v2
from hpad.api.hpa import from_builtins
from hpad.api.sample import ExternalSample
from hpad.lab.demo import documents, queue, show, stage
from hpad.lab.demo.report import Result
from hpad.lab.demo.timing import DEFAULT, Timing
from hpad.lab.demo.view import Frame
from hpad.lab.servers import rabbitmq
from hpad.simulation import load, model
from hpad.simulation.model import Scraping
from hpad.simulation.queue import CONSTANT, Queue, QueueModel
from hpad.simulation.run import simulate

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.cluster,
    pytest.mark.skipif(not rabbitmq.RabbitMQServer.installed(), reason=rabbitmq.ABSENT),
]

BEFORE = 10
"""Seconds of the simulation before the messages."""
STARTUP = 1.0
"""Seconds from the write of the scale to the first message of a new worker: the start of a Python process."""
SECONDS = 45


class Curve(NamedTuple):
    """Desired replicas and messages in the HPA's metric, for each second since the messages were published."""

    replicas: Sequence[int]
    messages: Sequence[float]

    @property
    def drained(self) -> int:
        """Seconds until the metric is 0 again. Raises StopIteration if it never rises and falls."""
        begin = next(second for second, value in enumerate(self.messages) if value > 0)
        return next(second for second, value in enumerate(self.messages) if second > begin and value == 0)


class Unseen:
    """A screen that shows nothing."""

    def show(self, frame: Frame) -> None:
        pass

    def clear(self) -> None:
        pass


def real(result: Result) -> Curve:
    """Returns what the demo observed; the load begins `reacted` seconds before the first rescale."""
    assert result.reacted is not None
    begin = result.rescales[0].at - result.reacted
    replicas, messages = [], []
    for second in range(SECONDS):
        at = begin + second
        replicas.append(([result.start] + [each.after for each in result.rescales if each.at <= at])[-1])
        readings = [point.reading for point in result.points if point.at <= at and point.reading is not None]
        messages.append(readings[-1])
    return Curve(replicas, messages)


def simulated() -> Curve:
    """Returns the same run of the model: the same messages, service time, HPA, period and settings."""
    _, document = documents.load(queue.NAME, {})
    hpa = v2.defaulted(from_builtins(document))
    settings = stage.settings_for("", ())
    consumers = Queue(
        service_seconds=Timing.of(DEFAULT).task, distribution=CONSTANT, prefetch=1, even=True, startup=STARTUP
    )
    workload = QueueModel(
        consumers,
        load.parse(f"step:from=0,to={queue.MESSAGES},at={BEFORE}s,for=1s"),
        start=START,
        replicas=queue.AT_REST,
        shown=model.shows(hpa, "backlog", {}),
        scraping=Scraping(interval=settings.sync_period.total_seconds()),
    )
    turns = simulate(
        hpa,
        workload,
        start=START,
        length=timedelta(seconds=BEFORE + SECONDS),
        period=settings.sync_period,
        tunables=settings.tunables,
    )
    replicas, messages = [], []
    for turn in turns:
        (sample,) = turn.answers
        assert isinstance(sample, ExternalSample)
        replicas.append(turn.after)
        messages.append(sum(sample.values) / 1000)
    assert workload.arrived == workload.done == queue.MESSAGES
    return Curve(replicas[BEFORE:], messages[BEFORE:])


def printed(found: Curve, model_curve: Curve) -> None:
    """Prints both curves, second by second."""
    print("second  replicas real, simulated  messages real, simulated")
    for second in range(SECONDS):
        counts = f"{found.replicas[second]:>13} {model_curve.replicas[second]:>9}"
        print(f"{second:>6}  {counts}  {found.messages[second]:>13g} {model_curve.messages[second]:>9g}")
    print(f"drained after {found.drained} s, simulated {model_curve.drained} s")
    gaps = [abs(a - b) for a, b in zip(found.messages, model_curve.messages, strict=True)]
    away = [abs(a - b) for a, b in zip(found.replicas, model_curve.replicas, strict=True)]
    print(f"mean difference: {sum(gaps) / SECONDS:.1f} messages, {sum(away) / SECONDS:.1f} replicas")


def directions(curve: Curve) -> list[bool]:
    """Returns whether the count rises, for each run of rescales in one direction."""
    rises = [b > a for a, b in zip(curve.replicas, curve.replicas[1:], strict=False) if a != b]
    return [each for index, each in enumerate(rises) if index == 0 or each != rises[index - 1]]


async def test_the_model_follows_a_real_queue(tmp_path: Path, no_blocking_calls: BlockBuster) -> None:
    """The peak is within 2 replicas; the queue is empty within half the time, and two tasks, of the simulated one."""
    no_blocking_calls.deactivate()  # the demo's log lines go straight to a file
    report = await show.run(show.Options(("queue",), DEFAULT, tmp_path / "logs"), Unseen())
    assert report.ok, [result.problem for result in report.results]
    (result,) = report.results
    found, expected = real(result), simulated()
    printed(found, expected)
    assert directions(found) == directions(expected) == [True, False]
    assert abs(max(found.replicas) - max(expected.replicas)) <= 2
    assert found.replicas[-1] == expected.replicas[-1] == queue.AT_REST
    assert abs(found.drained - expected.drained) <= expected.drained / 2 + 2 * Timing.of(DEFAULT).task
