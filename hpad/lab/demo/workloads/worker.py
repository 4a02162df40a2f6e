"""A worker of a task queue: consumes one message at a time, and acknowledges it after its task.

Environment: `AMQP_URL`, `QUEUE`, `TASK_SECONDS` (duration of a task), `LONG_JOBS` (a file), `POD_NAME` (the consumer
tag). A message that is a number is a long job of so many seconds; its begin and end are written to the file. After
SIGTERM, a busy worker finishes and acknowledges its message; an idle one exits at once.
"""

import os
import signal
import sys
import time
from types import FrameType

from hpad.lab.demo.workloads import amqp


class Worker:
    """Consumes messages; `stop` ends it between two messages."""

    def __init__(self, task_seconds: float) -> None:
        self.task_seconds = task_seconds
        self.busy = False
        self.stopping = False

    def stop(self, signum: int, frame: FrameType | None) -> None:
        self.stopping = True
        if not self.busy:
            raise SystemExit(0)

    def run(self, connection: amqp.Connection, queue: str) -> None:
        for delivery in connection.consume(queue, os.environ.get("POD_NAME", "")):
            self.busy = True
            self._work(delivery.body)
            connection.ack(delivery)
            self.busy = False
            if self.stopping:
                return

    def _work(self, body: bytes) -> None:
        if not body.isdigit():
            time.sleep(self.task_seconds)
            return
        note("began")
        time.sleep(int(body))
        note("finished")


def note(what: str) -> None:
    """Appends a line about the long job of this process."""
    if path := os.environ.get("LONG_JOBS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{what} {os.getpid()}\n")


def main() -> int | str:
    worker = Worker(float(os.environ["TASK_SECONDS"]))
    signal.signal(signal.SIGTERM, worker.stop)
    try:
        connection = amqp.Connection(os.environ["AMQP_URL"])
    except (OSError, amqp.AmqpError) as error:
        return f"no connection to the broker: {error}"
    try:
        worker.run(connection, os.environ["QUEUE"])
    finally:
        connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
