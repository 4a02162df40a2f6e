"""Second half of the demo: consumers of a RabbitMQ queue, scaled by a goal in seconds; idle ones go first."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hpad.lab.demo import DemoError, documents
from hpad.lab.demo.broker import Broker
from hpad.lab.demo.half import Half, Moment, Times
from hpad.lab.demo.report import Result
from hpad.lab.demo.screen import Screen
from hpad.lab.demo.stage import Stage
from hpad.lab.demo.timing import Timing
from hpad.lab.demo.workers import Workers

NAME, QUEUE = "worker", "worker_tasks"
TITLE = "hpad demo · RabbitMQ consumers that clear a backlog within a goal"
MESSAGES, AT_REST, AT_PEAK = 80, 3, 16
GOAL, STARTUP, LONG = 6.25, 1.25, 11
"""The goal, the part of it that starting workers takes, and the duration of the long job, by the time of a message."""


class Queue(NamedTuple):
    """The AMQP URL of the broker, when it is ready, and the kind of its workers (`workers.KINDS`)."""

    url: str
    ready: asyncio.Future[None]
    kind: str


async def show(stage: Stage, screen: Screen, timing: Timing, queue: Queue) -> Result:
    """Runs the half, once the broker is ready; deletes its objects and processes.

    A failure is the `problem` of the result.
    """
    half = Half(stage, screen, NAME, TITLE, "queue", span=timing.spans[1])
    times, problem, consumers = Times(), "", 0
    try:
        await _wait_for_broker(half, queue.ready)
        async with Broker(queue.url, QUEUE, stage.clock) as broker:
            half.aside = lambda: str(broker)
            half.curve = lambda: float(broker.ready)
            try:
                await _play(stage, half, broker, timing, queue, times)
            finally:
                consumers = broker.most_consumers
    except DemoError as error:
        problem = str(error)
    await stage.delete(NAME)
    return half.result("Consumers scaled by a goal in seconds: replicas over time", times, problem, consumers=consumers)


async def _wait_for_broker(half: Half, ready: asyncio.Future[None]) -> None:
    if not ready.done():
        half.note("RabbitMQ is starting")
        half.observe()
    try:
        await ready
    except RuntimeError as error:
        raise DemoError(str(error)) from None


async def _play(stage: Stage, half: Half, broker: Broker, timing: Timing, queue: Queue, times: Times) -> None:
    def consumers(expected: int, moment: Moment) -> bool:
        return broker.check() and broker.consumers == expected == moment.processes

    with tempfile.TemporaryDirectory(prefix="hpad-demo-") as folder:
        jobs = Path(folder) / "long-jobs"
        task = f"{timing.task:.1f}"
        environment = {"AMQP_URL": queue.url, "QUEUE": QUEUE, "TASK_SECONDS": task, "LONG_JOBS": str(jobs)}
        workers = Workers(queue.kind, environment)
        deployment, hpa = await asyncio.to_thread(documents.load, NAME, environment)
        workers.fill_in(deployment)
        hpa["spec"]["metrics"][0]["external"]["metric"]["selector"]["matchLabels"] |= _times(timing)
        await stage.apply([deployment])
        half.note(f"applied: Deployment worker ({workers})")
        await half.until(lambda moment: consumers(AT_REST, moment), timing.timeout, f"{AT_REST} consumers")
        await stage.apply([hpa])
        goal = GOAL * timing.task
        half.note(f"applied: HPA worker (goal: the backlog is gone within {goal:.0f} s)")
        await half.until(
            lambda moment: consumers(AT_REST, moment) and moment.reading is not None,
            timing.timeout,
            f"{AT_REST} consumers and a reading of the queue",
        )
        await half.wait(timing.pause)
        await _spike(half, broker, timing, times, workers, consumers)
        await half.until(
            lambda moment: consumers(AT_REST, moment) and moment.desired == AT_REST,
            timing.timeout,
            f"{AT_REST} consumers again",
        )
        times.back = half.now
        half.note(f"back at {AT_REST} consumers, one of them still at the long job")
        await half.until(lambda _: len(_notes(jobs)) > 1, timing.timeout + LONG * timing.task, "the long job's end")
        began, ended, *more = [*_notes(jobs), "", ""]
        if not ended.startswith("finished") or any(more[:-2]):
            raise DemoError(f"the long job was interrupted: {began}, {ended}")
        half.note("the long job is done, by the worker that began it: idle ones went first")
        await half.wait(timing.pause)


async def _spike(
    half: Half,
    broker: Broker,
    timing: Timing,
    times: Times,
    workers: Workers,
    consumers: Callable[[int, Moment], bool],
) -> None:
    """Sends the messages, and waits until none of them waits any more."""
    long = round(LONG * timing.task)
    await workers.send(broker, long, timing.task, MESSAGES)
    times.load = half.now
    half.note(f"{MESSAGES} messages of {timing.task:.1f} s each sent, and a long job of {long} s")
    goal, startup = GOAL * timing.task, STARTUP * timing.task
    half.note(f"{MESSAGES} / ({goal:.0f} s - {startup:.0f} s) * {timing.task:.1f} s = {AT_PEAK} workers are needed")
    # A few more where this machine is slow to start them, since less of the goal is left then. A few less where hpad
    # read the queue before the last message came: it leaves a count within the tolerance of its target as it is.
    await half.until(
        lambda moment: moment.desired > AT_PEAK // 2 and consumers(moment.desired, moment),
        timing.timeout,
        f"about {AT_PEAK} consumers",
    )
    half.note(f"the broker counts {broker.consumers} consumers")
    await half.until(
        lambda _: broker.check() and broker.ready == 0,
        timing.timeout + MESSAGES / AT_PEAK * timing.task,
        "an empty queue",
    )
    times.over = half.now
    half.note(f"the backlog is gone {times.over - times.load:.0f} s after it came")


def _times(timing: Timing) -> dict[str, str]:
    """Returns the labels of the metric's selector that hold times."""
    found = {"goal": GOAL * timing.task, "startup": STARTUP * timing.task, "service_time": timing.task}
    return {name: f"{seconds:.2f}s" for name, seconds in found.items()}


def _notes(jobs: Path) -> list[str]:
    return jobs.read_text(encoding="utf-8").splitlines() if jobs.exists() else []
