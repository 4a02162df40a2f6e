"""A real Celery application on one broker: its producers and workers as processes, and a source of hpad that counts."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from support.celery_forks import TESTS, Forks

from hpad import testing
from hpad.adapter import AdapterError, Answer, ExternalSample, Member
from hpad_adapters.celery import Celery, Settings

PASSWORD = "s3cr3t"
SETTLED = 120.0
ROUTES = {"mail.*": "mail", "report": "reports"}


class Application:
    """The application on one broker: `url` for Celery, `options` for a source of hpad.

    `configuration` is that of Celery, beside `queues` of task_queues: name, exchange, its type, routing key, arguments.
    """

    def __init__(
        self, url: str, options: dict[str, Any], folder: Path, forks: Forks, *,
        configuration: dict[str, Any] | None = None, queues: Sequence[Sequence[Any]] = (),
    ) -> None:  # fmt: skip
        self.broker_url = url
        self.options = {**options, "queues": ["celery", "mail", "reports"], "routes": ROUTES}
        self.gate = folder / "gate"
        self._environment = {
            **os.environ,
            "BROKER": url,
            "GATE": str(self.gate),
            "PYTHONPATH": str(TESTS),
        }
        self.configure(**configuration or {})
        self.declare(queues)
        self._log = folder / "worker.log"
        self._forks = forks

    def configure(self, **configuration: Any) -> None:
        """Sets the configuration of Celery for producers and workers that start from now on."""
        self._environment["CONFIGURATION"] = json.dumps(configuration)

    def tell_time(self) -> None:
        """Lets tasks that are sent from now on tell that they were sent 100 seconds ago."""
        self._environment["TELLS_TIME"] = "yes"

    def declare(self, queues: Sequence[Sequence[Any]]) -> None:
        """Sets the task_queues of producers and workers that start from now on."""
        self._environment["QUEUES"] = json.dumps(queues)

    async def send(self, *tasks: str) -> None:
        """Sends tasks, each NAME:COUNT:PRIORITY, or NAME:COUNT:PRIORITY:SECONDS until they are due."""
        await asyncio.to_thread(_send, self._environment, tasks)

    @contextlib.asynccontextmanager
    async def worker(self, queues: str, name: str = "worker@pod-1") -> AsyncIterator[None]:
        """A worker that works on two tasks at once."""
        command = ["-A", "support.celery_app", "worker", "-P", "threads", "-c", "2", "-n", name, "-Q", queues]
        pid = await asyncio.to_thread(self._forks.start, command, self._environment, self._log)
        ended = os.pidfd_open(pid)
        try:
            yield
        finally:
            self.gate.touch()
            signal.pidfd_send_signal(ended, signal.SIGTERM)
            await _readable(ended)
            os.close(ended)

    async def ask(
        self, *asked: tuple[str, str | None], members: tuple[Member, ...] | None = None, **changed: Any
    ) -> list[Any]:
        """Returns the answers to (name, selector), for pods if there are `members`, by the contract of adapters."""
        source = msgspec.convert(self.options | changed, Settings)
        queries = [testing.external(name, selector) for name, selector in asked]
        if members is not None:
            queries = [msgspec.structs.replace(query, members=members) for query in queries]
        async with testing.context("celery") as context:
            return list(await testing.check_adapter(Celery(source, context), queries))

    async def read(self, *asked: tuple[str, str | None]) -> list[Answer]:
        """Returns the answers to (name, selector) of one call: `ask` repeats them in many ways."""
        async with testing.context("celery") as context:
            adapter = Celery(msgspec.convert(self.options, Settings), context)
            try:
                return list(await adapter.answer([testing.external(name, selector) for name, selector in asked]))
            finally:
                await adapter.aclose()

    async def until(self, right: Callable[[list[int]], bool], *asked: tuple[str, str | None]) -> list[int]:
        """Asks again until the values fulfil the condition; -1 stands for an error."""
        queries = [testing.external(name, selector) for name, selector in asked]
        async with asyncio.timeout(SETTLED), testing.context("celery") as context:
            adapter = Celery(msgspec.convert(self.options, Settings), context)
            while True:
                found = [values(answer) for answer in await adapter.answer(queries)]
                if right(found):
                    await adapter.aclose()
                    return found
                await asyncio.sleep(0.1)


def _send(environment: Mapping[str, str], tasks: Sequence[str]) -> None:
    from support import celery_app  # here: it imports Celery, which takes long

    celery_app.send(environment, tasks)


async def _readable(descriptor: int) -> None:
    """Waits until there is something to read; a pidfd can be read once its process has ended."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def values(answer: Answer) -> int:
    """Returns the total of a sample, -1 for an error."""
    return sum(answer.values) // 1000 if isinstance(answer, ExternalSample) else -1


def message(answer: Answer) -> str:
    assert isinstance(answer, AdapterError), answer
    assert PASSWORD not in answer.message
    return answer.message
