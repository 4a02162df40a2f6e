"""A Celery application of tests: its workers run as `celery -A support.celery_app worker`, or by `main` below.

Environment: `BROKER`, the URL of the broker; `GATE`, a file for which the tasks wait; `CONFIGURATION`, settings of
Celery as JSON; `TELLS_TIME`, whether tasks tell that they were sent 100 seconds ago; `QUEUES`, the JSON list of
task_queues: name, exchange, its type, routing key, and arguments.
"""

import json
import os
import sys
import time
from pathlib import Path

from celery import Celery
from celery.signals import before_task_publish
from kombu import Exchange, Queue

app = Celery("shop", broker=os.environ.get("BROKER", "memory://"))
_DEFAULTS = {
    "task_acks_late": True,
    "worker_prefetch_multiplier": 1,
    "task_ignore_result": True,
    "task_routes": {"mail.*": {"queue": "mail"}, "report": {"queue": "reports"}},
    "broker_connection_retry_on_startup": True,
}
app.conf.update(_DEFAULTS | json.loads(os.environ.get("CONFIGURATION", "{}")))
if queues := json.loads(os.environ.get("QUEUES", "[]")):
    app.conf.task_queues = [
        Queue(name, Exchange(exchange, kind), key, queue_arguments=dict(*arguments))
        for name, exchange, kind, key, *arguments in queues
    ]


if os.environ.get("TELLS_TIME"):

    @before_task_publish.connect
    def tell(properties: dict[str, object], **_: object) -> None:
        """Writes when a task is sent."""
        properties["timestamp"] = int(time.time()) - 100


@app.task(name="mail.send")
def send() -> None:
    """Works until the gate is open."""
    while not Path(os.environ["GATE"]).exists():
        time.sleep(0.05)


@app.task(name="report")
def report() -> None:
    """Works as long as `send`."""
    send()


def main() -> None:
    """Sends tasks: NAME:COUNT:PRIORITY, and so on; with :SECONDS, the time until they are due."""
    with app.connection_for_write() as connection:
        for argument in sys.argv[1:]:
            name, count, priority, *countdown = argument.split(":")
            due = {"countdown": int(countdown[0])} if countdown else {}
            for _ in range(int(count)):
                app.send_task(name, priority=int(priority), connection=connection, **due)


if __name__ == "__main__":
    main()
