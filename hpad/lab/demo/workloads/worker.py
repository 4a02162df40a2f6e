"""A worker of a task queue: consumes one message at a time, and acknowledges it after its task.

Environment: `AMQP_URL`, `QUEUE`, `TASK_SECONDS` (duration of one task). After SIGTERM, a busy worker finishes and
acknowledges its message; an idle one exits at once.
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
        for delivery in connection.consume(queue):
            self.busy = True
            time.sleep(self.task_seconds)
            connection.ack(delivery)
            self.busy = False
            if self.stopping:
                return


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
