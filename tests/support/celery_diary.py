"""A Celery application whose workers write a diary: when each is ready, begins and ends a task, and shuts down.

Environment: `BROKER`, the URL of the broker; `CONFIGURATION`, settings of Celery as JSON; `DIARY`, a file; `POD_NAME`.
"""

import json
import os
import time

from celery import Celery, signals

app = Celery("diary", broker=os.environ.get("BROKER", "memory://"))
app.conf.update(
    {"task_ignore_result": True, "task_default_queue": "mail", "broker_connection_retry_on_startup": True}
    | json.loads(os.environ.get("CONFIGURATION", "{}"))
)


def note(what: str, task: int = -1) -> None:
    """Appends a line, at once for all processes."""
    line = json.dumps({"at": time.time(), "pod": os.environ.get("POD_NAME", ""), "what": what, "task": task})
    file = os.open(os.environ["DIARY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{line}\n".encode())
    os.close(file)


@app.task(name="work")
def work(number: int, seconds: float) -> None:
    """Works for some seconds."""
    note("begin", number)
    time.sleep(seconds)
    note("end", number)


@signals.worker_ready.connect
def ready(**_: object) -> None:
    note("ready")


@signals.worker_shutting_down.connect
def ends(**_: object) -> None:
    note("shutdown")
