"""The simulated queue beside a real one: the demo's workers of a RabbitMQ queue, and the model with the same input.

80 messages are published at once; each worker is a process that takes one message at a time. Both runs have the
same HPA, period and settings. The test prints both curves (`pytest -s`); docs/measurements.md gives the difference.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from blockbuster import BlockBuster
from support import brokers
from support.simulations import START

from hpad import settings
from hpad.api import hpa as v2
from hpad.api.hpa import from_builtins
from hpad.api.sample import ExternalSample
from hpad.lab.demo import documents, queue, stage, view
from hpad.lab.demo.broker import Broker
from hpad.lab.demo.timing import DEFAULT, Timing
from hpad.lab.servers import rabbitmq
from hpad.simulation import load, model
from hpad.simulation.model import Scraping
from hpad.simulation.queue import CONSTANT, EVEN, QueueModel, SimulatedQueue
from hpad.simulation.run import simulate

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.cluster,
    pytest.mark.skipif(not rabbitmq.RabbitMQServer.installed(), reason=rabbitmq.ABSENT),
]

BEFORE = 10
"""Seconds of the simulation before the messages."""
SECONDS, LIMIT = 45, 300
"""How long a run is shown, and when the real one fails: it lasts until its workers are at rest again."""


class Curve(NamedTuple):
    """Desired replicas and messages in the HPA's metric, for each second since the messages were published.

    `startup`: the seconds from the first rescale until all workers had begun, of which a busy machine needs many.
    """

    replicas: Sequence[int]
    messages: Sequence[float]
    startup: float

    @property
    def drained(self) -> int:
        """Seconds until the metric is 0 again. Raises StopIteration if it never rises and falls."""
        begin = next(second for second, value in enumerate(self.messages) if value > 0)
        return next(second for second, value in enumerate(self.messages) if second > begin and value == 0)


def hpa_document() -> dict[str, Any]:
    """The HPA of the demo, with one worker for every 5 messages."""
    _, hpa = documents.load(queue.NAME, {})
    metric = {"name": "queue_messages", "selector": {"matchLabels": {"queue": queue.QUEUE}}}
    target = {"type": "AverageValue", "averageValue": "5"}
    hpa["spec"]["metrics"] = [{"type": "External", "external": {"metric": metric, "target": target}}]
    del hpa["metadata"]["annotations"]
    return hpa


async def real(folder: Path, shared: brokers.Broker) -> Curve:
    """Returns what happens to a real queue and its workers, second by second from the publishing on."""
    admin = shared.server.admin
    options = {"url": shared.url, "username": admin.name, "password": admin.password}
    source = settings.SourceSettings(name="rabbitmq", adapter="rabbitmq", settings=options)
    url = shared.admin_url
    task = f"{Timing.of(DEFAULT).task:g}"
    deployment, _ = documents.load(queue.NAME, {"AMQP_URL": url, "QUEUE": queue.QUEUE, "TASK_SECONDS": task})
    replicas: list[int] = []
    messages: list[float] = []
    starting = 0
    async with stage.opened(folder, [source]) as on, Broker(url, queue.QUEUE, on.clock) as broker:
        await on.apply([deployment, hpa_document()])
        async with asyncio.timeout(120):
            while broker.consumers != queue.AT_REST or _seen(on) != (queue.AT_REST, 0.0):
                await on.clock.sleep(0.1)
        await broker.publish(queue.MESSAGES)
        began = on.clock.monotonic()
        while len(replicas) < SECONDS or _seen(on) != (queue.AT_REST, 0.0):
            assert len(replicas) < LIMIT, (replicas, messages)
            await on.clock.sleep(began + len(replicas) - on.clock.monotonic())
            count, reading = _seen(on)
            replicas.append(count)
            messages.append(reading if reading is not None else messages[-1])
            starting += queue.AT_REST <= broker.consumers < count
        await on.delete(queue.NAME)
    return Curve(replicas, messages, max(1.0, starting))


def _seen(on: stage.Stage) -> tuple[int, float | None]:
    """Returns the wanted count, and the messages in the HPA's status."""
    hpa = on.hpa(queue.NAME)
    return (hpa.status.desired_replicas, view.reading(hpa)) if hpa is not None else (0, None)


def simulated(startup: float) -> Curve:
    """Returns the same run of the model: the same messages, service time, startup, HPA, period and settings."""
    hpa = v2.defaulted(from_builtins(hpa_document()))
    own = stage.settings_for("", ())
    consumers = SimulatedQueue(
        service_time=Timing.of(DEFAULT).task, distribution=CONSTANT, prefetch=1, arrivals=EVEN, startup=startup
    )
    workload = QueueModel(
        consumers,
        load.parse(f"step:from=0,to={queue.MESSAGES},at={BEFORE}s,for=1s"),
        start=START,
        replicas=queue.AT_REST,
        shown=model.shows(hpa, "backlog", {}),
        scraping=Scraping(interval=own.sync_period.total_seconds()),
    )
    turns = simulate(
        hpa,
        workload,
        start=START,
        length=timedelta(seconds=BEFORE + LIMIT),
        period=own.sync_period,
        tunables=own.tunables,
    )
    replicas, messages = [], []
    for turn in turns:
        (sample,) = turn.done.answers
        assert isinstance(sample, ExternalSample)
        replicas.append(turn.after)
        messages.append(sum(sample.values) / 1000)
    assert workload.arrived == workload.done == queue.MESSAGES
    return Curve(replicas[BEFORE:], messages[BEFORE:], startup)


def printed(found: Curve, model_curve: Curve) -> None:
    """Prints both curves, second by second."""
    print("second  replicas real, simulated  messages real, simulated")
    for second in range(SECONDS):
        counts = f"{found.replicas[second]:>13} {model_curve.replicas[second]:>9}"
        print(f"{second:>6}  {counts}  {found.messages[second]:>13g} {model_curve.messages[second]:>9g}")
    print(f"drained after {found.drained} s, simulated {model_curve.drained} s, startup {found.startup} s")
    gaps = [abs(a - b) for a, b in zip(found.messages[:SECONDS], model_curve.messages, strict=False)]
    away = [abs(a - b) for a, b in zip(found.replicas[:SECONDS], model_curve.replicas, strict=False)]
    print(f"mean difference: {sum(gaps) / SECONDS:.1f} messages, {sum(away) / SECONDS:.1f} replicas")


def directions(curve: Curve) -> list[bool]:
    """Returns whether the count rises, for each run of rescales in one direction."""
    rises = [b > a for a, b in zip(curve.replicas, curve.replicas[1:], strict=False) if a != b]
    return [each for index, each in enumerate(rises) if index == 0 or each != rises[index - 1]]


async def test_the_model_follows_a_real_queue(
    shared_broker: brokers.Broker, tmp_path: Path, no_blocking_calls: BlockBuster
) -> None:
    """The peak is within 2 replicas; the queue is empty within half the time, and two tasks, of the simulated one."""
    no_blocking_calls.deactivate()  # processes and the blocking client of the demo
    found = await real(tmp_path, shared_broker)
    expected = simulated(found.startup)
    printed(found, expected)
    assert directions(found) == directions(expected) == [True, False]
    assert abs(max(found.replicas) - max(expected.replicas)) <= 2
    assert found.replicas[-1] == expected.replicas[-1] == queue.AT_REST
    assert abs(found.drained - expected.drained) <= expected.drained / 2 + 2 * Timing.of(DEFAULT).task
