"""A Celery worker of the demo's queue, and the client that sends it tasks (`send SECONDS ...`).

Environment: `AMQP_URL`, `QUEUE`, `LONG_JOBS` (a file), `POD_NAME` (begins the consumer tag). A task sleeps for its
seconds; the first one sent is a long job, whose begin and end are written to the file. After SIGTERM a worker finishes
and acknowledges its task.
"""

import functools
import os
import sys
import time
from typing import Any, Final

from celery import Celery
from celery.app.amqp import AMQP
from kombu import Consumer, Exchange, Queue

from hpad.lab.demo.workloads.worker import note

WORK, LONG_JOB = "demo.work", "demo.long_job"
_QUIET: Final = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=warning")
_OPTIONS: Final = ("--pool=solo", "--concurrency=1", *_QUIET)
"""Without a concurrency a worker fetches a task for each core, though it works on one at a time."""


class TaggedAmqp(AMQP):  # type: ignore[misc]
    """Begins consumer tags with the name of the pod: hpad finds its consumers by it where pods share an address."""

    Consumer = functools.partial(Consumer, tag_prefix=f"{os.environ.get('POD_NAME', '')}.")


def application(url: str, queue: str) -> Any:
    """Returns the application: one task at a time, acknowledged after the work, in a queue that exists already."""
    app = Celery("demo", broker=url, amqp=TaggedAmqp)
    app.conf.update(
        task_queues=[Queue(queue, Exchange(""), routing_key=queue, no_declare=True)],
        task_default_queue=queue,
        task_acks_late=True,
        task_ignore_result=True,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_heartbeat=0,
    )
    app.task(name=WORK)(work)
    app.task(name=LONG_JOB)(long_job)
    return app


def work(seconds: float) -> None:
    """Works on a task."""
    time.sleep(seconds)


def long_job(seconds: float) -> None:
    """Works on the long job, and notes its begin and its end."""
    note("began")
    time.sleep(seconds)
    note("finished")


def send(app: Any, seconds: list[float]) -> None:
    """Sends the long job, which is the first one, and the other tasks."""
    with app.connection_for_write() as connection:
        for number, each in enumerate(seconds):
            app.send_task(WORK if number else LONG_JOB, (each,), connection=connection)


def main() -> int:
    app = application(os.environ["AMQP_URL"], os.environ["QUEUE"])
    if sys.argv[1:2] == ["send"]:
        send(app, [float(each) for each in sys.argv[2:]])
        return 0
    app.worker_main(["worker", *_OPTIONS])
    return 0


if __name__ == "__main__":
    sys.exit(main())
