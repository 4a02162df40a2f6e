"""The workers of the demo's second half: Celery where it is installed, else a plain program of hpad."""

import asyncio
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from hpad.lab.demo import DemoError
from hpad.lab.demo.broker import Broker
from hpad.lab.demo.documents import Document

CELERY, PLAIN = "celery", "plain"
KINDS: Final = (CELERY, PLAIN)
_MODULES: Final = {
    CELERY: "hpad.lab.demo.workloads.celery_worker",
    PLAIN: "hpad.lab.demo.workloads.worker",
}


class Workers(NamedTuple):
    """Workers of a kind of KINDS, with the environment of their processes."""

    kind: str
    environment: Mapping[str, str]

    def __str__(self) -> str:
        if self.kind == PLAIN:
            return "plain Python; Celery with the extra demo"
        return f"Celery {importlib.metadata.version('celery')}"

    def fill_in(self, deployment: Document) -> None:
        """Sets the command of the Deployment's container."""
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        container["command"] = [sys.executable, "-m", _MODULES[self.kind]]

    async def send(self, broker: Broker, long: float, task: float, messages: int) -> None:
        """Sends a long job and the other messages, whose work takes `long` and `task` seconds. Raises DemoError."""
        if self.kind == PLAIN:
            bodies = (f"task {number}".encode() for number in range(1, messages + 1))
            await broker.send([str(round(long)).encode(), *bodies])
            return
        seconds = [f"{long:.1f}", *[f"{task:.1f}"] * messages]
        program = (sys.executable, "-m", _MODULES[CELERY], "send", *seconds)
        client = await asyncio.create_subprocess_exec(
            *program,
            env={**os.environ, **self.environment},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await client.communicate()
        if client.returncode:
            raise DemoError(f"the client of Celery failed: {errors.decode(errors='replace').strip()[-300:]}")


def chosen(kind: str | None) -> str:
    """Returns the kind of workers: the given one, or Celery where it is installed. Raises DemoError if it is not."""
    installed = importlib.util.find_spec("celery") is not None
    if kind == CELERY and not installed:
        raise DemoError("Celery is not installed: pip install '.[demo]' in a clone of hpad")
    return kind or (CELERY if installed else PLAIN)
