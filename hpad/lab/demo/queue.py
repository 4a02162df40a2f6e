"""Second half: consumers of a real RabbitMQ queue, scaled by how many messages are in it."""

import asyncio

from hpad.lab.demo import documents
from hpad.lab.demo.broker import Broker
from hpad.lab.demo.errors import DemoError
from hpad.lab.demo.half import Half, Moment, Times
from hpad.lab.demo.pace import Pace
from hpad.lab.demo.report import Result
from hpad.lab.demo.screen import Screen
from hpad.lab.demo.stage import Stage

NAME, QUEUE = "worker", "worker_tasks"
TITLE = "hpad demo · RabbitMQ consumers scaled by the depth of their queue"
MESSAGES, AT_REST, AT_PEAK = 80, 3, 16
GOAL = 5
FORMULA = f"one worker for every {GOAL} messages (AverageValue): ceil({MESSAGES} / {GOAL}) = {AT_PEAK}"


async def show(stage: Stage, screen: Screen, pace: Pace, url: str, ready: asyncio.Future[None]) -> Result:
    """Run it with the broker at the AMQP `url`, once it is `ready`; what goes wrong is the result's problem.

    Leaves no object and no process behind.
    """
    half = Half(stage, screen, NAME, TITLE, "queue", span=pace.spans[1])
    times, problem, consumers = Times(), "", 0
    try:
        await _started(half, ready)
        async with Broker(url, QUEUE, stage.clock) as broker:
            half.aside = lambda: str(broker)
            try:
                await _play(stage, half, broker, pace, url, times)
            finally:
                consumers = broker.most_consumers
    except DemoError as error:
        problem = str(error)
    await stage.delete(NAME)
    return half.result("Consumers scaled by queue depth: replicas over time", times, problem, consumers=consumers)


async def _started(half: Half, ready: asyncio.Future[None]) -> None:
    if not ready.done():
        half.note("RabbitMQ is starting")
        half.look()
    try:
        await ready
    except RuntimeError as error:
        raise DemoError(str(error)) from None


async def _play(stage: Stage, half: Half, broker: Broker, pace: Pace, url: str, times: Times) -> None:
    def consumers(wanted: int, moment: Moment) -> bool:
        return broker.check() and broker.consumers == wanted == moment.processes

    environment = {"AMQP_URL": url, "QUEUE": QUEUE, "TASK_SECONDS": f"{pace.task:.1f}"}
    deployment, hpa = await asyncio.to_thread(documents.load, NAME, environment)
    await stage.apply([deployment])
    half.note("applied: Deployment worker")
    await half.until(lambda moment: consumers(AT_REST, moment), pace.patience, f"{AT_REST} consumers were to be there")
    await stage.apply([hpa])
    half.note(f"applied: HPA worker (External queue_messages, goal {GOAL} for each worker)")
    await half.until(
        lambda moment: consumers(AT_REST, moment) and moment.reading is not None,
        pace.patience,
        f"{AT_REST} consumers and a reading of the queue were to be there",
    )
    await half.wait(pace.rest)
    await broker.publish(MESSAGES)
    times.load = half.now
    half.note(f"{MESSAGES} messages sent; each takes {pace.task:.1f} s and counts until it is acknowledged")
    half.note(FORMULA)
    await half.until(
        lambda moment: consumers(AT_PEAK, moment),
        pace.patience,
        f"the broker was to count {AT_PEAK} consumers",
    )
    half.note(f"the broker counts {broker.consumers} consumers")
    await half.until(
        lambda moment: broker.check() and broker.ready == 0 == moment.reading,
        pace.patience + MESSAGES / AT_PEAK * pace.task,
        "the queue was to be empty",
    )
    times.over = half.now
    half.note("the queue is empty")
    await half.until(
        lambda moment: consumers(AT_REST, moment) and moment.wanted == AT_REST,
        pace.patience,
        f"the workers were to be back at {AT_REST}",
    )
    times.back = half.now
    half.note(f"back at {AT_REST} consumers")
    await half.wait(pace.rest)
