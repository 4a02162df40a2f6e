"""The contract of the readers of RabbitMQ: what each says about the work of `rabbit_work`."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from support.brokers import PATIENT
from support.rabbit_work import DONE, PODS, PUBLISHED, RabbitWork, queue_of

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample, PodSample, Query
from hpad_adapters import rabbitmq

KINDS = ("classic", "quorum")
PATIENCE = 150.0
WINDOW = "10s"
METRICS = {mode: rabbitmq.Metric(mode=mode) for mode in ("publish_rate", "deliver_rate", "ack_rate", "drain_time")}
METRICS |= {mode: rabbitmq.Metric(mode=mode) for mode in ("consumers", "utilisation")}

NO_AMQP = "AMQP reports ready messages and consumers only"
NO_TIMESTAMP = "only classic queues report it"
NO_CAPACITY = "of a quorum queue RabbitMQ reports the same capacity of consumers, busy or idle"
NO_STATISTICS = "keeps no statistics (rates_mode, disable_metrics_collector)"
NO_PRIORITIES = "the plugin rabbitmq_prometheus does not tell which queues have priorities"


class Place(NamedTuple):
    """A broker: where its nodes are, and whether it keeps statistics."""

    urls: list[str]
    metrics_urls: list[str]
    amqp_urls: list[str]
    statistics: bool
    user: str = "hpad"
    password: str = "hpad-lab"


Expected = Callable[[RabbitWork, str], tuple[float, float]] | str
"""The least and the most that a value may be, or a part of the error."""


def exactly(value: float) -> Expected:
    return lambda *_: (value, value)


def about(value: float, part: float = 0.2) -> Expected:
    return lambda *_: (value * (1 - part), value * (1 + part))


def age(work: RabbitWork, _: str) -> tuple[float, float]:
    passed = time.time() - work.sent
    return passed - 3, passed + 3


def drain_time(work: RabbitWork, kind: str) -> tuple[float, float]:
    left = (work.published[kind] - work.done[kind]) / DONE
    return left * 0.75 - 2, left * 1.25 + 2


GOAL = "goal=12s,startup=2s,service_time=4s,prefetch=3"
# By hand: 9 wait for a worker, and are to be begun within 10 s of their arrival, or 5 s if that is past; at 4 s each
# this takes 9 / 10 * 4 to 9 / 5 * 4 workers. The two that were acknowledged at once may make the time shorter. A reader
# that has watched for the goal sees that those in work take longer: then the present one, and one per ready message.
NEEDED = (2.5, 8.0)

CELLS: Mapping[tuple[str, str], Expected] = {
    ("queue_messages", "still"): exactly(10),
    ("queue_messages_ready", "still"): exactly(7),
    ("queue_messages_unacknowledged", "still"): exactly(3),
    ("consumers", "still"): exactly(1),
    ("consumers", "held"): exactly(2),
    ("queue_head_age", "still"): age,
    ("queue_workers_to_clear", "still"): lambda *_: NEEDED,
    ("queue_time_to_clear", "still"): lambda *_: (12 * NEEDED[0], 12 * NEEDED[1]),
    # The newest sample of a length is a copy for up to five seconds.
    ("queue_growth", "flow"): lambda *_: (0.45 * (PUBLISHED - DONE), 1.2 * (PUBLISHED - DONE)),
    ("publish_rate", "flow"): about(PUBLISHED),
    ("deliver_rate", "flow"): about(DONE),
    ("ack_rate", "flow"): about(DONE),
    ("drain_time", "flow"): drain_time,
    ("utilisation", "flow"): lambda *_: (0.9, 1.0),
}
"""Metric and queue -> its value."""

READERS = ("management", "auto", "prometheus", "amqp")

BY_POD = {"pod-a": 1, "pod-b": 0, "pod-c": 0}
BUSY = 1


def expected(reader: str, kind: str, place: Place) -> dict[tuple[str, str], Expected]:
    """Returns what a reader is to say about a type of queue."""
    found = dict(CELLS)
    if kind == "quorum":
        found["queue_head_age", "still"] = NO_TIMESTAMP
        found["utilisation", "flow"] = NO_CAPACITY
    if reader == "management" and not place.statistics:
        counted = {"queue_messages", "queue_messages_ready", "queue_messages_unacknowledged"}
        found |= {cell: NO_STATISTICS for cell in found if cell[0] not in counted}
    if reader == "prometheus":
        found["queue_head_age", "still"] = NO_PRIORITIES
    if reader == "amqp":
        known = {"queue_messages_ready", "consumers"}
        found |= {cell: NO_AMQP for cell in found if cell[0] not in known}
    return found


def adapter(reader: str, place: Place, context: Context) -> rabbitmq.RabbitMQ:
    options: dict[str, Any] = {"url": place.urls}
    if reader == "amqp":
        options = {"url": place.amqp_urls}
    if reader == "prometheus":
        options = {"url": place.metrics_urls}
    if reader == "auto":
        options["metrics_url"] = place.metrics_urls
    options |= {"username": place.user, "password": place.password, **PATIENT}
    metrics = METRICS if reader != "amqp" else {"consumers": METRICS["consumers"]}
    return rabbitmq.RabbitMQ(rabbitmq.Settings(source=reader, metrics=metrics, rate_window=WINDOW, **options), context)


def query(cell: tuple[str, str], kind: str, reader: str) -> Query:
    name, what = cell
    labels = [f"queue={queue_of(what, kind)}"]
    labels += [GOAL] if name.endswith("_to_clear") else []
    labels += [f"mode={name}"] if reader == "amqp" and name in METRICS and name != "consumers" else []
    return testing.external(name, ",".join(labels))


async def check(reader: str, kind: str, place: Place, work: RabbitWork, context: Context) -> None:
    """Asks until all answers are right at once, as new statistics take some seconds."""
    cells = expected(reader, kind, place)
    source = adapter(reader, place, context)
    queries = [query(cell, kind, reader) for cell in cells]
    by_pod = testing.by_pod(testing.external("queue_messages", f"queue={queue_of('held', kind)}"), PODS)
    wrong: dict[Any, Any] = {}
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                *answers, held = await source.answer([*queries, by_pod])
                wrong = {
                    cell: answer
                    for cell, answer in zip(cells, answers, strict=True)
                    if not right(answer, cells[cell], work, kind)
                }
                if not right_by_pod(held, reader, place):
                    wrong["by pod"] = held
                if not wrong:
                    return
                await asyncio.sleep(1)
    except TimeoutError:
        pytest.fail(f"{reader}, {kind}: " + "\n".join(f"{cell}: {answer}" for cell, answer in wrong.items()))
    finally:
        await source.aclose()


def right(answer: Answer, wanted: Expected, work: RabbitWork, kind: str) -> bool:
    if isinstance(wanted, str):
        return isinstance(answer, AdapterError) and wanted in answer.message
    if not isinstance(answer, ExternalSample):
        return False
    least, most = wanted(work, kind)
    return least <= sum(answer.values) / 1000 <= most


def right_by_pod(answer: Answer, reader: str, place: Place) -> bool:
    refusal = "keeps no statistics" if reader == "management" and not place.statistics else ""
    refusal = "AMQP does not say what consumers hold" if reader == "amqp" else refusal
    if refusal:
        return isinstance(answer, AdapterError) and refusal in answer.message
    if not isinstance(answer, PodSample):
        return False
    held = {pod: value.value // 1000 for pod, value in answer.values.items()}
    if reader == "prometheus" or not place.statistics:  # one pod is busy, and it is not known which
        return answer.most_busy == BUSY and not any(held.values()) and "pod-a" not in held
    return held == BY_POD
