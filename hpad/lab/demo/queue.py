"""Second half of the demo: consumers of a RabbitMQ queue, scaled by the number of its messages."""

import asyncio

from hpad.lab.demo import documents
from hpad.lab.demo.broker import Broker
from hpad.lab.demo.errors import DemoError
from hpad.lab.demo.half import Half, Moment, Times
from hpad.lab.demo.report import Result
from hpad.lab.demo.screen import Screen
from hpad.lab.demo.stage import Stage
from hpad.lab.demo.timing import Timing

NAME, QUEUE = "worker", "worker_tasks"
TITLE = "hpad demo · RabbitMQ consumers scaled by the depth of their queue"
MESSAGES, AT_REST, AT_PEAK = 80, 3, 16
MESSAGES_PER_WORKER = 5
FORMULA = (
    f"one worker for every {MESSAGES_PER_WORKER} messages (AverageValue): "
    f"ceil({MESSAGES} / {MESSAGES_PER_WORKER}) = {AT_PEAK}"
)


async def show(stage: Stage, screen: Screen, timing: Timing, url: str, ready: asyncio.Future[None]) -> Result:
    """Runs the half with the broker at the AMQP `url`, once that is `ready`; deletes its objects and processes.

    A failure is the `problem` of the result.
    """
    half = Half(stage, screen, NAME, TITLE, "queue", span=timing.spans[1])
    times, problem, consumers = Times(), "", 0
    try:
        await _wait_for_broker(half, ready)
        async with Broker(url, QUEUE, stage.clock) as broker:
            half.aside = lambda: str(broker)
            try:
                await _play(stage, half, broker, timing, url, times)
            finally:
                consumers = broker.most_consumers
    except DemoError as error:
        problem = str(error)
    await stage.delete(NAME)
    return half.result("Consumers scaled by queue depth: replicas over time", times, problem, consumers=consumers)


async def _wait_for_broker(half: Half, ready: asyncio.Future[None]) -> None:
    if not ready.done():
        half.note("RabbitMQ is starting")
        half.observe()
    try:
        await ready
    except RuntimeError as error:
        raise DemoError(str(error)) from None


async def _play(stage: Stage, half: Half, broker: Broker, timing: Timing, url: str, times: Times) -> None:
    def consumers(expected: int, moment: Moment) -> bool:
        return broker.check() and broker.consumers == expected == moment.processes

    environment = {"AMQP_URL": url, "QUEUE": QUEUE, "TASK_SECONDS": f"{timing.task:.1f}"}
    deployment, hpa = await asyncio.to_thread(documents.load, NAME, environment)
    await stage.apply([deployment])
    half.note("applied: Deployment worker")
    await half.until(lambda moment: consumers(AT_REST, moment), timing.timeout, f"{AT_REST} consumers")
    await stage.apply([hpa])
    half.note(f"applied: HPA worker (External queue_messages, target {MESSAGES_PER_WORKER} per worker)")
    await half.until(
        lambda moment: consumers(AT_REST, moment) and moment.reading is not None,
        timing.timeout,
        f"{AT_REST} consumers and a reading of the queue",
    )
    await half.wait(timing.pause)
    await broker.publish(MESSAGES)
    times.load = half.now
    half.note(f"{MESSAGES} messages sent; each takes {timing.task:.1f} s and counts until it is acknowledged")
    half.note(FORMULA)
    await half.until(
        lambda moment: consumers(AT_PEAK, moment),
        timing.timeout,
        f"{AT_PEAK} consumers",
    )
    half.note(f"the broker counts {broker.consumers} consumers")
    await half.until(
        lambda moment: broker.check() and broker.ready == 0 == moment.reading,
        timing.timeout + MESSAGES / AT_PEAK * timing.task,
        "an empty queue",
    )
    times.over = half.now
    half.note("the queue is empty")
    await half.until(
        lambda moment: consumers(AT_REST, moment) and moment.desired == AT_REST,
        timing.timeout,
        f"{AT_REST} consumers again",
    )
    times.back = half.now
    half.note(f"back at {AT_REST} consumers")
    await half.wait(timing.pause)
