"""A Celery application of tests: its workers run as `celery -A support.celery_app worker`; `send` sends tasks to them.

Environment: `BROKER`, the URL of the broker; `GATE`, a file for which the tasks wait; `CONFIGURATION`, settings of
Celery as JSON; `TELLS_TIME`, whether tasks tell that they were sent 100 seconds ago; `QUEUES`, the JSON list of
task_queues: name, exchange, its type, routing key, and arguments.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from celery import Celery
from celery.signals import before_task_publish
from kombu import Exchange, Queue

_DEFAULTS = {
    "task_acks_late": True,
    "worker_prefetch_multiplier": 1,
    "task_ignore_result": True,
    "task_routes": {"mail.*": {"queue": "mail"}, "report": {"queue": "reports"}},
    "broker_connection_retry_on_startup": True,
}


def application(environment: Mapping[str, str]) -> Celery:
    """Returns the application that such an environment describes."""
    made = Celery("shop", broker=environment.get("BROKER", "memory://"), set_as_current=False)
    made.conf.update(_DEFAULTS | json.loads(environment.get("CONFIGURATION", "{}")))
    if queues := json.loads(environment.get("QUEUES", "[]")):
        made.conf.task_queues = [
            Queue(name, Exchange(exchange, kind), key, queue_arguments=dict(*arguments))
            for name, exchange, kind, key, *arguments in queues
        ]
    return made


app = application(os.environ)


@app.task(name="mail.send")
def mail() -> None:
    """Works until the gate is open."""
    while not Path(os.environ["GATE"]).exists():
        time.sleep(0.05)


@app.task(name="report")
def report() -> None:
    """Works as long as `mail`."""
    mail()


def send(environment: Mapping[str, str], tasks: Sequence[str]) -> None:
    """Sends tasks: NAME:COUNT:PRIORITY, and so on; with :SECONDS, the time until they are due. Blocks."""
    producer = application(environment)
    with _telling("TELLS_TIME" in environment), producer.connection_for_write() as connection:
        for task in tasks:
            name, count, priority, *countdown = task.split(":")
            due = {"countdown": int(countdown[0])} if countdown else {}
            for _ in range(int(count)):
                producer.send_task(name, priority=int(priority), connection=connection, **due)


@contextlib.contextmanager
def _telling(tells: bool) -> Iterator[None]:
    """Writes meanwhile when a task is sent, as the documentation of hpad says."""

    def tell(properties: dict[str, object], **_: object) -> None:
        properties["timestamp"] = int(time.time()) - 100

    if tells:
        before_task_publish.connect(tell)
    try:
        yield
    finally:
        before_task_publish.disconnect(tell)
