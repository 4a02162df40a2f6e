"""What the workers of a Celery application say about themselves: the tasks that each holds, and how many it has begun.

Source: the remote control of Celery (celery/worker/control.py: active, reserved, scheduled, stats), and
celery/worker/request.py: Request.info.
"""

from datetime import datetime

import msgspec


class HeldTask(msgspec.Struct, frozen=True, gc=False):
    """A task that a worker holds.

    `exchange` and `routing_key` lead to its queue: without an exchange the routing key is the name of the queue.
    `began` is when the work on it began, in seconds since the epoch by the worker's clock, None for a task that waits.
    `acknowledged`: the broker counts it no more, although it is not finished.
    """

    exchange: str
    routing_key: str
    name: str
    began: float | None = None
    acknowledged: bool = False


class WorkerReport(msgspec.Struct, frozen=True):
    """The answers of one worker.

    `name` is such as "worker@POD". It works on `active` tasks; `reserved` ones wait in it for their turn, and `later`
    ones for their time (`eta`, `countdown`). `finished` is the number of tasks that it has received since its start,
    of all names (stats: total). `concurrency` is how many tasks it works on at once. `started` is when it started, in
    seconds since the epoch, None where it does not say it.
    """

    name: str
    active: tuple[HeldTask, ...] = ()
    reserved: tuple[HeldTask, ...] = ()
    later: tuple[HeldTask, ...] = ()
    finished: int = 0
    concurrency: int = 0
    started: float | None = None

    @property
    def scheduled(self) -> int:
        """The number of tasks that are not due yet."""
        return len(self.later)

    @property
    def pod(self) -> str:
        """The part of the name behind "@": the host name of the worker."""
        return self.name.partition("@")[2]


class Said(msgspec.Struct, frozen=True):
    """The reports of all workers that answered at the time `at`, and the names of workers that did not (`silent`)."""

    at: datetime
    reports: tuple[WorkerReport, ...] = ()
    silent: tuple[str, ...] = ()
